# SPDX-License-Identifier: Apache-2.0
# Target demo: all that an installation has (CtxbInstall.cmake), so that `tools/demo` is enough before
# `cmake --install`; no tests.
# Also gives ctxb_modules_below(OUT FOLDER): the plug-in targets made in a folder and below it.
function(ctxb_modules_below out folder)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(below DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  set(modules)
  foreach(target ${targets})
    get_target_property(type ${target} TYPE)
    if(type STREQUAL "MODULE_LIBRARY")
      list(APPEND modules ${target})
    endif()
  endforeach()
  foreach(subfolder ${below})
    # misbehaving/ holds plug-ins that break the contract on purpose, for the tests.
    if(NOT subfolder MATCHES "/misbehaving$")
      ctxb_modules_below(more ${subfolder})
      list(APPEND modules ${more})
    endif()
  endforeach()
  set(${out} ${modules} PARENT_SCOPE)
endfunction()

ctxb_modules_below(CTXB_SAMPLE_PLUGINS ${CMAKE_SOURCE_DIR}/sample_plugins)
add_custom_target(demo)
foreach(target sample_host ctxb_scan ctxb_run ctxb-validate ctxbroker_worker
               ctxbroker_boost_log ctxbroker_gate_link
               ctxbroker_software_device ${CTXB_SAMPLE_PLUGINS})
  if(TARGET ${target})
    add_dependencies(demo ${target})
  endif()
endforeach()
