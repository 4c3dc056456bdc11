//! A sample weighs the period in force when it was taken, in every view and export.

use crate::sealed::{batch, names, sealed};
use flate2::read::GzDecoder;
use kprof_fold::output::export::pprof::proto;
use prost::Message as _;
use serde_json::Value;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

const SYMS: &str = "ffffffff80001000 0000000000000100 T quick\nffffffff80002000 0000000000000100 t slow\n";
const QUICK: u64 = 0xffff_ffff_8000_1010;
const SLOW: u64 = 0xffff_ffff_8000_2010;
const SECOND: u64 = 1_000_000_000;

/// A second at 100 per second in `quick`, and a second at `hz` per second in `slow`. The setting is last in the file.
fn two_seconds(hz: u64) -> String {
    let samples = |from: u64, hz: u64, at: u64| -> String {
        (0..hz).map(|n| format!("a 0 {:x} {at:x}\n", from + n * SECOND / hz)).collect()
    };
    let samples = batch(0, &(samples(0, 100, QUICK) + &samples(SECOND, hz, SLOW)));
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 100\n";
    let setting = names(&format!("# setting tsc={:x} value=hz%20{hz}\n", SECOND - 1));
    sealed(&format!("{head}{samples}{setting}"))
}

fn run(folder: &Path, words: &[&str], input: Stdio) -> Output {
    std::fs::write(folder.join("syms"), SYMS).expect("is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(words).current_dir(folder).stdin(input).output().expect("kprof-fold runs");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    done
}

fn counts(folder: &Path, hz: u64) -> String {
    std::fs::write(folder.join("p.txt"), two_seconds(hz)).expect("is writable");
    let done = run(folder, &["folded", "-q", "p.txt", "syms"], Stdio::null());
    String::from_utf8(done.stdout).expect("is text")
}

#[test]
fn equal_times_at_two_rates_are_equal_in_folded_stacks() {
    let folder = tempfile::tempdir().expect("is writable");
    assert_eq!(counts(folder.path(), 10), "quick 100\nslow 100\n");
    assert_eq!(counts(folder.path(), 1000), "quick 1000\nslow 1000\n");
    assert_eq!(counts(folder.path(), 100), "quick 100\nslow 100\n");
    // A ratio that is no whole number is right on average.
    let text = counts(folder.path(), 30);
    let slow: i64 = text.lines().last().and_then(|line| line.strip_prefix("slow ")).unwrap().parse().unwrap();
    assert!(text.starts_with("quick 100\n") && (slow - 100).abs() <= 5, "{text}");
}

#[test]
fn equal_times_at_two_rates_are_equal_in_every_table_and_export() {
    let folder = tempfile::tempdir().expect("is writable");
    let folder = folder.path();
    counts(folder, 10);
    let text = |words: &[&str]| String::from_utf8_lossy(&run(folder, words, Stdio::null()).stdout).into_owned();
    for words in [&["report"][..], &["report", "--by", "task"], &["report", "--tree"], &["top", "--once"]] {
        let words = [words, &["-q", "p.txt", "syms"]].concat();
        let text = text(&words);
        assert!(text.contains("50.00") || text.contains("quick (50 %)"), "{words:?}: {text}");
    }
    // speedscope: the weights are microseconds, the period of the highest rate.
    let document: Value =
        serde_json::from_str(&text(&["export", "-q", "--to", "speedscope", "p.txt", "syms"])).unwrap();
    let profile = &document["profiles"][0];
    assert_eq!(
        profile["samples"].as_array().unwrap().iter().filter(|stack| **stack == profile["samples"][0]).count(),
        100
    );
    assert_eq!(profile["weights"][0], 10_000);
    let firefox: Value = serde_json::from_str(&text(&["export", "-q", "--to", "firefox", "p.txt", "syms"])).unwrap();
    let lengths = firefox["threads"].as_array().unwrap().iter().map(|thread| thread["samples"]["length"].as_u64());
    assert_eq!((lengths.flatten().sum::<u64>(), &firefox["meta"]["interval"]), (200, &10.0.into()));
    let mut bytes = Vec::new();
    let done = run(folder, &["export", "-q", "--to", "pprof", "p.txt", "syms"], Stdio::null());
    GzDecoder::new(&done.stdout[..]).read_to_end(&mut bytes).expect("is gzipped");
    let profile = proto::Profile::decode(&bytes[..]).expect("is a profile");
    assert_eq!(profile.sample.iter().map(|sample| sample.value[0]).collect::<Vec<_>>(), [100, 100]);
}

#[test]
fn script_prints_each_sample_once_and_a_pipe_is_said_to_be_unweighed() {
    let folder = tempfile::tempdir().expect("is writable");
    let folder = folder.path();
    counts(folder, 10);
    let text = |done: Output| String::from_utf8_lossy(&done.stdout).into_owned();
    let script = text(run(folder, &["script", "-q", "p.txt", "syms"], Stdio::null()));
    assert_eq!(script.matches("[slow]").count(), 10, "{script}");
    let pipe = || File::open(folder.join("p.txt")).expect("exists").into();
    let report = text(run(folder, &["report", "-q", "-", "syms"], pipe()));
    assert!(report.contains("each counts the same, so shares are of samples"), "{report}");
}

#[test]
fn what_was_lost_weighs_as_what_was_kept() {
    let folder = tempfile::tempdir().expect("is writable");
    let folder = folder.path();
    let quick = format!(
        "# batch cpu=0 from=0 to=6 first-tick=1 last-tick=1 lost-full=0\na 0 1 {QUICK:x}\n\
         # end cpu=0 to=6 samples=1\n"
    );
    let slow = format!(
        "# batch cpu=0 from=6 to=12 first-tick=4 last-tick=4 lost-full=2\na 0 {SECOND:x} {SLOW:x}\n# end cpu=0 to=12 samples=1\n"
    );
    let head = "# kprof-profile 1\n# tsc-hz 1000000000\n# hz 100\n";
    let text = format!("{head}{}{quick}{slow}", names("# setting tsc=10 value=hz%2010\n"));
    std::fs::write(folder.join("p.txt"), sealed(&text)).expect("is writable");
    let done = run(folder, &["folded", "-q", "p.txt", "syms"], Stdio::null());
    assert_eq!(String::from_utf8_lossy(&done.stdout), "quick 1\nslow 10\n[lost] 20\n");
    let page = run(folder, &["html", "-q", "p.txt", "syms"], Stdio::null());
    assert!(String::from_utf8_lossy(&page.stdout).contains("11; 20 lost (64.52 %)"));
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let doctor = fold.args(["doctor", "-q", "p.txt", "syms"]).current_dir(folder).output().expect("kprof-fold runs");
    let found = String::from_utf8_lossy(&doctor.stdout);
    assert!(found.contains("20 samples were lost and 11 kept"), "{found}");
}

#[test]
fn counts_at_the_same_highest_rate_can_be_compared_as_the_same_work() {
    let folder = tempfile::tempdir().expect("is writable");
    let folder = folder.path();
    for (name, hz) in [("slower.txt", 10), ("same.txt", 100)] {
        std::fs::write(folder.join(name), two_seconds(hz)).expect("is writable");
    }
    let words = ["diff", "--same-work", "--format", "json", "-q", "same.txt", "slower.txt", "syms"];
    let done = run(folder, &words, Stdio::null());
    let document: Value = serde_json::from_slice(&done.stdout).expect("is JSON");
    let rows = document["rows"].as_array().expect("has rows");
    assert!(rows.iter().all(|row| row["old_samples"] == row["new_samples"]), "{document:#}");
}

#[test]
fn samples_that_count_several_times_are_not_taken_for_as_many_independent_ones() {
    let folder = tempfile::tempdir().expect("is writable");
    let folder = folder.path();
    // Four seconds at 10 per second: 20 and 28 of 40 samples in `quick`, which chance does in one of nine pairs. One
    // sample at 1000 per second gives each of them the weight of 100.
    for (name, quick) in [("old", 20), ("new", 28)] {
        let sample = |n: u64| format!("a 0 {:x} {:x}\n", n * SECOND / 10, if n < quick { QUICK } else { SLOW });
        let samples = (0..40).map(sample).collect::<String>() + &format!("a 0 {:x} {SLOW:x}\n", 4 * SECOND + 1);
        let setting = names(&format!("# setting tsc={:x} value=hz%201000\n", 4 * SECOND));
        let text = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 10\n{}{setting}", batch(0, &samples));
        std::fs::write(folder.join(name), sealed(&text)).expect("is writable");
    }
    for more in [&["--same-work"][..], &[]] {
        let words = [&["diff", "--format", "json", "-q", "old", "new", "syms"], more].concat();
        let document: Value = serde_json::from_slice(&run(folder, &words, Stdio::null()).stdout).expect("is JSON");
        for row in document["rows"].as_array().expect("has rows") {
            assert!(row["old_samples"].as_u64() > Some(1900) && row["significant"] == false, "{row}");
            assert!(row["p_value"].as_f64().expect("is a number") > 0.05, "{row}");
        }
    }
}
