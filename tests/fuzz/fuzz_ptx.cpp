// SPDX-License-Identifier: Apache-2.0
// Any bytes as PTX text: a module or a SyntaxError; and a module beside itself: one module or a
// LinkError.
#include <cstddef>
#include <cstdint>

#include "ptx/link.hpp"
#include "ptx/parser.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace ptx = ctxbroker::software::ptx;
  try {
    const ptx::Module module = ptx::parse({reinterpret_cast<const char*>(data), size});
    ptx::link({{"first", module}, {"second", ptx::with_stand_ins(module)}});
  } catch (const ptx::SyntaxError&) {
    return 0;
  } catch (const ptx::LinkError&) {
    return 0;
  }
  return 0;
}
