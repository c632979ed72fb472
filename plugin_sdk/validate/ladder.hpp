// SPDX-License-Identifier: Apache-2.0
// The validator's tests, in the order in which they are shown.
#pragma once

#include <span>
#include <string_view>

#include "trial.hpp"

namespace ctxbroker::validate {

std::span<const Test> ladder() noexcept;
const Test* find_test(std::string_view id) noexcept;  // null: there is none

// What a test's id begins with, up to the dot, has a file of its own: NAME_tests.cpp.
void static_library(Trial&);
void static_entry(Trial&);
void static_needed_libraries(Trial&);
void static_text_relocations(Trial&);
void static_executable_stack(Trial&);
void static_run_path(Trial&);
void static_images(Trial&);
void static_exports(Trial&);
void static_architectures(Trial&);

void load_loads(Trial&);
void load_context(Trial&);
void load_no_cuda(Trial&);
void load_again(Trial&);
void load_answers(Trial&);
void load_cuda_libraries(Trial&);
void load_manifest(Trial&);

void life_create(Trial&);
void life_activate(Trial&);
void life_process(Trial&);
void life_reactivate(Trial&);
void life_instances(Trial&);
void life_strikes(Trial&);
void life_calls(Trial&);

void context_balance(Trial&);
void context_resets(Trial&);
void context_own_contexts(Trial&);
void context_settings(Trial&);
void context_device(Trial&);

void process_guard_bands(Trial&);
void process_output_written(Trial&);
void process_inputs_unchanged(Trial&);
void process_row_pitch(Trial&);
void process_sizes(Trial&);
void process_deterministic(Trial&);
void process_discontinuity(Trial&);
void process_no_wait(Trial&);
void process_no_allocation(Trial&);
void process_host_calls(Trial&);
void process_job_stream(Trial&);
void process_formats(Trial&);
void process_optional_inputs(Trial&);
void process_in_place(Trial&);
void process_odd_values(Trial&);

void realtime_heap(Trial&);
void realtime_locks(Trial&);
void realtime_waits(Trial&);

void audio_block_size(Trial&);
void audio_events(Trial&);
void audio_latency(Trial&);
void image_tiles(Trial&);

void memory_given_back(Trial&);
void memory_steady(Trial&);
void memory_out_of_memory(Trial&);
void memory_driver_failures(Trial&);

void loss_reactivation(Trial&);
void loss_no_calls(Trial&);

void threads_other(Trial&);
void threads_at_once(Trial&);
void threads_parameters(Trial&);
void threads_ended(Trial&);

void state_round_trip(Trial&);
void state_garbage(Trial&);
void state_truncated(Trial&);

void parameters_extremes(Trial&);
void parameters_text(Trial&);
void parameters_random(Trial&);

// --behaviour: what the plug-in does to CUDA. No test of the ladder.
void observe_behaviour(Trial&);

}  // namespace ctxbroker::validate
