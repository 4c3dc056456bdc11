//! The real programs, started with arguments that need no kernel.
//!
//! In: command lines. Out: exit codes, standard output and standard error; and whether the manual shows what `--help`
//! says.

use crate::support;
use kprof_format::record::{MAGIC, VERSION};
use std::fs::{self, File};
use std::process::{Command, Output, Stdio};
use support::devices;
use tempfile::TempDir;

/// The programs, and the exit code of each if there are no device files and if its standard output cannot be written.
const PROGRAMS: [(&str, i32, i32); 2] =
    [(env!("CARGO_BIN_EXE_profiled"), 3, 8), (env!("CARGO_BIN_EXE_kprof-record"), 125, 125)];

fn run(program: &str, words: &[&str], stdout: Stdio) -> (Output, String) {
    let mut command = Command::new(program);
    let done = command.args(words).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
    let done = done.wait_with_output().unwrap();
    let said = String::from_utf8(done.stderr.clone()).unwrap();
    (done, said)
}

#[test]
fn a_wrong_command_line_is_2_with_one_line_and_a_missing_kernel_has_its_own_code() {
    for (program, no_kernel, _) in PROGRAMS {
        let (done, said) = run(program, &["--nonsense"], Stdio::piped());
        assert_eq!(done.status.code(), Some(2), "{said}");
        assert!(
            said.contains("'--nonsense'") && said.ends_with("(see --help)\n") && said.lines().count() == 1,
            "{said}"
        );
        let (done, said) =
            run(program, &["--scheme", "/no/such", "-o", "/dev/null", "--duration", "1s"], Stdio::piped());
        assert_eq!(done.status.code(), Some(no_kernel), "{said}");
        assert!(said.contains("cannot open /no/such/ctl-profiling") && done.stdout.is_empty(), "{said}");
    }
}

#[test]
fn texts_go_to_standard_output_and_a_full_disk_is_an_error_but_a_closed_pipe_is_none() {
    for (program, _, full) in PROGRAMS {
        for words in [&["--help"][..], &["--version"], &["man"], &["completions", "bash"]] {
            let (done, said) = run(program, words, Stdio::piped());
            assert_eq!((done.status.code(), said.as_str()), (Some(0), ""), "{words:?}");
            assert!(done.stdout.ends_with(b"\n"), "{words:?}");
            let (done, said) = run(program, words, File::create("/dev/full").unwrap().into());
            assert_eq!(done.status.code(), Some(full), "{words:?}: {said}");
            assert!(said.contains("standard output: writing failed: No space left"), "{words:?}: {said}");
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let (done, said) = run(program, words, writer.into());
            assert_eq!((done.status.code(), said.as_str()), (Some(0), ""), "{words:?}");
        }
    }
}

/// The options in the command lines that a text shows: words with `-` after the program's name, up to `--`.
fn shown<'a>(text: &'a str, program: &str) -> Vec<Vec<&'a str>> {
    let begins = |line: &&str| line.trim_start_matches(['$', ' ']).starts_with(&format!("{program} "));
    let lines = text.lines().filter(begins).filter(|line| line.starts_with("    ") || !line.contains('`'));
    lines
        .map(|line| line.split_whitespace().take_while(|word| !["--", "#", "&", "|", "2>"].contains(word)).collect())
        .collect()
}

#[test]
fn every_option_that_the_pages_and_the_scenarios_show_is_one() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let documents = fs::read_dir(format!("{root}/docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = documents.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let scenarios = fs::read_dir(format!("{root}/test-kernel/scenarios")).unwrap().map(|entry| entry.unwrap().path());
    let others =
        ["README.md", "kprof-daemon/README.md", "kprof-daemon/init/00_profiled"].map(|file| format!("{root}/{file}"));
    let files = pages.chain(scenarios).chain(others.map(Into::into)).filter(|path| path.is_file());
    let mut options = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap().replace("nowait profiled", "profiled");
        for (path, ..) in PROGRAMS {
            let program = path.rsplit('/').next().unwrap();
            for words in shown(&text, program) {
                let verb: Vec<&str> =
                    words.iter().skip(1).copied().take_while(|word| !word.starts_with('-')).take(1).collect();
                let verb = if ["stat", "status", "start", "stop", "probe"].iter().any(|it| verb == [*it]) {
                    verb
                } else {
                    vec![]
                };
                let help = run(path, &[&verb[..], &["--help"]].concat(), Stdio::piped()).0.stdout;
                let help = String::from_utf8(help).unwrap();
                for option in words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
                    let name = option.split('=').next().unwrap();
                    let is_known = help.split([' ', ',', '\n']).any(|word| word == name);
                    assert!(is_known, "{}: {}: {option} is no option", file.display(), words.join(" "));
                    options += 1;
                }
            }
        }
    }
    assert!(options >= 15, "only {options} options were found in the pages");
}

#[test]
fn the_summary_of_profiled_says_all_that_there_was_and_nothing_if_it_is_to_be_quiet() {
    let folder = tempfile::tempdir().unwrap();
    let said = |devices: &TempDir, output: &str, more: &[&str]| {
        let (devices, output) = (devices.path().to_str().unwrap(), folder.path().join(output));
        let words = ["--duration", "10ms", "--scheme", devices, "-o", output.to_str().unwrap()];
        let (done, said) = run(PROGRAMS[0].0, &[&words, more].concat(), Stdio::null());
        assert!(done.status.success(), "{said}");
        said.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let all = devices::devices();
    let lines = said(&all, "out.txt", &[]);
    assert!(lines[0].starts_with(&format!("profiled: draining {}", all.path().display())), "{lines:?}");
    assert!(lines[1].starts_with("profiled: 5000 samples, ") && lines[1].ends_with(" bytes"), "{lines:?}");
    assert_eq!(lines.len(), 2, "only what there was is said: {lines:?}");
    assert_eq!(said(&devices::devices(), "quiet.txt", &["-q"]), [""; 0]);
    let again = "profiled: 5000 records were in the file already and were not written again";
    assert_eq!(said(&devices::devices(), "out.txt", &[])[2..], [again]);

    // Two records of an unknown kind. The second one is damaged: no record begins where it ends.
    let first = u64::from(MAGIC) << 32 | u64::from(VERSION) << 24 | 0xee << 16 | 4;
    let damaged = devices::with(vec![first, 0, 0, 0, first, 4, 0, 0, 99, 98]);
    let expected = [
        "profiled: 1 damaged ranges were skipped; the file says where",
        "profiled: 1 records of unknown kinds were skipped",
    ];
    assert_eq!(said(&damaged, "damaged.txt", &[])[2..], expected);
}
