// SPDX-License-Identifier: Apache-2.0
// Any bytes as a preset: a preset that can be written and read again, or an Error of kind preset.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "ctxbroker/error.hpp"
#include "ctxbroker/preset.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    const ctxbroker::Preset preset =
        ctxbroker::parse_preset({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    const ctxbroker::Preset again = ctxbroker::parse_preset(ctxbroker::to_json(preset));
    if (again.values != preset.values || again.state != preset.state) std::abort();
  } catch (const ctxbroker::Error& error) {
    if (error.kind() != ctxbroker::ErrorKind::preset || error.message().empty()) std::abort();
  }
  return 0;
}
