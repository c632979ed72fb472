// SPDX-License-Identifier: Apache-2.0
// The ctxb_host struct that one instance gets, and the functions in it.
#pragma once

#include "ctxbroker/plugin.h"

namespace ctxbroker::detail {

class Instance;

// `host` comes first, so that the address which a plug-in hands back is the address of this struct.
struct HostSide {
  ctxb_host host;
  Instance* instance;
};

// Borrows the strings, which must live as long as the instance.
HostSide make_host_side(Instance& instance, const char* name, const char* version) noexcept;

// Returns the instance that a host pointer belongs to, or null for null.
inline Instance* instance_of(const ctxb_host* host) noexcept {
  return host == nullptr ? nullptr : reinterpret_cast<const HostSide*>(host)->instance;
}

// The tables behind get_extension: static data.
extern const ctxb_gpu_extension gpu_extension;
extern const ctxb_launch_extension launch_extension;
extern const ctxb_native_context_extension native_context_extension;
extern const ctxb_thread_check_extension thread_check_extension;

}  // namespace ctxbroker::detail
