# SPDX-License-Identifier: Apache-2.0
# Install rules and the CMake package, in one place. An installation has the layout of the build
# folder: bin/, lib/ and plugins/ side by side, each found relative to the others.
#
#   find_package(ctxbroker)   gives ctxbroker::broker, ctxbroker::boost_log, ctxbroker::plugin_sdk
#                             and ctxb_add_plugin
foreach(target ctxbroker ctxbroker_boost_log ctxbroker_software_device sample_host)
  if(NOT TARGET ${target})
    message(STATUS "No install rules: ${target} is not built here.")
    return()
  endif()
endforeach()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(CTXB_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ctxbroker)

# Plug-in authors can have the SDK alone, so its target knows only where its headers lie now; an
# installation has them in include/.
get_target_property(_sdk_headers ctxbroker_plugin_sdk INTERFACE_INCLUDE_DIRECTORIES)
set_target_properties(ctxbroker_plugin_sdk PROPERTIES
  EXPORT_NAME plugin_sdk
  INTERFACE_INCLUDE_DIRECTORIES
    "$<BUILD_INTERFACE:${_sdk_headers}>;$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
set_target_properties(ctxbroker PROPERTIES EXPORT_NAME broker)
set_target_properties(ctxbroker_boost_log PROPERTIES EXPORT_NAME boost_log)

install(TARGETS ctxbroker ctxbroker_boost_log ctxbroker_plugin_sdk EXPORT ctxbroker-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ctxbroker_software_device LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
# Apart from lib/, and under a name that ldconfig passes over: its SONAME is the driver's.
if(TARGET ctxbroker_gate)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ctxbroker
          DESTINATION ${CMAKE_INSTALL_LIBDIR} USE_SOURCE_PERMISSIONS)
  set_target_properties(ctxbroker_gate_link PROPERTIES EXPORT_NAME gate_link)
  install(TARGETS ctxbroker_gate_link EXPORT ctxbroker-targets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/ctxbroker)
endif()
install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/software_device
        DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS sample_host RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${CTXB_SAMPLE_PLUGINS} LIBRARY DESTINATION plugins)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/broker/include/ctxbroker
                  ${CTXB_GENERATED_INCLUDE_DIR}/ctxbroker
                  ${CMAKE_SOURCE_DIR}/broker/software_device/include/ctxbroker
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} PATTERN "*.in" EXCLUDE)

# For the editors of those who write policy files, graph files and presets.
install(FILES ${CMAKE_SOURCE_DIR}/docs/policy.schema.json ${CMAKE_SOURCE_DIR}/docs/graph.schema.json
        ${CMAKE_SOURCE_DIR}/docs/preset.schema.json DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT ctxbroker-targets NAMESPACE ctxbroker:: DESTINATION ${CTXB_PACKAGE_DIR})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ctxbroker-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/ctxbroker-config.cmake
              ${CMAKE_BINARY_DIR}/ctxbroker-config-version.cmake
        DESTINATION ${CTXB_PACKAGE_DIR})
