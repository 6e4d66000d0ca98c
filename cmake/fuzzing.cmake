# weightless_fuzzer(NAME SOURCES fuzz_x.cc ... LIBS lib ...)
# One fuzz target: SOURCES define LLVMFuzzerTestOneInput; corpus/NAME, without `_fuzzer`, holds small
# valid inputs. With `fuzzer-no-link` among WEIGHTLESS_SANITIZE (preset fuzz, clang) it is a libFuzzer
# binary; with any other compiler tests/fuzz/mutation_driver.cc runs it over mutations of the corpus,
# without coverage feedback. Both take the same arguments. ctest runs a fixed number of inputs;
# scripts/fuzz runs every target for a time.
function(weightless_fuzzer NAME)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  string(REGEX REPLACE "_fuzzer$" "" corpus ${NAME})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE weightless_flags ${ARG_LIBS})
  if(WEIGHTLESS_SANITIZE MATCHES "fuzzer")
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/mutation_driver.cc)
  endif()
  add_test(NAME fuzz.${NAME} COMMAND ${NAME} -runs=3000 -seed=1 -max_len=65536
                                     ${CMAKE_CURRENT_SOURCE_DIR}/corpus/${corpus})
  set_tests_properties(fuzz.${NAME} PROPERTIES LABELS fuzz TIMEOUT 120)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers COMMENT "All fuzz targets are built")
  endif()
  add_dependencies(fuzzers ${NAME})
endfunction()
