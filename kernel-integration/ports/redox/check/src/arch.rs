//! `crate::arch`: registers on the stack, descriptor tables, task state, local APIC, HPET.

use crate::machine;

pub struct CurrentRmmArch;

#[cfg(feature = "profiling")]
#[path = "../../src/arch/x86_shared/profiling/mod.rs"]
pub mod profiling;

pub mod interrupt {
    pub mod handler {
        pub use super::ScratchRegisters;
    }

    pub mod irq {
        pub use super::syscall::{__generic_interrupts_end, __generic_interrupts_start};

        /// The function that step 2 adds to the kernel's file.
        pub fn generic(_irq: u8) {}
    }

    #[derive(Clone, Default)]
    #[repr(C)]
    pub struct ScratchRegisters {
        pub r11: usize,
        pub r10: usize,
        pub r9: usize,
        pub r8: usize,
        pub rsi: usize,
        pub rdi: usize,
        pub rdx: usize,
        pub rcx: usize,
        pub rax: usize,
    }

    #[derive(Clone, Default)]
    #[repr(C)]
    pub struct PreservedRegisters {
        pub r15: usize,
        pub r14: usize,
        pub r13: usize,
        pub r12: usize,
        pub rbp: usize,
        pub rbx: usize,
    }

    #[derive(Clone, Default)]
    #[repr(C)]
    pub struct IretRegisters {
        pub rip: usize,
        pub cs: usize,
        pub rflags: usize,
        pub rsp: usize,
        pub ss: usize,
    }

    #[derive(Clone, Default)]
    #[repr(C)]
    pub struct InterruptStack {
        pub preserved: PreservedRegisters,
        pub scratch: ScratchRegisters,
        pub iret: IretRegisters,
    }

    /// Sleeps for as many nanoseconds as the timer's count.
    ///
    /// # Safety
    /// None needed here.
    pub unsafe fn enable_and_halt() {
        let count = *crate::machine::TIMER_COUNTS.lock().unwrap().last().unwrap();
        std::thread::sleep(std::time::Duration::from_nanos(u64::from(count)));
    }

    /// # Safety
    /// None needed here.
    pub unsafe fn disable() {}

    pub mod ipi {
        /// # Safety
        /// Never called here.
        pub unsafe extern "C" fn wakeup() {}
    }

    pub mod syscall {
        // The text of the stand-in: the syscall stub, stubs that end with `iretq` (page fault, keyboard, the one to
        // which all generic interrupts jump), the table of the generic ones, two pages of `nop`. The stubs come first
        // and take less than 0x300 bytes; the functions of the tests are after them.
        core::arch::global_asm!(
            ".text",
            ".balign 4096",
            ".global redox_check_text_start, redox_check_text_end, redox_check_page_stub, redox_check_key_stub",
            ".global redox_check_generic_stub, redox_check_entry_start, redox_check_entry_end, __generic_interrupts_start, __generic_interrupts_end",
            ".global syscall_instruction, __syscall_instruction_end",
            "redox_check_text_start:",
            "redox_check_entry_start:",
            "syscall_instruction:",
            ".skip 128, 0x90",
            "__syscall_instruction_end:",
            ".skip 128, 0x90",
            "redox_check_page_stub:",
            ".skip 100, 0x90",
            "iretq",
            "redox_check_key_stub:",
            ".skip 100, 0x90",
            "iretq",
            "redox_check_generic_stub:",
            ".skip 100, 0x90",
            "iretq",
            ".balign 8",
            "__generic_interrupts_start:",
            "push -128",
            ".byte 0xe9",
            ".long redox_check_generic_stub - . - 4",
            ".balign 8",
            "__generic_interrupts_end:",
            "redox_check_entry_end:",
            ".skip 8192, 0x90",
            "redox_check_text_end:",
        );

        unsafe extern "C" {
            pub fn syscall_instruction();
            pub fn __syscall_instruction_end();
            pub fn redox_check_page_stub();
            pub fn redox_check_key_stub();
            pub fn redox_check_generic_stub();
            pub fn __generic_interrupts_start();
            pub fn __generic_interrupts_end();
            pub fn redox_check_entry_start();
            pub fn redox_check_entry_end();
            pub fn redox_check_text_start();
            pub fn redox_check_text_end();
        }
    }
}

pub mod gdt {
    use std::sync::OnceLock;

    pub const GDT_KERNEL_CODE: usize = 1;

    #[derive(Clone, Copy, Default)]
    #[repr(C, packed)]
    pub struct TaskStateSegment {
        pub reserved: u32,
        pub rsp: [u64; 3],
        pub reserved2: u64,
        pub ist: [u64; 7],
    }

    #[repr(C, align(4096))]
    #[derive(Clone, Copy, Default)]
    pub struct ProcessorControlRegion {
        pub tss: TaskStateSegment,
    }

    /// # Safety
    /// None needed here: the result is each CPU's own and is never freed.
    pub unsafe fn pcr() -> *mut ProcessorControlRegion {
        static REGIONS: OnceLock<Vec<usize>> = OnceLock::new();
        let make = |_| Box::into_raw(Box::<ProcessorControlRegion>::default()) as usize;
        REGIONS.get_or_init(|| (0..8).map(make).collect())[super::machine::cpu()]
            as *mut ProcessorControlRegion
    }
}

pub mod idt {
    #[derive(Clone, Copy, Default)]
    pub struct IdtEntry {
        pub func: Option<unsafe extern "C" fn()>,
    }

    impl IdtEntry {
        pub fn set_func(&mut self, func: unsafe extern "C" fn()) {
            self.func = Some(func);
        }
    }

    pub struct Idt {
        pub entries: [IdtEntry; 256],
        pub reserved: Vec<u8>,
    }

    impl Idt {
        pub fn set_reserved_mut(&mut self, index: u8, reserved: bool) {
            assert!(reserved);
            self.reserved.push(index);
        }
    }
}

pub mod device {
    pub mod hpet {
        pub const MAIN_COUNTER_OFFSET: usize = 0xf0;
    }

    pub mod local_apic {
        use crate::machine;

        #[derive(Clone, Copy)]
        pub struct ApicId(pub u32);

        impl ApicId {
            pub fn get(&self) -> u32 {
                self.0
            }
        }

        pub struct LocalApic;

        /// # Safety
        /// None needed here.
        pub unsafe fn the_local_apic() -> &'static mut LocalApic {
            Box::leak(Box::new(LocalApic))
        }

        impl LocalApic {
            /// Sends an NMI to one CPU. The id has the form of its register in xAPIC mode: it is in the top byte.
            pub fn set_icr(&mut self, value: u64) {
                assert_eq!(value as u32, 0x4400);
                machine::nmi((value >> 56) as usize);
            }

            /// # Safety
            /// None needed here.
            pub unsafe fn eoi(&mut self) {}

            /// # Safety
            /// None needed here.
            pub unsafe fn set_lvt_timer(&mut self, value: u32) {
                assert_eq!(
                    value, 32,
                    "one shot, vector 32: instructions are not counted here"
                );
            }

            /// # Safety
            /// None needed here.
            pub unsafe fn set_div_conf(&mut self, value: u32) {
                assert_eq!(value, 0b1011, "divided by one");
            }

            /// The rest of the timer's count, which is 0 because `enable_and_halt` always sleeps to the end.
            ///
            /// # Safety
            /// None needed here.
            pub unsafe fn cur_count(&mut self) -> u32 {
                0
            }

            /// # Safety
            /// None needed here.
            pub unsafe fn set_init_count(&mut self, count: u32) {
                machine::TIMER_COUNTS.lock().unwrap().push(count);
            }
        }
    }
}
