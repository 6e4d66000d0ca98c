# weightless_fuzzer(NAME SOURCES fuzz_x.cc ... LIBS lib ... [CORPUS dir] [MAX_LEN bytes])
# One fuzz target: SOURCES define LLVMFuzzerTestOneInput, CORPUS (default corpus/NAME) holds small
# valid inputs. With `fuzzer-no-link` among WEIGHTLESS_SANITIZE (preset fuzz, clang) it is a libFuzzer
# binary; with any other compiler tests/fuzz/mutation_driver.cc runs it over mutations of the corpus,
# without coverage feedback. Both take the same arguments. ctest runs a fixed number of inputs; target
# run_fuzzers runs each for WEIGHTLESS_FUZZ_SECONDS from the environment, or 60.
function(weightless_fuzzer NAME)
  cmake_parse_arguments(ARG "" "CORPUS;MAX_LEN" "SOURCES;LIBS" ${ARGN})
  if(NOT ARG_CORPUS)
    set(ARG_CORPUS corpus/${NAME})
  endif()
  if(NOT ARG_MAX_LEN)
    set(ARG_MAX_LEN 65536)
  endif()
  cmake_path(ABSOLUTE_PATH ARG_CORPUS BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
  add_executable(${NAME} ${ARG_SOURCES})
  target_link_libraries(${NAME} PRIVATE weightless_flags ${ARG_LIBS})
  if(WEIGHTLESS_SANITIZE MATCHES "fuzzer")
    target_link_options(${NAME} PRIVATE -fsanitize=fuzzer)
  else()
    target_sources(${NAME} PRIVATE ${PROJECT_SOURCE_DIR}/tests/fuzz/mutation_driver.cc)
  endif()
  # libFuzzer keeps what it finds in the first folder.
  set(found ${CMAKE_CURRENT_BINARY_DIR}/${NAME}.found)
  file(MAKE_DIRECTORY ${found})
  set(arguments -seed=1 -max_len=${ARG_MAX_LEN} ${found} ${ARG_CORPUS})
  add_test(NAME fuzz.${NAME} COMMAND ${NAME} -runs=3000 ${arguments})
  set_tests_properties(fuzz.${NAME} PROPERTIES LABELS fuzz TIMEOUT 120)
  if(NOT TARGET fuzzers)
    add_custom_target(fuzzers COMMENT "All fuzz targets are built")
    add_custom_target(run_fuzzers COMMENT "All fuzz targets ran")
  endif()
  add_dependencies(fuzzers ${NAME})
  add_custom_target(
    run_${NAME}
    COMMAND sh -c "exec \"$@\" -max_total_time=\${WEIGHTLESS_FUZZ_SECONDS:-60}" sh
            $<TARGET_FILE:${NAME}> ${arguments}
    VERBATIM USES_TERMINAL
    COMMENT "Fuzzing with ${NAME}")
  add_dependencies(run_fuzzers run_${NAME})
endfunction()
