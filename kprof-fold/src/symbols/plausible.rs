//! Checks whether the symbols can be those of the kernel that ran. Stage: symbolize, for profiles that have neither
//! anchors nor a build id.
//!
//! In: addresses of stacks, symbols. Out: the reasons against the symbols, in words, or nothing. The names of another
//! build look right, but their addresses do not fit. Three things are checked: a return address must follow a call
//! instruction (this needs an ELF file), no code may run between two functions, and no call may lie before its
//! function. The right symbols violate none of these, except for assembly. The symbols of another build violate them at
//! 1.5 to 8 % of the addresses, even if all addresses are within its code. Few addresses prove nothing, and neither do
//! symbols without sizes that are from a similar build.

use super::Symbols;
use crate::stacks::Stacks;
use iced_x86::{Decoder, DecoderOptions, FlowControl};
use kprof_format::marker::{Marker, PUBLISHED_LEAF};
use object::Architecture;
use std::collections::BTreeSet;

/// Maximum number of stacks that are checked; they are spread over all stacks.
pub(super) const MAX_STACKS: usize = 2048;
/// With fewer different addresses than this the check decides nothing.
pub(super) const MIN: usize = 30;
/// Addresses where no code can be: the minimum number, and the minimum share of all addresses.
const MIN_NOWHERE: usize = 5;
const NOWHERE_PERCENT: usize = 1;
/// The limit for return addresses without a call before them, among those for which an ELF file has code. Assembly may
/// push such an address.
const UNCALLED_PERCENT: usize = 10;
/// The limit for addresses that are far from the symbol before them, which has no size.
const FAR_PERCENT: usize = 10;
/// Lengths in bytes of the shortest and the longest call instruction.
const CALL_BYTES: std::ops::RangeInclusive<usize> = 2..=9;

/// The findings, as numbers of different addresses.
#[derive(Debug, Default)]
struct Found {
    all: usize,
    nowhere: usize,
    far: usize,
    checked: usize,
    uncalled: usize,
}

/// The reasons against the symbols, in words.
pub fn doubt(stacks: &Stacks, symbols: &Symbols) -> Option<String> {
    let (instructions, returns) = addresses(stacks, symbols);
    let mut found = Found { all: instructions.len() + returns.len(), ..Found::default() };
    for address in instructions {
        place(address, 0, symbols, &mut found);
    }
    for address in returns {
        // The call before it has at least two bytes, and its first byte is in the function too.
        place(address.wrapping_sub(1), 1, symbols, &mut found);
        if let Some(is_called) =
            symbols.elf.as_ref().and_then(|elf| follows_call(address.wrapping_sub(symbols.slide), elf))
        {
            found.checked += 1;
            found.uncalled += usize::from(!is_called);
        }
    }
    found.verdict()
}

impl Found {
    fn verdict(&self) -> Option<String> {
        let Self { all, nowhere, far, checked, uncalled } = *self;
        if checked >= MIN && uncalled * 100 > checked * UNCALLED_PERCENT {
            return Some(format!("{uncalled} of {checked} return addresses do not follow a call instruction"));
        }
        if all < MIN {
            return None;
        }
        if far * 100 > all * FAR_PERCENT {
            return Some(format!("{far} of {all} addresses are further than 64 KiB from the symbol before them"));
        }
        (nowhere >= MIN_NOWHERE && nowhere * 100 > all * NOWHERE_PERCENT)
            .then(|| format!("{nowhere} of {all} addresses lie where these symbols have no code"))
    }
}

/// Looks up one address. Counts it if no symbol contains it, if it is less than `least` bytes after the start of its
/// function, or if it is far from the start of a symbol without a size.
fn place(address: u64, least: u64, symbols: &Symbols, found: &mut Found) {
    match symbols.find(address) {
        Some(number) => found.nowhere += usize::from(address.wrapping_sub(symbols.start(number)) < least),
        None if symbols.is_far(address) => found.far += 1,
        None => found.nowhere += 1,
    }
}

/// Instructions and return addresses of the kernel itself, each once.
fn addresses(stacks: &Stacks, symbols: &Symbols) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut instructions, mut returns, mut words) = (BTreeSet::new(), BTreeSet::new(), Vec::new());
    for stack in (0..stacks.len()).step_by(stacks.len().div_ceil(MAX_STACKS).max(1)) {
        stacks.words(stack as u32, &mut words);
        let (mut exact, mut doubtful) = (true, false);
        for word in &words {
            match Marker::decode(*word) {
                Some(Marker::Interrupt(_) | Marker::Exception(_)) => exact = true,
                Some(Marker::Candidate) => doubtful = true,
                Some(Marker::User) => break,
                Some(_) => {}
                None if *word >> 63 == 0 => break,
                None => {
                    let is_kernel = *word < PUBLISHED_LEAF && symbols.is_of_the_kernel(*word);
                    if is_kernel && !std::mem::take(&mut doubtful) {
                        if exact {
                            instructions.insert(*word)
                        } else {
                            returns.insert(*word)
                        };
                    }
                    exact = false;
                }
            }
        }
    }
    (instructions, returns)
}

/// Whether a call instruction ends directly before an address of the file; `None` if the file has no code there, or
/// code of a processor whose calls are not known here.
pub(super) fn follows_call(address: u64, elf: &super::elf::Elf) -> Option<bool> {
    let longest = *CALL_BYTES.end();
    let before = |bytes: usize| elf.code(address.checked_sub(bytes as u64)?)?.get(..bytes);
    match elf.arch {
        Architecture::X86_64 => {}
        Architecture::Aarch64 => return Some(is_aarch64_call(word(before(4)?))),
        Architecture::Riscv64 => return Some(is_riscv_call(word(before(4)?))),
        _ => return None,
    }
    let code = before(longest)?;
    let is_call = |bytes: usize| {
        let mut decoder = Decoder::new(64, &code[longest - bytes..], DecoderOptions::NONE);
        let instruction = decoder.decode();
        let calls = matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall);
        calls && instruction.len() == bytes
    };
    Some(CALL_BYTES.into_iter().any(is_call))
}

/// Up to four bytes of code.
fn word(code: &[u8]) -> u32 {
    code.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

/// `bl`, `blr`, and `blr` of a signed address (Arm Architecture Reference Manual, C4.1.65).
fn is_aarch64_call(code: u32) -> bool {
    code >> 26 == 0b10_0101 || code & 0xfeff_f000 == 0xd63f_0000
}

/// `jal` or `jalr` that writes ra, or `c.jalr` in the last two bytes (RISC-V manual, volume I, 2.5 and 27.4).
fn is_riscv_call(code: u32) -> bool {
    let short = code >> 16;
    code & 0xfff == 0x0ef || code & 0x7fff == 0x00e7 || (short & 0xf07f == 0x9002 && short != 0x9002)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_other_processors_are_known_by_their_code() {
        // bl; blr x8; blraa x8, x9. And b; ret; br x8; nop.
        assert!([0x9400_0001, 0xd63f_0100, 0xd73f_0909].into_iter().all(is_aarch64_call));
        assert!(![0x1400_0001, 0xd65f_03c0, 0xd61f_0100, 0xd503_201f].into_iter().any(is_aarch64_call));
        // jal ra; jalr ra, 0(a5); c.jalr a5. And j; ret; c.jr a5; c.ebreak.
        assert!([0x0040_00ef, 0x0007_80e7, 0x9782_0001].into_iter().all(is_riscv_call));
        assert!(![0x0040_006f, 0x0000_8067, 0x8782_0001, 0x9002_0001].into_iter().any(is_riscv_call));
    }
}
