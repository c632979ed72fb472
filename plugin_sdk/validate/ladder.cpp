// SPDX-License-Identifier: Apache-2.0
#include "ladder.hpp"

#include <algorithm>

#include "ctxbroker/plugin.h"

namespace ctxbroker::validate {
namespace {

constexpr Applies all{"all", nullptr};
constexpr Applies audio{"audio",
                        [](const PluginDescription& p) { return p.media == Media::audio; }};
constexpr Applies images{"images",
                         [](const PluginDescription& p) { return p.media == Media::image; }};
constexpr Applies realtime{"those with CTXB_PLUGIN_REALTIME", [](const PluginDescription& p) {
                             return (p.flags & CTXB_PLUGIN_REALTIME) != 0;
                           }};

constexpr auto file = Scope::file;
constexpr auto library = Scope::library;
constexpr auto plugin = Scope::plugin;
using N = Needs;

// Strictness: 1 it loads and runs, 2 and 3 it harms nobody, up to 5 what every host needs, up to 7
// what goes wrong in a long session, up to 10 everything.
constexpr Test tests[] = {
    {"static.library", 1, file, N::nothing, all,
     "The file is a shared library for this kind of machine.", static_library},
    {"static.entry", 1, file, N::nothing, all, "It exports the data symbol ctxb_plugin_entry.",
     static_entry},
    {"static.needed_libraries", 2, file, N::nothing, all,
     "Every library that it needs is on this machine.", static_needed_libraries},
    {"static.text_relocations", 3, file, N::nothing, all, "Its code needs no relocations.",
     static_text_relocations},
    {"static.executable_stack", 3, file, N::nothing, all,
     "It asks neither for an executable stack nor for code that can be written to.",
     static_executable_stack},
    {"static.run_path", 3, file, N::nothing, all,
     "Its run path has no empty or relative entry, and no folder to which everybody can write.",
     static_run_path},
    {"static.images", 4, file, N::nothing, all, "Every device image in the file can be read.",
     static_images},
    {"static.exports", 5, file, N::nothing, all, "It exports nothing but ctxb_plugin_entry.",
     static_exports},
    {"static.architectures", 6, file, N::nothing, all,
     "Every device image has PTX, so that it runs on later GPUs too.", static_architectures},

    {"load.loads", 1, library, N::nothing, all,
     "It loads, its init succeeds, and its descriptors follow plugin.h.", load_loads},
    {"load.context", 3, library, N::load, all, "Loading leaves the thread's contexts as they were.",
     load_context},
    {"load.no_cuda", 4, library, N::load, all,
     "Its constructors, init and descriptors make no CUDA call.", load_no_cuda},
    {"load.again", 4, library, N::load, all,
     "It can be loaded again after its end. With CTXB_PLUGIN_UNLOADABLE it leaves the process.",
     load_again},
    {"load.answers", 5, library, N::load, all,
     "Entry and factory answer alike when they are asked again, and null to unknown ids. init may "
     "be called several times.",
     load_answers},
    {"load.cuda_libraries", 5, library, N::load, all,
     "With CTXB_CUDA_KERNELS, it needs no CUDA library.", load_cuda_libraries},
    {"load.manifest", 5, library, N::load, all,
     "A manifest beside it says what its descriptors say.", load_manifest},

    {"life.create", 1, plugin, N::load, all, "It can be created and destroyed.", life_create},
    {"life.activate", 1, plugin, N::create, all, "It can be activated and deactivated.",
     life_activate},
    {"life.process", 1, plugin, N::activate, all, "It processes four jobs.", life_process},
    {"life.reactivate", 3, plugin, N::process, all,
     "It can be activated again, with other sizes, and works as before.", life_reactivate},
    {"life.instances", 4, plugin, N::process, all,
     "Several instances work turn by turn and end in any order, and each works as if it were "
     "alone.",
     life_instances},
    {"life.strikes", 5, plugin, N::create, all, "A plain life gives the host no strike to record.",
     life_strikes},
    {"life.calls", 8, plugin, N::process, all,
     "It stands 60 calls in an order that the seed decides, losses of the context among them.",
     life_calls},

    {"context.balance", 3, plugin, N::load, all,
     "Every function leaves the thread's context stack and its captures as they were.",
     context_balance},
    {"context.resets", 3, plugin, N::load, all, "It never resets a device.", context_resets},
    {"context.own_contexts", 5, plugin, N::load, all,
     "It makes no context and retains no primary context.", context_own_contexts},
    {"context.settings", 6, plugin, N::load, all,
     "It changes no limit, flag or other setting that all share.", context_settings},
    {"context.device", 7, plugin, N::process, all,
     "It uses the device that it was given, and no other one.", context_device},

    {"process.guard_bands", 2, plugin, N::process, all,
     "process writes nothing before or behind the lent buffers.", process_guard_bands},
    {"process.output_written", 2, plugin, N::process, all,
     "process writes every sample of its outputs, whatever was there before.",
     process_output_written},
    {"process.inputs_unchanged", 3, plugin, N::process, all,
     "process leaves its inputs as they are.", process_inputs_unchanged},
    {"process.row_pitch", 3, plugin, N::process, all,
     "process follows the row pitch, and writes nothing between the rows.", process_row_pitch},
    {"process.sizes", 3, plugin, N::process, all,
     "It takes every size: one pixel or frame, odd numbers, 66,000 rows, less than it was "
     "activated "
     "for.",
     process_sizes},
    {"process.deterministic", 4, plugin, N::process, all,
     "The same jobs give the same bits, in every instance.", process_deterministic},
    {"process.no_wait", 4, plugin, N::activate, all, "process does not wait for the device.",
     process_no_wait},
    {"process.no_allocation", 4, plugin, N::activate, all,
     "process allocates, frees, makes and loads nothing on the device.", process_no_allocation},
    {"process.discontinuity", 5, plugin, N::process, all,
     "After a discontinuity, nothing of the jobs before it is left.", process_discontinuity},
    {"process.host_calls", 5, plugin, N::activate, all,
     "The host has to refuse no call that process makes.", process_host_calls},
    {"process.job_stream", 5, plugin, N::process, all,
     "All work is in the job's stream, behind what makes the inputs.", process_job_stream},
    {"process.formats", 5, plugin, N::process, all,
     "It works with every number of channels and every sample type that its ports take.",
     process_formats},
    {"process.optional_inputs", 5, plugin, N::process, all, "It works without its optional inputs.",
     process_optional_inputs},
    {"process.in_place", 5, plugin, N::process, all,
     "An output that may have an input's buffer gets the same results there.", process_in_place},
    {"process.odd_values", 6, plugin, N::process, all,
     "NaNs, infinities and huge numbers among the inputs do not lead it out of its buffers.",
     process_odd_values},

    {"realtime.locks", 6, plugin, N::process, realtime, "A warm process takes no lock.",
     realtime_locks},
    {"realtime.heap", 6, plugin, N::process, realtime, "A warm process does not use the heap.",
     realtime_heap},
    {"realtime.waits", 7, plugin, N::process, realtime,
     "A warm process makes no system call that waits.", realtime_waits},

    {"audio.latency", 4, plugin, N::activate, audio,
     "Its latency is possible and constant, and its output is not earlier than it says.",
     audio_latency},
    {"audio.events", 5, plugin, N::process, audio,
     "It takes changes of its parameters within a block, and a transport.", audio_events},
    {"audio.block_size", 9, plugin, N::process, audio,
     "What it puts out does not depend on where the blocks begin. If it follows changes of a "
     "parameter "
     "within a block, the places of these changes do not depend on the blocks either.",
     audio_block_size},
    {"image.tiles", 5, plugin, N::process, images,
     "A tile shows what the whole picture shows there.", image_tiles},

    {"parameters.extremes", 3, plugin, N::process, all,
     "It works with each parameter at both ends of its range.", parameters_extremes},
    {"parameters.text", 5, plugin, N::create, all,
     "It reads the values that it prints, and refuses nonsense.", parameters_text},
    {"parameters.random", 7, plugin, N::process, all,
     "It works with parameters that the seed decides.", parameters_random},

    {"state.round_trip", 3, plugin, N::process, all,
     "What it saves, it loads, and then works as before.", state_round_trip},
    {"state.garbage", 6, plugin, N::process, all,
     "It survives a state of random bytes. What it refuses changes nothing.", state_garbage},
    {"state.truncated", 6, plugin, N::process, all, "The same for a state that is cut off.",
     state_truncated},

    {"memory.given_back", 3, plugin, N::create, all, "It gives back what it took.",
     memory_given_back},
    {"memory.steady", 6, plugin, N::create, all,
     "Its lives do not take more and more memory of the device.", memory_steady},
    {"memory.out_of_memory", 6, plugin, N::process, all,
     "If any allocation of activate fails, it says so, and works at the next try.",
     memory_out_of_memory},
    {"memory.driver_failures", 8, plugin, N::process, all,
     "The same for any call of the driver that fails.", memory_driver_failures},

    {"loss.no_calls", 5, plugin, N::process, all,
     "After a loss it calls neither the driver nor the host.", loss_no_calls},
    {"loss.reactivation", 5, plugin, N::process, all,
     "After a loss and a new activation, it works as before.", loss_reactivation},

    {"threads.other", 3, plugin, N::process, all, "process works on any thread.", threads_other},
    {"threads.at_once", 5, plugin, N::process, all,
     "Four instances work on four threads at once as one does alone.", threads_at_once},
    {"threads.parameters", 6, plugin, N::process, all, "Its parameters may change while it works.",
     threads_parameters},
    {"threads.ended", 6, plugin, N::create, all, "No life of an instance leaves a thread behind.",
     threads_ended},
};

}  // namespace

std::span<const Test> ladder() noexcept {
  return tests;
}

const Test* find_test(std::string_view id) noexcept {
  const auto found = std::find_if(std::begin(tests), std::end(tests),
                                  [&](const Test& test) { return id == test.id; });
  return found == std::end(tests) ? nullptr : found;
}

const char* to_string(Outcome outcome) noexcept {
  constexpr const char* names[] = {"pass", "fail", "skip", "crash", "hang"};
  return names[static_cast<std::size_t>(outcome)];
}

}  // namespace ctxbroker::validate
