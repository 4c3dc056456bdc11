//! Interrupt commands: the register values that make a local APIC send something to another CPU.
//!
//! In: what to send, and to whom. Out: register values. Pure. Source: Intel SDM volume 3A, 11.6.1 and 11.12.9.

/// What a CPU sends to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// A non-maskable interrupt.
    Nmi,
    /// The interrupt with this vector, which must be at least [`FIRST_VECTOR`].
    Interrupt(u8),
}

/// What starts another CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// INIT: the CPU waits for a start-up command.
    Init,
    /// Start-up: the CPU starts in real mode at the physical address `page * 4096`.
    StartUp(u8),
}

/// The first vector that is not an exception's. (A handler of an exception may remove an error code from the stack,
/// which an interrupt does not push.)
pub const FIRST_VECTOR: u8 = 32;

/// A command to one CPU, as register values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word(u32);

/// Bit 14: assert. All commands but the obsolete de-assert have it.
const ASSERT: u32 = 1 << 14;

impl Command {
    /// The low word of the command register; `None` for the vector of an exception.
    pub(crate) const fn word(self) -> Option<Word> {
        match self {
            Self::Nmi => Some(Word(ASSERT | 0b100 << 8)),
            Self::Interrupt(vector) if vector >= FIRST_VECTOR => Some(Word(ASSERT | vector as u32)),
            Self::Interrupt(_) => None,
        }
    }
}

impl Start {
    /// The low word of the command register.
    pub(crate) const fn word(self) -> Word {
        match self {
            Self::Init => Word(ASSERT | 0b101 << 8),
            Self::StartUp(page) => Word(ASSERT | 0b110 << 8 | page as u32),
        }
    }
}

impl Word {
    /// The one register of x2APIC mode; the whole id is in its upper half.
    pub(crate) const fn x2apic(self, id: u32) -> u64 {
        (id as u64) << 32 | self.0 as u64
    }

    /// The two registers of xAPIC mode, high and low; `None` for an id that does not fit in 8 bits, and for the id that
    /// stands for all CPUs.
    pub(crate) const fn xapic(self, id: u32) -> Option<(u32, u32)> {
        if id < 0xff { Some((id << 24, self.0)) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_manual() {
        assert_eq!(Command::Nmi.word(), Some(Word(0x4400)));
        assert_eq!(Command::Interrupt(0xe0).word(), Some(Word(0x40e0)));
        assert_eq!([Start::Init, Start::StartUp(8)].map(Start::word), [Word(0x4500), Word(0x4608)]);
    }

    #[test]
    fn the_vectors_of_exceptions_are_not_sent() {
        let is_sent = |vector| Command::Interrupt(vector).word().is_some();
        assert_eq!([0, 17, 31, 32, 255].map(is_sent), [false, false, false, true, true]);
    }

    #[test]
    fn the_destination_is_one_cpu_and_never_all() {
        let word = Command::Nmi.word().expect("every CPU can get it");
        assert_eq!(word.xapic(3), Some((0x0300_0000, 0x4400)));
        assert_eq!(word.x2apic(0x1_0003), 0x0001_0003_0000_4400);
        // 0xff addresses every CPU, and a longer id would address the CPU of its low 8 bits.
        assert_eq!([0xff, 0x100, 0x103].map(|id| word.xapic(id)), [None; 3]);
    }
}
