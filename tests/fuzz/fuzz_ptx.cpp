// Any bytes as PTX text: a module or a SyntaxError.
#include <cstddef>
#include <cstdint>

#include "ptx/parser.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace ptx = ctxbroker::software::ptx;
  try {
    ptx::parse({reinterpret_cast<const char*>(data), size});
  } catch (const ptx::SyntaxError&) {
    return 0;
  }
  return 0;
}
