// SPDX-License-Identifier: Apache-2.0
#include "driver_check.hpp"

#include <exception>
#include <utility>

#include "ctxbroker/broker.hpp"
#include "process/process.hpp"

namespace ctxbroker::sample_host {

std::string check_driver(const std::filesystem::path& program,
                         const std::vector<std::string>& arguments,
                         std::chrono::milliseconds deadline) {
  const auto ended = detail::run_process(program, arguments, deadline);
  const char* const remedy =
      ". See whether nvidia-smi hangs too, and look at dmesg; reload the kernel module (sudo rmmod "
      "nvidia_uvm && sudo modprobe nvidia_uvm), or reboot";
  if (ended.timed_out) {
    return "the driver hangs: its first calls (cuInit) did not return within " +
           std::to_string(deadline.count()) + " ms in a process of their own" + remedy;
  }
  if (ended.signal != 0) {
    return "the driver crashes: signal " + std::to_string(ended.signal) +
           " ended a process of its own in its first calls (cuInit)" + remedy;
  }
  return {};
}

int run_driver_check(const std::vector<std::string>& words) noexcept {
  try {
    BrokerOptions options;
    if (!words.empty()) options.driver = parse_driver_choice(words.front());
    const Broker broker = Broker::open(std::move(options));
    return 0;
  } catch (const std::exception&) {
    return 1;  // the process that asked will see the same, and say it
  }
}

}  // namespace ctxbroker::sample_host
