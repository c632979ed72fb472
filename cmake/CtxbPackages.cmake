# SPDX-License-Identifier: Apache-2.0
# Debian packages of what CtxbInstall.cmake installs:
#   cpack --config build/release/CPackConfig.cmake -B FOLDER
# Plug-ins that hold or need NVIDIA's runtime library are left out, because no package of Debian's
# brings that library. dpkg-shlibdeps finds the other dependencies.
set(CTXB_PACKAGE_MAINTAINER "ctxbroker maintainers <maintainers@ctxbroker.example>" CACHE STRING
    "Who answers for the Debian packages: NAME <ADDRESS>")
if(NOT CTXB_INSTALL_PLUGIN_DIR OR NOT TARGET sample_host)
  return()
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ctxbroker)
set(CPACK_PACKAGE_VENDOR ctxbroker)
set(CPACK_PACKAGE_CONTACT ${CTXB_PACKAGE_MAINTAINER})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
    GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS
    ${CMAKE_LIBRARY_OUTPUT_DIRECTORY} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/ctxbroker)
set(_version ${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE})

# ctxb_package(GROUP NAME SECTION COMPONENTS c ... [DEPENDS d ...] [SUGGESTS s] SUMMARY s DESCRIPTION d)
set(CPACK_COMPONENTS_ALL "")
macro(ctxb_package group name section)
  cmake_parse_arguments(arg "" "SUMMARY;DESCRIPTION;SUGGESTS" "COMPONENTS;DEPENDS" ${ARGN})
  string(TOUPPER ${group} _group)
  foreach(_component ${arg_COMPONENTS})
    string(TOUPPER ${_component} _component_upper)
    set(CPACK_COMPONENT_${_component_upper}_GROUP ${group})
    list(APPEND CPACK_COMPONENTS_ALL ${_component})
  endforeach()
  set(CPACK_DEBIAN_${_group}_PACKAGE_NAME ${name})
  set(CPACK_DEBIAN_${_group}_PACKAGE_SECTION ${section})
  set(CPACK_DEBIAN_${_group}_PACKAGE_SUGGESTS ${arg_SUGGESTS})
  set(CPACK_DEBIAN_${_group}_DESCRIPTION "${arg_SUMMARY}\n${arg_DESCRIPTION}")
  set(_depends "")
  foreach(_package ${arg_DEPENDS})
    list(APPEND _depends "${_package} (= ${_version})")
  endforeach()
  list(JOIN _depends ", " CPACK_DEBIAN_${_group}_PACKAGE_DEPENDS)
endmacro()

# For dpkg-shlibdeps of those who link the library, and for ldconfig. CPack's own would take the
# gate for a library named libcuda too.
macro(ctxb_package_has_library group name library)
  string(TOUPPER ${group} _group)
  set(_folder ${CMAKE_BINARY_DIR}/debian/${group})
  file(CONFIGURE OUTPUT ${_folder}/shlibs
       CONTENT "${library} ${PROJECT_VERSION_MAJOR} ${name} (>= ${PROJECT_VERSION})\n")
  file(CONFIGURE OUTPUT ${_folder}/triggers CONTENT "activate-noawait ldconfig\n")
  set(CPACK_DEBIAN_${_group}_PACKAGE_CONTROL_EXTRA ${_folder}/shlibs ${_folder}/triggers)
endmacro()

ctxb_package(library libctxbroker0 libs COMPONENTS runtime software_device SUGGESTS libcuda1
  SUMMARY "library that keeps CUDA plug-ins apart in one process"
  DESCRIPTION "A host application embeds ctxbroker to load CUDA plug-ins from people who
never met. Each plug-in library gets a context of its own, and cannot reset or
free what belongs to others.
.
This package holds the library, the gate, and a CUDA driver that runs PTX on
the CPU for machines without a GPU. The driver is private to the library. It
also holds ctxb-run, which runs an unchanged program under the broker.")
ctxb_package(boost_log_library libctxbroker-boost-log0 libs COMPONENTS boost_log
  DEPENDS libctxbroker0
  SUMMARY "Boost.Log adapter of ctxbroker"
  DESCRIPTION "A host application that uses Boost.Log gets the records of ctxbroker as log
records, with their attributes.")
ctxb_package(development libctxbroker-dev libdevel COMPONENTS sdk dev
  DEPENDS libctxbroker0 libctxbroker-boost-log0 SUGGESTS ctxbroker-tools
  SUMMARY "headers of ctxbroker, for hosts and for plug-ins"
  DESCRIPTION "This package holds the headers for host applications, the plug-in SDK, and
files for CMake and pkg-config. It brings no CUDA compiler: plug-ins that carry
kernels need nvcc.")
ctxb_package(programs ctxbroker-tools utils COMPONENTS tools samples doc
  DEPENDS libctxbroker0 libctxbroker-boost-log0
  SUMMARY "sample_host and sample plug-ins of ctxbroker"
  DESCRIPTION "sample_host runs pictures and recordings through CUDA plug-ins, on a GPU or on
the CPU. It also lists plug-ins, and says what protects them from one another.")
ctxb_package_has_library(library libctxbroker0 libctxbroker)
ctxb_package_has_library(boost_log_library libctxbroker-boost-log0 libctxbroker_boost_log)

# The papers that every package of Debian's has.
set(CTXB_PACKAGE_VERSION ${_version})
configure_file(${CMAKE_SOURCE_DIR}/cmake/debian/papers.cmake.in
               ${CMAKE_BINARY_DIR}/debian/papers.cmake @ONLY)
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_BINARY_DIR}/debian/papers.cmake)
set(CPACK_OUTPUT_CONFIG_FILE ${CMAKE_BINARY_DIR}/CPackConfig.cmake)
include(CPack)
