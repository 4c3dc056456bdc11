//! A small call tree with all cases that are difficult for a walk by frame pointers. `cargo xtask sweep` sends an NMI
//! to each of its instructions.
//!
//! Every function is called at only one place in the tree, so each instruction has exactly one right stack. The sweep
//! computes it from the disassembly. Interrupts are off.

use core::arch::global_asm;

unsafe extern "C" {
    /// The whole tree, once.
    safe fn tree_root();
}

/// Runs the tree. This is its only caller.
#[inline(never)]
pub fn climb() {
    tree_root();
    core::hint::black_box(());
}

global_asm!(
    r#"
.macro tree_function name
  .balign 16
  .type tree_\name, @function
  tree_\name:
.endm
.macro tree_end name
  .size tree_\name, . - tree_\name
.endm

// The usual prologue, with endbr64 before it; nothing is called.
.macro tree_small name
  tree_function \name
    endbr64
    push rbp
    mov rbp, rsp
    nop
    pop rbp
    ret
  tree_end \name
.endm

// No frame at all.
.macro tree_leaf name
  tree_function \name
    lea rax, [rdi + 1]
    imul rax, rax
    add rax, 7
    ret
  tree_end \name
.endm

// A frame with locals that are not written, so they have what earlier calls left there. Ends with `leave`.
.macro tree_framed name, leaf, small
  tree_function \name
    push rbp
    mov rbp, rsp
    sub rsp, 16
    call tree_\leaf
    nop
    call tree_\small
    leave
    ret
  tree_end \name
.endm

// Shrink-wrapped: returns early without a frame if edi is 0. Otherwise it makes a frame for its calls, removes it, and
// continues without a frame.
.macro tree_wrapped name, small
  tree_function \name
    test edi, edi
    je 2f
    lea rax, [rdi + 5]
    push rbp
    mov rbp, rsp
    push rbx
    call tree_\small
    mov rax, rbx
    pop rbx
    pop rbp
    add rax, 1
    imul rax, rax
    add rax, 3
  2:
    ret
  tree_end \name
.endm

.text
  tree_function root
    push rbp
    mov rbp, rsp
    push rbx
    sub rsp, 40
    call tree_framed
    call tree_leaf
    mov ebx, 1
  2:
    mov edi, ebx
    call tree_wrapped
    dec ebx
    jns 2b
    call tree_tail
    call tree_stub
    mov ebx, 1
  2:
    mov edi, ebx
    lea rax, [rip + tree_wrapped_by_register]
    call rax
    dec ebx
    jns 2b
    lea rbx, [rip + tree_framed_by_register]
    call rbx
    lea rax, [rip + tree_leaf_by_memory]
    mov [rsp], rax
    call [rsp]
    call tree_naked
    add rsp, 40
    pop rbx
    pop rbp
    ret
  tree_end root

  tree_framed framed, leaf_of_framed, small_of_framed
  tree_leaf leaf_of_framed
  tree_small small_of_framed
  tree_leaf leaf
  tree_wrapped wrapped, small_of_wrapped
  tree_small small_of_wrapped

  // Ends with a tail call.
  tree_function tail
    push rbp
    mov rbp, rsp
    call tree_small_of_tail
    pop rbp
    jmp tree_framed_by_jump
  tree_end tail
  tree_small small_of_tail
  tree_framed framed_by_jump, leaf_by_jump, small_by_jump
  tree_leaf leaf_by_jump
  tree_small small_by_jump

  // Saves rbp without making a frame.
  tree_function stub
    nop
    push rbp
    nop
    lea rax, [rsp + 8]
    pop rbp
    nop
    ret
  tree_end stub

  tree_wrapped wrapped_by_register, small_by_register
  tree_small small_by_register
  tree_framed framed_by_register, leaf_of_framed_by_register, small_of_framed_by_register
  tree_leaf leaf_of_framed_by_register
  tree_small small_of_framed_by_register
  tree_leaf leaf_by_memory

  // Moves rsp without a frame. The return address is then deeper than the unwinder searches, and the lowest word is an
  // old return address.
  tree_function naked
    nop
    sub rsp, 24
    nop
    mov rax, [rsp]
    add rsp, 24
    nop
    ret
  tree_end naked
"#
);
