//! Finds stacks from which a function is missing. Stage: symbolize, before anything is shown.
//!
//! In: stacks, and symbols with the kernel's code (an ELF file). Out: what is missing, in words, or nothing. An entry
//! stub that the port has not listed in `Kernel::is_entry_code` does not change rbp. So the chain of frame pointers
//! goes from the handler that the stub has called to the caller of the interrupted function, and the interrupted
//! function itself is not in the stack. Such a stub is recognised by its code: it does not begin with `push rbp`, and
//! it ends with `iretq` (Intel SDM volume 3A, section 6.14.3). In a stack that passes a stub that is listed, the word
//! after the address in the stub is a marker; raw words have no markers, and there it is the interrupted instruction.
//! It seldom follows a call instruction, as every return address does.

use super::Symbols;
use super::plausible::{MAX_STACKS, follows_call};
use crate::stacks::Stacks;
use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use kprof_format::marker::Marker;
use std::collections::BTreeMap;

/// The code of `push rbp`.
const PUSH_RBP: u8 = 0x55;
/// A longer function is not an entry stub.
const MAX_STUB_BYTES: usize = 4096;

/// The number of stacks that go through a stub: to a return address, so that the interrupted function is missing, or to
/// the interrupted instruction.
#[derive(Default)]
struct Through {
    to_return: usize,
    to_instruction: usize,
}

/// A sentence that names a stub after which stacks lack the interrupted function, and says how many different stacks
/// do.
pub fn missing_function(stacks: &Stacks, symbols: &Symbols) -> Option<String> {
    let elf = symbols.elf.as_ref()?;
    let (mut words, mut known, mut through) = (Vec::new(), BTreeMap::new(), BTreeMap::<usize, Through>::new());
    let mut all = 0;
    for stack in (0..stacks.len()).step_by(stacks.len().div_ceil(MAX_STACKS).max(1)) {
        all += 1;
        stacks.words(stack as u32, &mut words);
        // Two kernel addresses in succession: the first one is a return address unless it is the sampled instruction or
        // follows a marker. Then it is an instruction of the stub itself, whose caller may be read from the stack.
        let stub = words.windows(3).find_map(|window| {
            let [before, address, next] = [window[0], window[1], window[2]].map(|word| (word, Marker::decode(word)));
            let is_return = before.1.is_none() && address.1.is_none() && next.1.is_none() && next.0 >> 63 == 1;
            let number = symbols.find(address.0.wrapping_sub(1)).filter(|_| is_return)?;
            known.entry(number).or_insert_with(|| is_stub(symbols, number)).then_some((number, next.0))
        });
        if let Some((number, next)) = stub {
            let through = through.entry(number).or_default();
            // Where the file has no code nothing shows that the function is in the stack.
            let is_return = follows_call(next.wrapping_sub(symbols.slide), elf).unwrap_or(true);
            *if is_return { &mut through.to_return } else { &mut through.to_instruction } += 1;
        }
    }
    through.retain(|_, through| through.to_return > through.to_instruction);
    let (number, _) = through.iter().max_by_key(|(_, through)| through.to_return)?;
    Some(format!(
        "{} of {all} different stacks go through the entry stub {} without a marker, so the interrupted function is \
         missing in them: list the stub in Kernel::is_entry_code",
        through.values().map(|through| through.to_return).sum::<usize>(),
        symbols.function(*number)
    ))
}

fn is_stub(symbols: &Symbols, number: usize) -> bool {
    let Some((start, code)) = symbols.code(number) else { return false };
    let code = &code[..code.len().min(MAX_STUB_BYTES)];
    // A function compiled as `extern "x86-interrupt"` begins with `push rbp`, also after `endbr64`: the chain leads
    // through its frame to the interrupted instruction.
    let first = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code).first();
    first.is_some_and(|first| *first != PUSH_RBP)
        && Decoder::with_ip(64, code, start, DecoderOptions::NONE)
            .iter()
            .any(|instruction| instruction.mnemonic() == Mnemonic::Iretq)
}
