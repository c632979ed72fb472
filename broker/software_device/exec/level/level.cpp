// SPDX-License-Identifier: Apache-2.0
// The tables of one level, in the order that all levels share.
#include "exec/level/lanes.hpp"

namespace ctxbroker::software::exec::CTXB_LEVEL {
namespace {

const OpEntry* const tables[] = {
    integer_ops, bit_ops,   float_ops,  compare_ops, convert_ops, math_ops,  half_ops,
    load_ops,    store_ops, atomic_ops, warp_ops,    control_ops, stack_ops, nullptr,
};

}  // namespace

extern const Level level = {tables, run_lockstep, run_lane, scalar_guard};

}  // namespace ctxbroker::software::exec::CTXB_LEVEL
