//! Samples near each other in time are alike: one run of a side is compared by the blocks of its time.

use crate::sealed::{batch, sealed};
use std::path::Path;
use std::process::Command;

const SYMS: &str = "ffffffff80001000 0000000000000100 T one\nffffffff80002000 0000000000000100 t two\n";

/// Sixteen stretches of 100 samples; in each of them one of two functions runs all the time.
fn stretches(pattern: &str) -> String {
    let sample = |at: usize, letter: char| {
        let place = if letter == '1' { 0xffff_ffff_8000_1010u64 } else { 0xffff_ffff_8000_2010 };
        format!("a 0 {:x} {place:x}\n", at * 1_000_000)
    };
    let letters = pattern.chars().flat_map(|letter| std::iter::repeat_n(letter, 100));
    let samples: String = letters.enumerate().map(|(at, letter)| sample(at, letter)).collect();
    sealed(&format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n{}", batch(0, &samples)))
}

fn run(folder: &Path, words: &[&str]) -> String {
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(words).current_dir(folder).output().expect("kprof-fold runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).expect("is text")
}

#[test]
fn a_difference_that_one_long_stretch_makes_is_within_chance() {
    let folder = tempfile::tempdir().expect("is writable");
    let folder = folder.path();
    std::fs::write(folder.join("syms"), SYMS).expect("is writable");
    for (name, pattern) in [("old", "1221121221121222"), ("new", "1121211211221112")] {
        std::fs::write(folder.join(format!("{name}.txt")), stretches(pattern)).expect("is writable");
        let folded = run(folder, &["folded", "-q", &format!("{name}.txt"), "syms"]);
        std::fs::write(folder.join(format!("{name}.folded")), folded).expect("is writable");
    }
    let text = run(folder, &["diff", "-q", "old.txt", "new.txt", "syms"]);
    let note = "the intervals are widened by how much the shares vary from one block of a run's time to the next";
    assert!(text.contains(note) && text.contains("within chance"), "{text}");
    assert!(!text.contains("GREW") && !text.contains("SHRANK"), "{text}");
    // Folded stacks have no times, so each sample counts as independent.
    let text = run(folder, &["diff", "-q", "old.folded", "new.folded"]);
    assert!(!text.contains(note) && text.contains("GREW"), "{text}");
    let pages = ["html", "-q", "--compare", "old.txt", "new.txt", "syms", "-o", "page.html"];
    assert_eq!(run(folder, &pages), "");
}
