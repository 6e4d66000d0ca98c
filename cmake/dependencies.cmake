# Every dependency comes from the distribution's packages (scripts/setup); nothing is downloaded here.

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS json)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(CLI11 REQUIRED)
find_package(yaml-cpp REQUIRED)
if(NOT TARGET yaml-cpp::yaml-cpp)  # before 0.8 the target has no namespace
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()
find_package(OpenSSL REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
if(BUILD_TESTING OR NOT DEFINED BUILD_TESTING)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
