// SPDX-License-Identifier: Apache-2.0
/* See parts.h. */
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
        .type   \symbol, @function
\symbol:
        endbr64
        jmp     *(ctxb_gate_targets + 8 * index)(%rip)
        .balign 16
        endbr64
        push    $index
        jmp     open_first
        .size   \symbol, . - \symbol
        .set    index, index + 1
        .endm

#define CTXB_DRIVER_FUNCTION(symbol, base, version, per_thread, scope, rule) block symbol
#include "driver/function_table.inc"
#undef CTXB_DRIVER_FUNCTION

/* The index is on the stack, above it the caller's return address. Every register that carries an
 * argument is kept. */
        .balign 16
        .type   open_first, @function
open_first:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        push    %rdi
        push    %rsi
        push    %rdx
        push    %rcx
        push    %r8
        push    %r9
        push    %rax
        .cfi_def_cfa_offset 72
        sub     $136, %rsp
        .cfi_def_cfa_offset 208
        movups  %xmm0, (%rsp)
        movups  %xmm1, 16(%rsp)
        movups  %xmm2, 32(%rsp)
        movups  %xmm3, 48(%rsp)
        movups  %xmm4, 64(%rsp)
        movups  %xmm5, 80(%rsp)
        movups  %xmm6, 96(%rsp)
        movups  %xmm7, 112(%rsp)
        mov     192(%rsp), %rdi
        call    ctxb_gate_resolve
        mov     %rax, %r11
        movups  (%rsp), %xmm0
        movups  16(%rsp), %xmm1
        movups  32(%rsp), %xmm2
        movups  48(%rsp), %xmm3
        movups  64(%rsp), %xmm4
        movups  80(%rsp), %xmm5
        movups  96(%rsp), %xmm6
        movups  112(%rsp), %xmm7
        add     $136, %rsp
        .cfi_def_cfa_offset 72
        pop     %rax
        pop     %r9
        pop     %r8
        pop     %rcx
        pop     %rdx
        pop     %rsi
        pop     %rdi
        add     $8, %rsp
        .cfi_def_cfa_offset 8
        jmp     *%r11
        .cfi_endproc
        .size   open_first, . - open_first

/* What stands in place of functions of the loader. */
        .balign 16
        .globl  ctxb_gate_watched_dlopen
        .hidden ctxb_gate_watched_dlopen
        .type   ctxb_gate_watched_dlopen, @function
ctxb_gate_watched_dlopen:
        .cfi_startproc
        endbr64
        push    %rdi
        push    %rsi
        push    $0
        .cfi_def_cfa_offset 32
        mov     24(%rsp), %rdx
        mov     %rsp, %rcx
        call    ctxb_gate_open_watched
        pop     %rdx
        pop     %rsi
        pop     %rdi
        .cfi_def_cfa_offset 8
        test    %eax, %eax
        jz      1f
        mov     %rdx, %rax
        ret
1:      jmp     *dlopen@GOTPCREL(%rip)
        .cfi_endproc
        .size   ctxb_gate_watched_dlopen, . - ctxb_gate_watched_dlopen

        .macro  look_up symbol, loaders
        .balign 16
        .globl  \symbol
        .hidden \symbol
        .type   \symbol, @function
\symbol:
        .cfi_startproc
        endbr64
        push    %rdi
        push    %rsi
        push    %rdx
        .cfi_def_cfa_offset 32
        .ifc \loaders, dlsym
        xor     %edx, %edx
        .endif
        mov     24(%rsp), %rcx
        call    ctxb_gate_look_up_watched
        pop     %rdx
        pop     %rsi
        pop     %rdi
        .cfi_def_cfa_offset 8
        test    %rax, %rax
        jz      1f
        ret
1:      jmp     *\loaders@GOTPCREL(%rip)
        .cfi_endproc
        .size   \symbol, . - \symbol
        .endm

        look_up ctxb_gate_watched_dlsym, dlsym
        look_up ctxb_gate_watched_dlvsym, dlvsym

        .section .note.GNU-stack, "", %progbits
