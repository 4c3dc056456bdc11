//! Finds stacks from which a caller may be missing, because the symbols do not tell. Stage: symbolize, before anything
//! is shown.
//!
//! In: stacks with candidates, and symbols. Out: a sentence, or nothing. Where a function has no stack frame of its
//! own, the caller of the function is only a candidate. The code of the kernel's ELF file decides; a list of symbols
//! decides it only for the first bytes of a function and its last one.

use super::{OwnFrame, Symbols};
use crate::fold::walk::walk;
use crate::stacks::Stacks;
use std::collections::BTreeMap;

/// How many different stacks may lack a caller, in words, with what to do.
pub fn undecided(stacks: &Stacks, symbols: &Symbols) -> Option<String> {
    let (mut words, mut known, mut without) = (Vec::new(), BTreeMap::new(), 0);
    for stack in 0..stacks.len() {
        stacks.words(stack as u32, &mut words);
        let mut is_open = false;
        let mut open = |sampled: u64| {
            is_open |= *known.entry(sampled).or_insert_with(|| symbols.own_frame(sampled) == OwnFrame::NotKnown);
            false
        };
        walk(&words, false, &mut open, |_| {});
        without += usize::from(is_open);
    }
    (without > 0).then(|| {
        format!(
            "{without} of {} different stacks may lack the caller of their innermost function: a list of symbols does \
             not tell where a function has no stack frame. Give the kernel's ELF file",
            stacks.len()
        )
    })
}
