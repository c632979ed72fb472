/* What stands in place of dlopen, dlsym and dlvsym in libraries of tenants. Each goes on to the
 * loader's own function by a jump where that is to answer, because the loader looks at its caller.
 */
#pragma once

#include "gate/library/gate.h"

/* In loader_functions_PROCESSOR.S. */
extern const char ctxb_gate_watched_dlopen[];
extern const char ctxb_gate_late_dlsym[];
extern const char ctxb_gate_late_dlvsym[];

void ctxb_gate_observe_opens(ctxb_gate_before_open before, ctxb_gate_after_open after);

/* Opens a library for a tenant's code. 1: done, with what dlopen answered; 0: the loader is to
 * answer, because what it finds may depend on who asks. */
int ctxb_gate_open_watched(const char* file, int mode, const void* caller, void** library);

/* Where the driver was in the process before the gate, a guarded function of the driver is answered
 * with the gate's. NULL: the loader is to answer. `version` is NULL for dlsym. */
void* ctxb_gate_late_answer(void* handle, const char* name, const char* version,
                            const void* caller);
