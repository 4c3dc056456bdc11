//! Golden cases: a folder per case under tests/golden/, each with one line of why.
//!
//! A case has `why`, `command` (the arguments, run inside the folder; `{data}` is tests/data), any input files, and what
//! must come out: `stdout`, `stderr`, `code`. A missing file fails. `KPROF_REWRITE=1` writes what comes out.
#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(case: &Path) -> Vec<(&'static str, Vec<u8>)> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let command = fs::read_to_string(case.join("command")).expect("the case has a command");
    let arguments = command.split_whitespace().map(|word| word.replace("{data}", &data.display().to_string()));
    let mut fold = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = fold.args(arguments).current_dir(case).output().expect("kprof-fold runs");
    let here = |bytes: Vec<u8>| {
        let text = String::from_utf8_lossy(&bytes).replace(&data.display().to_string(), "{data}");
        text.into_bytes()
    };
    let code = done.status.code().map_or("killed".to_owned(), |code| code.to_string());
    vec![("stdout", here(done.stdout)), ("stderr", here(done.stderr)), ("code", format!("{code}\n").into_bytes())]
}

#[test]
fn every_case_comes_out_as_it_is_written_down() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut cases: Vec<PathBuf> =
        fs::read_dir(root).expect("cases exist").map(|entry| entry.expect("is readable").path()).collect();
    cases.sort();
    assert!(cases.len() >= 20, "only {} cases", cases.len());
    let rewrite = std::env::var_os("KPROF_REWRITE").is_some();
    let mut wrong = Vec::new();
    for case in &cases {
        let why = fs::read_to_string(case.join("why")).unwrap_or_default();
        assert_eq!(why.trim().lines().count(), 1, "{}: one line of why", case.display());
        for (name, is) in run(case) {
            let file = case.join(name);
            if rewrite {
                fs::write(&file, is).expect("is writable");
                continue;
            }
            match fs::read(&file) {
                Ok(expected) if expected == is => {}
                Ok(_) => wrong.push(format!("{} differs:\n{}", file.display(), String::from_utf8_lossy(&is))),
                Err(_) => wrong.push(format!("{} is missing", file.display())),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
