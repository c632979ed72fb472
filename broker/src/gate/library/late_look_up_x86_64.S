/* See late_look_up.h. */
        .text

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
        call    ctxb_gate_late_answer
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

        look_up ctxb_gate_late_dlsym, dlsym
        look_up ctxb_gate_late_dlvsym, dlvsym

        .section .note.GNU-stack, "", %progbits
