//! The entry stub of breakpoints (vector 3), for kprof's probes.
//!
//! In: a name, a Rust function, the kernel's own entry for breakpoints. Out: a naked function, whose address is set in
//! the gate. Runs in: the breakpoint exception, with interrupts off. It uses no GS and no lock. Breakpoints in user
//! code go on to the kernel's own entry before anything is saved, so that entry alone needs `swapgs` or another CR3.
//! No interrupt stack may be in the gate: a breakpoint in the handler of another one would overwrite its frame there.
//!
//! ```text
//!   (six words)                  where the processor has put its frame: the emulated `push rbp` writes here
//!   SS  RSP  RFLAGS  CS  RIP     moved here; what the Rust function changes in it is what the stub returns to
//!   marker                       in the place of a return address: the unwinder walks across it
//!   rbp  <- rbp
//!   rax  r11  r10
//!   r9  r8  rcx  rdx  rsi  rdi   <- rdi = &mut BreakpointFrame
//! ```
//!
//! The stub has the length of those of [`entry_stub`](crate::entry_stub), so [`is_stub`](crate::entry::is_stub) is
//! right for it too.

use kprof::format::marker::Marker;
use kprof::{Breakpoint, EntryFrame, Kernel, Profiler, Registers};

/// What the stub has saved of interrupted kernel code.
#[derive(Debug, PartialEq, Eq)]
#[repr(C)]
pub struct BreakpointFrame {
    /// The registers in which a function gets its arguments, in this order: rdi, rsi, rdx, rcx, r8, r9.
    pub arguments: [u64; 6],
    /// r10, r11 and rax, which a Rust function may change too.
    pub scratch: [u64; 3],
    /// The frame pointer.
    pub rbp: u64,
    /// Exception 3: see [`kprof::format::marker::Marker`].
    pub marker: u64,
    /// The address of the `int3`, and after the call the address to which the stub returns. (The processor has pushed
    /// the address after the `int3`.) This and all fields after it were pushed by the processor.
    pub rip: u64,
    /// Its lowest two bits, the privilege level, are 0.
    pub cs: u64,
    /// Flags.
    pub rflags: u64,
    /// The interrupted code's stack pointer.
    pub rsp: u64,
    /// Stack segment.
    pub ss: u64,
}

// The stub calls a Rust function with this frame on top of the stack.
const _: () = assert!(size_of::<BreakpointFrame>().is_multiple_of(16));

impl BreakpointFrame {
    /// Lets the profiler handle the breakpoint. `false` if no probe has caused it; the frame then is what the processor
    /// has saved.
    ///
    /// # Safety
    /// The stub of [`breakpoint_stub`](crate::breakpoint_stub) has called the caller with this frame, and this is the
    /// first call with it. If the result is `true`, so is what the caller returns to the stub.
    #[inline(always)]
    pub unsafe fn handle<K: Kernel>(&mut self, profiler: &'static Profiler<K>) -> bool {
        let mut at = Breakpoint { pc: self.rip.wrapping_add(1), sp: self.rsp, fp: self.rbp };
        // SAFETY: the frame is what a breakpoint in kernel code has interrupted. Its gate is an interrupt gate, so
        // interrupts are off. The stub has moved the processor's frame six words down, and returns to `rip` and `rsp`.
        let is_probe = unsafe { profiler.on_breakpoint(&mut at, || self.arguments) };
        (self.rip, self.rsp) = (at.pc, at.sp);
        is_probe
    }
}

/// The answer of [`Kernel::entry_frame`] for an instruction of this stub. Without it a sample in the stub is truncated.
/// Runs in: NMI.
pub fn entry_frame(stub: unsafe extern "C" fn(), at: &Registers) -> Option<EntryFrame> {
    // By the offset of the instruction: how far the processor's frame is above the stack pointer.
    let above = match at.pc.wrapping_sub(stub as *const () as u64) {
        0 | 5 | 11 | 15 => 0,
        // While the frame is copied, the one above is whole.
        offset @ (17 | 21 | 25 | 29 | 33) => 2 * (offset - 13),
        // The marker and rbp are pushed below the copy, until the frame pointer is set.
        37 => 0,
        42 => 8,
        43 => 16,
        46..=83 => return Some(EntryFrame::Built),
        // rbp has been restored, then the marker is removed.
        84 => 8,
        89 | 95 => 0,
        _ => return None,
    };
    Some(EntryFrame::OnStack { marker: Marker::Exception(3), saved_at: at.sp.wrapping_add(above) })
}

/// Makes the entry stub of breakpoints: `breakpoint_stub!(pub breakpoint_entry, breakpoint, own_entry);` is a function
/// `breakpoint_entry` for the gate of vector 3, without an interrupt stack ([`gate::set`](crate::gate::set) with 0).
///
/// For a breakpoint in kernel code it calls `extern "C" fn breakpoint(frame: &mut BreakpointFrame) -> bool`, whose body
/// is `unsafe { frame.handle(&PROFILER) }`. With `true` the stub returns to what the frame says. With `false`, and at
/// once for a breakpoint in user code, it jumps to `own_entry`: the function that was in the gate before (of any ABI),
/// with all registers as they were, and with the processor's frame on top of the stack. If there was none,
/// [`entry_stub`](crate::entry_stub) makes one.
///
/// With these two names `kprof-fold probes` finds the stub and the function. The function must not change the vector
/// registers; code for `x86_64-unknown-none` does not.
#[macro_export]
macro_rules! breakpoint_stub {
    ($(#[$attribute:meta])* $visibility:vis $name:ident, $handler:path, $own_entry:path) => {
        const _: extern "C" fn(&mut $crate::breakpoint::BreakpointFrame) -> bool = $handler;
        $(#[$attribute])*
        #[doc = "The entry stub of breakpoints: for a gate, not to be called."]
        #[unsafe(naked)]
        #[unsafe(link_section = ".text.kprof_entry")]
        $visibility unsafe extern "C" fn $name() {
            ::core::arch::naked_asm!(
                "2:",
                "test byte ptr [rsp + 8], 3",
                "jnz {own_entry}",
                // Where the profiler interrupts this stub, it finds the function, and not what follows it.
                "dec qword ptr [rsp]",
                // Moves the processor's frame six words down, which leaves the stack aligned to 16 bytes.
                "push 0",
                "push qword ptr [rsp + 40]; push qword ptr [rsp + 40]; push qword ptr [rsp + 40]",
                "push qword ptr [rsp + 40]; push qword ptr [rsp + 40]",
                "push {marker}",
                "push rbp",
                "mov rbp, rsp",
                "push rax; push r11; push r10; push r9; push r8; push rcx; push rdx; push rsi; push rdi",
                "cld",
                "mov rdi, rsp",
                "call {handler}",
                // No instruction from here to the jump changes the flags.
                "test al, al",
                "pop rdi; pop rsi; pop rdx; pop rcx; pop r8; pop r9; pop r10; pop r11; pop rax",
                "pop rbp",
                "lea rsp, [rsp + 8]",
                "jz {own_entry}",
                "iretq",
                // Pads the stub from its first instruction on to the common length.
                ".skip {bytes} - (. - 2b), 0xcc",
                marker = const { $crate::breakpoint::MARKER },
                handler = sym $handler,
                own_entry = sym $own_entry,
                bytes = const $crate::entry::STUB_BYTES,
            )
        }
    };
}

/// The marker word, as the operand of a `push`.
#[doc(hidden)]
pub const MARKER: i32 = Marker::Exception(3).encode() as i64 as i32;

#[cfg(test)]
mod tests {
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
}
