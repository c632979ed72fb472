// SPDX-License-Identifier: Apache-2.0
#include "api/call_count.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "api/context.hpp"
#include "api/device.hpp"
#include "api/entry.hpp"
#include "api/error_names.hpp"
#include "api/failure_rule.hpp"
#include "api/logs.hpp"
#include "api/process.hpp"
#include "ctxbroker/software_device.h"

namespace ctxbroker::software {

namespace detail {
constinit std::atomic<Counting> counting = Counting::unknown;
}

namespace {

using detail::Counting;
using detail::counting;

// Calls are counted before cuInit and after the process's end: never destroyed, in no Process.
struct Calls {
  std::mutex mutex;
  bool environment_read = false;
  std::string wrong;  // with the environment's text
  std::uint64_t all = 0;
  std::unordered_map<std::string_view, std::uint64_t> by_name;
  std::vector<FailureRule> rules;
  std::string_view last_failed;
};

Calls& calls() {
  static Calls& all = *new Calls;
  return all;
}

// With the lock held.
void read_environment(Calls& state) {
  if (state.environment_read) return;
  state.environment_read = true;
  const char* text = std::getenv("CTXBROKER_SOFTWARE_FAIL");
  bool set = text != nullptr && *text != 0;
  if (set) {
    auto parsed = parse_failure_rules(text);
    if (auto* rules = std::get_if<std::vector<FailureRule>>(&parsed))
      state.rules = std::move(*rules);
    else
      state.wrong = std::get<std::string>(parsed);
  }
  counting = set ? Counting::on : Counting::off;
}

void start_over(Calls& state, Counting how) {
  state.environment_read = true;
  state.all = 0;
  state.by_name.clear();
  state.rules.clear();
  state.last_failed = {};
  counting = how;
}

// Counts; the status of the rule whose turn it is.
CUresult take_turn(const char* name) {  // static, as all names here
  Calls& state = calls();
  std::lock_guard lock(state.mutex);
  read_environment(state);
  if (counting != Counting::on) return CUDA_SUCCESS;
  ++state.all;
  ++state.by_name[name];
  CUresult status = CUDA_SUCCESS;
  for (FailureRule& rule : state.rules)
    if ((rule.name.empty() || rule.name == name) && --rule.after == 0 && status == CUDA_SUCCESS)
      status = rule.status;
  std::erase_if(state.rules, [](const FailureRule& rule) { return rule.after == 0; });
  if (status != CUDA_SUCCESS) state.last_failed = name;
  return status;
}

// By number, not by enumerator: what the hardware and the kernels report.
bool is_fault(CUresult status) {
  constexpr int faults[] = {214, 219, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721};
  return std::find(std::begin(faults), std::end(faults), static_cast<int>(status)) !=
         std::end(faults);
}

void lose(Context& context) {
  switch (context.kind) {
    case ContextKind::primary:
      context.device.lose_primary();
      return;
    case ContextKind::own:
      destroy_context(context);
      return;
    case ContextKind::green:
      context.device.destroy_green(context);
      return;
  }
}

void take_effect(CUresult status) {
  if (Process::admission() != CUDA_SUCCESS) return;
  if (is_fault(status)) Process::raise_fault(status);
  if (status == CUDA_ERROR_CONTEXT_IS_DESTROYED && context_stack::top() != nullptr)
    lose(living_context(nullptr));
}

}  // namespace

CUresult detail::count_call_slowly(const char* name) noexcept {
  CUresult status = CUDA_SUCCESS;
  CUresult counted = at_any_time([&] { status = take_turn(name); });
  if (counted != CUDA_SUCCESS) return counted;
  if (status != CUDA_SUCCESS) at_any_time([&] { take_effect(status); });
  return status;
}

CUresult check_failures_of_environment() noexcept {
  return at_any_time([&] {
    Calls& state = calls();
    std::lock_guard lock(state.mutex);
    read_environment(state);
    if (state.wrong.empty()) return CUDA_SUCCESS;
    std::fprintf(stderr, "CTXBROKER_SOFTWARE_FAIL: %s\n", state.wrong.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  });
}

}  // namespace ctxbroker::software

using namespace ctxbroker::software;

namespace {

bool means_any(const char* name) {
  return name == nullptr || std::string_view(name) == "*";
}

}  // namespace

// For the calls that are not implemented, which are in C.
extern "C" int ctxb_refuse_unsupported_call(const char* name) {
  if (CUresult status = count_call(name); status != CUDA_SUCCESS) return status;
  return at_any_time([&] { refuse(name); });
}

CTXB_EXPORT int ctxb_software_fail_call(const char* name, std::uint64_t nth, int status) {
  return at_any_time([&] {
    FailureRule rule{{}, nth, static_cast<CUresult>(status)};
    const char* found = means_any(name) ? "" : find_entry_name(name);
    check_value(found != nullptr && nth != 0 && status != CUDA_SUCCESS &&
                find_error_name(rule.status).has_value());
    rule.name = found;
    Calls& state = calls();
    std::lock_guard lock(state.mutex);
    read_environment(state);
    state.rules.push_back(rule);
    counting = detail::Counting::on;
  });
}

CTXB_EXPORT void ctxb_software_start_counting() {
  std::lock_guard lock(calls().mutex);
  start_over(calls(), detail::Counting::on);
}

CTXB_EXPORT void ctxb_software_stop_counting() {
  std::lock_guard lock(calls().mutex);
  start_over(calls(), detail::Counting::off);
}

CTXB_EXPORT std::uint64_t ctxb_software_call_count(const char* name) {
  Calls& state = calls();
  std::lock_guard lock(state.mutex);
  if (means_any(name)) return state.all;
  auto found = state.by_name.find(name);
  return found == state.by_name.end() ? 0 : found->second;
}

CTXB_EXPORT const char* ctxb_software_failed_call() {
  std::lock_guard lock(calls().mutex);
  return calls().last_failed.data();
}

CTXB_EXPORT int ctxb_software_restart() {
  return at_any_time([] { return Process::restart(); });
}
