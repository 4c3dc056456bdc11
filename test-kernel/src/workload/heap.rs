//! Heap work: makes lists of words, counts equal words in a map, sorts the counts, and frees all of it.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// In each of `rounds` rounds, makes a list of a thousand words, counts equal words, and sorts the counts.
#[inline(never)]
pub fn sort_and_count(rounds: u64) {
    for round in 0..rounds {
        let words = make_words(round);
        let counts = count_words(&words);
        let mut by_count: Vec<_> = counts.into_iter().map(|(word, count)| (count, word)).collect();
        by_count.sort_unstable();
        core::hint::black_box(by_count);
    }
}

#[inline(never)]
fn make_words(seed: u64) -> Vec<String> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..1000)
        .map(|_| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (0..2 + (state >> 60)).map(|i| (b'a' + (state >> (4 * i) & 7) as u8) as char).collect()
        })
        .collect()
}

#[inline(never)]
fn count_words(words: &[String]) -> BTreeMap<&str, u32> {
    let mut counts = BTreeMap::new();
    for word in words {
        *counts.entry(word.as_str()).or_insert(0) += 1;
    }
    counts
}
