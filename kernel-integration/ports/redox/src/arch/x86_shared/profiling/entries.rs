//! The entry stubs of the kernel: which code they are, and where each has put the interrupted RIP.
//!
//! In: the section `.text.entry`, which holds nothing but stubs, and the gates of the boot CPU. Out:
//! for an address in that section, the kind of entry and the place of the hardware frame. Runs in:
//! NMI, except for [`init`]. One comparison decides whether an address is in a stub at all. The list
//! of stubs is searched only then, which is once per entry that a stack crosses.

use alloc::vec::Vec;
use core::{
    arch::naked_asm,
    mem::{offset_of, size_of},
    ops::Range,
};

use kprof::format::marker::{Marker, MARKER_PAGE};
use spin::Once;

use crate::{
    arch::interrupt::{
        handler::ScratchRegisters,
        irq::{self, __generic_interrupts_end, __generic_interrupts_start},
        syscall::{__syscall_instruction_end, syscall_instruction},
        InterruptStack,
    },
    kernel_executable_offsets::{__entry_end, __entry_start},
};

/// One stub. It ends where the next one begins.
#[derive(Clone, Copy)]
pub struct Entry {
    pub start: u64,
    pub marker: Marker,
    /// The distance of the interrupted RIP above the registers that the stub has saved.
    pub rip_above: u64,
}

/// The stubs, sorted by their address.
pub struct Entries(Vec<Entry>);

impl Entries {
    pub fn new(mut stubs: Vec<Entry>) -> Self {
        // The sort is stable, so a stub gets its entry from the first gate that leads to it.
        stubs.sort_by_key(|stub| stub.start);
        stubs.dedup_by_key(|stub| stub.start);
        Self(stubs)
    }

    /// The stub that contains an address of the section.
    pub fn find(&self, address: u64) -> Option<&Entry> {
        let after = self.0.partition_point(|stub| stub.start <= address);
        self.0.get(after.checked_sub(1)?)
    }
}

static ENTRIES: Once<Entries> = Once::new();

/// Whether an address of kernel code is in a stub. The section is at the beginning of the kernel's text, so one
/// comparison with its end decides.
#[inline(always)]
pub fn contains(address: u64) -> bool {
    address < __entry_end() as u64
}

/// The stub that contains the address, if [`contains`] is true for it.
pub fn find(address: u64) -> Option<Entry> {
    // Most stacks cross only this one, so it is not searched for.
    let start = syscall_instruction as *const () as u64;
    if (start..__syscall_instruction_end as *const () as u64).contains(&address) {
        let rip_above = offset_of!(InterruptStack, iret) as u64;
        return Some(Entry {
            start,
            marker: Marker::Syscall,
            rip_above,
        });
    }
    let table = generic_table();
    if table.contains(&address) {
        // An entry of the table has eight bytes. It has saved nothing but a number.
        let vector = (address.wrapping_sub(table.start) / 8).wrapping_add(32);
        let (marker, rip_above) = (Marker::Interrupt(vector as u8), 8);
        return Some(Entry {
            start: address,
            marker,
            rip_above,
        });
    }
    ENTRIES.get()?.find(address).copied()
}

fn generic_table() -> Range<u64> {
    __generic_interrupts_start as *const () as u64..__generic_interrupts_end as *const () as u64
}

/// Reads the boot CPU's gates. The stubs of exceptions, of its timer (32) and of the generic
/// interrupts save all registers. Those of its other interrupts and of interrupts between CPUs save
/// the nine that a function may change.
pub fn init() {
    ENTRIES.call_once(|| {
        let (all, nine) = (
            offset_of!(InterruptStack, iret),
            size_of::<ScratchRegisters>(),
        );
        let table = generic_table();
        let stub_of = |vector: u8| {
            // SAFETY: the table has 256 gates.
            let gate = unsafe { gates().add(usize::from(vector)).read_unaligned() };
            let start = (gate as u64 & 0xffff) | ((gate >> 32) as u64 & 0xffff_ffff_ffff_0000);
            let (marker, saved) = match vector {
                0..32 => (Marker::Exception(vector), all),
                32 => (Marker::Interrupt(vector), all),
                _ => (Marker::Interrupt(vector), nine),
            };
            // (Below the section are gates that are not set.)
            let is_stub =
                start >= __entry_start() as u64 && contains(start) && !table.contains(&start);
            is_stub.then_some(Entry {
                start,
                marker,
                rip_above: saved as u64,
            })
        };
        Entries::new((0..=u8::MAX).filter_map(stub_of).collect())
    });
}

/// The interrupt descriptor table of this CPU, as 16-byte gates.
fn gates() -> *const u128 {
    let mut pointer = x86::dtables::DescriptorTablePointer::<u128>::default();
    // SAFETY: kernel code.
    unsafe { x86::dtables::sidt(&mut pointer) };
    pointer.base
}

/// The most words that a stub has between RSP and the hardware frame: 15 registers, an error code or
/// number, a return address.
const MOST_SAVED: u64 = 17 * 8;
/// RIP, CS, RFLAGS, RSP, SS.
const HARDWARE_FRAME: u64 = 5 * 8;

/// `sar rcx, imm8`.
pub const SHIFT_RCX_BACK: [u8; 3] = [0x48, 0xc1, 0xf9];

/// Whether the stub of system calls has not yet pushed the user's RIP, or has popped it already: the
/// stack is still or again the user's, or has less than a whole frame.
pub fn is_rip_in_rcx(rsp: u64, top: u64) -> bool {
    rsp < crate::USER_END_OFFSET as u64
        || rsp.wrapping_sub(top.wrapping_sub(HARDWARE_FRAME - 1)) < HARDWARE_FRAME
}

/// The hardware frame of the stub that was interrupted with `rsp`, wherever in the stub that was.
///
/// `top` is where the stack of a thread begins that enters from user mode, so the frame of such an
/// entry is just below it. An entry from kernel code is recognised by the RSP that it has saved: the
/// processor aligns RSP down to 16 bytes before it pushes the frame, and so no other words look like
/// this. `stack` is the part of the stack that may be read, and `word` reads it.
pub fn hardware_frame(
    rsp: u64,
    top: u64,
    stack: &Range<u64>,
    kernel_cs: u64,
    word: impl Fn(u64) -> u64,
) -> Option<u64> {
    let from_user = top.wrapping_sub(HARDWARE_FRAME);
    if from_user.wrapping_sub(rsp) <= MOST_SAVED {
        return Some(from_user);
    }
    if !stack.contains(&rsp) || !rsp.is_multiple_of(8) {
        return None;
    }
    let last = rsp
        .saturating_add(MOST_SAVED)
        .min(stack.end.checked_sub(HARDWARE_FRAME)?);
    (rsp..=last).step_by(8).find(|at| {
        let distance = word(at.wrapping_add(24)).wrapping_sub(at.wrapping_add(HARDWARE_FRAME));
        word(at.wrapping_add(8)) == kernel_cs && distance < 16
    })
}

/// The stub to which the table of generic interrupts jumps. The table's entry has pushed vector - 160. The stub
/// replaces this by the marker of that vector and builds a
/// frame, so that the unwinder continues through it by itself. It is not in the section.
///
/// # Safety
/// This is an interrupt entry, which must not be called.
#[unsafe(naked)]
pub unsafe extern "C" fn generic_interrupt() {
    extern "C" fn handle(marker: u64) {
        irq::generic((marker as u8).wrapping_sub(32));
    }
    naked_asm!(
        "cld; test qword ptr [rsp + 16], 3; jz 2f; swapgs; 2:",
        "add qword ptr [rsp], {to_marker}",
        "push rbp; mov rbp, rsp",
        "push rax; push rcx; push rdx; push rsi; push rdi; push r8; push r9; push r10; push r11",
        "mov rdi, [rbp + 8]; call {handle}",
        "pop r11; pop r10; pop r9; pop r8; pop rdi; pop rsi; pop rdx; pop rcx; pop rax",
        "pop rbp; add rsp, 8; test qword ptr [rsp + 8], 3; jz 3f; swapgs; 3: iretq",
        to_marker = const MARKER_PAGE as i64 + 0x100 + 160,
        handle = sym handle,
    )
}
