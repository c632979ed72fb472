// SPDX-License-Identifier: Apache-2.0
// Any bytes as PTX text: a program or a SyntaxError; and a module beside itself: one module or a
// LinkError.
#include <cstddef>
#include <cstdint>

#include "exec/program.hpp"
#include "ptx/link.hpp"
#include "ptx/parser.hpp"

namespace {

// Runs `step`, which may find a mistake in the text.
template <typename Step>
void attempt(const Step& step) {
  namespace ptx = ctxbroker::software::ptx;
  try {
    step();
  } catch (const ptx::SyntaxError&) {
    return;
  } catch (const ptx::LinkError&) {
    return;
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace ptx = ctxbroker::software::ptx;
  attempt([&] {
    ptx::ModuleBudget budget;
    const ptx::Module module = ptx::parse({reinterpret_cast<const char*>(data), size}, budget);
    attempt([&] { ctxbroker::software::exec::compile(module, budget); });
    ptx::link({{"first", module}, {"second", ptx::with_stand_ins(module)}});
  });
  return 0;
}
