// Any bytes as a graph file: a graph or a Failure of the command line. A graph has all that it
// needs.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "exit_code.hpp"
#include "graph_plan.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's name
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace host = ctxbroker::sample_host;
  try {
    const host::GraphPlan plan =
        host::parse_graph({reinterpret_cast<const char*>(data), size}, "fuzz.json");
    if (plan.inputs.empty() || plan.outputs.empty() || plan.nodes.empty() || plan.edges.empty()) {
      std::abort();
    }
    for (const host::PlannedEnd& output : plan.outputs) {
      if (output.like >= plan.inputs.size()) std::abort();
    }
  } catch (const host::Failure& failure) {
    const std::string text = failure.what();
    if (failure.code() != host::ExitCode::usage || text.find('\n') != std::string::npos) {
      std::abort();
    }
  }
  return 0;
}
