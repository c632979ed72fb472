/* What stands in place of dlsym and dlvsym in a tenant's library when the driver was in the process
 * before the gate: a guarded function of the driver is answered with the gate's, everything else is
 * the loader's own business. They go on to the loader by a jump, for it looks at its caller. */
#pragma once

#include "gate/library/gate.h"

/* In late_look_up_PROCESSOR.S. */
extern const char ctxb_gate_late_dlsym[];
extern const char ctxb_gate_late_dlvsym[];

/* The gate's function; NULL: the loader is to answer. `version` is NULL for dlsym. */
void* ctxb_gate_late_answer(void* handle, const char* name, const char* version,
                            const void* caller);
