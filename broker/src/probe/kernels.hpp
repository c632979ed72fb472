// The kernels that probes launch, as PTX for any device since compute capability 7.0.
#pragma once

namespace ctxbroker::detail {

// hold(flag): runs until the word at `flag` is not 0; add_one(address): to a word; stop(): traps.
extern const char* const probe_kernels;

}  // namespace ctxbroker::detail
