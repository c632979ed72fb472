# SPDX-License-Identifier: Apache-2.0
# Install rules, the CMake package and the pkg-config files, in one place. An installation has the
# usual layout (GNUInstallDirs), and can be moved: everything finds the rest relative to itself.
#
# Components, for `cmake --install BUILD --component NAME`; CtxbPackages.cmake makes packages of them:
#   runtime          libctxbroker, the gate, ctxb-scan and ctxb-run
#   boost_log        libctxbroker_boost_log
#   software_device  the driver that runs PTX on the CPU
#   sdk              what plug-in authors need: headers and ctxb_add_plugin
#   dev              what host authors need besides: headers, CMake package, pkg-config file
#   tools            sample_host, ctxb-validate
#   samples          sample plug-ins
#   samples_runtime  sample plug-ins that hold or need NVIDIA's runtime library
#   doc              licence, list of changes, schemas, examples
foreach(target ctxbroker ctxbroker_boost_log ctxbroker_software_device sample_host)
  if(NOT TARGET ${target})
    message(STATUS "No install rules: ${target} is not built here.")
    return()
  endif()
endforeach()
include(CMakePackageConfigHelpers)
set(CTXB_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ctxbroker)

# Each component of find_package(ctxbroker) has targets of its own; ctxbroker-config.cmake has the list.
set_target_properties(ctxbroker PROPERTIES EXPORT_NAME broker)
set_target_properties(ctxbroker_boost_log PROPERTIES EXPORT_NAME boost_log)
set_target_properties(ctxbroker_software_device PROPERTIES EXPORT_NAME software_device)
target_include_directories(ctxbroker_software_device INTERFACE
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

install(TARGETS ctxbroker EXPORT ctxbroker-broker-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT dev)
install(TARGETS ctxbroker_boost_log EXPORT ctxbroker-boost_log-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT boost_log NAMELINK_COMPONENT dev)
install(TARGETS ctxbroker_software_device EXPORT ctxbroker-software_device-targets
        LIBRARY DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT software_device)
install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ctxbroker/software_device
        DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT software_device)
set(_components broker boost_log software_device)
# Apart from lib/, and under a name that ldconfig passes over: its SONAME is the driver's.
if(TARGET ctxbroker_gate)
  install(TARGETS ctxbroker_gate LIBRARY DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT runtime)
  install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ctxbroker/gate
          DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT runtime)
  set_target_properties(ctxbroker_gate_link PROPERTIES EXPORT_NAME gate_link)
  install(TARGETS ctxbroker_gate_link EXPORT ctxbroker-broker-targets
          LIBRARY DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT dev)
  install(FILES ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ctxbroker/run_paths.rsp
          DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT dev)
  install(TARGETS ctxb_run RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
  install(TARGETS ctxbroker_launch ctxbroker_run
          LIBRARY DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT runtime)
endif()

install(TARGETS ctxbroker_worker
        RUNTIME DESTINATION ${CTXB_INSTALL_PRIVATE_DIR} COMPONENT runtime)
install(TARGETS sample_host ctxb-validate
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
# A host needs it beside the broker's library, to look for plug-ins.
install(TARGETS ctxb_scan RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
foreach(plugin ${CTXB_SAMPLE_PLUGINS})
  get_target_property(_runtime ${plugin} INSTALL_RPATH_USE_LINK_PATH)
  set(_component samples)
  if(_runtime)  # its run path leads to the toolkit
    set(_component samples_runtime)
  endif()
  install(TARGETS ${plugin} LIBRARY DESTINATION ${CTXB_INSTALL_PLUGIN_DIR} COMPONENT ${_component})
  install(FILES ${CTXB_PLUGIN_OUTPUT_DIRECTORY}/${plugin}.ctxb.json
          DESTINATION ${CTXB_INSTALL_PLUGIN_DIR} COMPONENT ${_component} OPTIONAL)
endforeach()

install(DIRECTORY ${CMAKE_SOURCE_DIR}/broker/include/ctxbroker
                  ${CTXB_GENERATED_INCLUDE_DIR}/ctxbroker
                  ${CMAKE_SOURCE_DIR}/broker/software_device/include/ctxbroker
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev PATTERN "*.in" EXCLUDE)
foreach(_component ${_components})
  install(EXPORT ctxbroker-${_component}-targets NAMESPACE ctxbroker::
          DESTINATION ${CTXB_PACKAGE_DIR} COMPONENT dev)
endforeach()
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ctxbroker-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
configure_file(${CMAKE_SOURCE_DIR}/cmake/ctxbroker-config.cmake.in
               ${CMAKE_BINARY_DIR}/ctxbroker-config.cmake @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/ctxbroker-config.cmake
              ${CMAKE_BINARY_DIR}/ctxbroker-config-version.cmake
        DESTINATION ${CTXB_PACKAGE_DIR} COMPONENT dev)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ctxbroker_plugin_sdk-config-version.cmake
                                 COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
install(FILES ${CMAKE_BINARY_DIR}/ctxbroker_plugin_sdk-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ctxbroker_plugin_sdk COMPONENT sdk)

# To copy, for somebody who begins a plug-in.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/plugin_sdk/template
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ctxbroker COMPONENT sdk)
# To read: pages point to them, and results.hpp of spectrum is for hosts that take its results.
install(DIRECTORY ${CMAKE_SOURCE_DIR}/sample_plugins
        DESTINATION ${CMAKE_INSTALL_DATADIR}/ctxbroker COMPONENT sdk)

set(CTXB_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH CTXB_PKGCONFIG_TO_PREFIX /prefix/${CTXB_PKGCONFIG_DIR} /prefix)
string(REGEX REPLACE "/$" "" CTXB_PKGCONFIG_TO_PREFIX "${CTXB_PKGCONFIG_TO_PREFIX}")
set(CTXB_PKGCONFIG_GATE "")
if(TARGET ctxbroker_gate)
  set(CTXB_PKGCONFIG_GATE "\${private}/ctxbroker_gate_link.so,")
endif()
foreach(_file ctxbroker ctxbroker_plugin_sdk)
  configure_file(${CMAKE_SOURCE_DIR}/cmake/${_file}.pc.in ${CMAKE_BINARY_DIR}/${_file}.pc @ONLY)
endforeach()
install(FILES ${CMAKE_BINARY_DIR}/ctxbroker.pc DESTINATION ${CTXB_PKGCONFIG_DIR} COMPONENT dev)
install(FILES ${CMAKE_BINARY_DIR}/ctxbroker_plugin_sdk.pc
        DESTINATION ${CTXB_PKGCONFIG_DIR} COMPONENT sdk)

# The schemas are for the editors of those who write policy files, graph files and presets.
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/docs/policy.schema.json
              ${CMAKE_SOURCE_DIR}/docs/graph.schema.json ${CMAKE_SOURCE_DIR}/docs/preset.schema.json
              ${CMAKE_SOURCE_DIR}/docs/behaviour.schema.json ${CMAKE_SOURCE_DIR}/docs/manifest.schema.json
              ${CMAKE_SOURCE_DIR}/docs/run_report.schema.json
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/docs/examples
        DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT doc)
