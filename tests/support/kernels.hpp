// SPDX-License-Identifier: Apache-2.0
// Kernels as PTX text, for any device since sm_70.
#pragma once

namespace ctxbroker {

// The kernels below in one module, which also has add_one(address, count), bump() of the variable
// counter, and shared_sum(in, out, count).
extern const char* const kernels_ptx;

// Each alone in a module of its own.
extern const char* const crash_ptx;  // crash() stores to an address that is nobody's.
extern const char* const empty_ptx;  // empty() does nothing.
extern const char* const fill_ptx;   // fill(address, value, count) stores `count` words.
extern const char* const hold_ptx;   // hold(flag) runs until the word is no longer 0.
extern const char* const trap_ptx;   // trap() ends with a trap.

}  // namespace ctxbroker
