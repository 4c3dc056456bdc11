//! Tests of the entry stub of breakpoints: this program causes one as the processor would, and follows its code.
//!
//! In: registers, a frame with the privilege level of kernel code or of user code. Out: what the functions saw, and the
//! registers afterwards. Runs in: the test program; its own level is set in the frame before the stub returns.

use super::*;
use crate::entry::{STUB_BYTES, SavedFrame, is_stub};
use crate::entry_stub;
use core::arch::asm;
use core::cell::{Cell, RefCell};

/// The bits of CS that this program must have to return.
const USER: u64 = 3;

std::thread_local! {
    static IS_PROBE: Cell<bool> = const { Cell::new(false) };
    static SEEN: RefCell<Vec<BreakpointFrame>> = const { RefCell::new(Vec::new()) };
    static OWN: RefCell<Vec<SavedFrame>> = const { RefCell::new(Vec::new()) };
}

/// Emulates a `push rbp`, as kprof does.
extern "C" fn breakpoint(frame: &mut BreakpointFrame) -> bool {
    frame.cs |= USER;
    frame.rip += 1;
    let BreakpointFrame { arguments, scratch, rbp, marker, rip, cs, rflags, rsp, ss } = *frame;
    let copy = BreakpointFrame { arguments, scratch, rbp, marker, rip, cs, rflags, rsp, ss };
    SEEN.with_borrow_mut(|seen| seen.push(copy));
    if IS_PROBE.get() {
        frame.rsp -= 8;
        // SAFETY: the word below the stack pointer of `interrupt`, which is not in use.
        unsafe { (frame.rsp as *mut u64).write_volatile(frame.rbp) };
    }
    // The registers that a Rust function may change, so the stub must restore them. SAFETY: changes only registers
    // that it declares.
    unsafe {
        asm!("", out("rax") _, out("rcx") _, out("rdx") _, out("rsi") _, out("rdi") _, out("r8") _, out("r9") _,
            out("r10") _, out("r11") _);
    }
    IS_PROBE.get()
}

extern "C" fn own(frame: &SavedFrame) {
    OWN.with_borrow_mut(|seen| seen.push(*frame));
}

entry_stub!(own_entry, Marker::Exception(3), own);
breakpoint_stub!(stub, breakpoint, own_entry);

/// What is left by a breakpoint: how far it has moved the stack pointer, the word that it points to then, the frame
/// pointer, and the registers of arguments, then rax, r10 and r11.
#[derive(Debug, PartialEq, Eq)]
struct After {
    moved: u64,
    top: u64,
    rbp: u64,
    registers: [u64; 9],
}

/// Causes a breakpoint as the processor would: aligns the stack, pushes the five words and enters the stub, which
/// returns here. `level` are the lowest bits of CS. `odd`: the stack is not aligned before, as where a function
/// begins.
fn interrupt(level: u64, odd: bool) -> After {
    let mut words = [1_u64, 2, 3, 4, 5, 6, 7, 8, 9, level, u64::from(odd) * 8, 0, 0, 0];
    // SAFETY: the stub returns to the label by the frame made here. The red zone of this target lies above the
    // frame: rsp has been moved below it. `words` has fourteen words, and every register that is changed is
    // declared.
    unsafe {
        asm!(
            "push rbp", "push rbx", "mov rbx, {words}", "mov r12, rsp",
            "sub rsp, 256", "and rsp, -16", "sub rsp, [rbx + 80]", "mov r14, rsp", "mov rbp, 0x1234",
            "and rsp, -16",
            "mov r13, ss", "push r13", "push r14", "pushfq", "mov r13, cs", "and r13, -4", "or r13, [rbx + 72]",
            "push r13", "lea r13, [rip + 2f]", "push r13",
            "mov rdi, [rbx]", "mov rsi, [rbx + 8]", "mov rdx, [rbx + 16]", "mov rcx, [rbx + 24]",
            "mov r8, [rbx + 32]", "mov r9, [rbx + 40]", "mov rax, [rbx + 48]", "mov r10, [rbx + 56]",
            "mov r11, [rbx + 64]",
            "jmp {stub}",
            "2: mov [rbx], rdi", "mov [rbx + 8], rsi", "mov [rbx + 16], rdx", "mov [rbx + 24], rcx",
            "mov [rbx + 32], r8", "mov [rbx + 40], r9", "mov [rbx + 48], rax", "mov [rbx + 56], r10",
            "mov [rbx + 64], r11", "mov [rbx + 104], rbp",
            "sub r14, rsp", "mov [rbx + 88], r14", "mov r13, [rsp]", "mov [rbx + 96], r13",
            "mov rsp, r12", "pop rbx", "pop rbp",
            stub = sym stub, words = in(reg) words.as_mut_ptr(),
            out("rdi") _, out("rsi") _, out("rdx") _, out("rcx") _, out("r8") _, out("r9") _, out("rax") _,
            out("r10") _, out("r11") _, out("r12") _, out("r13") _, out("r14") _,
        );
    }
    let [registers @ .., _, _, moved, top, rbp] = words;
    After { moved, top, rbp, registers }
}

#[test]
#[cfg_attr(miri, ignore = "runs assembly")]
fn a_probe_changes_the_stack_below_the_interrupted_stack_pointer_and_no_register() {
    for odd in [false, true] {
        IS_PROBE.set(true);
        let after = interrupt(0, odd);
        assert_eq!((after.moved, after.top), (8, 0x1234), "push rbp was emulated");
        assert_eq!((after.rbp, after.registers), (0x1234, [1, 2, 3, 4, 5, 6, 7, 8, 9]));
        let frame = SEEN.take().pop().expect("the function was called");
        assert_eq!((frame.arguments, frame.scratch), ([1, 2, 3, 4, 5, 6], [8, 9, 7]));
        assert_eq!((frame.rbp, frame.marker), (0x1234, 0xffff_ffff_ffff_f203));
        assert_eq!(frame.rsp % 16, u64::from(odd) * 8);
        assert!(OWN.take().is_empty(), "the kernel's own entry is not for probes");
    }
}

#[test]
#[cfg_attr(miri, ignore = "runs assembly")]
fn a_breakpoint_that_no_probe_has_caused_goes_on_to_the_kernels_own_entry() {
    for (level, calls) in [(0, 1), (USER, 0)] {
        IS_PROBE.set(false);
        let after = interrupt(level, true);
        assert_eq!((after.moved, after.rbp, after.registers), (0, 0x1234, [1, 2, 3, 4, 5, 6, 7, 8, 9]));
        assert_eq!(SEEN.take().len(), calls, "breakpoints in user code are not the profiler's");
        let frame = OWN.take().pop().expect("the kernel's own entry was called");
        assert_eq!((frame.rcx, frame.rbp, frame.rsp % 16), (4, 0x1234, 8));
    }
}

/// The bytes of the stub.
fn code() -> &'static [u8] {
    let start = stub as *const () as u64;
    assert!(is_stub(stub, start + STUB_BYTES - 1) && !is_stub(stub, start + STUB_BYTES));
    // SAFETY: the bytes of the stub, which is this program's code.
    unsafe { core::slice::from_raw_parts(start as *const u8, STUB_BYTES as usize) }
}

#[test]
#[cfg_attr(miri, ignore = "runs assembly")]
fn the_stub_is_as_long_as_every_other_one() {
    let iretq = code().windows(2).rposition(|pair| pair == [0x48, 0xcf]).expect("it returns");
    assert!(code()[iretq + 2..].iter().all(|byte| *byte == 0xcc), "what follows is filled up");
}

/// Follows the stub's code from its first byte on: what each instruction does with the stack pointer.
#[test]
#[cfg_attr(miri, ignore = "runs assembly")]
fn at_every_instruction_the_frame_of_the_processor_is_found() {
    let (mut offset, mut pushed, mut is_built) = (0, 0, false);
    let mut instructions = 0;
    while offset < STUB_BYTES as usize && code()[offset] != 0xcc {
        let at = Registers { pc: stub as *const () as u64 + offset as u64, sp: 0x9000, ..Registers::default() };
        let saved_at = 0x9000 + pushed;
        let on_stack = EntryFrame::OnStack { marker: Marker::Exception(3), saved_at };
        let expected = if is_built { EntryFrame::Built } else { on_stack };
        assert_eq!(entry_frame(stub, &at), Some(expected), "at {offset}");
        let (bytes, change) = match code()[offset..] {
            [0x0f, 0x84 | 0x85, ..] => (6, 0),      // jz, jnz
            [0x48, 0xcf, ..] => (2, 0),             // iretq
            [0x48, 0xff, 0x0c, 0x24, ..] => (4, 0), // dec [rsp]
            [0x48, 0x8d, 0x64, 0x24, 0x08, ..] => (5, -8),
            [0x48, 0x89, 0xe5, ..] => {
                is_built = true;
                (3, 0)
            }
            [0x48, 0x89, 0xe7, ..] => (3, 0), // mov rdi, rsp
            [0x41, 0x50..0x58, ..] => (2, 8),
            [0x41, 0x58..0x60, ..] => (2, -8),
            [0x5d, ..] => {
                is_built = false;
                (1, -8)
            }
            [0x50..0x58, ..] => (1, 8),
            [0x58..0x60, ..] => (1, -8),
            [0x6a, ..] => (2, 8),
            [0x68, ..] => (5, 8),
            [0xff, 0x74, 0x24, 0x28, ..] => (4, 8),
            [0xf6, 0x44, 0x24, 0x08, 3, ..] => (5, 0),
            [0xfc, ..] => (1, 0),
            [0xe8, ..] => (5, 0),
            [0x84, 0xc0, ..] => (2, 0),
            _ => panic!("another instruction at {offset}"),
        };
        offset += bytes;
        // After the last word the frame that counts is the one that was moved.
        pushed = if offset == 37 { 0 } else { pushed.wrapping_add_signed(change) };
        instructions += 1;
    }
    assert_eq!(instructions, 38, "and the end was reached");
    let inside = Registers { pc: stub as *const () as u64 + 1, ..Registers::default() };
    assert_eq!(entry_frame(stub, &inside), None, "no instruction begins there");
}
