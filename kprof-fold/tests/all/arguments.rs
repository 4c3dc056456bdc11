//! Arguments that would be misunderstood in silence are refused, or what is done instead is said.

use crate::sealed::{batch, sealed};
use std::path::Path;
use std::process::{Command, Output};

fn run(folder: &Path, words: &[&str]) -> Output {
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(words).current_dir(folder).output().expect("kprof-fold runs")
}

fn said(done: &Output) -> String {
    String::from_utf8_lossy(&done.stderr).into_owned()
}

/// A folder with a profile of two samples, one second apart by the clock of its header, and its symbols.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("is writable");
    let samples = batch(0, "a 0 1 ffffffff80001010\na 0 3b9aca01 ffffffff80001020\n");
    let text = |head: &str| sealed(&format!("# kprof-profile 1\n{head}{samples}"));
    for (name, text) in [
        ("profile.txt", text("# tsc-hz 1000000000\n")),
        ("no-clock.txt", text("")),
        ("syms", "ffffffff80001000 T kmain\n".to_owned()),
        ("a.folded", "main;a 50\nmain;b 50\n".to_owned()),
        ("b.folded", "main;a 80\nmain;b 20\n".to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).expect("is writable");
    }
    folder
}

#[test]
fn folded_stacks_are_not_compared_with_options_that_choose_samples() {
    let folder = folder();
    let files = ["diff", "a.folded", "b.folded"];
    assert_eq!(run(folder.path(), &files).status.code(), Some(0));
    for option in [
        &["--under", "a"][..],
        &["--not", "a"],
        &["--task", "sh"],
        &["--cpu", "3"],
        &["--between", "0", "1"],
        &["--user"],
        &["--irq-off"],
        &["--by", "task"],
        &["--merge-generics"],
    ] {
        let done = run(folder.path(), &[&files, option].concat());
        assert_eq!((done.status.code(), done.stdout.len()), (Some(2), 0), "{option:?}");
        assert!(said(&done).contains(option[0]) && said(&done).contains("profiles"), "{}", said(&done));
    }
}

#[test]
fn a_part_without_percent_is_refused() {
    let folder = folder();
    let profile = ["folded", "profile.txt", "syms"];
    assert_eq!(run(folder.path(), &[&profile[..], &["--max-loss", "1%"]].concat()).status.code(), Some(0));
    for part in ["1", "0.01"] {
        let done = run(folder.path(), &[&profile[..], &["--max-loss", part]].concat());
        assert_eq!(done.status.code(), Some(2), "{part}");
        assert!(said(&done).contains("has no %"), "{}", said(&done));
    }
}

#[test]
fn the_clock_of_the_header_counts_and_another_one_that_was_given_is_named() {
    let folder = folder();
    let folded = |words: &[&str]| {
        let done = run(folder.path(), &[&["folded"], words, &["--between", "0", "0.6"]].concat());
        (String::from_utf8_lossy(&done.stdout).into_owned(), said(&done))
    };
    let not_used = "the header has a TSC clock of 1.000 GHz, so the 2.2 GHz given are not used";
    let (out, said) = folded(&["profile.txt", "syms", "2.2"]);
    assert!(out == "kmain 1\n" && said.contains(not_used), "{out}{said}");
    let (out, said) = folded(&["profile.txt", "syms", "1.005"]);
    assert!(out == "kmain 1\n" && !said.contains("not used"), "{out}{said}");
    assert_eq!(folded(&["no-clock.txt", "syms", "2.2"]).0, "kmain 2\n");
    assert!(self::said(&run(folder.path(), &["info", "profile.txt", "2.2"])).contains(not_used));
}

#[test]
fn blank_lines_and_comments_in_folded_stacks_are_skipped() {
    let folder = folder();
    std::fs::write(folder.path().join("b.folded"), "# made by hand\nmain;a 80\n\nmain;b 20\n").expect("is writable");
    let done = run(folder.path(), &["diff", "a.folded", "b.folded"]);
    assert!(done.status.success(), "{}", said(&done));
    assert!(String::from_utf8_lossy(&done.stdout).contains("(NEW, 100 samples)"));
}

#[test]
fn annotate_takes_the_profile_and_the_kernel_first_as_every_verb_does() {
    let folder = folder();
    let done = run(folder.path(), &["annotate", "profile.txt", "syms", "kmain"]);
    assert!(said(&done).contains("annotate needs the kernel's ELF file"), "{}", said(&done));
    let done = run(folder.path(), &["annotate", "kmain", "profile.txt", "syms"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(said(&done).contains("annotate profile.txt syms kmain"), "{}", said(&done));
    // The clock comes last, as in every verb.
    let done = run(folder.path(), &["annotate", "no-clock.txt", "syms", "kmain", "2.2", "--between", "0", "1"]);
    assert!(said(&done).contains("annotate needs the kernel's ELF file"), "{}", said(&done));
}

#[test]
fn a_name_that_matches_nothing_is_refused_for_hits_as_for_samples() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/inputs");
    for event in [&[][..], &["--event", "lock.wait"]] {
        for (option, name, meant) in [("--under", "mm::mup", "mm::map"), ("--task", "ddd", "dd")] {
            let words = ["folded", "events-after-a-sample.profile", "five-functions.syms", "--user", option, name];
            let done = run(&golden, &[&words, event].concat());
            let said = said(&done);
            assert_eq!(done.status.code(), Some(2), "{option} {event:?}: {said}");
            assert!(said.contains(option) && (event.is_empty() || said.contains(meant)), "{event:?}: {said}");
        }
    }
}
