# What `cmake --install` lays out: a folder that runs anywhere with a glibc as new as this machine's.
#   bin/  the programs        lib/  every shared library they need except glibc and a GPU's driver
#   share/weightless/models/  the built-in model

set(BUNDLE_PROGRAMS weightless weightless-router weightless-worker loadtest)
set_target_properties(${BUNDLE_PROGRAMS} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
foreach(PROGRAM ${BUNDLE_PROGRAMS})
  # DT_RPATH, unlike DT_RUNPATH, also finds what the libraries themselves need.
  target_link_options(${PROGRAM} PRIVATE -Wl,--disable-new-dtags)
endforeach()

install(
  TARGETS ${BUNDLE_PROGRAMS}
  RUNTIME_DEPENDENCIES
    PRE_EXCLUDE_REGEXES "^lib(c|m|dl|rt|pthread|resolv|nss_.*|cuda|nvidia-ml)\\.so" "^ld-linux"
  RUNTIME DESTINATION bin
  LIBRARY DESTINATION lib)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/tiny-gemma3 DESTINATION share/weightless/models)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/NOTICE DESTINATION .)
