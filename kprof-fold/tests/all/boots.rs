//! Several boots in one file: each has its own clock, build and account, and can be chosen.

use crate::sealed::sealed;
use std::path::Path;
use std::process::{Command, Output};

const SYMS: &str = "ffffffff80001000 0000000000000100 T first\nffffffff80002000 0000000000000100 t second\n";

/// A boot of one second with `samples` samples at this address, and its account.
fn boot(id: &str, build: &str, tsc_hz: u64, samples: u64, at: u64) -> String {
    let head = format!("# kprof-profile 1\n# tsc-hz {tsc_hz}\n# boot {id}\n# hz 100\n# build-id {build}\n");
    let lines: String = (0..samples).map(|n| format!("a 0 {:x} {at:x}\n", n * tsc_hz / samples)).collect();
    let counts = format!("taken={samples} coalesced=0 user=0 idle=0 recorded={samples}");
    head + &format!(
        "# batch cpu=0 from=0 to=600 first-tick=1 last-tick={samples} {counts}\n{lines}\
         # end cpu=0 to=600 samples={samples}\n\
         # account cpu=0 sent={samples} {counts} pending=0 delivered={samples} in-ring=0 overwritten=0\n"
    )
}

fn two_boots() -> String {
    let first = boot("aa", "1111", 1_000_000_000, 100, 0xffff_ffff_8000_1010);
    sealed(&(first + &boot("bb", "2222", 2_000_000_000, 50, 0xffff_ffff_8000_2010)))
}

fn run(folder: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    std::fs::write(folder.join("p.txt"), two_boots()).expect("is writable");
    std::fs::write(folder.join("syms"), SYMS).expect("is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let Output { status, stdout, stderr } = fold.args(words).current_dir(folder).output().expect("kprof-fold runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn a_boot_is_chosen_by_its_number_or_as_the_last_one() {
    let folder = tempfile::tempdir().expect("is writable");
    let folded = |boot| run(folder.path(), &["folded", "-q", "--boot", boot, "p.txt", "syms"]).1;
    assert_eq!([folded("1"), folded("2"), folded("last")], ["first 100\n", "second 50\n", "second 50\n"]);
    let (code, _, why) = run(folder.path(), &["folded", "--boot", "3", "p.txt", "syms"]);
    assert_eq!((code, why.trim()), (Some(2), "kprof-fold: --boot 3: p.txt has 2 boots"));
    let (code, _, why) = run(folder.path(), &["folded", "--boot", "0", "p.txt", "syms"]);
    assert!(code == Some(2) && why.contains("neither the number of a boot"), "{why}");
    let script = run(folder.path(), &["script", "-q", "--boot", "2", "p.txt", "syms"]).1;
    assert!(script.starts_with("a 0 0.000000:") && script.contains(" 0.980000:"), "{script}");
    let between = ["folded", "-q", "--boot", "2", "--between", "0.5", "end", "p.txt", "syms"];
    assert_eq!(run(folder.path(), &between).1, "second 25\n");
    let account = run(folder.path(), &["report", "-q", "--boot", "2", "p.txt", "syms"]).1;
    assert!(account.contains("account: sent 50 = taken 50") && !account.contains("boot"), "{account}");
}

#[test]
fn times_of_boots_with_different_clocks_are_not_shown_together() {
    let folder = tempfile::tempdir().expect("is writable");
    for words in [&["script"][..], &["html"], &["export", "--to", "firefox"]] {
        let (code, out, why) = run(folder.path(), &[words, &["-q", "p.txt", "syms"]].concat());
        assert!(code == Some(2) && out.is_empty() && why.contains("choose one boot with --boot"), "{words:?}: {why}");
    }
    let info = run(folder.path(), &["info", "p.txt"]).1;
    assert!(info.contains("0.990 s, 100.0 samples/s") && info.contains("0.980 s, 50.0 samples/s"), "{info}");
}

#[test]
fn boots_of_different_builds_are_a_doubt_and_each_has_its_account() {
    let folder = tempfile::tempdir().expect("is writable");
    let report = run(folder.path(), &["report", "-q", "p.txt", "syms"]).1;
    assert!(report.contains("the boots in this file are of different builds (1111, 2222)"), "{report}");
    assert!(report.contains("\nBoot 1\nCPU ") && report.contains("\nBoot 2\nCPU "), "{report}");
    let accounts = "boot 1: account: sent 100 = taken 100 + coalesced 0; taken = user 0 + idle 0 + lost 0 + recorded \
                    100; in the file 100: balanced; boot 2: account: sent 50 = taken 50";
    assert!(report.contains(accounts), "{report}");
}
