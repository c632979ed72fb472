/* The exported functions are blocks of machine code of one size, one after the other in the order
 * of gate_table.inc. A block jumps through its slot; until a driver is behind the gate its slot
 * leads to the second half of the block, which asks gate.c to open one. */
#pragma once

#define CTXB_GATE_BLOCK_BYTES 32

#ifndef __ASSEMBLER__
#include "gate/library/gate.h"

extern const char ctxb_gate_blocks[];
extern ctxb_gate_function ctxb_gate_slots[];

/* Called by the second half of block `index`; returns where to go on. */
ctxb_gate_function ctxb_gate_resolve(uint64_t index);
#endif
