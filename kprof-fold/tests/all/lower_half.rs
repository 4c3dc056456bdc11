//! Kernel code in the lower half of the address space has bit 63 set in a profile. With symbols of the lower half it
//! has its names; user code at the same addresses never has, and symbols of the upper half name none of it.

use crate::sealed::{batch, sealed};
use std::process::Command;

const LOW: &str = "0000000000201000 T kmain\n0000000000202000 T work\n";
/// A kernel of the upper half with boot code of the lower one, whose size is not known.
const HIGH: &str = "0000000000100000 T boot\nffffffff80200000 T kmain\n";
/// In `work`, called by `kmain`; unknown code; user code.
const SAMPLES: &str = "guest 0 1 8000000000202010 8000000000201010\nguest 0 2 8000000000000000\nguest 0 3 202010\n";

/// What is folded with these symbols and options.
fn folded(symbols: &str, options: &[&str]) -> Vec<String> {
    let folder = tempfile::tempdir().expect("there is a folder for temporary files");
    let (profile, list) = (folder.path().join("profile.txt"), folder.path().join("syms.txt"));
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# trigger outside\n";
    std::fs::write(&profile, sealed(&(head.to_owned() + &batch(0, SAMPLES)))).expect("can be written");
    std::fs::write(&list, symbols).expect("can be written");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.arg("-q").args(options).args([&profile, &list]).output().expect("runs");
    let (text, said) = (String::from_utf8(done.stdout), String::from_utf8_lossy(&done.stderr).into_owned());
    assert!(done.status.success(), "{said}");
    text.expect("names are text").lines().map(str::to_owned).collect()
}

#[test]
fn kernel_code_in_the_lower_half_has_its_names() {
    assert_eq!(folded(LOW, &[]), ["[unknown] 1", "kmain;work 1"]);
    assert_eq!(folded(LOW, &["--user"]), ["[unknown] 2", "kmain;work 1"]);
}

#[test]
fn symbols_of_the_upper_half_name_none_of_it() {
    assert_eq!(folded(HIGH, &[]), ["[unknown] 1", "[unknown];[unknown] 1"]);
}
