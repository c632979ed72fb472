# Install rules and the CMake package, in one place. An installation has the layout of the build
# folder: bin/, lib/ and plugins/ side by side, each found relative to the others.
#
#   find_package(ctxbroker)                          ctxbroker::broker, ctxbroker::plugin_sdk,
#                                                    ctxb_add_plugin
#   find_package(ctxbroker COMPONENTS boost_log)     also ctxbroker::boost_log (needs Boost.Log)
foreach(target ctxbroker ctxbroker_boost_log ctxbroker_software_device sample_host)
  if(NOT TARGET ${target})
    message(STATUS "No install rules: ${target} is not built here.")
    return()
  endif()
endforeach()
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)
set(CTXB_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/ctxbroker)

# Folders of the source tree serve the build alone; an installation has include/.
function(ctxb_install_library target export_name set)
  get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
  set(wrapped $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  foreach(folder ${folders})
    if(folder AND NOT folder MATCHES "^\\$<")
      list(APPEND wrapped $<BUILD_INTERFACE:${folder}>)
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES
    EXPORT_NAME ${export_name} INTERFACE_INCLUDE_DIRECTORIES "${wrapped}")
  install(TARGETS ${target} EXPORT ${set} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

ctxb_install_library(ctxbroker_plugin_sdk plugin_sdk ctxbroker-targets)
ctxb_install_library(ctxbroker broker ctxbroker-targets)
ctxb_install_library(ctxbroker_boost_log boost_log ctxbroker_boost_log-targets)
install(TARGETS ctxbroker_software_device LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/software_device
        DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS sample_host RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${CTXB_SAMPLE_PLUGINS} LIBRARY DESTINATION plugins)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/broker/include/ctxbroker
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

foreach(set ctxbroker-targets ctxbroker_boost_log-targets)
  install(EXPORT ${set} NAMESPACE ctxbroker:: DESTINATION ${CTXB_PACKAGE_DIR})
endforeach()
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ctxbroker-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_SOURCE_DIR}/cmake/ctxbroker-config.cmake
              ${CMAKE_BINARY_DIR}/ctxbroker-config-version.cmake
        DESTINATION ${CTXB_PACKAGE_DIR})
