// The work of a probing process.
#include <exception>
#include <string_view>

#include "ctxbroker/error.hpp"
#include "ctxbroker/probe.hpp"
#include "driver/driver.hpp"
#include "gate/gate.hpp"
#include "probe/protocol.hpp"
#include "probe/subject.hpp"

namespace ctxbroker {
namespace detail {
namespace {

struct Probe {
  std::string_view name;
  void (*run)(const Subject& subject);
};

constexpr Probe probes[] = {
    {"shield", probe_shield},
    {"fault", probe_fault},
    {"memory", probe_memory},
    {"stream", probe_stream},
    {"partition", probe_partition},
    {"waits_shared", probe_waits_shared},
    {"waits_private", probe_waits_private},
    {"waits_green", probe_waits_green},
};

void run(const ProbeWords& words) {
  for (const Probe& probe : probes) {
    if (probe.name != words.probe) continue;
    const Driver driver = open_driver({words.driver, words.software_device, load_driver_past_gate});
    probe.run(Subject(driver, words.device));
    return;
  }
  throw Error(ErrorKind::invalid_argument, "there is no probe \"" + words.probe + "\"");
}

}  // namespace
}  // namespace detail

int run_probe(const std::vector<std::string>& words) noexcept {
  try {
    detail::run(detail::read_words(words));
    return 0;
  } catch (const std::exception& error) {
    detail::tell_failure(error.what());
    return 1;
  }
}

}  // namespace ctxbroker
