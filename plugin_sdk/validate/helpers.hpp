// SPDX-License-Identifier: Apache-2.0
// What several tests share: reading what a tenant's code has called, and counting threads.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rig.hpp"

namespace ctxbroker::validate {

// Kinds of guarded driver functions, by name.
bool is_waiting_call(std::string_view function) noexcept;
bool is_allocating_call(std::string_view function) noexcept;
bool is_reset(std::string_view function) noexcept;
bool is_context_call(std::string_view function) noexcept;  // makes or retains a context
bool is_setting(std::string_view function) noexcept;       // changes what others share

// "cuMemAlloc_v2 (3), cuMemFree_v2 (3)": the guarded calls between two moments that `wanted` takes.
std::string calls_between(const TenantMetrics& before, const TenantMetrics& after,
                          bool (*wanted)(std::string_view));

// Creates, activates, runs two jobs, asks for the latency, deactivates and destroys. What the
// plug-in answers is not looked at.
void live_once(Rig& rig, std::uint64_t seed);

// The outputs of so many jobs on the bench's instance, or on a new one, as run_several gives them.
// Throws Skipped if the same jobs give something else at the second time: whatever the test then
// saw, it would name a false cause.
std::vector<Bytes> steady_run(Bench& bench, int count);
std::vector<Bytes> steady_run(Rig& rig, const Setup& setup, int count);

// How many threads this process has.
std::size_t thread_count();

// The first text that contains the word; empty: none.
std::string first_with(const std::vector<std::string>& texts, std::string_view word);

}  // namespace ctxbroker::validate
