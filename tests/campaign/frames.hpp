// SPDX-License-Identifier: Apache-2.0
// Frames of the fixture `hostile`, and what each has to become, computed without it.
#pragma once

#include <cstdint>
#include <vector>

#include "ctxbroker/graph.hpp"

namespace ctxbroker::campaign {

inline constexpr std::uint32_t width = 32, height = 16;
inline constexpr int plugin_count = 8;

// Each plug-in has a factor of its own, so that no one's frame is right for another.
constexpr double factor_of(int plugin) {
  return 2 + plugin;
}

JobInfo job_of(std::int64_t position);
std::vector<float> input_of(int plugin, std::int64_t position);
std::vector<float> expected_of(int plugin, std::int64_t position);
// What an output holds before its job: no right frame has it.
std::vector<float> empty_output();

}  // namespace ctxbroker::campaign
