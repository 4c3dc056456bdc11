//! The local APIC of the current CPU, in xAPIC mode (registers in memory) or x2APIC mode (registers of the CPU).
//!
//! In: where the registers are mapped. Out: commands to other CPUs, the id, the timer's registers. Runs in: any code,
//! also in an NMI, except [`LocalApic::send`], which is for ordinary code. The kernel or the firmware has chosen the
//! mode; nothing here changes it. Source: Intel SDM volume 3A, chapter 11.
//!
//! The sequences of both modes are tested on recorded registers, and commands of both are sent in QEMU (x2APIC by the
//! scenario `x2apic` of the test kernel, which needs QEMU 9.0).

use crate::command::{Command, FIRST_VECTOR, Start, Word};
use x86_64::instructions::interrupts;
use x86_64::registers::model_specific::Msr;

/// Offsets of registers in xAPIC mode; in x2APIC mode a register is MSR `0x800 + offset / 16`.
pub(crate) mod register {
    /// This CPU's id; in xAPIC mode it is in the highest 8 bits.
    pub const ID: u16 = 0x20;
    /// End of interrupt.
    pub const EOI: u16 = 0xb0;
    /// Vector of spurious interrupts; bit 8 enables the APIC.
    pub const SPURIOUS: u16 = 0xf0;
    /// The command register; in xAPIC mode its low word.
    pub const COMMAND: u16 = 0x300;
    /// In xAPIC mode, the high word of the command register.
    pub const COMMAND_HIGH: u16 = 0x310;
    /// Vector and mode of the timer.
    pub const TIMER: u16 = 0x320;
    /// The timer counts down from this value; a write starts it, and 0 stops it.
    pub const INITIAL_COUNT: u16 = 0x380;
    /// The present count.
    pub const CURRENT_COUNT: u16 = 0x390;
    /// The divisor of the timer's clock.
    pub const DIVIDE: u16 = 0x3e0;
}

/// IA32_APIC_BASE.
const APIC_BASE: u32 = 0x1b;
const X2APIC_MODE: u64 = 1 << 10;
const FIRST_X2APIC_MSR: u32 = 0x800;
/// Set in xAPIC mode while the last command has not been delivered.
const DELIVERY_PENDING: u32 = 1 << 12;
/// How often a command looks whether the one before it has been delivered. A look takes a microsecond under KVM.
const MAX_LOOKS: u32 = 100_000;

/// Access to the registers. Tests have an implementation that records each access.
pub trait Registers {
    /// Reads a register in memory.
    fn read(&self, offset: u16) -> u32;
    /// Writes a register in memory.
    fn write(&self, offset: u16, value: u32);
    /// Reads a register of the CPU.
    fn read_msr(&self, msr: u32) -> u64;
    /// Writes a register of the CPU.
    fn write_msr(&self, msr: u32, value: u64);
    /// Makes earlier writes to memory visible to other CPUs before the next register is written.
    fn fence(&self);
}

/// The registers of the current CPU.
#[derive(Clone, Copy, Debug)]
pub struct Hardware {
    base: usize,
}

impl Registers for Hardware {
    fn read(&self, offset: u16) -> u32 {
        // SAFETY: the creator of this value has promised that the APIC's page is mapped at `base`. The offset is that
        // of a register.
        unsafe { ((self.base + usize::from(offset)) as *const u32).read_volatile() }
    }

    fn write(&self, offset: u16, value: u32) {
        // SAFETY: as above. The effect of each write is stated where the register is written.
        unsafe { ((self.base + usize::from(offset)) as *mut u32).write_volatile(value) }
    }

    fn read_msr(&self, msr: u32) -> u64 {
        // SAFETY: IA32_APIC_BASE, which every 64-bit CPU has, or a register of x2APIC mode, read in that mode only.
        unsafe { Msr::new(msr).read() }
    }

    fn write_msr(&self, msr: u32, value: u64) {
        // SAFETY: a register of x2APIC mode, written in that mode only.
        unsafe { Msr::new(msr).write(value) }
    }

    fn fence(&self) {
        // SAFETY: orders memory, nothing else. A write of an x2APIC register does not do that by itself (SDM 11.12.3).
        unsafe { core::arch::asm!("mfence", "lfence", options(nostack, preserves_flags)) };
    }
}

/// The local APIC of the current CPU.
#[derive(Clone, Copy, Debug)]
pub struct LocalApic<R = Hardware> {
    registers: R,
    is_x2apic: bool,
}

impl LocalApic {
    /// The APIC in xAPIC mode, with its registers mapped at `base`.
    ///
    /// # Safety
    /// The physical page of the APIC's registers (0xfee00000, unless the firmware has moved it) is mapped at `base`,
    /// uncached, writable, on every CPU that uses this, as long as it is used; and these are in xAPIC mode.
    pub const unsafe fn xapic(base: usize) -> Self {
        Self { registers: Hardware { base }, is_x2apic: false }
    }

    /// The APIC in the mode that this CPU's APIC is in now.
    ///
    /// # Safety
    /// As [`LocalApic::xapic`], where it is in xAPIC mode; `base` is not used where it is in x2APIC mode. Every CPU
    /// that uses this is in the same mode.
    pub unsafe fn in_present_mode(base: usize) -> Self {
        Self::with(Hardware { base })
    }
}

impl<R: Registers> LocalApic<R> {
    /// An APIC with other registers, for tests.
    pub fn with(registers: R) -> Self {
        let is_x2apic = registers.read_msr(APIC_BASE) & X2APIC_MODE != 0;
        Self { registers, is_x2apic }
    }

    /// Whether this CPU's APIC is in x2APIC mode.
    pub const fn is_x2apic(&self) -> bool {
        self.is_x2apic
    }

    /// Reads a register of this CPU.
    pub(crate) fn read(&self, offset: u16) -> u32 {
        if self.is_x2apic {
            self.registers.read_msr(FIRST_X2APIC_MSR + u32::from(offset >> 4)) as u32
        } else {
            self.registers.read(offset)
        }
    }

    /// Writes a register of this CPU. Not for the command register: see [`LocalApic::send`].
    pub(crate) fn write(&self, offset: u16, value: u32) {
        if self.is_x2apic {
            self.registers.write_msr(FIRST_X2APIC_MSR + u32::from(offset >> 4), value.into());
        } else {
            self.registers.write(offset, value);
        }
    }

    /// Enables this CPU's APIC. `spurious` is the vector for interrupts that were withdrawn.
    ///
    /// # Panics
    /// If `spurious` is the vector of an exception.
    pub fn turn_on(&self, spurious: u8) {
        assert!(spurious >= FIRST_VECTOR, "{spurious} is the vector of an exception");
        self.write(register::SPURIOUS, 1 << 8 | u32::from(spurious));
    }

    /// The id of this CPU's APIC. The result is right at any instruction, also in an NMI.
    pub fn id(&self) -> u32 {
        let id = self.read(register::ID);
        if self.is_x2apic { id } else { id >> 24 }
    }

    /// Acknowledges the interrupt that is being handled. Not to be called for an NMI.
    pub fn end_of_interrupt(&self) {
        self.write(register::EOI, 0);
    }

    /// Sends a command to the CPU with this APIC id. Returns false, with nothing sent, if the id cannot be addressed
    /// (in xAPIC mode ids have 8 bits), if the vector is that of an exception, or if the APIC does not get rid of the
    /// command before it within 100 000 looks.
    ///
    /// Runs in: ordinary code. In xAPIC mode two registers are written one after the other, with interrupts disabled.
    /// An NMI handler that sends commands itself could still come between the two writes. While it waits for the
    /// command before, interrupts are as they were.
    pub fn send(&self, id: u32, command: Command) -> bool {
        command.word().is_some_and(|word| self.send_word(id, word))
    }

    /// Sends a command that starts the CPU with this APIC id. Returns false as [`LocalApic::send`].
    ///
    /// # Safety
    /// That CPU runs nothing of the kernel. With [`Start::StartUp`] there is code at that page which may run on it.
    pub unsafe fn start(&self, id: u32, command: Start) -> bool {
        self.send_word(id, command.word())
    }

    fn send_word(&self, id: u32, command: Word) -> bool {
        if self.is_x2apic {
            self.registers.fence();
            self.registers.write_msr(FIRST_X2APIC_MSR + u32::from(register::COMMAND >> 4), command.x2apic(id));
            return true;
        }
        let Some((high, low)) = command.xapic(id) else { return false };
        let attempt = || {
            if self.registers.read(register::COMMAND) & DELIVERY_PENDING != 0 {
                return false;
            }
            self.registers.write(register::COMMAND_HIGH, high);
            self.registers.write(register::COMMAND, low);
            true
        };
        (0..MAX_LOOKS).any(|_| {
            let is_sent = without_interrupts(attempt);
            if !is_sent {
                core::hint::spin_loop();
            }
            is_sent
        })
    }
}

/// Host tests run in user mode, where interrupts cannot be disabled.
fn without_interrupts<T>(work: impl FnOnce() -> T) -> T {
    if cfg!(test) { work() } else { interrupts::without_interrupts(work) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{Access::*, Recorded};

    #[test]
    fn in_xapic_mode_a_command_waits_for_the_last_one_and_its_low_word_comes_last() {
        let registers = Recorded::xapic();
        registers.answer(register::COMMAND, &[DELIVERY_PENDING, DELIVERY_PENDING, 0]);
        assert!(LocalApic::with(&registers).send(2, Command::Nmi));
        assert_eq!(
            registers.taken(),
            [Read(0x300), Read(0x300), Read(0x300), Write(0x310, 0x0200_0000), Write(0x300, 0x4400)]
        );
    }

    #[test]
    fn a_command_that_is_never_delivered_does_not_hold_up_the_next_one_for_ever() {
        let registers = Recorded::xapic();
        registers.answer(register::COMMAND, &vec![DELIVERY_PENDING; MAX_LOOKS as usize]);
        assert!(!LocalApic::with(&registers).send(2, Command::Nmi));
        assert!(registers.taken().iter().all(|access| *access == Read(0x300)), "nothing is written");
    }

    #[test]
    fn a_cpu_is_started_by_a_command_of_its_own() {
        let registers = Recorded::x2apic();
        // SAFETY: recorded registers reach no CPU.
        assert!(unsafe { LocalApic::with(&registers).start(2, Start::StartUp(8)) });
        assert_eq!(registers.taken(), [Fence, WriteMsr(0x830, 0x2_0000_4608)]);
    }

    #[test]
    fn in_x2apic_mode_a_command_is_a_fence_and_one_register() {
        let registers = Recorded::x2apic();
        assert!(LocalApic::with(&registers).send(0x1_0002, Command::Interrupt(0x40)));
        assert_eq!(registers.taken(), [Fence, WriteMsr(0x830, 0x0001_0002_0000_4040)]);
    }

    #[test]
    fn an_id_of_more_than_8_bits_reaches_nobody_in_xapic_mode() {
        let registers = Recorded::xapic();
        assert!(!LocalApic::with(&registers).send(0x102, Command::Nmi));
        assert_eq!(registers.taken(), []);
    }

    #[test]
    fn the_id_is_in_the_upper_bits_in_xapic_mode_only() {
        let (old, new) = (Recorded::xapic(), Recorded::x2apic());
        old.answer(register::ID, &[0x0500_0000]);
        new.answer_msr(0x802, 0x0500_0001);
        assert_eq!((LocalApic::with(&old).id(), LocalApic::with(&new).id()), (5, 0x0500_0001));
    }

    #[test]
    fn every_register_has_its_msr_in_x2apic_mode() {
        let registers = Recorded::x2apic();
        let apic = LocalApic::with(&registers);
        apic.turn_on(0xff);
        apic.end_of_interrupt();
        apic.write(register::INITIAL_COUNT, 7);
        assert_eq!(registers.taken(), [WriteMsr(0x80f, 0x1ff), WriteMsr(0x80b, 0), WriteMsr(0x838, 7)]);
    }
}
