# SPDX-License-Identifier: Apache-2.0
# Run as a script: writes FOLDER/NAME_kernels.cpp, which holds FOLDER/MODULE.fatbin for each of
# MODULES as constant data: one module each, or with LINK all of them as the parts of one.
set(arrays "")
set(table "")
foreach(module ${MODULES})
  file(READ ${FOLDER}/${module}.fatbin hex HEX)
  # What the host compares with when it loads the image.
  execute_process(COMMAND cksum ${FOLDER}/${module}.fatbin OUTPUT_VARIABLE checksum
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "^[0-9]+" checksum "${checksum}")
  string(LENGTH "${hex}" digits)
  if(digits EQUAL 0)
    message(FATAL_ERROR "${FOLDER}/${module}.fatbin is empty")
  endif()
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(REGEX REPLACE "(....................................................................................................)" "\\1\n" bytes "${bytes}")
  string(APPEND arrays "alignas(64) const unsigned char ${module}_image[] = {\n${bytes}};\n\n")
  if(LINK)
    string(APPEND table "    {sizeof(ctxb_module_part), \"${module}.cu\", ${module}_image, "
                        "sizeof ${module}_image, nullptr, ${checksum}u},\n")
  else()
    string(APPEND table "    {sizeof(ctxb_module), \"${module}\", ${module}_image, "
                        "sizeof ${module}_image, nullptr, 0, 0, nullptr, nullptr, nullptr, nullptr, "
                        "${checksum}u, nullptr},\n")
  endif()
endforeach()
if(LINK)
  list(LENGTH MODULES count)
  string(APPEND arrays "const ctxb_module_part parts[] = {\n${table}};\n\n")
  set(table "    {sizeof(ctxb_module), \"${NAME}\", nullptr, 0, nullptr, 0, ${count}, parts, nullptr, nullptr, nullptr, 0, nullptr},\n")
endif()
file(WRITE ${FOLDER}/${NAME}_kernels.cpp
"// Generated; the device code as data.
#include \"${NAME}_kernels.h\"

namespace {

${arrays}}  // namespace

const ctxb_module ${NAME}_modules[] = {
${table}};
")
