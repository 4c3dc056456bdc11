//! `crate::arch` on aarch64: registers on the stack, a stub's text, the registers of the timer.

pub struct CurrentRmmArch;

#[cfg(feature = "profiling")]
#[path = "../../src/arch/aarch64/profiling/mod.rs"]
pub mod profiling;

pub mod interrupt {
    #[derive(Clone, Copy, Default)]
    #[repr(C, packed)]
    pub struct ScratchRegisters {
        pub x0_to_x18: [usize; 19],
        pub _padding: usize,
    }

    #[derive(Clone, Copy, Default)]
    #[repr(C, packed)]
    pub struct PreservedRegisters {
        pub x19_to_x28: [usize; 10],
        pub x29: usize,
        pub x30: usize,
    }

    #[derive(Clone, Copy, Default)]
    #[repr(C, packed)]
    pub struct IretRegisters {
        pub sp_el0: usize,
        pub esr_el1: usize,
        pub spsr_el1: usize,
        pub elr_el1: usize,
    }

    #[derive(Clone, Copy, Default)]
    #[repr(C, packed)]
    pub struct InterruptStack {
        pub iret: IretRegisters,
        pub scratch: ScratchRegisters,
        pub preserved: PreservedRegisters,
    }

    pub mod syscall {
        // The text of the stand-in: a page of stubs, two pages of `nop`.
        core::arch::global_asm!(
            ".text",
            ".balign 4096",
            ".global redox_check_text_start, redox_check_text_end, redox_check_entry_start, redox_check_entry_end",
            ".global exception_vector_base",
            "redox_check_text_start:",
            "redox_check_entry_start:",
            "exception_vector_base:",
            ".rept 1024; nop; .endr",
            "redox_check_entry_end:",
            ".rept 2048; nop; .endr",
            "redox_check_text_end:",
        );

        unsafe extern "C" {
            pub fn redox_check_entry_start();
            pub fn redox_check_entry_end();
            pub fn redox_check_text_start();
            pub fn redox_check_text_end();
        }
    }

    /// What the stubs do for the profiler, with registers that a stub has saved: it runs with SP there.
    #[cfg(feature = "profiling")]
    pub mod stubs {
        use crate::arch::profiling::entries::{CALL, EXCEPTION, IRQ, STACK_BYTES, SVC};
        use crate::{pop_marker, push_marker};

        macro_rules! stub {
            ($name:ident, $($operand:ident = $value:ident),*) => {
                /// Returns what the Rust function of the stub would have as x29. Null: it would not get
                /// `saved`, or the stub would not find it again.
                ///
                /// # Safety
                /// `saved` and the 48 bytes below it are memory of the test.
                #[unsafe(naked)]
                pub unsafe extern "C" fn $name(saved: *mut super::InterruptStack) -> *const [u64; 6] {
                    core::arch::naked_asm!(
                        "mov x9, sp; mov x10, x0; mov sp, x0",
                        push_marker!($name),
                        "mov x11, x0; mov x0, x29; ldr x29, [sp]",
                        pop_marker!(),
                        "mov x12, sp; mov sp, x9",
                        "cmp x10, x11; ccmp x10, x12, #0, eq; csel x0, x0, xzr, eq; ret",
                        $($operand = const $value),*
                    );
                }
            };
        }
        stub!(irq, irq = IRQ, stack_bytes = STACK_BYTES);
        stub!(
            exception,
            exception = EXCEPTION,
            call = CALL,
            svc = SVC,
            stack_bytes = STACK_BYTES
        );
    }
}

pub mod device {
    pub mod cpu {
        pub mod registers {
            pub mod control_regs {
                use std::sync::atomic::{AtomicU32, Ordering};

                /// What the control register of the virtual timer has.
                pub static CONTROL: AtomicU32 = AtomicU32::new(0);

                /// # Safety
                /// None needed here.
                pub unsafe fn vhe_present() -> bool {
                    false
                }

                /// # Safety
                /// None needed here.
                pub unsafe fn vtmr_ctrl() -> u32 {
                    CONTROL.load(Ordering::SeqCst)
                }

                /// # Safety
                /// Never called here.
                pub unsafe fn ptmr_ctrl() -> u32 {
                    panic!("the kernel uses the virtual timer")
                }

                /// # Safety
                /// None needed here.
                pub unsafe fn cntfrq_el0() -> u32 {
                    let hz: u64;
                    // SAFETY: reads a register, which Linux lets user mode read.
                    unsafe {
                        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack))
                    };
                    hz as u32
                }
            }
        }
    }
}
