# SPDX-License-Identifier: Apache-2.0
# ctxb_add_plugin: builds a ctxbroker plug-in library. It works inside ctxbroker's own build, from
# an installed SDK (find_package(ctxbroker_plugin_sdk)), or included by its path.
#
#   ctxb_add_plugin(NAME SOURCES a.cpp ...           the library's C++ files
#                        KERNELS a.cu b.ptx ...      device code; each file becomes a module
#                        [LINK]                      all KERNELS become one module, called NAME. A
#                                                    kernel may call a function of another file. The
#                                                    driver links them when it loads the module
#                        [ARCHITECTURES 75-virtual]  as CMAKE_CUDA_ARCHITECTURES: 90-real is machine
#                                                    code, 90-virtual is PTX, 90 is both
#                        [INCLUDES folder ...]       for C++ and device code
#                        [NVCC_OPTIONS option ...])
#
# Each file of KERNELS becomes a fatbin inside the library. The sources include
# "NAME_kernels.hpp". There, NAME_kernels::modules has all modules, for Descriptor::modules, and
# NAME_kernels::file_options has the options of INCLUDES and NVCC_OPTIONS for a .cu file that is
# watched. Sources in C include "NAME_kernels.h", which has the modules as NAME_modules and their
# number as a macro (TINT_MODULE_COUNT for a plug-in named tint). The library exports only ctxb_plugin_entry and links no CUDA library. One of the sources
# has to define the entry; set CTXB_ENTRY_ELSEWHERE to ON if a library does. It goes to
# CTXB_PLUGIN_OUTPUT_DIRECTORY if that is set. If the program ctxb-scan is found, the library's manifest
# NAME.ctxb.json is written beside it: ctxb_install_plugins installs both. The function needs nvcc,
# which it looks for in CTXB_NVCC, CUDA_HOME, PATH and the usual places.
#
# Device code carries line numbers (-lineinfo), so that the software device, compute-sanitizer and
# profilers name the line of the source. They take some per cent of the PTX's size, and contain the
# paths of the source files. set(CTXB_LINE_INFO OFF) leaves them out.
#
# A plug-in on the runtime API (cuda_use CTXB_CUDA_RUNTIME) uses these too, or instead of KERNELS:
#
#                        [CUDA_SOURCES a.cu ...]     nvcc compiles these, host code included:
#                                                    <<<>>>, Thrust, CUB
#                        [CUDART static|shared]      the runtime library to link. With CUDA_SOURCES,
#                                                    static is the default
#                        [LIBRARIES cufft ...]       shared libraries of the CUDA Toolkit
#                        [OPTIONAL]                  if the toolkit lacks one of these libraries,
#                                                    the plug-in is left out, with a message
#
# At run time, shared libraries are looked for where the toolkit was (in the run path), then where
# the machine has its libraries.

set(CTXB_SDK_CMAKE_DIR ${CMAKE_CURRENT_LIST_DIR} CACHE INTERNAL "")
include(${CMAKE_CURRENT_LIST_DIR}/CtxbValidatePlugin.cmake)  # ctxb_validate_plugin
include(${CMAKE_CURRENT_LIST_DIR}/CtxbInstallPlugins.cmake)  # ctxb_install_plugins

if(NOT TARGET ctxbroker::plugin_sdk)
  find_path(CTXB_SDK_INCLUDE_DIR ctxbroker/plugin.h NO_CACHE NO_DEFAULT_PATH
            PATHS ${CMAKE_CURRENT_LIST_DIR}/../include ${CMAKE_CURRENT_LIST_DIR}/../../../include
                  ${CMAKE_CURRENT_LIST_DIR}/../../../../include)
  if(NOT CTXB_SDK_INCLUDE_DIR)
    message(FATAL_ERROR "ctxbroker/plugin.h not found beside ${CMAKE_CURRENT_LIST_DIR}: the SDK is "
                        "incomplete. Set CTXB_SDK_INCLUDE_DIR to its include folder.")
  endif()
  add_library(ctxbroker_plugin_sdk INTERFACE)
  add_library(ctxbroker::plugin_sdk ALIAS ctxbroker_plugin_sdk)
  target_include_directories(ctxbroker_plugin_sdk INTERFACE ${CTXB_SDK_INCLUDE_DIR})
  target_compile_features(ctxbroker_plugin_sdk INTERFACE cxx_std_17)
endif()

# Turns "75-virtual;90-real;100" into nvcc's -gencode options.
function(_ctxb_gencode out architectures)
  set(options)
  set(has_ptx FALSE)
  foreach(one ${architectures})
    if(NOT one MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "ctxb_add_plugin: '${one}' is no architecture; write 75-virtual (PTX), "
                          "90-real (machine code) or 90 (both).")
    endif()
    set(number ${CMAKE_MATCH_1})
    set(kind "${CMAKE_MATCH_2}")
    if(NOT kind STREQUAL "-virtual")
      list(APPEND options -gencode arch=compute_${number},code=sm_${number})
    endif()
    if(NOT kind STREQUAL "-real")
      list(APPEND options -gencode arch=compute_${number},code=compute_${number})
      set(has_ptx TRUE)
    endif()
  endforeach()
  if(NOT has_ptx)
    message(WARNING "ctxb_add_plugin: no PTX among the ARCHITECTURES (${architectures}); the "
                    "plug-in will not run on later GPUs nor on the software device.")
  endif()
  set(${out} "${options}" PARENT_SCOPE)
endfunction()

function(ctxb_add_plugin name)
  set(flags OPTIONAL LINK)
  set(single CUDART)
  set(several SOURCES KERNELS CUDA_SOURCES LIBRARIES ARCHITECTURES INCLUDES NVCC_OPTIONS)
  list(JOIN several ", " keywords)
  set(keywords "The keywords are ${keywords}, CUDART, OPTIONAL and LINK.")
  cmake_parse_arguments(arg "${flags}" "${single}" "${several}" ${ARGN})
  if(NOT name MATCHES "^[A-Za-z_][A-Za-z0-9_]*$")
    message(FATAL_ERROR "ctxb_add_plugin: the name '${name}' must be a C identifier")
  endif()
  if(NOT CMAKE_CXX_COMPILER_LOADED)
    message(FATAL_ERROR "ctxb_add_plugin(${name}): this project has no C++. Write project(NAME "
                        "LANGUAGES C CXX), also for a plug-in in C, because a C++ file holds its "
                        "device code.")
  endif()
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "ctxb_add_plugin(${name}): unknown arguments ${arg_UNPARSED_ARGUMENTS}. "
                        "${keywords}")
  endif()
  if(TARGET ${name})
    get_target_property(folder ${name} SOURCE_DIR)
    message(FATAL_ERROR "ctxb_add_plugin(${name}): there is a target of this name already, made in "
                        "${folder}. Give the plug-in another name.")
  endif()
  if(NOT arg_SOURCES AND NOT arg_CUDA_SOURCES)
    message(FATAL_ERROR "ctxb_add_plugin(${name}): SOURCES is empty")
  endif()
  foreach(keyword KERNELS CUDA_SOURCES)
    if(keyword IN_LIST arg_KEYWORDS_MISSING_VALUES)
      message(FATAL_ERROR "ctxb_add_plugin(${name}): ${keyword} stands there without a file. Name "
                          "one, look whether the variable behind it is set, or leave it out.")
    endif()
  endforeach()
  if(arg_LINK AND NOT arg_KERNELS)
    message(FATAL_ERROR "ctxb_add_plugin(${name}): LINK stands there without KERNELS to link")
  endif()
  foreach(keyword SOURCES KERNELS CUDA_SOURCES)
    foreach(file ${arg_${keyword}})
      get_filename_component(path "${file}" ABSOLUTE)
      get_source_file_property(generated "${file}" GENERATED)
      if(NOT file MATCHES "\\$<" AND NOT generated AND NOT EXISTS "${path}")
        message(FATAL_ERROR "ctxb_add_plugin(${name}): ${keyword} names ${file}, and there is no "
                            "file ${path}. If it was meant as a keyword: ${keywords}")
      endif()
    endforeach()
  endforeach()
  foreach(file ${arg_KERNELS})
    if(NOT file MATCHES "\\.(cu|ptx)$")
      message(FATAL_ERROR "ctxb_add_plugin(${name}): KERNELS names ${file}, which is no .cu and no "
                          ".ptx file. C and C++ files stand behind SOURCES.")
    endif()
  endforeach()
  set(sources ${arg_SOURCES} ${arg_CUDA_SOURCES})
  _ctxb_check_entry(${name} "${sources}")
  set(runtime)
  if(arg_CUDA_SOURCES OR arg_CUDART OR arg_LIBRARIES)
    _ctxb_find_runtime(${name} "${arg_CUDART}" "${arg_LIBRARIES}" runtime runtime_includes missing)
    if(missing)
      list(JOIN missing ", " missing)
      if(NOT arg_OPTIONAL)
        message(FATAL_ERROR "ctxb_add_plugin(${name}): the CUDA Toolkit of ${CTXB_NVCC} has no "
                            "${missing}; install that part of it, or name another with CTXB_NVCC.")
      endif()
      message(STATUS "Plug-in ${name} is left out: the CUDA Toolkit has no ${missing}.")
      set_property(GLOBAL APPEND PROPERTY CTXB_LEFT_OUT_PLUGINS ${name})
      return()
    endif()
  endif()
  if(NOT arg_ARCHITECTURES)
    set(arg_ARCHITECTURES 75-virtual)
  endif()
  set(generated ${CMAKE_CURRENT_BINARY_DIR}/${name}_generated)
  file(MAKE_DIRECTORY ${generated})

  add_library(${name} MODULE ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ctxbroker::plugin_sdk)
  target_include_directories(${name} PRIVATE ${generated} ${arg_INCLUDES})
  if(TARGET ctxb_options)
    target_link_libraries(${name} PRIVATE ctxb_options)
  endif()
  if(arg_KERNELS)
    _ctxb_add_kernels(${name} "${generated}" "${arg_KERNELS}" "${arg_ARCHITECTURES}"
                      "${arg_INCLUDES}" "${arg_NVCC_OPTIONS}" ${arg_LINK})
  endif()

  if(runtime)
    target_include_directories(${name} SYSTEM PRIVATE ${runtime_includes})
    target_link_libraries(${name} PRIVATE ${runtime})
    set_target_properties(${name} PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON)
  endif()
  if(arg_CUDA_SOURCES)
    _ctxb_compile_cuda(${name} "${generated}" "${arg_CUDA_SOURCES}" "${arg_ARCHITECTURES}"
                       "${arg_INCLUDES}" "${arg_NVCC_OPTIONS}")
  endif()

  set_target_properties(${name} PROPERTIES
    LINKER_LANGUAGE CXX
    PREFIX "" CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden
    VISIBILITY_INLINES_HIDDEN ON)
  if(CTXB_PLUGIN_OUTPUT_DIRECTORY)
    set_target_properties(${name} PROPERTIES
      LIBRARY_OUTPUT_DIRECTORY ${CTXB_PLUGIN_OUTPUT_DIRECTORY})
  endif()
  if(CMAKE_SYSTEM_NAME STREQUAL "Linux")
    file(CONFIGURE OUTPUT ${generated}/exports.map
         CONTENT "{ global: ctxb_plugin_entry; local: *; };\n")
    target_link_options(${name} PRIVATE LINKER:--version-script=${generated}/exports.map
                                        LINKER:-z,now LINKER:--build-id=sha1)
    set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${generated}/exports.map)
    # A sanitizer's run time may be in the program alone; then its symbols are missing here.
    if(NOT CTXB_SANITIZE AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize")
      target_link_options(${name} PRIVATE LINKER:--no-undefined)
      _ctxb_write_manifest(${name})
    endif()
  endif()
endfunction()

# Beside the library, for hosts that want to know what is in it without loading it. The library is
# loaded for that, so it may be one that does not load here, and then it has none.
function(_ctxb_write_manifest name)
  if(TARGET ctxb_scan)
    set(scan $<TARGET_FILE:ctxb_scan>)
  else()
    find_program(CTXB_SCAN ctxb-scan HINTS ${CTXB_SDK_CMAKE_DIR}/../../../bin
                 ${CTXB_SDK_CMAKE_DIR}/../../../../bin)
    set(scan ${CTXB_SCAN})
  endif()
  if(NOT scan OR CMAKE_CROSSCOMPILING)
    message(STATUS "Plug-in ${name} is built without a manifest: there is no ctxb-scan to write it. "
                   "Hosts load the library once to learn what is in it. To have a manifest, install "
                   "ctxbroker, or set CTXB_SCAN to its program ctxb-scan.")
    return()
  endif()
  add_custom_command(TARGET ${name} POST_BUILD
    COMMAND ${scan} --manifest $<TARGET_FILE:${name}> || ${CMAKE_COMMAND} -E echo
            "Plug-in ${name} is built without a manifest, because it cannot be loaded here."
    VERBATIM)
  set_property(TARGET ${name} APPEND PROPERTY ADDITIONAL_CLEAN_FILES
               $<TARGET_FILE_DIR:${name}>/$<TARGET_FILE_BASE_NAME:${name}>.ctxb.json)
endfunction()

# Without the entry, the library would be built, and no host could use it. Looks in the sources and
# in the files that they include from their own folders.
function(_ctxb_check_entry name sources)
  if(CTXB_ENTRY_ELSEWHERE)
    return()
  endif()
  set(files "")
  foreach(file ${sources})
    get_filename_component(path "${file}" ABSOLUTE)
    if(NOT EXISTS "${path}")
      return()  # generated: it may be there
    endif()
    list(APPEND files "${path}")
    get_filename_component(folder "${path}" DIRECTORY)
    file(STRINGS "${path}" includes REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
    foreach(line ${includes})
      if(line MATCHES "\"([^\"]+)\"" AND EXISTS "${folder}/${CMAKE_MATCH_1}")
        list(APPEND files "${folder}/${CMAKE_MATCH_1}")
      endif()
    endforeach()
  endforeach()
  foreach(file ${files})
    file(STRINGS "${file}" found REGEX "CTXB_EXPORT_PLUGINS|ctxb_plugin_entry" LIMIT_COUNT 1)
    if(found)
      return()
    endif()
  endforeach()
  list(JOIN sources " " sources)
  message(FATAL_ERROR "ctxb_add_plugin(${name}): none of the sources (${sources}) exports a plug-in, "
                      "so no host could use the library. Write CTXB_EXPORT_PLUGINS(...) of "
                      "ctxbroker/plugin.hpp in one of them, or define ctxb_plugin_entry in C. If it "
                      "comes from a library, set(CTXB_ENTRY_ELSEWHERE ON) before this call.")
endfunction()

# CTXB_NVCC, or the end.
function(_ctxb_find_nvcc name)
  if(NOT CTXB_NVCC)
    file(GLOB usual LIST_DIRECTORIES true /usr/local/cuda /usr/local/cuda-* /opt/cuda)
    find_program(CTXB_NVCC nvcc HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} PATHS ${usual}
                 PATH_SUFFIXES bin)
  endif()
  if(NOT CTXB_NVCC)
    message(FATAL_ERROR "ctxb_add_plugin(${name}): no CUDA compiler (nvcc) found. Put it on PATH, "
                        "or set CUDA_HOME or CTXB_NVCC.")
  endif()
  if("${CTXB_NVCC}" STREQUAL "${CTXB_TRIED_NVCC}")
    return()
  endif()
  if(NOT IS_ABSOLUTE "${CTXB_NVCC}")
    message(FATAL_ERROR "ctxb_add_plugin(${name}): CTXB_NVCC is '${CTXB_NVCC}'. Write the whole path "
                        "of NVIDIA's compiler, or leave CTXB_NVCC out: then nvcc is looked for in "
                        "CUDA_HOME, on PATH and in the usual places.")
  endif()
  if(NOT EXISTS "${CTXB_NVCC}")
    message(FATAL_ERROR "ctxb_add_plugin(${name}): CTXB_NVCC names ${CTXB_NVCC}, and there is no "
                        "such file. Name NVIDIA's compiler, or leave CTXB_NVCC out: then nvcc is "
                        "looked for in CUDA_HOME, on PATH and in the usual places.")
  endif()
  execute_process(COMMAND ${CTXB_NVCC} --version RESULT_VARIABLE status OUTPUT_VARIABLE text
                  ERROR_VARIABLE error)
  if(NOT status EQUAL 0 OR NOT text MATCHES "release [0-9]+\\.[0-9]+")
    message(FATAL_ERROR "ctxb_add_plugin(${name}): CTXB_NVCC is ${CTXB_NVCC}, which is no CUDA "
                        "compiler: `${CTXB_NVCC} --version` says no release (${status}). Name "
                        "NVIDIA's nvcc.\n${text}${error}")
  endif()
  set(CTXB_TRIED_NVCC "${CTXB_NVCC}" CACHE INTERNAL "")
endfunction()

# The part of nvcc's command line that is the same whatever it makes.
function(_ctxb_nvcc_options out architectures includes)
  _ctxb_gencode(gencode "${architectures}")
  set(include_options)
  foreach(folder ${includes})
    get_filename_component(folder ${folder} ABSOLUTE)
    list(APPEND include_options -I${folder})
  endforeach()
  set(host_compiler)
  if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    # Its version is not nvcc's business where it only preprocesses; elsewhere it fails by itself.
    set(host_compiler -ccbin ${CMAKE_CXX_COMPILER} -allow-unsupported-compiler)
  endif()
  # So that a fault has a line of the source; some per cent of the PTX, and the files' paths.
  set(line_info -lineinfo)
  if(DEFINED CTXB_LINE_INFO AND NOT CTXB_LINE_INFO)
    set(line_info)
  endif()
  set(${out} ${gencode} ${line_info} ${host_compiler} ${include_options} PARENT_SCOPE)
endfunction()

# What the plug-in links and the folder of the runtime's headers; or what the toolkit lacks of it.
function(_ctxb_find_runtime name cudart libraries out out_includes out_missing)
  _ctxb_find_nvcc(${name})
  if(NOT cudart)
    set(cudart static)
  elseif(NOT cudart MATCHES "^(static|shared)$")
    message(FATAL_ERROR "ctxb_add_plugin(${name}): CUDART is '${cudart}'; write static or shared")
  endif()
  if(cudart STREQUAL "static")
    list(PREPEND libraries cudart_static)
  else()
    list(PREPEND libraries cudart)
  endif()
  # As it was given first: a link such as /usr/local/cuda outlives an update of the toolkit.
  file(REAL_PATH ${CTXB_NVCC} real)
  set(folders)
  set(includes)
  foreach(nvcc ${CTXB_NVCC} ${real})
    get_filename_component(root ${nvcc} DIRECTORY)
    get_filename_component(root ${root} DIRECTORY)
    list(APPEND folders ${root}/lib64 ${root}/lib ${root}/targets/x86_64-linux/lib)
    list(APPEND includes ${root}/include ${root}/targets/x86_64-linux/include)
  endforeach()
  set(found)
  set(missing)
  foreach(library ${libraries})
    unset(path)
    find_library(path ${library} NO_CACHE NO_DEFAULT_PATH PATHS ${folders} /usr/lib/x86_64-linux-gnu)
    if(path)
      list(APPEND found ${path})
    else()
      list(APPEND missing lib${library})
    endif()
  endforeach()
  find_path(headers cuda_runtime_api.h NO_CACHE NO_DEFAULT_PATH PATHS ${includes} /usr/include)
  if(NOT headers)
    list(APPEND missing cuda_runtime_api.h)
  endif()
  if(cudart STREQUAL "static")
    find_package(Threads REQUIRED)
    list(APPEND found Threads::Threads ${CMAKE_DL_LIBS} rt)
  endif()
  set(${out} ${found} PARENT_SCOPE)
  set(${out_includes} ${headers} PARENT_SCOPE)
  set(${out_missing} ${missing} PARENT_SCOPE)
endfunction()

# Makes an object of each file, with nvcc and the C++ compiler of the project behind it.
function(_ctxb_compile_cuda name generated sources architectures includes nvcc_options)
  _ctxb_nvcc_options(options "${architectures}" "${includes}")
  set(sdk_folders $<TARGET_PROPERTY:ctxbroker::plugin_sdk,INTERFACE_INCLUDE_DIRECTORIES>)
  foreach(given ${sources})
    get_filename_component(source ${given} ABSOLUTE)
    get_filename_component(stem ${given} NAME_WE)
    set(object ${generated}/${stem}.cu.o)
    add_custom_command(
      OUTPUT ${object}
      COMMAND ${CTXB_NVCC} -c -std=c++17 -O3 ${options}
              -Xcompiler=-fPIC,-fvisibility=hidden,-fvisibility-inlines-hidden
              "-I$<JOIN:$<FILTER:${sdk_folders},INCLUDE,.>,;-I>"
              ${nvcc_options} -MD -MF ${object}.d -MT ${object} -o ${object} ${source}
      DEPENDS ${source} ${CTXB_NVCC}
      DEPFILE ${object}.d
      COMMENT "Compiling ${name}/${stem}.cu with nvcc"
      COMMAND_EXPAND_LISTS VERBATIM)
    target_sources(${name} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
endfunction()

# The header is written now, the fatbins and the source that holds them when the project is built.
# A TRUE at the end makes one module, called NAME, of all.
function(_ctxb_add_kernels name generated kernels architectures includes nvcc_options)
  _ctxb_find_nvcc(${name})
  _ctxb_nvcc_options(options "${architectures}" "${includes}")
  set(link ${ARGN})
  if(link)
    list(APPEND options -rdc=true)
  endif()

  # Some elements may be empty, because they count for an installation only.
  set(sdk_folders $<TARGET_PROPERTY:ctxbroker::plugin_sdk,INTERFACE_INCLUDE_DIRECTORIES>)

  set(module_names)
  set(fatbins)
  foreach(kernel ${kernels})
    get_filename_component(module ${kernel} NAME_WE)
    if(NOT module MATCHES "^[A-Za-z_][A-Za-z0-9_]*$" OR module MATCHES "^(modules|file_options)$")
      message(FATAL_ERROR "ctxb_add_plugin(${name}): the file name of '${kernel}' must be a C "
                          "identifier other than 'modules' and 'file_options', because its module "
                          "is called like it")
    endif()
    if(module IN_LIST module_names)
      message(FATAL_ERROR "ctxb_add_plugin(${name}): two kernel files are called '${module}'")
    endif()
    get_filename_component(source ${kernel} ABSOLUTE)
    set(fatbin ${generated}/${module}.fatbin)
    set(dependencies DEPFILE ${fatbin}.d)
    set(write_dependencies -MD -MF ${fatbin}.d -MT ${fatbin})
    if(kernel MATCHES "\\.ptx$")  # it includes nothing
      set(dependencies "")
      set(write_dependencies "")
    endif()
    add_custom_command(
      OUTPUT ${fatbin}
      COMMAND ${CTXB_NVCC} -fatbin -std=c++17 -O3 ${options}
              "-I$<JOIN:$<FILTER:${sdk_folders},INCLUDE,.>,;-I>"
              ${nvcc_options} ${write_dependencies} -o ${fatbin} ${source}
      DEPENDS ${source} ${CTXB_NVCC}
      ${dependencies}
      COMMENT "Compiling device code ${name}/${module}"
      COMMAND_EXPAND_LISTS VERBATIM)
    list(APPEND module_names ${module})
    list(APPEND fatbins ${fatbin})
  endforeach()

  set(known_names ${module_names})
  if(link)
    set(known_names ${name})
  endif()
  list(LENGTH known_names count)
  set(constants "")
  set(index 0)
  foreach(module ${known_names})
    string(APPEND constants "inline constexpr const ctxb_module& ${module} = modules[${index}];\n")
    math(EXPR index "${index} + 1")
  endforeach()
  # What NVRTC understands of it. In no plug-in that does not name it.
  set(file_options "")
  foreach(option ${options} ${nvcc_options})
    if(option MATCHES "^-[DUI].")
      string(APPEND file_options "R\"ctxb(${option})ctxb\", ")
    endif()
  endforeach()
  string(TOUPPER ${name} upper_name)
  file(CONFIGURE OUTPUT ${generated}/${name}_kernels.h CONTENT
"/* The device code of ${name}; generated by ctxb_add_plugin. */
#ifndef ${upper_name}_KERNELS_H
#define ${upper_name}_KERNELS_H

#include \"ctxbroker/plugin.h\"

#define ${upper_name}_MODULE_COUNT ${count}

#ifdef __cplusplus
extern \"C\" {
#endif
extern const ctxb_module ${name}_modules[${upper_name}_MODULE_COUNT];
#ifdef __cplusplus
}
#endif

#endif
" @ONLY)
  file(CONFIGURE OUTPUT ${generated}/${name}_kernels.hpp CONTENT
"// The device code of ${name}; generated by ctxb_add_plugin.
#pragma once

#include \"${name}_kernels.h\"

namespace ${name}_kernels {

inline constexpr const ctxb_module (&modules)[${count}] = ${name}_modules;
${constants}
// For watched(..., \"a.cu\", file_options): INCLUDES and the macros among NVCC_OPTIONS.
inline constexpr const char* const file_options[] = {${file_options}nullptr};

}  // namespace ${name}_kernels
" @ONLY)

  add_custom_command(
    OUTPUT ${generated}/${name}_kernels.cpp
    COMMAND ${CMAKE_COMMAND} -DNAME=${name} "-DMODULES=${module_names}" -DFOLDER=${generated}
            "-DLINK=${link}"
            -P ${CTXB_SDK_CMAKE_DIR}/CtxbEmbedImages.cmake
    DEPENDS ${fatbins} ${CTXB_SDK_CMAKE_DIR}/CtxbEmbedImages.cmake
    COMMENT "Embedding the device code of ${name}"
    VERBATIM)
  target_sources(${name} PRIVATE ${generated}/${name}_kernels.cpp)
endfunction()
