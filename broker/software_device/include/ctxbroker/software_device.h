// SPDX-License-Identifier: Apache-2.0
/* Controls of the software device: say what a fault was, make driver calls fail, count them, start
 * over.
 *
 * The software device (libctxbroker_software_device.so) exports these beside the driver's own
 * names. Load it with dlopen and look them up with dlsym; no other driver has them. Any thread may
 * call them unless a function says otherwise; all but ctxb_software_restart work before cuInit.
 *
 * A call is counted when an exported cu* function is entered, whatever comes of it; the names of
 * this header are not. Counting is off until the first ctxb_software_start_counting or
 * ctxb_software_fail_call, or from the first call on where CTXBROKER_SOFTWARE_FAIL is set:
 *
 *     CTXBROKER_SOFTWARE_FAIL=cuMemAlloc_v2:3=CUDA_ERROR_OUT_OF_MEMORY,*:17=CUDA_ERROR_UNKNOWN
 *
 * makes the third cuMemAlloc_v2 and the 17th call of all fail. A text that is not of this form
 * makes cuInit fail with CUDA_ERROR_INVALID_VALUE and say on stderr what is wrong. */
#ifndef CTXBROKER_SOFTWARE_DEVICE_H
#define CTXBROKER_SOFTWARE_DEVICE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes the nth call of `name` from now on fail, once (1: the next). `name` as exported
 * ("cuMemAlloc_v2"); "*" or null: of all calls. `status` is a CUresult and what the call returns:
 *  - a status of a fault (CUDA_ERROR_ILLEGAL_ADDRESS, LAUNCH_FAILED, ASSERT and their like) ends
 *    CUDA for the process, as a kernel's fault does, and every later call reports it;
 *  - CUDA_ERROR_CONTEXT_IS_DESTROYED destroys the calling thread's current context: a private or
 *    green one as its own call does, a primary as a reset behind everybody's back does, with its
 *    green contexts;
 *  - any other has no effect but the return.
 * Before cuInit, and in a host function, no status has another effect. Returns 0, or
 * CUDA_ERROR_INVALID_VALUE (1) for a name that is not exported, an n of 0 or a status that is none.
 */
int ctxb_software_fail_call(const char* name, uint64_t nth, int status);

/* Forgets all counts, and all failures that have not come yet; counts from now on. */
void ctxb_software_start_counting(void);

/* The same, but counts no more: the calls are as fast as ever. */
void ctxb_software_stop_counting(void);

/* How many calls of `name` were counted; "*" or null: of all names. */
uint64_t ctxb_software_call_count(const char* name);

/* The name of the call that was last made to fail since counting started, or null. Static memory.
 */
const char* ctxb_software_failed_call(void);

/* Forgets everything since cuInit: contexts, memory, work, and the fault that ended CUDA for the
 * process. cuInit is needed again. Kernels that run are interrupted. What was not executed never
 * is. Handles of the old life answer CUDA_ERROR_INVALID_HANDLE or INVALID_CONTEXT, but for the
 * handles of primary contexts, which are the same in every life. Counts and failures that have not
 * come yet stay.
 * No other thread may be inside a driver call. Returns 0; CUDA_ERROR_NOT_READY (600) when another
 * thread has a context current or waits in a call, with nothing changed;
 * CUDA_ERROR_NOT_PERMITTED (800) in a host function; CUDA_ERROR_NOT_INITIALIZED (3) without a
 * cuInit. */
int ctxb_software_restart(void);

/* What the fault was that ended CUDA in this process: the kernel, where in its source, block and
 * thread, the access and the memory around it, in one sentence. "" while there was none, and for
 * one that ctxb_software_fail_call made. `owner` is who launched the work, as
 * ctxb_software_ask_owner tells; null: unknown. Both may be null, and what they get stays for ever.
 * Returns 0. */
int ctxb_software_fault(const char** text, const char** owner);

/* From now on, `owner` tells in whose name a thread calls the driver. It is called when memory is
 * allocated or freed and when work is enqueued, on the calling thread and possibly with locks held,
 * so it must not call the driver. It returns a text that stays for ever, or null for nobody in
 * particular. Null ends the asking. Without it, faults name no owners. Returns 0. */
int ctxb_software_ask_owner(const char* (*owner)(void));

#ifdef __cplusplus
}
#endif

#endif
