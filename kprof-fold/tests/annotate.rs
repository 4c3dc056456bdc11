//! `annotate`: instructions beside source lines, code without lines, and where the source is looked for. The image is
//! this test program itself.
#![forbid(unsafe_code)]
#![cfg(target_arch = "x86_64")]

mod sealed;

use kprof_fold::problems::Problems;
use kprof_fold::symbols::Symbols;
use sealed::{batch, sealed};
use std::process::Command;

const SLIDE: u64 = 0xffff_ffff_8000_0000;

#[inline(never)]
fn the_sampled_function(value: u64) -> u64 {
    std::hint::black_box(value).wrapping_mul(3)
}

/// What `annotate` prints for samples at these distances from the start of a function.
fn annotate(function: &str, offsets: &[u64], more: &[&str]) -> String {
    std::hint::black_box(the_sampled_function(5));
    let file = std::env::current_exe().expect("has a path").display().to_string();
    let symbols = Symbols::open(&file, &mut Problems::default()).expect("is an ELF file");
    let start = symbols.table.named(function).next().unwrap_or_else(|| panic!("no {function}")) + SLIDE;
    let samples: String = offsets.iter().map(|offset| format!("a 0 1 {:x}\n", start + offset)).collect();
    let load = symbols.elf.expect("is an ELF file").base + SLIDE;
    let text = sealed(&format!("# kprof-profile 1\n# load {load:x}\n{}", batch(0, &samples)));
    let folder = tempfile::tempdir().expect("the test folder is writable");
    let profile = folder.path().join("profile");
    std::fs::write(&profile, text).expect("the test folder is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(["annotate", "-q", function]).args(more).arg(&profile).arg(&file).output();
    let done = done.expect("kprof-fold runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// The words of the first row that has this text.
fn row<'a>(text: &'a str, has: &str) -> Vec<&'a str> {
    let found = text.lines().find(|line| line.contains(has)).unwrap_or_else(|| panic!("no {has} in\n{text}"));
    found.split_whitespace().collect()
}

/// `_start` is assembly of the C library, which has no lines. Its second instruction is `mov r9, rdx`.
#[test]
fn a_function_without_lines_is_shown_as_instructions_with_their_share() {
    let text = annotate("_start", &[0, 0, 0, 2, 3], &[]);
    assert!(text.contains("5 samples innermost, 5 anywhere in the stack"), "{text}");
    assert!(!text.contains("  line"), "{text}");
    assert_eq!(row(&text, "xor ebp, ebp")[..2], ["60.00", "60.00"], "{text}");
    // Both addresses are in this instruction.
    assert_eq!(row(&text, "mov r9, rdx")[..2], ["40.00", "40.00"], "{text}");
    // Instructions far from any sample are left out, unless all are asked for.
    assert!(text.contains("pop rsi") && !text.contains("hlt"), "{text}");
    assert!(annotate("_start", &[0], &["--instructions"]).contains("hlt"));
}

#[test]
fn instructions_stand_below_their_source_line() {
    // With frame pointers or without, the first instruction is of the line where the function begins.
    let text = annotate("the_sampled_function", &[0], &[]);
    let number = include_str!("annotate.rs").lines().position(|line| line.starts_with("fn the_sampled_function"));
    let number = number.expect("is there") + 1;
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("fn the_sampled_function")).expect("the source is found");
    assert_eq!(lines[at].split_whitespace().take(3).collect::<Vec<_>>(), ["100.00", "100.00", &number.to_string()]);
    let below: Vec<&str> = lines[at + 1].split_whitespace().collect();
    assert!(below[..2] == ["100.00", "100.00"] && below[2].starts_with("ffffffff"), "{text}");
}

#[test]
fn the_source_is_taken_from_the_folder_that_is_given() {
    let folder = tempfile::tempdir().expect("the test folder is writable");
    std::fs::create_dir(folder.path().join("tests")).expect("is writable");
    let moved = "// moved\n".repeat(100);
    std::fs::write(folder.path().join("tests/annotate.rs"), moved).expect("is writable");
    let folder = folder.path().display().to_string();
    let text = annotate("the_sampled_function", &[0], &["--source", &folder]);
    assert!(text.contains("// moved") && !text.contains("fn the_sampled_function"), "{text}");
}
