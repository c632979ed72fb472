# SPDX-License-Identifier: Apache-2.0
# find_package(ctxbroker); CtxbInstall.cmake says what it gives.
include(${CMAKE_CURRENT_LIST_DIR}/ctxbroker-targets.cmake)
# ctxb_add_plugin comes with the SDK, which plug-in authors can also have alone.
include(CMakeFindDependencyMacro)
find_dependency(ctxbroker_plugin_sdk HINTS ${CMAKE_CURRENT_LIST_DIR}/..)
