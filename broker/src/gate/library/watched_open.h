/* What stands in place of dlopen in a library that is watched. Where the loader looks for a library
 * may depend on who asks: then it goes on to the loader by a jump, for that looks at its caller. */
#pragma once

#include "gate/library/gate.h"

/* In watched_open_PROCESSOR.S. */
extern const char ctxb_gate_watched_dlopen[];

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_after_open after);

/* 1: done, with what dlopen answered; 0: the loader is to answer. */
int ctxb_gate_open_watched(const char* file, int mode, const void* caller, void** library);
