// SPDX-License-Identifier: Apache-2.0
#include "faults.hpp"

#include "memory.hpp"

namespace ctxbroker::campaign {

const std::vector<Fault>& all_faults() {
  using Cause = WorkerExitCause;
  static const std::vector<Fault> all{
      {"illegal-address",
       Doer::kernel,
       "kernel",
       "address",
       {Cause::cuda_ended},
       Named::kernel,
       Damage::all_stop},
      {"trap",
       Doer::kernel,
       "kernel",
       "trap",
       {Cause::cuda_ended},
       Named::kernel,
       Damage::all_stop},
      {"assert",
       Doer::kernel,
       "kernel",
       "assert",
       {Cause::cuda_ended},
       Named::kernel,
       Damage::all_stop},
      {"misaligned",
       Doer::kernel,
       "kernel",
       "misaligned",
       {Cause::cuda_ended},
       Named::kernel,
       Damage::all_stop},
      {"endless-kernel",
       Doer::kernel,
       "kernel",
       "endless",
       {Cause::cuda_ended},
       Named::plugin,
       Damage::thread_is_lost},
      {"segfault",
       Doer::plugin,
       "way",
       "segv",
       {Cause::signal},
       Named::function,
       Damage::process_ends},
      {"abort",
       Doer::plugin,
       "way",
       "abort",
       {Cause::signal},
       Named::function,
       Damage::process_ends},
      {"exit", Doer::plugin, "way", "exit", {Cause::exited}, Named::function, Damage::process_ends},
      {"stack-overflow",
       Doer::plugin,
       "way",
       "overflow",
       {Cause::signal},
       Named::function,
       Damage::process_ends},
      {"deadlock",
       Doer::plugin,
       "way",
       "deadlock",
       {Cause::late},
       Named::function,
       Damage::thread_is_lost},
      {"out-of-memory",
       Doer::plugin,
       "way",
       "memory",
       {Cause::out_of_memory},
       Named::function,
       Damage::process_ends},
      {"kill-9",
       Doer::kills,
       "way",
       "deadlock",
       {Cause::signal},
       Named::function,
       Damage::process_ends},
      {"kill-stop",
       Doer::stops,
       "way",
       "deadlock",
       {Cause::stopped},
       Named::function,
       Damage::process_ends},
      {"channel-garbage",
       Doer::plugin,
       "way",
       "garbage",
       {Cause::lie},
       Named::worker,
       Damage::none},
      {"socket-garbage",
       Doer::plugin,
       "way",
       "packet",
       {Cause::lie},
       Named::function,
       Damage::none},
  };
  return all;
}

const Fault* find_fault(const std::string& name) {
  for (const Fault& fault : all_faults()) {
    if (name == fault.name) return &fault;
  }
  return nullptr;
}

std::string why_left_out(const Fault& fault) {
  if (!sanitized || std::string(fault.name) != "out-of-memory") return {};
  return "a sanitizer needs the memory itself";
}

}  // namespace ctxbroker::campaign
