# SPDX-License-Identifier: Apache-2.0
# find_package(ctxbroker_plugin_sdk) gives ctxb_add_plugin and ctxbroker::plugin_sdk.
include(${CMAKE_CURRENT_LIST_DIR}/CtxbAddPlugin.cmake)
