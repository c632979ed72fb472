// SPDX-License-Identifier: Apache-2.0
// host_diagnosis.h
#include "ctxbroker/crash_report.hpp"
#include "ctxbroker/running_call.hpp"
#include "plugin/c_host.hpp"

using ctxbroker::detail::answered;

void ctxb_name_crashes(uint32_t on) {
  ctxbroker::name_crashes(on != 0);
}

ctxb_status ctxb_running_calls(ctxb_running_function each, void* data) {
  return answered(each != nullptr, "each is null", [&] {
    for (const ctxbroker::RunningCall& call : ctxbroker::running_calls()) {
      const ctxb_running_call given{sizeof given,
                                    0,
                                    call.plugin.c_str(),
                                    call.library.c_str(),
                                    call.function.c_str(),
                                    call.thread,
                                    static_cast<uint64_t>(call.elapsed.count())};
      each(data, &given);
    }
  });
}
