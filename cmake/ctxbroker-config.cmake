# find_package(ctxbroker [COMPONENTS boost_log]); see CtxbInstall.cmake for what it gives.
include(CMakeFindDependencyMacro)
find_dependency(Threads)
include(${CMAKE_CURRENT_LIST_DIR}/ctxbroker-targets.cmake)

foreach(_ctxb_component ${ctxbroker_FIND_COMPONENTS})
  if(_ctxb_component STREQUAL "boost_log")
    find_dependency(Boost COMPONENTS log)
    include(${CMAKE_CURRENT_LIST_DIR}/ctxbroker_boost_log-targets.cmake)
    set(ctxbroker_boost_log_FOUND TRUE)
  elseif(ctxbroker_FIND_REQUIRED_${_ctxb_component})
    set(ctxbroker_FOUND FALSE)
    set(ctxbroker_NOT_FOUND_MESSAGE
        "ctxbroker has no component '${_ctxb_component}'; it has boost_log.")
  endif()
endforeach()

# ctxb_add_plugin comes from the SDK's own package, which plug-in authors can also have alone.
find_dependency(ctxbroker_plugin_sdk HINTS ${CMAKE_CURRENT_LIST_DIR}/..)
