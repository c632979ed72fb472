// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "process/environment.hpp"
#include "worker/worker_impl.hpp"

namespace ctxbroker::detail {

std::vector<std::string> worker_environment(std::vector<std::string> added) {
  constexpr std::array<std::string_view, 9> kept{
      "HOME=", "LANG=", "LD_LIBRARY_PATH=", "PATH=",   "TMPDIR=",
      "TZ=",   "CUDA_", "CTXBROKER_",       "NVIDIA_",
  };
  const auto begins_with = [](std::string_view entry, std::string_view start) {
    return entry.substr(0, start.size()) == start;
  };
  // There the driver looks for an MPS server, whose clients a fault would end with the worker.
  const std::string server = "CUDA_MPS_PIPE_DIRECTORY";
  std::error_code none;
  const bool may_be_there = kept_variable(server).has_value() ||
                            std::filesystem::exists("/tmp/nvidia-mps", none);  // the default
  const bool host_chose = std::any_of(added.begin(), added.end(), [&](const std::string& one) {
    return begins_with(one, server + "=");
  });
  if (may_be_there && !host_chose) added.push_back(server + "=/dev/null");
  std::vector<std::string> all;
  for (const std::string& entry : kept_environment()) {
    const bool wanted = std::any_of(kept.begin(), kept.end(),
                                    [&](auto start) { return begins_with(entry, start); });
    const bool replaced = std::any_of(added.begin(), added.end(), [&](const std::string& other) {
      return begins_with(entry, std::string_view(other).substr(0, other.find('=') + 1));
    });
    if (wanted && !replaced) all.emplace_back(entry);
  }
  all.insert(all.end(), added.begin(), added.end());
  return all;
}

}  // namespace ctxbroker::detail
