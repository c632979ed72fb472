/* See loader_functions.h. */
        .text
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
