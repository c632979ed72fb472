# SPDX-License-Identifier: Apache-2.0
# A C++ source with FILE's bytes as ctxbroker::fixtures::NAME. Run with cmake -P.
file(READ ${FILE} hex HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes
       "${bytes}")
file(WRITE ${OUTPUT}
"#include <string_view>
namespace ctxbroker::fixtures {
namespace {
constexpr unsigned char bytes[] = {
${bytes}0};
}
extern const std::string_view ${NAME};
const std::string_view ${NAME}(reinterpret_cast<const char*>(bytes), sizeof bytes - 1);
}
")
