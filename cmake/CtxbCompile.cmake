# SPDX-License-Identifier: Apache-2.0
# ctxb_options: what every target of this project is compiled with.
add_library(ctxb_options INTERFACE)
target_compile_options(ctxb_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Werror
  $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor -Woverloaded-virtual>
  # Arithmetic is what the source says: no silent fusing of a * b + c.
  -ffp-contract=off)

if(CTXB_SANITIZE)
  add_compile_options(-fsanitize=${CTXB_SANITIZE} -fno-omit-frame-pointer
                      -fno-sanitize-recover=all)
  # GCC 12 with sanitizers takes parts of the standard library (std::regex) for uninitialised.
  add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  # GCC's ThreadSanitizer does not see fences, and GCC 13 warns of each. In the broker, the data that
  # a fence orders is atomic as well, so this reports no false race.
  if(CTXB_SANITIZE MATCHES "thread")
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
  endif()
  add_link_options(-fsanitize=${CTXB_SANITIZE})
  set(_program $<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>)
  target_sources(ctxb_options INTERFACE $<${_program}:${CMAKE_CURRENT_LIST_DIR}/sanitizer_options.cpp>)
endif()

# GCC 12 takes std::string's operator+ (GCC bug 105651) and moves within a std::vector for overflows
# when it optimises. What these two warnings would find, AddressSanitizer finds too.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(ctxb_options INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict -Wno-stringop-overflow>)
endif()

# Under a sanitizer, compiling these targets with optimisation takes longer than running them without.
function(ctxb_optimise_for_release_only)
  if(CTXB_SANITIZE)
    foreach(target ${ARGN})
      target_compile_options(${target} PRIVATE -O0)
    endforeach()
  endif()
endfunction()

# All presets but debug and fuzz compile several sources as one (CMAKE_UNITY_BUILD), which takes a
# third of the time. Names of unnamed namespaces meet there. Where two good names are equal, one
# file says: ctxb_compile_alone(FILE...). The debug preset and clang-tidy look at every file alone.
function(ctxb_compile_alone)
  set_source_files_properties(${ARGN} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # The compiler takes every included .cpp for a header, and hides one file's names by another's.
  target_compile_options(ctxb_options INTERFACE
    -Wno-shadow $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
