//! A sample line of nearly 4 MiB counts, however deep its stack is. No subcommand aborts, and memory stays proportional
//! to the input.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

const SYMS: &str = "ffffffff80001000 0000000000000100 T kmain\nffffffff80002000 0000000000000100 t mm::map\n";

/// A sample whose stack has `depth` addresses, alternately of two functions.
fn files(name: &str, depth: usize) -> [String; 2] {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let mut line = "a 0 1".to_owned();
    (0..depth).for_each(|at| line.push_str(if at % 2 == 0 { " ffffffff80001010" } else { " ffffffff80002010" }));
    let file = |end: &str, text: &str| {
        let path = folder.join(format!("deep-{name}.{end}"));
        fs::write(&path, text).expect("the test folder is writable");
        path.display().to_string()
    };
    [file("profile", &(line + "\n")), file("syms", SYMS)]
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("kprof-fold runs")
}

#[test]
fn the_deepest_stack_that_counts_is_shown_as_a_tree_and_compared() {
    let depth = (4 << 20) / 17 - 1;
    let [profile, syms] = files("deepest", depth);
    for tree in ["callees", "callers"] {
        let done = run(&["report", "-q", "--top", "0", "--tree", tree, &profile, &syms]);
        assert!(done.status.success(), "{tree}: {}", done.status);
        let text = String::from_utf8(done.stdout).expect("is text");
        // Eight functions are on one line. The first line says of what the shares are.
        let lines = depth.div_ceil(8);
        assert_eq!(text.lines().count(), 1 + lines);
        assert!(text.lines().last().is_some_and(|line| line.contains(&format!("({}) `-", lines - 1))));
    }
    let done = run(&["diff", "--subtrees", &profile, &profile, &syms, "--top", "0"]);
    assert!(done.status.success(), "{}", done.status);
    assert!(String::from_utf8_lossy(&done.stderr).contains("paths of more than 256 frames"));
    assert_eq!(String::from_utf8_lossy(&done.stdout).matches(" subtree ").count(), 256);
}

#[test]
fn every_subcommand_survives_a_deep_stack() {
    let [profile, syms] = files("every", 20_000);
    let commands: [&[&str]; 8] = [
        &["folded"],
        &["flamegraph"],
        &["report"],
        &["script"],
        &["export", "--to", "speedscope"],
        &["export", "--to", "firefox"],
        &["export", "--to", "perfetto"],
        &["export", "--to", "pprof"],
    ];
    for command in commands {
        let done = run(&[command, &["-q", &profile, &syms, "2.2"][..]].concat());
        assert!(done.status.success() && !done.stdout.is_empty(), "{command:?}: {}", done.status);
    }
}
