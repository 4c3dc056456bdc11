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
use kprof::{Breakpoint, EntryFrame, Registers};

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
    /// Lets `on_breakpoint` handle the breakpoint, which is `EVENTS.on_breakpoint(at, || *arguments)`. `false` if no
    /// probe has caused it; the frame then is what the processor has saved. The promises of that function hold if the
    /// stub of [`breakpoint_stub`](crate::breakpoint_stub) has called the caller with this frame, this is the first
    /// call with it, and the caller returns the result to the stub: the frame is what a breakpoint in kernel code has
    /// interrupted, its gate is an interrupt gate, and the stub has moved the processor's frame six words down.
    #[inline(always)]
    pub fn handle(&mut self, on_breakpoint: impl FnOnce(&mut Breakpoint, &[u64; 6]) -> bool) -> bool {
        let mut at = Breakpoint { pc: self.rip.wrapping_add(1), sp: self.rsp, fp: self.rbp };
        let is_probe = on_breakpoint(&mut at, &self.arguments);
        (self.rip, self.rsp) = (at.pc, at.sp);
        is_probe
    }
}

/// The answer of [`kprof::Kernel::entry_frame`] for an instruction of this stub. Without it a sample in the stub is
/// truncated. Runs in: NMI.
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
/// is `frame.handle(|at, arguments| unsafe { EVENTS.on_breakpoint(at, || *arguments) })`. With `true` the stub returns
/// to what the frame says. With `false`, and at once for a breakpoint in user code, it jumps to `own_entry`: the
/// function that was in the gate before (of any ABI), with all registers as they were, and with the processor's frame
/// on top of the stack. If there was none, [`entry_stub`](crate::entry_stub) makes one.
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
mod tests;
