// SPDX-License-Identifier: Apache-2.0
// Any bytes as a graph file: a graph or a Failure of the command line. A graph has all that it
// needs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "automation.hpp"
#include "exit_code.hpp"
#include "graph_plan.hpp"

namespace {

namespace host = ctxbroker::sample_host;

template <typename Read>
void attempt(const Read& read) {
  try {
    read();
  } catch (const host::Failure& failure) {
    const std::string text = failure.what();
    if (failure.code() != host::ExitCode::usage || text.find('\n') != std::string::npos) {
      std::abort();
    }
  }
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  attempt([&] {
    const host::GraphPlan plan = host::parse_graph(text, "fuzz.json");
    if (plan.outputs.empty() || plan.nodes.empty() || plan.edges.empty()) {
      std::abort();
    }
    for (const host::PlannedPort& output : plan.outputs) {
      if (output.like != 0 && output.like >= plan.inputs.size()) std::abort();
    }
  });
  attempt([&] {
    for (const host::AutomationLine& line : host::parse_automation(text, "fuzz.csv")) {
      if (!(line.time >= 0) || !(line.ramp >= 0) || line.value.empty()) std::abort();
    }
  });
  return 0;
}
