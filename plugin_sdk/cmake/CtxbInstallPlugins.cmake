# SPDX-License-Identifier: Apache-2.0
#   ctxb_install_plugins(NAME ... DESTINATION lib/ctxbroker/plugins [COMPONENT component])
#
# Installs libraries with their manifests. Without its manifest, a host has to load a library to know
# what is in it, and does not do that with --safe. Plug-ins that were left out (OPTIONAL) are passed
# over.
function(ctxb_install_plugins)
  cmake_parse_arguments(arg "" "DESTINATION;COMPONENT" "" ${ARGN})
  if(NOT arg_DESTINATION OR NOT arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "ctxb_install_plugins: write ctxb_install_plugins(NAME ... DESTINATION "
                        "lib/ctxbroker/plugins), with the names that ctxb_add_plugin was given")
  endif()
  set(component)
  if(arg_COMPONENT)
    set(component COMPONENT ${arg_COMPONENT})
  endif()
  get_property(left_out GLOBAL PROPERTY CTXB_LEFT_OUT_PLUGINS)
  foreach(name ${arg_UNPARSED_ARGUMENTS})
    if(name IN_LIST left_out)
      continue()
    endif()
    if(NOT TARGET ${name})
      message(FATAL_ERROR "ctxb_install_plugins: there is no plug-in ${name}. Write ctxb_add_plugin("
                          "${name} ...) before, or take the name out.")
    endif()
    install(TARGETS ${name} LIBRARY DESTINATION ${arg_DESTINATION} ${component})
    # It is not there if the library cannot be loaded on this machine.
    install(FILES $<TARGET_FILE_DIR:${name}>/$<TARGET_FILE_BASE_NAME:${name}>.ctxb.json
            DESTINATION ${arg_DESTINATION} ${component} OPTIONAL)
  endforeach()
endfunction()
