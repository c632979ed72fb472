/* See loader_functions.h. (hint #34 is "bti c", which older assemblers do not know by name.) */
        .text
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
        bl      ctxb_gate_late_answer
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

        look_up ctxb_gate_late_dlsym, dlsym
        look_up ctxb_gate_late_dlvsym, dlvsym

        .section .note.GNU-stack, "", %progbits
