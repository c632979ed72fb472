# SPDX-License-Identifier: Apache-2.0
# Files that tests read, held in the test program itself: it then runs anywhere, also without nvcc.

# ctxb_embed(target name file): `extern const std::string_view name` with the file's bytes, in
# namespace ctxbroker::fixtures, is compiled into the target.
function(ctxb_embed target name file)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.cpp)
  set(script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/embed.cmake)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DFILE=${file} -DNAME=${name} -DOUTPUT=${source} -P ${script}
    DEPENDS ${file} ${script} VERBATIM)
  ctxb_compile_alone(${source})
  target_sources(${target} PRIVATE ${source})
endfunction()

# ctxb_nvcc_fixture(target name file.cu option...): what nvcc makes of file.cu, embedded.
function(ctxb_nvcc_fixture target name cu)
  set(output ${CMAKE_CURRENT_BINARY_DIR}/${target}_${name}.out)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CTXB_NVCC} ${ARGN} -o ${output} ${cu}
    DEPENDS ${cu} VERBATIM)
  ctxb_embed(${target} ${name} ${output})
endfunction()
