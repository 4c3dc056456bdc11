//! Software interrupts: one function for each vector whose handler does nothing.
//!
//! In: a vector. Out: its stub has run. Runs in: anywhere, because the interrupts do nothing.

use core::arch::{asm, global_asm};

use crate::boot::early;
use crate::cpu::apic;

global_asm!(
    r#"
.text
// `int` and `ret` for each vector from 32 on: three bytes each.
.balign 16
.type software_interrupts, @function
software_interrupts:
.altmacro
.macro software_interrupt vector
    .byte 0xcd, \vector
    ret
.endm
.set vector, 32
.rept 224
  software_interrupt %vector
  .set vector, vector + 1
.endr
.noaltmacro
.size software_interrupts, . - software_interrupts
"#
);

unsafe extern "C" {
    fn software_interrupts();
}

/// The vectors whose handlers do nothing, so that their interrupts may come at any time.
pub fn quiet() -> impl Iterator<Item = u8> {
    let used = [apic::TIMER, apic::RESCHEDULE, apic::SAMPLE, apic::FIRST_DEVICE, early::VECTOR];
    (32..=255).filter(move |vector| !used.contains(vector))
}

/// Executes an interrupt of one of the vectors of [`quiet`].
pub fn interrupt(vector: u8) {
    let address = software_interrupts as *const () as u64 + 3 * (u64::from(vector) - 32);
    // SAFETY: for each vector from 32 on there is an `int` followed by a `ret`. The handler of a quiet vector does
    // nothing.
    unsafe { asm!("call {}", in(reg) address, clobber_abi("C")) }
}
