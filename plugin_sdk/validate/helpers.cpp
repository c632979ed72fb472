// SPDX-License-Identifier: Apache-2.0
#include "helpers.hpp"

#include <algorithm>
#include <filesystem>
#include <initializer_list>

namespace ctxbroker::validate {
namespace {

bool begins_with_one_of(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.substr(0, word.size()) == word; });
}

}  // namespace

bool is_waiting_call(std::string_view function) noexcept {
  return function.find("Synchronize") != std::string_view::npos ||
         begins_with_one_of(function, {"cuMemFree_v2", "cuMemFreeHost", "cuMemHostUnregister",
                                       "cuModuleUnload", "cuLibraryUnload", "cuArrayDestroy"});
}

// Without cuLibraryLoadData: the runtime library loads kernels when they are first used.
bool is_allocating_call(std::string_view function) noexcept {
  return begins_with_one_of(
      function,
      {"cuMemAlloc",          "cuMemFree",           "cuMemHostAlloc",   "cuMemHostRegister",
       "cuMemHostUnregister", "cuMemCreate",         "cuMemRelease",     "cuMemMap",
       "cuMemUnmap",          "cuMemAddressReserve", "cuMemAddressFree", "cuMemPoolCreate",
       "cuMemPoolDestroy",    "cuArrayCreate",       "cuArray3DCreate",  "cuArrayDestroy",
       "cuMipmappedArray",    "cuStreamCreate",      "cuStreamDestroy",  "cuEventCreate",
       "cuEventDestroy",      "cuModuleLoad",        "cuModuleUnload",   "cuLibraryUnload"});
}

bool is_reset(std::string_view function) noexcept {
  return begins_with_one_of(function, {"cuDevicePrimaryCtxReset"});
}

bool is_context_call(std::string_view function) noexcept {
  return begins_with_one_of(
      function, {"cuCtxCreate", "cuCtxDestroy", "cuCtxAttach", "cuCtxDetach", "cuGreenCtxCreate",
                 "cuGreenCtxDestroy", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease"});
}

bool is_setting(std::string_view function) noexcept {
  return begins_with_one_of(
      function, {"cuDevicePrimaryCtxSetFlags", "cuCtxSetLimit", "cuCtxSetCacheConfig",
                 "cuCtxSetSharedMemConfig", "cuCtxSetFlags", "cuCtxResetPersistingL2Cache",
                 "cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess", "cuDeviceSetMemPool",
                 "cuMemSetMemPool", "cuDeviceGraphMemTrim", "cuDeviceSetGraphMemAttribute"});
}

std::string calls_between(const TenantMetrics& before, const TenantMetrics& after,
                          bool (*wanted)(std::string_view)) {
  std::string text;
  for (const auto& [name, count] : after.guarded_calls) {
    const auto was = before.guarded_calls.find(name);
    const std::uint64_t more = count - (was == before.guarded_calls.end() ? 0 : was->second);
    if (more == 0 || !wanted(name)) continue;
    text += (text.empty() ? "" : ", ") + name + " (" + std::to_string(more) + ")";
  }
  return text;
}

void live_once(Rig& rig, std::uint64_t seed) {
  try {
    const Setup setup = usual_setup(rig, seed);
    PluginInstance instance = rig.active(setup.sizes);
    Bench bench(rig, instance, setup);
    bench.run_several(2);
    static_cast<void>(instance.latency_frames());
    static_cast<void>(instance.tail_frames());
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::needs_gpu) throw;
  }
}

std::vector<Bytes> steady_run(Bench& bench, int count) {
  std::vector<Bytes> first = bench.run_several(count);
  if (difference(bench.run_several(count), first).empty()) return first;
  throw Skipped(
      "the same jobs give other results when they are repeated, so it would name a false cause; "
      "process.discontinuity and process.deterministic say why");
}

std::vector<Bytes> steady_run(Rig& rig, const Setup& setup, int count) {
  const auto on_a_new_one = [&] {
    PluginInstance instance = rig.active(setup.sizes);
    return Bench(rig, instance, setup).run_several(count);
  };
  std::vector<Bytes> first = on_a_new_one();
  if (difference(on_a_new_one(), first).empty()) return first;
  throw Skipped(
      "another instance gives other results for the same jobs, so it would name a false cause; "
      "process.deterministic says why");
}

std::size_t thread_count() {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    static_cast<void>(task);
    ++count;
  }
  return count;
}

std::string first_with(const std::vector<std::string>& texts, std::string_view word) {
  for (const std::string& text : texts) {
    if (text.find(word) != std::string::npos) return text;
  }
  return "";
}

}  // namespace ctxbroker::validate
