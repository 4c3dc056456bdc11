//! Interrupt commands: the register values that make a local APIC send something to another CPU.
//!
//! In: what to send, and to whom. Out: register values. Pure. Source: Intel SDM volume 3A, 11.6.1 and 11.12.9.

/// What a CPU sends to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A non-maskable interrupt.
    Nmi,
    /// The interrupt with this vector, which must be 16 or greater.
    Interrupt(u8),
    /// INIT: the CPU waits for a start-up command.
    Init,
    /// Start-up: the CPU starts in real mode at the physical address `page * 4096`.
    StartUp(u8),
}

/// Bit 14: assert. All commands but the obsolete de-assert have it.
const ASSERT: u32 = 1 << 14;

impl Command {
    /// The low word of the command register, for one CPU addressed by its id.
    pub const fn word(self) -> u32 {
        ASSERT
            | match self {
                Self::Nmi => 0b100 << 8,
                Self::Interrupt(vector) => vector as u32,
                Self::Init => 0b101 << 8,
                Self::StartUp(page) => 0b110 << 8 | page as u32,
            }
    }

    /// The one register of x2APIC mode; the whole id is in its upper half.
    pub const fn x2apic(self, id: u32) -> u64 {
        (id as u64) << 32 | self.word() as u64
    }

    /// The two registers of xAPIC mode, high and low; `None` for an id that does not fit in 8 bits, and for the id that
    /// stands for all CPUs.
    pub const fn xapic(self, id: u32) -> Option<(u32, u32)> {
        if id < 0xff { Some((id << 24, self.word())) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_manual() {
        assert_eq!(Command::Nmi.word(), 0x4400);
        assert_eq!(Command::Interrupt(0xe0).word(), 0x40e0);
        assert_eq!(Command::Init.word(), 0x4500);
        assert_eq!(Command::StartUp(8).word(), 0x4608);
    }

    #[test]
    fn the_destination_is_one_cpu_and_never_all() {
        assert_eq!(Command::Nmi.xapic(3), Some((0x0300_0000, 0x4400)));
        assert_eq!(Command::Nmi.x2apic(0x1_0003), 0x0001_0003_0000_4400);
        // 0xff addresses every CPU, and a longer id would address the CPU of its low 8 bits.
        assert_eq!([0xff, 0x100, 0x103].map(|id| Command::Nmi.xapic(id)), [None; 3]);
    }
}
