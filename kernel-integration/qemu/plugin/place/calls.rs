//! The slide of a kernel of which only the functions' addresses are known (`nm`, kallsyms). Stage: capture.
//!
//! In: where functions begin; an executed address. Out: the one slide at which the direct calls around that address
//! lead to the beginning of functions. The bytes are searched for `call rel32` at every offset, so a few of the targets
//! are no calls'.

use super::{Outcome, PAGE, Read, State};
use std::collections::{HashMap, HashSet};

/// Pages on each side of the address.
const PAGES: u64 = 16;
/// This many different targets are needed, and this many of 100 must be functions.
const MIN_TARGETS: usize = 64;
const MIN_PERCENT: u64 = 60;
/// Any other slide must have fewer than this part of the best one's.
const OTHER_PART: u64 = 4;
const CALL: u8 = 0xe8;

/// Functions by their place in a page.
#[derive(Debug, Default)]
pub struct Calls {
    by_place: HashMap<u64, Vec<u64>>,
    bytes: u64,
}

impl Calls {
    pub fn new(starts: &[u64]) -> Self {
        let mut by_place: HashMap<u64, Vec<u64>> = HashMap::new();
        starts.iter().for_each(|start| by_place.entry(start % PAGE).or_default().push(*start));
        let ends = starts.iter().min().zip(starts.iter().max());
        Self { by_place, bytes: ends.map_or(0, |(first, last)| last - first) }
    }

    pub fn place(&self, address: u64, given: Option<u64>, read: Read<'_>) -> Outcome {
        let targets = self.targets(address, read);
        let mut votes: HashMap<u64, u64> = HashMap::new();
        for target in &targets {
            for start in self.by_place.get(&(target % PAGE)).into_iter().flatten() {
                let slide = target.wrapping_sub(*start);
                if given.is_none_or(|given| given == slide) {
                    *votes.entry(slide).or_default() += 1;
                }
            }
        }
        let mut best: Vec<(u64, u64)> = votes.into_iter().map(|(slide, votes)| (votes, slide)).collect();
        best.sort_unstable();
        let (same, slide) = best.pop().unwrap_or_default();
        let (second, _) = best.pop().unwrap_or_default();
        let compared = targets.len() as u64;
        let state = match () {
            () if targets.len() < MIN_TARGETS || same * 100 < compared * MIN_PERCENT => State::Nowhere,
            () if second * OTHER_PART >= same => State::Ambiguous,
            () => State::Placed,
        };
        Outcome { state, same, compared, slide, id: Vec::new() }
    }

    /// Targets of calls that may be in the kernel.
    fn targets(&self, address: u64, read: Read<'_>) -> HashSet<u64> {
        let page = address & !(PAGE - 1);
        let pages = |number: u64, is_up: bool| {
            let at = if is_up { page.wrapping_add(number * PAGE) } else { page.wrapping_sub(number * PAGE) };
            let mut bytes = vec![0; PAGE as usize];
            read(at, &mut bytes).then_some((at, bytes))
        };
        let below = (1..=PAGES).map_while(|number| pages(number, false));
        let mut code: Vec<(u64, Vec<u8>)> = below.chain((0..PAGES).map_while(|number| pages(number, true))).collect();
        code.sort_unstable_by_key(|(at, _)| *at);
        let start = code.first().map_or(0, |(at, _)| *at);
        let bytes: Vec<u8> = code.into_iter().flat_map(|(_, bytes)| bytes).collect();
        let calls = (start + 5..).zip(bytes.windows(5)).filter(|(_, bytes)| bytes[0] == CALL);
        let target = |(next, bytes): (u64, &[u8])| {
            let distance = i32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]);
            next.wrapping_add_signed(i64::from(distance))
        };
        calls.map(target).filter(|target| target.abs_diff(address) <= self.bytes).collect()
    }
}
