//! Where the time went: the shares are of the chosen CPUs and time, and a tick weighs its period.

use crate::sealed::{names, sealed};
use serde_json::Value;
use std::process::Command;

const SYMS: &str = "ffffffff80001000 0000000000000100 T work\n";

/// Batches of a CPU: for each the samples' times, its first tick, and the sums of filtered ticks until its end.
fn cpu(number: u32, batches: &[(&[u64], u64, [u64; 2])]) -> String {
    let (mut text, mut at) = (String::new(), 0);
    for (times, first, [user, idle]) in batches {
        let (count, last) = (times.len() as u64, first + times.len() as u64 - 1);
        let lines: String =
            times.iter().map(|time| format!("t{number} {number} {time:x} ffffffff80001010\n")).collect();
        text += &format!(
            "# batch cpu={number} from={at} to={to} first-tick={first} last-tick={last} user={user} idle={idle}\n\
             {lines}# end cpu={number} to={to} samples={count}\n",
            to = at + 6 * count
        );
        at += 6 * count;
    }
    text
}

/// The name and the ticks of each row that has any, and of what they are.
fn time(profile: &str, words: &[&str]) -> (Vec<(String, u64)>, String) {
    let folder = tempfile::tempdir().expect("is writable");
    std::fs::write(folder.path().join("p.txt"), sealed(profile)).expect("is writable");
    std::fs::write(folder.path().join("syms"), SYMS).expect("is writable");
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    fold.args(["report", "-q", "--format", "json", "p.txt", "syms"]).args(words);
    let done = fold.current_dir(folder.path()).output().expect("kprof-fold runs");
    let document: Value = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&done.stderr)));
    let rows = document["time"].as_array().expect("has rows").iter();
    let rows = rows.map(|row| (row["what"].as_str().unwrap().to_owned(), row["ticks"].as_u64().unwrap()));
    (rows.filter(|(_, ticks)| *ticks > 0).collect(), document["time_of"].as_str().expect("is text").to_owned())
}

/// The row of samples that do not say whether interrupts were on.
const NOT_TOLD: &str = "recorded, kind of code not told";

/// The rows, in whatever order.
fn is((mut found, of_what): (Vec<(String, u64)>, String), rows: &[(&str, u64)], of: &str) {
    let mut rows: Vec<(String, u64)> = rows.iter().map(|(name, ticks)| ((*name).to_owned(), *ticks)).collect();
    found.sort();
    rows.sort();
    assert_eq!((found, of_what), (rows, of.to_owned()));
}

#[test]
fn user_and_idle_ticks_follow_the_choice_of_cpus_and_times() {
    let head = "# kprof-profile 1\n# tsc-hz 1000\n# hz 10\n";
    // CPU 0: samples at 0.1 s and 0.2 s, then 8 idle ticks, then samples at 1.1 s and 1.2 s. CPU 1: user code in
    // between.
    let text = cpu(0, &[(&[100, 200], 1, [0, 0]), (&[1100, 1200], 11, [0, 8])])
        + &cpu(1, &[(&[100, 200], 1, [0, 0]), (&[1100], 11, [8, 0])]);
    let profile = format!("{head}{text}");
    let kernel = NOT_TOLD;
    is(time(&profile, &["--cpu", "0"]), &[(kernel, 4), ("idle", 8)], "CPU 0");
    is(time(&profile, &["--cpu", "0-1"]), &[(kernel, 7), ("user", 8), ("idle", 8)], "CPUs 0-1");
    // From the first sample on: 0.5 to 1 s is the middle of the gap.
    is(time(&profile, &["--between", "@1.05", "@1.15"]), &[(kernel, 2)], "all CPUs, chosen time");
    let (rows, of) = time(&profile, &["--between", "@0.15", "@0.65", "--cpu", "1"]);
    assert_eq!((&rows[1], &of[..]), (&(kernel.to_owned(), 1), "CPU 1, chosen time"));
    assert!(rows.len() == 2 && rows[0].0 == "user" && (3..=5).contains(&rows[0].1), "{rows:?}");
    // A choice of tasks says nothing of ticks without a sample, so the shares are those of all tasks.
    let both = ["--cpu", "0-1", "--task", "t1"];
    is(time(&profile, &both), &[(kernel, 7), ("user", 8), ("idle", 8)], "CPUs 0-1");
}

#[test]
fn a_file_that_counts_no_ticks_does_not_say_where_the_time_went() {
    let profile = "a 0 1 ffffffff80001010\na 0 2 ffffffff80001010\n";
    is(time(profile, &[]), &[], "all CPUs");
    is(time(profile, &["--cpu", "0"]), &[], "CPU 0");
}

#[test]
fn a_tick_weighs_its_period_in_the_table_of_time_too() {
    // One second at 10 per second in the kernel, then one second at 100 per second that is idle.
    let kernel: Vec<u64> = (0..10).map(|n| 100 * n).collect();
    let text = cpu(0, &[(&kernel, 1, [0, 0]), (&[2000], 110, [0, 99])]);
    let setting = names("# setting tsc=3e8 value=hz%20100\n");
    let profile = format!("# kprof-profile 1\n# tsc-hz 1000\n# hz 10\n{text}{setting}");
    is(time(&profile, &[]), &[(NOT_TOLD, 101), ("idle", 99)], "all CPUs");
}

#[test]
fn shares_of_all_the_time_can_be_had_beside_those_of_the_kernel() {
    let head = "# kprof-profile 1\n# tsc-hz 1000\n# hz 10\n";
    let profile = format!("{head}{}", cpu(0, &[(&[100, 200], 1, [0, 0]), (&[1100, 1200], 15, [4, 8])]));
    let folder = tempfile::tempdir().expect("is writable");
    std::fs::write(folder.path().join("p.txt"), sealed(&profile)).expect("is writable");
    std::fs::write(folder.path().join("syms"), SYMS).expect("is writable");
    let run = |words: &str| {
        let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
        fold.args(words.split(' ')).args(["-q", "p.txt", "syms"]).current_dir(folder.path());
        String::from_utf8(fold.output().expect("kprof-fold runs").stdout).expect("is text")
    };
    assert_eq!(run("folded --show user,idle"), "work 4\n[user] 4\n[idle] 8\n");
    assert_eq!(run("folded --show idle --task t0"), "work 4\n[idle, of any task] 8\n");
    assert!(run("flamegraph --show user,idle").contains("work (4 samples, 25.00%)"));
    let text = run("report --show user,idle");
    for row in ["   25.00    25.00         4         4  work", "   50.00    50.00         8         8  [idle]"] {
        assert!(text.contains(row), "{text}");
    }
    assert!(
        !text.contains("not of all the time") && run("report").contains("  100.00   100.00         4         4  work")
    );
    assert!(run("report --show user,idle --format csv").contains("[user],4,4,25.0000,25.0000"));
    assert!(run("top --once --show idle").contains("66.67    66.67         8  [idle]"));
    assert_eq!(run("diff --show idle p.txt"), "", "is refused");
    let document: Value = serde_json::from_str(&run("report --show user --format json")).expect("is JSON");
    assert_eq!(document["beside"].to_string(), r#"[{"name":"[user]","samples":4}]"#);
}
