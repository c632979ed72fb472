// SPDX-License-Identifier: Apache-2.0
// Which instruction-set levels there are, which this machine has, and their operations by name.
#include <array>
#include <cstdlib>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "exec/code.hpp"

namespace ctxbroker::software::exec {
namespace {

CpuLevel detect() noexcept {
#if defined(__x86_64__) && !defined(CTXB_BASELINE_ONLY)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  if (!avx2) return CpuLevel::baseline;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return avx512 ? CpuLevel::avx512 : CpuLevel::avx2;
#else
  return CpuLevel::baseline;
#endif
}

// In the order of CpuLevel.
#ifdef CTXB_BASELINE_ONLY
constexpr std::array levels{&baseline::level};
#else
constexpr std::array levels{&baseline::level, &avx2::level, &avx512::level};
#endif

// All operations of a level in one row.
std::vector<const OpEntry*> flatten(const Level& level) {
  std::vector<const OpEntry*> all;
  for (const OpEntry* const* table = level.tables; *table != nullptr; ++table) {
    for (const OpEntry* entry = *table; entry->name != nullptr; ++entry) all.push_back(entry);
  }
  return all;
}

}  // namespace

CpuLevel best_cpu_level() noexcept {
  const CpuLevel found = detect();
  const char* wanted = std::getenv("CTXBROKER_SOFTWARE_CPU");
  if (wanted == nullptr) return found;
  const std::string_view name = wanted;
  CpuLevel asked = found;
  if (name == "baseline") asked = CpuLevel::baseline;
  if (name == "avx2") asked = CpuLevel::avx2;
  return asked < found ? asked : found;
}

const Level& level_of(CpuLevel level) noexcept {
  return *levels[static_cast<std::size_t>(level)];
}

const OpEntry& op_entry(CpuLevel level, OpId id) {
  // Never destroyed: a kernel that does not end goes on while static objects are.
  static const auto& rows = *[] {
    auto& all = *new std::vector<std::vector<const OpEntry*>>;
    for (const Level* each : levels) all.push_back(flatten(*each));
    return &all;
  }();
  return *rows[static_cast<std::size_t>(level)][id];
}

const Op* find_op(std::string_view name) {
  static const auto& by_name = *[] {
    auto& map = *new std::unordered_map<std::string_view, Op>;  // never destroyed, as above
    OpId id = 0;
    for (const OpEntry* entry : flatten(baseline::level)) map[entry->name] = {id++, entry};
    return &map;
  }();
  const auto found = by_name.find(name);
  return found == by_name.end() ? nullptr : &found->second;
}

}  // namespace ctxbroker::software::exec
