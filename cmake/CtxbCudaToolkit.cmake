# SPDX-License-Identifier: Apache-2.0
# Finds the CUDA compiler and headers; only tests ever link a CUDA library.
#   CTXB_NVCC          the compiler
#   ctxb_cuda_headers  interface target with cuda.h
#   ctxb_cudart        NVIDIA's runtime library, static, where the toolkit has it; for tests
#   ctxb_cudart_shared the same, shared
# Looked for in CTXB_CUDA_ROOT (a cache variable; what tools/setup found), CUDA_HOME, the folder of
# nvcc on PATH, and the usual places.
set(CTXB_CUDA_ROOT "" CACHE PATH "CUDA Toolkit to use: the folder that holds bin/nvcc")
set(CTXB_CUDA_LEAST_VERSION 12.4)

# Another CTXB_CUDA_ROOT than last time: what was found then does not count.
if(NOT "${CTXB_CUDA_ROOT}" STREQUAL "${CTXB_CUDA_ROOT_OF_LAST_RUN}")
  unset(CTXB_NVCC CACHE)
  unset(CTXB_CUDA_INCLUDE_DIR CACHE)
  unset(CTXB_NVTX_INCLUDE_DIR CACHE)
endif()
set(CTXB_CUDA_ROOT_OF_LAST_RUN "${CTXB_CUDA_ROOT}" CACHE INTERNAL "")

if(CTXB_CUDA_ROOT)
  set(_hints NO_DEFAULT_PATH PATHS ${CTXB_CUDA_ROOT})
else()
  file(GLOB _usual LIST_DIRECTORIES true /usr/local/cuda /usr/local/cuda-* /opt/cuda)
  set(_hints HINTS $ENV{CUDA_HOME} $ENV{CUDA_PATH} PATHS ${_usual})
endif()
find_program(CTXB_NVCC nvcc ${_hints} PATH_SUFFIXES bin)
if(NOT CTXB_NVCC)
  message(FATAL_ERROR "No CUDA compiler (nvcc) found. Run tools/setup, which fetches one, or set "
                      "CTXB_CUDA_ROOT to the folder that holds bin/nvcc.")
endif()

execute_process(COMMAND ${CTXB_NVCC} --version OUTPUT_VARIABLE _text COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" _ "${_text}")
set(CTXB_CUDA_VERSION ${CMAKE_MATCH_1})
if(CTXB_CUDA_VERSION VERSION_LESS CTXB_CUDA_LEAST_VERSION)
  message(FATAL_ERROR "${CTXB_NVCC} is CUDA ${CTXB_CUDA_VERSION}; ${CTXB_CUDA_LEAST_VERSION} or "
                      "later is needed.")
endif()

file(REAL_PATH ${CTXB_NVCC} _nvcc)
get_filename_component(_root ${_nvcc} DIRECTORY)
get_filename_component(_root ${_root} DIRECTORY)
find_path(CTXB_CUDA_INCLUDE_DIR cuda.h NO_DEFAULT_PATH
          PATHS ${_root}/include ${_root}/targets/x86_64-linux/include /usr/include)
if(NOT CTXB_CUDA_INCLUDE_DIR)
  message(FATAL_ERROR "cuda.h not found beside ${CTXB_NVCC}; the toolkit is incomplete.")
endif()
add_library(ctxb_cuda_headers INTERFACE)
target_include_directories(ctxb_cuda_headers SYSTEM INTERFACE ${CTXB_CUDA_INCLUDE_DIR})
# NVTX is headers too; some systems package them apart from the compiler, so they may be missing.
find_path(CTXB_NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h NO_DEFAULT_PATH PATHS ${CTXB_CUDA_INCLUDE_DIR})
if(NOT CTXB_NVTX_INCLUDE_DIR)
  message(STATUS "No nvtx3/nvToolsExt.h beside cuda.h: a profiler will see no ranges of the broker.")
endif()
message(STATUS "CUDA ${CTXB_CUDA_VERSION}: ${CTXB_NVCC}")

foreach(kind static shared)
  set(_file libcudart_static.a)
  set(_target ctxb_cudart)
  if(kind STREQUAL shared)
    set(_file libcudart.so)
    set(_target ctxb_cudart_shared)
  endif()
  # Not found again in another toolkit than last time's.
  string(TOUPPER ${kind} _KIND)
  unset(CTXB_CUDART_${_KIND} CACHE)
  find_library(CTXB_CUDART_${_KIND} ${_file} NO_DEFAULT_PATH
               PATHS ${_root}/lib64 ${_root}/lib ${_root}/targets/x86_64-linux/lib)
  if(CTXB_CUDART_${_KIND})
    add_library(${_target} ${_KIND} IMPORTED GLOBAL)
    set_target_properties(${_target} PROPERTIES IMPORTED_LOCATION ${CTXB_CUDART_${_KIND}})
  endif()
endforeach()
if(TARGET ctxb_cudart)
  target_link_libraries(ctxb_cudart INTERFACE Threads::Threads ${CMAKE_DL_LIBS} rt)
endif()
