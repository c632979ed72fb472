// SPDX-License-Identifier: Apache-2.0
/* See parts.h. (hint #34 is "bti c", which older assemblers do not know by name.) */
#include "gate/library/parts.h"

        .text
        .set    index, 0
        .balign CTXB_GATE_BLOCK_BYTES
        .globl  ctxb_gate_blocks
        .hidden ctxb_gate_blocks
ctxb_gate_blocks:

        .macro  block symbol
        .balign CTXB_GATE_BLOCK_BYTES
        .globl  \symbol
        .type   \symbol, %function
\symbol:
        hint    #34
        adrp    x16, ctxb_gate_targets + 8 * index
        ldr     x16, [x16, :lo12:ctxb_gate_targets + 8 * index]
        br      x16
        hint    #34
        mov     w17, #index
        b       open_first
        .size   \symbol, . - \symbol
        .set    index, index + 1
        .endm

#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) block symbol
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION

/* The index is in w17. Every register that carries an argument is kept. */
        .balign 16
        .type   open_first, %function
open_first:
        .cfi_startproc
        stp     x29, x30, [sp, #-224]!
        .cfi_def_cfa_offset 224
        .cfi_offset 29, -224
        .cfi_offset 30, -216
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        stp     x2, x3, [sp, #32]
        stp     x4, x5, [sp, #48]
        stp     x6, x7, [sp, #64]
        str     x8, [sp, #80]
        stp     q0, q1, [sp, #96]
        stp     q2, q3, [sp, #128]
        stp     q4, q5, [sp, #160]
        stp     q6, q7, [sp, #192]
        mov     w0, w17
        bl      ctxb_gate_resolve
        mov     x16, x0
        ldp     q6, q7, [sp, #192]
        ldp     q4, q5, [sp, #160]
        ldp     q2, q3, [sp, #128]
        ldp     q0, q1, [sp, #96]
        ldr     x8, [sp, #80]
        ldp     x6, x7, [sp, #64]
        ldp     x4, x5, [sp, #48]
        ldp     x2, x3, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #224
        .cfi_def_cfa_offset 0
        br      x16
        .cfi_endproc
        .size   open_first, . - open_first

/* What stands in place of functions of the loader. */
        .balign 16
        .globl  ctxb_gate_watched_dlopen
        .hidden ctxb_gate_watched_dlopen
        .type   ctxb_gate_watched_dlopen, %function
ctxb_gate_watched_dlopen:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset 29, -48
        .cfi_offset 30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     xzr, [sp, #32]
        mov     x2, x30
        add     x3, sp, #32
        bl      ctxb_gate_open_watched
        mov     w16, w0
        ldr     x17, [sp, #32]
        ldp     x0, x1, [sp, #16]
        ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        .cfi_restore 29
        .cfi_restore 30
        cbz     w16, 1f
        mov     x0, x17
        ret
1:      adrp    x16, :got:dlopen
        ldr     x16, [x16, :got_lo12:dlopen]
        br      x16
        .cfi_endproc
        .size   ctxb_gate_watched_dlopen, . - ctxb_gate_watched_dlopen

        .macro  look_up symbol, loaders
        .balign 16
        .globl  \symbol
        .hidden \symbol
        .type   \symbol, %function
\symbol:
        .cfi_startproc
        hint    #34
        stp     x29, x30, [sp, #-48]!
        .cfi_def_cfa_offset 48
        .cfi_offset 29, -48
        .cfi_offset 30, -40
        mov     x29, sp
        stp     x0, x1, [sp, #16]
        str     x2, [sp, #32]
        .ifc \loaders, dlsym
        mov     x2, xzr
        .endif
        mov     x3, x30
        bl      ctxb_gate_look_up_watched
        mov     x16, x0
        ldp     x0, x1, [sp, #16]
        ldr     x2, [sp, #32]
        ldp     x29, x30, [sp], #48
        .cfi_def_cfa_offset 0
        .cfi_restore 29
        .cfi_restore 30
        cbz     x16, 1f
        mov     x0, x16
        ret
1:      adrp    x16, :got:\loaders
        ldr     x16, [x16, :got_lo12:\loaders]
        br      x16
        .cfi_endproc
        .size   \symbol, . - \symbol
        .endm

        look_up ctxb_gate_watched_dlsym, dlsym
        look_up ctxb_gate_watched_dlvsym, dlvsym

        .section .note.GNU-stack, "", %progbits
