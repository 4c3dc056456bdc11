//! Control characters in names of functions, tasks and marks: no output has one, and none breaks a record or a line.

use crate::sealed::{batch, sealed};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// A terminal's escape sequence, line ends, characters that XML does not allow, and a C1 control character.
const ODD: &str = "\u{1b}]0;x\u{7}%\r\u{b}\u{fffe}\u{9b}2J";

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("kprof-fold runs")
}

#[test]
fn no_output_holds_a_control_character_and_no_record_is_torn() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = |name: &str, text: &str| {
        let path = folder.join(format!("control-{name}"));
        fs::write(&path, text).expect("the test folder is writable");
        path.display().to_string()
    };
    let syms = file("syms", &format!("ffffffff80001000 T kmain{ODD}\nffffffff80002000 t f\n"));
    let task: String = ODD.bytes().chain(*b"\n").map(|byte| format!("%{byte:02x}")).collect();
    let samples: String =
        (0..50).map(|tsc| format!("{task} 0 {:x} ffffffff80002010 ffffffff80001020\n", tsc * 1000)).collect();
    let head = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# boot {ODD}\n# trigger {ODD}\n");
    let names = format!(
        "# batch cpu=meta from=0 to=9\n# mark tsc=5 name={task}\n# events tsc=f cpu=0 faults=1 task={task}\n# end cpu=meta to=9\n"
    );
    let broken = format!("# batch cpu={ODD} from=1 to=x\n# image load={ODD}\n");
    let profile = file("profile", &sealed(&format!("{head}{names}{}{broken}", batch(0, &samples))));
    let commands: [&[&str]; 12] = [
        &["folded", "--by", "task", &profile, &syms],
        &["flamegraph", "--by", "task", "--title", ODD, &profile, &syms],
        &["report", "--by", "task", &profile, &syms],
        &["report", "--by", "task", "--tree", "callees", &profile, &syms],
        &["script", "--user", &profile, &syms],
        &["info", &profile],
        &["export", "--to", "speedscope", &profile, &syms],
        &["export", "--to", "firefox", &profile, &syms],
        &["top", "--once", "--by", "task", &profile, &syms],
        &["doctor", &profile, &syms],
        &["diff", "--by", "task", &profile, &profile, &syms],
        &["folded", &profile, ODD],
    ];
    let is_odd = |letter: &char| (letter.is_control() && !"\n\t".contains(*letter)) || *letter == '\u{fffe}';
    for command in commands {
        let done = run(command);
        for bytes in [&done.stdout, &done.stderr] {
            let text = String::from_utf8_lossy(bytes);
            assert_eq!(text.chars().find(is_odd), None, "{command:?}: {text}");
        }
        assert!(!done.stdout.is_empty() || command.last() == Some(&ODD), "{command:?}");
    }
    // These forms are binary, so only the names in them are checked: no name contains an escape sequence.
    let perfetto = run(&["export", "-q", "--to", "perfetto", &profile, &syms]).stdout;
    assert!(String::from_utf8_lossy(&perfetto).contains("kmain\\u{1b}]0"));
    assert!(!String::from_utf8_lossy(&perfetto).contains("\u{1b}]0"));
    let script = String::from_utf8(run(&["script", "-q", "--user", &profile, &syms]).stdout).expect("is text");
    // A sample is printed as one line, one line for each frame, and an empty line.
    assert_eq!(script.lines().count(), 50 * 4, "{script}");
    let folded = run(&["-q", "--by", "task", &profile, &syms]).stdout;
    assert_eq!(String::from_utf8_lossy(&folded).lines().count(), 1);
}
