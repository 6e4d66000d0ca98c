# The flags of every target of ours, as one interface library, and one helper that declares a library.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_VERIFY_INTERFACE_HEADER_SETS ON)  # target all_verify_interface_header_sets

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_library(weightless_flags INTERFACE)
target_compile_options(weightless_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                                  -Werror)
target_include_directories(weightless_flags INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
if(WEIGHTLESS_SANITIZE)
  target_compile_options(weightless_flags INTERFACE -fsanitize=${WEIGHTLESS_SANITIZE}
                                                    -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(weightless_flags INTERFACE -fsanitize=${WEIGHTLESS_SANITIZE})
  # GCC 12 sees uninitialised values in its own <regex> once the sanitizers' checks are in.
  target_compile_options(weightless_flags
                         INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
if(WEIGHTLESS_SANITIZE MATCHES "thread")
  add_library(weightless_tsan_runtime OBJECT ${PROJECT_SOURCE_DIR}/tests/support/tsan_runtime.cc)
  target_link_libraries(weightless_flags INTERFACE $<TARGET_OBJECTS:weightless_tsan_runtime>
                                                   absl::synchronization ${CMAKE_DL_LIBS})
endif()

# weightless_library(NAME SOURCES a.cc ... [HEADERS a.h ...] [PUBLIC lib ...] [PRIVATE lib ...])
# One library of ours. Headers are declared so that each can be compiled alone.
function(weightless_library NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;HEADERS;PUBLIC;PRIVATE" ${ARGN})
  add_library(${NAME} STATIC ${ARG_SOURCES})
  target_sources(${NAME} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES
                                ${ARG_HEADERS})
  target_link_libraries(${NAME} PUBLIC weightless_flags ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE})
endfunction()

# weightless_test(NAME SOURCES a_test.cc ... LIBS lib ... [LABEL unit|integration|lint|fuzz|gpu]
#                 [TIMEOUT seconds])
# One GoogleTest binary; each TEST is its own ctest entry.
function(weightless_test NAME)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE weightless_flags ${ARG_LIBS} GTest::gmock GTest::gtest
                                        GTest::gtest_main)
  if(WEIGHTLESS_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
    target_compile_options(${NAME} PRIVATE -O0)  # optimising the checks in tests is half of the build
  endif()
  target_compile_definitions(${NAME} PRIVATE WEIGHTLESS_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${NAME} DISCOVERY_MODE PRE_TEST
                       PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()

# weightless_python_test(NAME [TIMEOUT seconds])
# Runs NAME.py of the current folder against the built programs (WEIGHTLESS_BIN_DIR), with the
# environment of scripts/test-venv where it could be made. Exit code 77 is a skip. With
# WEIGHTLESS_SANITIZE a test holds no ratio of speeds.
function(weightless_python_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT" "" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(WEIGHTLESS_SANITIZE)
    math(EXPR ARG_TIMEOUT "5 * ${ARG_TIMEOUT}")
  endif()
  add_test(NAME ${NAME}.py COMMAND ${PROJECT_SOURCE_DIR}/scripts/test-python
                                   ${CMAKE_CURRENT_SOURCE_DIR}/${NAME}.py)
  set_tests_properties(
    ${NAME}.py PROPERTIES LABELS integration TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77
                          ENVIRONMENT
                          "WEIGHTLESS_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY};WEIGHTLESS_SANITIZE=${WEIGHTLESS_SANITIZE}")
endfunction()
