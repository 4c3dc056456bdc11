//! What the frame cache holds after walks. That a guess, right or wrong, changes no result is tested with every walk of
//! `Machine::walk`.

use super::{Machine, Ordering, STACK, TEXT, registers};
use crate::sync::AtomicU64;
use crate::unwind::{FrameCache, ROUND, TextCell, innermost};

#[test]
fn the_ends_of_rounds_stay_in_the_cache_while_other_stacks_are_walked() {
    const FRAMES: u64 = 40;
    const STACKS: u64 = 10;
    let mut machine = Machine::new((STACKS * FRAMES * 2) as usize);
    let frame = |stack: u64, number: u64| STACK + 16 * (stack * FRAMES + number);
    for (stack, number) in (0..STACKS).flat_map(|stack| (0..FRAMES).map(move |number| (stack, number))) {
        let next = if number + 1 == FRAMES { 0 } else { frame(stack, number + 1) };
        machine.frame(frame(stack, number), next, TEXT + 0x200);
    }
    let (cache, text) = (FrameCache::new(), TextCell::new());
    text.set(super::Text::new((TEXT, TEXT + super::TEXT_BYTES as u64)));
    let places = [const { [const { AtomicU64::new(0) }; ROUND] }; 3];
    for stack in 0..STACKS {
        // The lowest word is the saved frame pointer of a caller: it is no code, and not the frame pointer.
        let at = registers(frame(stack, 0), frame(stack, 0));
        let run = innermost(&machine, &machine, &text, &at, &places, &cache).expect("an ordinary stack");
        assert!(run.at_root());
    }
    let ends: Vec<u64> = cache.ends.iter().map(|end| end.load(Ordering::Relaxed)).collect();
    let is_kept = |stack, round: u64| ends.contains(&frame(stack, round * ROUND as u64));
    let kept = (0..STACKS).flat_map(|stack| [(stack, 1), (stack, 2)]).filter(|&(stack, round)| is_kept(stack, round));
    // Some of the twenty may have the same place, where the later one replaces the earlier one.
    let kept = kept.count();
    assert!(kept >= 16, "{kept} of 20 are in the cache");
    assert_eq!(ends.iter().filter(|end| **end != 0).count(), kept, "nothing else is");
}
