//! For kernels that have their own trap frame: finds the interrupted registers that a stub without a marker has saved.
//!
//! In: one description for each stub, which the port's author writes according to the stub's pushes. Out: the answers
//! of `Kernel::is_entry_code`, `Kernel::caller_entry_frame` and `Kernel::entry_frame`. Runs in: NMI; no lock, a bounded
//! search. Nothing here reads the stack: the answers are addresses, and kprof reads only what a declared stack
//! contains.
//!
//! ```text
//!   SS RSP RFLAGS CS RIP      <- frame + rip
//!   ... what the stub saves   (rbp, if it does: at frame + rbp)
//!   the frame                 <- rsp at the stub's `call`
//!   return address            into the stub
//!   rbp                       <- frame_pointer of the function called
//! ```

use core::mem::size_of;
use core::ops::Range;
use kprof::format::marker::Marker;
use kprof::{CallerEntryFrame, EntryFrame, Registers};

/// A stub and the frame that it builds.
#[derive(Clone, Copy, Debug)]
pub struct Stub {
    /// Its first byte, and one past its last.
    pub code: (u64, u64),
    /// The marker for the kind of entry.
    pub marker: Marker,
    /// Distance from the stack pointer at its `call` to the saved RIP: `offset_of!(TrapFrame, rip)` plus what was
    /// pushed for alignment.
    pub rip: usize,
    /// Distance from the same stack pointer to the saved rbp; `None` if the stub does not change rbp, so that the
    /// called function saves it.
    pub rbp: Option<usize>,
    /// Whether the processor has pushed an error code (or the stub's first instruction pushes one in its place).
    pub has_error_code: bool,
}

impl Stub {
    /// Whether `address` is in the stub's code.
    pub const fn contains(&self, address: u64) -> bool {
        self.code.0 <= address && address < self.code.1
    }

    /// The range of its code.
    pub const fn range(&self) -> Range<u64> {
        self.code.0..self.code.1
    }

    /// The answer of `Kernel::caller_entry_frame` for a return address in this stub.
    pub fn caller_entry_frame(&self, frame_pointer: u64) -> CallerEntryFrame {
        let frame = frame_pointer.wrapping_add(2 * size_of::<u64>() as u64);
        let fp_at = self.rbp.map_or(frame_pointer, |offset| frame.wrapping_add(offset as u64));
        CallerEntryFrame { marker: self.marker, saved_at: frame.wrapping_add(self.rip as u64), fp_at }
    }

    /// The answer of `Kernel::entry_frame` for an instruction of this stub. It is only known for the first instruction,
    /// before anything has been pushed. For all others it is `None`, and such a sample is truncated.
    pub fn entry_frame(&self, at: &Registers) -> Option<EntryFrame> {
        let marker = self.marker;
        let on_stack = EntryFrame::OnStack { marker, saved_at: at.sp.wrapping_add(8 * u64::from(self.has_error_code)) };
        // The `syscall` instruction does not switch the stack: RSP is still the user's, and RCX holds the user's RIP.
        let user = Registers { pc: at.link, from_user: true, interrupts_on: true, ..*at };
        let in_registers = EntryFrame::InRegisters { marker, interrupted: user };
        (at.pc == self.code.0).then_some(if matches!(marker, Marker::Syscall) { in_registers } else { on_stack })
    }
}

/// The stub that contains `address`.
pub fn find(stubs: &[Stub], address: u64) -> Option<&Stub> {
    stubs.iter().find(|stub| stub.contains(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct TrapFrame {
        rax: u64,
        rbp: u64,
        error: u64,
        rip: u64,
    }

    const STUB: Stub = Stub {
        code: (0x1000, 0x1040),
        marker: Marker::Exception(14),
        rip: core::mem::offset_of!(TrapFrame, rip),
        rbp: Some(core::mem::offset_of!(TrapFrame, rbp)),
        has_error_code: true,
    };

    #[test]
    fn the_interrupted_registers_are_found_in_the_frame() {
        // The called function's rbp and return address, then the frame.
        let [saved, left] = [STUB, Stub { rbp: None, ..STUB }].map(|stub| stub.caller_entry_frame(0x9000));
        assert_eq!(saved, CallerEntryFrame { marker: Marker::Exception(14), saved_at: 0x9028, fp_at: 0x9018 });
        assert_eq!(left.fp_at, 0x9000, "the stub leaves rbp alone: the called function has saved it");
        assert_eq!(STUB.caller_entry_frame(u64::MAX).fp_at, 0x17, "any value may be in the register");
    }

    #[test]
    fn at_the_first_instruction_the_processors_frame_is_on_top_of_the_stack() {
        let at = Registers { pc: 0x1000, sp: 0x9000, link: 0x40_1000, ..Registers::default() };
        let marker = STUB.marker;
        assert_eq!(STUB.entry_frame(&at), Some(EntryFrame::OnStack { marker, saved_at: 0x9008 }));
        let without = Stub { has_error_code: false, ..STUB };
        assert_eq!(without.entry_frame(&at), Some(EntryFrame::OnStack { marker, saved_at: 0x9000 }));
        assert_eq!(STUB.entry_frame(&Registers { pc: 0x1001, ..at }), None);
        let syscall = Stub { marker: Marker::Syscall, ..STUB }.entry_frame(&at);
        let interrupted = Registers { pc: 0x40_1000, from_user: true, interrupts_on: true, ..at };
        let user = EntryFrame::InRegisters { marker: Marker::Syscall, interrupted };
        assert_eq!(syscall, Some(user), "the stack is the user's");
    }

    #[test]
    fn an_address_belongs_to_the_stub_around_it() {
        let stubs = [STUB, Stub { code: (0x1040, 0x1080), marker: Marker::Interrupt(32), ..STUB }];
        let marker = |address| find(&stubs, address).map(|stub| stub.marker);
        assert_eq!([0x103f, 0x1040].map(marker), [Some(Marker::Exception(14)), Some(Marker::Interrupt(32))]);
        assert_eq!([0xfff, 0x1080].map(marker), [None; 2]);
        assert_eq!(STUB.range(), 0x1000..0x1040);
    }
}
