//! The instructions of a function with their samples. Stage: output, for `annotate`.
//!
//! In: the samples of each address, and the code. Out: instructions in the order of their addresses. The address of a
//! caller is inside its call instruction, so samples are counted for the instruction that holds the address. Only
//! x86_64 code is decoded; of other code the addresses are shown.

use super::Samples;
use crate::symbols::Symbols;
use crate::symbols::users::plain;
use iced_x86::{Decoder, DecoderOptions, FastFormatter, Instruction};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Maximum number of bytes of a function that are decoded.
const MAX_BYTES: usize = 1 << 20;

/// An instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its address in the running kernel.
    pub address: u64,
    /// Its text; empty if it cannot be decoded.
    pub text: String,
    /// Its samples.
    pub samples: Samples,
}

/// All instructions of the function that holds `address`, with the samples of `places`. If the code of the function is
/// not known, there is one line per address with samples.
pub fn function(symbols: &Symbols, address: u64, places: &BTreeMap<u64, Samples>) -> Vec<Line> {
    let number = symbols.find(address);
    let Some((start, code)) = number.and_then(|number| symbols.code(number)) else {
        let of_function = places.iter().filter(|(place, _)| symbols.find(**place) == number);
        let line = |(address, samples): (&u64, &Samples)| (*address, *samples);
        return of_function
            .map(line)
            .map(|(address, samples)| Line { address, text: String::new(), samples })
            .collect();
    };
    let code = &code[..code.len().min(MAX_BYTES)];
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let (mut formatter, mut lines, mut instruction) = (formatter(), Vec::new(), Instruction::default());
    while decoder.can_decode() {
        decoder.decode_out(&mut instruction);
        let within = places.range(instruction.ip()..instruction.next_ip().max(instruction.ip() + 1));
        let samples = within.fold(Samples::default(), |sum, (_, samples)| sum + *samples);
        lines.push(Line { address: instruction.ip(), text: text(symbols, &instruction, &mut formatter), samples });
    }
    lines
}

/// The text of the instruction that begins at `address`; empty without its code.
pub fn at(symbols: &Symbols, address: u64) -> String {
    let Some((start, code)) = symbols.find(address).and_then(|number| symbols.code(number)) else {
        return String::new();
    };
    let Some(code) = code.get((address - start) as usize..) else { return String::new() };
    text(symbols, &Decoder::with_ip(64, code, address, DecoderOptions::NONE).decode(), &mut formatter())
}

/// The instruction that holds `address`, with its text, which is empty without its code. A call holds the address one
/// byte before its return address.
pub fn holding(symbols: &Symbols, address: u64) -> (u64, String) {
    let lines = function(symbols, address, &BTreeMap::from([(address, Samples { self_samples: 1, total: 1 })]));
    let found = lines.into_iter().find(|line| line.samples.total > 0);
    found.map_or_else(|| (address, String::new()), |line| (line.address, line.text))
}

fn formatter() -> FastFormatter {
    let mut formatter = FastFormatter::new();
    formatter.options_mut().set_space_after_operand_separator(true);
    formatter.options_mut().set_use_hex_prefix(true);
    formatter
}

/// The text of an instruction, with the function that it jumps to or calls.
fn text(symbols: &Symbols, instruction: &Instruction, formatter: &mut FastFormatter) -> String {
    let mut text = String::new();
    let target = instruction.near_branch_target();
    let mut shown = *instruction;
    if target != 0 {
        shown.set_near_branch64(plain(target));
    }
    if instruction.is_ip_rel_memory_operand() {
        shown.set_memory_displacement64(plain(instruction.memory_displacement64()));
    }
    formatter.format(&shown, &mut text);
    let function = (target != 0).then(|| symbols.find(target)).flatten();
    // Bytes that are not code may be decoded as a jump to any target, also to one before all symbols.
    if let Some((number, offset)) = function.and_then(|it| Some((it, target.checked_sub(symbols.start(it))?))) {
        let _ = match offset {
            0 => write!(text, "  <{}>", symbols.function(number)),
            offset => write!(text, "  <{}+{offset:#x}>", symbols.function(number)),
        };
    }
    text
}
