//! What the entry stubs add for the profiler: a frame record with a marker, above the registers that
//! they save.
//!
//! In: `exception_stack!` uses [`push_marker!`] before it calls its Rust function, and
//! [`pop_marker!`] after it. Out: a stack whose chain of frame pointers leads from that function to
//! the marker, and from there to the interrupted function. Without them x29 of a stub points at
//! SP_EL0 and ESR_EL1, which are no frame record.
//!
//! ```text
//!   + 40 │ x30      │
//!   + 32 │ SP       │  of EL0, or where the stub began to push
//!   + 24 │ SPSR_EL1 │
//!   + 16 │ ELR_EL1  │
//!   + 8  │ marker   │  in the place of a return address
//!   + 0  │ x29      │  <- x29 while the Rust function runs; above: InterruptStack
//! ```

use core::mem::{offset_of, size_of};

use kprof::format::marker::Marker;

use crate::{
    arch::interrupt::InterruptStack,
    kernel_executable_offsets::{__entry_end, __entry_start},
};

/// The marker of an IRQ. The controller's number is not known yet when it is stored.
pub const IRQ: i64 = Marker::Interrupt(1).encode() as i64;
/// The marker of a system call.
pub const CALL: i64 = Marker::Syscall.encode() as i64;
/// The marker of an exception, to which the stub adds its class, ESR_EL1.EC.
pub const EXCEPTION: i64 = Marker::Exception(0).encode() as i64;

/// The class of `svc`.
pub const SVC: i64 = 0x15;
/// The bytes of `InterruptStack`, and what is where in it.
pub const STACK_BYTES: usize = size_of::<InterruptStack>();
const _: () = assert!(
    STACK_BYTES.is_multiple_of(16)
        && offset_of!(InterruptStack, iret.sp_el0) == 0
        && offset_of!(InterruptStack, iret.esr_el1) == 8
        && offset_of!(InterruptStack, iret.spsr_el1) == 16
        && offset_of!(InterruptStack, iret.elr_el1) == 24,
    "`push_marker` reads these words"
);

/// Whether an address is in an entry stub.
pub fn contains(address: u64) -> bool {
    (__entry_start() as u64..__entry_end() as u64).contains(&address)
}

/// After `push_special!`, with x29 and x30 as the interrupted code has left them. Changes x14 to x18. Operands: `irq`,
/// `call`, `exception`, `svc`, `stack_bytes`, which are the constants of this module.
#[macro_export]
macro_rules! push_marker {
    (irq) => {
        concat!("mov x18, #{irq}\n", $crate::push_marker!())
    };
    (exception) => {
        concat!(
            "
            ldr x17, [sp, #8]
            ubfx x17, x17, #26, #6
            mov x18, #{exception}
            add x18, x18, x17
            mov x16, #{call}
            cmp x17, #{svc}
            csel x18, x16, x18, eq
            ",
            $crate::push_marker!()
        )
    };
    () => {
        "
            ldp x14, x15, [sp, #16]
            ldr x16, [sp]
            add x17, sp, #{stack_bytes}
            tst x14, #0xf
            csel x16, x16, x17, eq
            sub sp, sp, #48
            stp x29, x18, [sp]
            stp x15, x14, [sp, #16]
            stp x16, x30, [sp, #32]
            mov x29, sp
            add x0, sp, #48
        "
    };
}

/// After the Rust function, before `pop_special!`.
#[macro_export]
macro_rules! pop_marker {
    () => {
        "add sp, sp, #48\n"
    };
}
