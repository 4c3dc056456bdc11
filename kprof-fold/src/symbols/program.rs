//! Where a program was loaded, and whether its symbols are those of the program that ran. Stage: symbolize, for the
//! option `--user-syms`.
//!
//! In: the instructions at which one task was sampled in user code, and the symbols. Out: the distance by which the
//! program ran higher than its file says, and a reason against the symbols, in words. A position-independent program
//! (PIE) runs somewhere else than its file says, and no profile tells where. But each sampled address is the start of
//! an instruction, and at a wrong distance only every third or fourth address is. The callers prove nothing: most
//! programs have no frame pointers. Nothing is guessed from few addresses.

use super::Symbols;
use super::plausible::MIN;
use crate::stacks::{StackId, Stacks};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use kprof_format::marker::Marker;
use std::collections::BTreeSet;

/// A position-independent program is moved by whole pages, of this many bytes.
const PAGE: u64 = 4096;
/// Addresses that are compared at each distance.
const MAX_COMPARED: usize = 1024;
/// The right symbols have nearly all addresses at the start of an instruction (assembly may have data in its code).
const MIN_PERCENT: usize = 95;
/// Code is decoded if it is in a range of at most this many bytes. In a damaged file two functions can be anywhere.
const MAX_RANGE_BYTES: u64 = 1 << 30;
/// Every other distance has at most this many.
const MAX_CHANCE_PERCENT: usize = 70;

/// The user addresses at which a task was sampled, each once.
pub fn addresses(stacks: &Stacks, ids: impl IntoIterator<Item = StackId>) -> BTreeSet<u64> {
    let mut words = Vec::new();
    let sampled = ids.into_iter().filter_map(|id| {
        stacks.words(id, &mut words);
        let user = match words.first()? >> 63 {
            0 => 0,
            // After an entry: the instruction that was interrupted, or that follows the system call.
            _ => words.iter().position(|word| *word == Marker::User.encode())? + 1,
        };
        words.get(user).copied().filter(|word| *word >> 63 == 0 && *word != 0)
    });
    sampled.collect()
}

/// Where the instructions of a program begin, by its symbols.
struct Starts {
    base: u64,
    is_start: Vec<bool>,
}

/// Addresses that are code, and how many of those are the start of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Score {
    code: usize,
    starts: usize,
}

impl Starts {
    /// Decodes every function. `None` if it is not known what the code is, or if it is in too large a range.
    fn of(symbols: &Symbols) -> Option<Self> {
        symbols.elf.as_ref().filter(|elf| elf.is_x86_64())?;
        let functions = || {
            let all = (0..symbols.table.len()).filter_map(|number| symbols.code(number));
            all.map(|(start, code)| (start.wrapping_sub(symbols.slide), code))
        };
        let base = functions().map(|(start, _)| start).min()? & !(PAGE - 1);
        let end = functions().map(|(start, code)| start.saturating_add(code.len() as u64)).max()?;
        if end - base > MAX_RANGE_BYTES {
            return None;
        }
        let mut is_start = vec![false; (end - base) as usize];
        for (start, code) in functions() {
            let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                is_start[(decoder.ip() - base) as usize] = true;
                decoder.decode_out(&mut instruction);
            }
        }
        Some(Self { base, is_start })
    }

    /// Compares addresses that ran `distance` higher than in the file.
    fn score(&self, addresses: &[u64], distance: u64) -> Score {
        let mut score = Score::default();
        for address in addresses {
            let at = address.wrapping_sub(distance).wrapping_sub(self.base);
            if let Some(is_start) = usize::try_from(at).ok().and_then(|at| self.is_start.get(at)) {
                score.code += 1;
                score.starts += usize::from(*is_start);
            }
        }
        score
    }

    /// The one distance at which nearly all addresses that are code are the start of an instruction. `None` if there is
    /// no such distance, or more than one.
    fn distance(&self, addresses: &[u64]) -> Option<u64> {
        // The address in the middle of the list is in the program, unless only few addresses are. Then they prove
        // nothing.
        let probe = addresses.get(addresses.len() / 2)?;
        let pages = (self.base..self.base + self.is_start.len() as u64).step_by(PAGE as usize);
        let mut scored: Vec<(Score, u64)> = pages
            .map(|page| probe.wrapping_sub(page + probe % PAGE))
            .map(|distance| (self.score(addresses, distance), distance))
            .filter(|(score, _)| score.code >= MIN && score.code * 2 > addresses.len())
            .collect();
        scored.sort_by_key(|(score, distance)| (score.percent(), *distance));
        let (best, distance) = scored.pop()?;
        let is_alone = scored.last().is_none_or(|(score, _)| score.percent() <= MAX_CHANCE_PERCENT);
        (best.percent() >= MIN_PERCENT && is_alone).then_some(distance)
    }
}

impl Score {
    fn percent(self) -> usize {
        self.starts * 100 / self.code.max(1)
    }
}

/// The distance by which a program ran higher than its file says (0 if none is proved), and the reason against the
/// symbols at that distance, in words.
pub fn place(addresses: &BTreeSet<u64>, symbols: &Symbols) -> (u64, Option<String>) {
    let all: Vec<u64> = addresses.iter().copied().step_by(addresses.len().div_ceil(MAX_COMPARED).max(1)).collect();
    let Some(starts) = Starts::of(symbols) else {
        let is_far = !all.is_empty() && !all.iter().any(|address| symbols.table.find(*address).is_some());
        return (0, is_far.then(|| nowhere(all.len())));
    };
    let distance = starts.distance(&all).unwrap_or(0);
    let score = starts.score(&all, distance);
    let why = if !all.is_empty() && score.code == 0 {
        Some(nowhere(all.len()))
    } else if score.code >= MIN && score.percent() < MIN_PERCENT {
        let inside = score.code - score.starts;
        Some(format!("{inside} of {} sampled addresses in it are not the start of an instruction", score.code))
    } else {
        None
    };
    (distance, why)
}

fn nowhere(all: usize) -> String {
    format!("none of the {all} addresses at which the task was sampled is near its code")
}

#[cfg(all(test, target_arch = "x86_64", target_os = "linux"))]
mod tests {
    use super::*;
    use crate::problems::Problems;

    /// This test's own program, which is position-independent, and addresses of its instructions.
    fn program() -> (Symbols, Vec<u64>) {
        let file = std::env::current_exe().unwrap();
        let symbols = Symbols::open(file.to_str().unwrap(), &mut Problems::default()).unwrap();
        let starts = Starts::of(&symbols).unwrap();
        let all = (starts.base..).zip(&starts.is_start).filter(|(_, is_start)| **is_start).map(|(at, _)| at);
        let all: Vec<u64> = all.collect();
        // Ten neighbours at each place, as in a profile.
        let some = all.chunks(10).step_by(all.len() / 10 / 40).flatten().copied().collect();
        (symbols, some)
    }

    #[test]
    fn a_program_is_found_at_the_one_distance_at_which_its_addresses_are_instructions() {
        let (symbols, addresses) = program();
        for distance in [0, 0x5555_5555_4000, 0x7f00_1234_5000, PAGE] {
            let moved = addresses.iter().map(|address| address + distance).collect();
            assert_eq!(place(&moved, &symbols), (distance, None), "{distance:#x}");
            // A part of the samples is in other code, such as a library.
            let others = (0..100).map(|at| 0x7fff_f7a0_0000 + 37 * at);
            let with_others = moved.iter().copied().chain(others).collect();
            assert_eq!(place(&with_others, &symbols), (distance, None), "{distance:#x}, with a library");
        }
    }

    #[test]
    fn another_program_is_not_found_anywhere() {
        let (symbols, addresses) = program();
        let (distance, why) = place(&addresses.iter().map(|address| 2 * address + (1 << 46)).collect(), &symbols);
        assert!(distance == 0 && why.unwrap().contains("is near its code"));
        // The distance is no whole page: every address is in the code, and few are the start of an instruction.
        let (distance, why) = place(&addresses.iter().map(|address| address + 1).collect(), &symbols);
        let why = why.unwrap();
        assert!(distance == 0 && why.ends_with("are not the start of an instruction"), "{why}");
    }

    #[test]
    fn few_addresses_prove_nothing() {
        let (symbols, addresses) = program();
        let few = addresses[..MIN - 1].iter().map(|address| address + 0x5555_5555_4000).collect();
        assert_eq!(place(&few, &symbols), (0, Some(nowhere(MIN - 1))));
        assert_eq!(place(&BTreeSet::new(), &symbols), (0, None));
    }

    #[test]
    fn a_list_of_symbols_cannot_be_moved_and_says_when_nothing_is_near() {
        let list = b"0000000000001000 T one\n0000000000002000 T two\n".to_vec();
        let symbols = Symbols::read("list", list, &b""[..], &mut Problems::default()).unwrap();
        assert_eq!(place(&[0x1001, 0x2002].into(), &symbols), (0, None));
        assert_eq!(place(&[0x5555_5555_5001].into(), &symbols), (0, Some(nowhere(1))));
    }

    #[test]
    fn the_sampled_instructions_of_a_task_are_those_of_user_code() {
        let (kernel, user) = (0xffff_ffff_8020_1000, Marker::User.encode());
        let mut stacks = Stacks::new(crate::stacks::Encoding::Hex);
        let texts = [
            vec![0x40_1000, 0x40_2000],
            vec![kernel, kernel + 8],
            vec![kernel, Marker::Syscall.encode(), user, 0x40_3000, 0x40_4000],
            vec![kernel, Marker::Syscall.encode(), user, 0],
            vec![kernel, Marker::Syscall.encode(), user],
        ];
        for words in &texts {
            let text: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
            let text = text.join(" ");
            stacks.insert_parsed(text.as_bytes(), crate::stacks::hash(text.as_bytes()), words);
        }
        assert_eq!(addresses(&stacks, 0..5), [0x40_1000, 0x40_3000].into());
    }
}
