# SPDX-License-Identifier: Apache-2.0
# ctxb_validate_plugin: adds ctxb-validate on a plug-in library to the tests of CTest.
#
#   ctxb_validate_plugin(TARGET [STRICTNESS 5]   1 (it loads and runs) to 10 (everything)
#                               [SEED 1]         decides what is random, so that each run is the same
#                               [DRIVER name]    software, nvidia or auto; else CTXBROKER_DRIVER
#                                                decides when the test runs
#                               [TIMEOUT 300])   seconds, for all tests together
#
# The test is called validate.TARGET. ctxb-validate is the one of this build or of the installation
# from which this file comes; CTXB_VALIDATE names another one.
set(CTXB_VALIDATE_HINTS ${CMAKE_CURRENT_LIST_DIR}/../../../bin ${CMAKE_CURRENT_LIST_DIR}/../../bin
    ${CMAKE_CURRENT_LIST_DIR}/../../../../bin  # lib/x86_64-linux-gnu
    CACHE INTERNAL "")

function(ctxb_validate_plugin target)
  cmake_parse_arguments(arg "" "STRICTNESS;SEED;DRIVER;TIMEOUT" "" ${ARGN})
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "ctxb_validate_plugin(${target}): unknown arguments "
                        "${arg_UNPARSED_ARGUMENTS}; there are STRICTNESS, SEED, DRIVER and TIMEOUT")
  endif()
  if(NOT TARGET ${target})
    message(FATAL_ERROR "ctxb_validate_plugin(${target}): there is no target of that name. Call "
                        "ctxb_add_plugin first.")
  endif()
  if(NOT arg_STRICTNESS)
    set(arg_STRICTNESS 5)
  endif()
  if(NOT arg_STRICTNESS MATCHES "^([1-9]|10)$")
    message(FATAL_ERROR "ctxb_validate_plugin(${target}): STRICTNESS is '${arg_STRICTNESS}'; write "
                        "a number from 1 to 10")
  endif()
  if(NOT arg_SEED)
    set(arg_SEED 1)
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(TARGET ctxb-validate)
    set(program $<TARGET_FILE:ctxb-validate>)
  else()
    find_program(CTXB_VALIDATE ctxb-validate HINTS ${CTXB_VALIDATE_HINTS})
    if(NOT CTXB_VALIDATE)
      message(FATAL_ERROR "ctxb_validate_plugin(${target}): ctxb-validate was not found. Install "
                          "ctxbroker, or set CTXB_VALIDATE to the program.")
    endif()
    set(program ${CTXB_VALIDATE})
  endif()
  set(driver)
  if(arg_DRIVER)
    set(driver --driver ${arg_DRIVER})
  endif()
  add_test(NAME validate.${target}
           COMMAND ${program} $<TARGET_FILE:${target}> --strictness ${arg_STRICTNESS}
                   --seed ${arg_SEED} ${driver})
  set_tests_properties(validate.${target} PROPERTIES TIMEOUT ${arg_TIMEOUT})
endfunction()
