//! Files that are not `profiled`'s: they keep their content, their mode and their name, whatever option names them. And
//! a standard error that nobody reads, and a pipe whose reader takes nothing.
//!
//! The test runs the real program on the real file system, on the device files of `support::devices`.

use crate::support;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::devices::devices;
use tempfile::TempDir;

const LETTER: &[u8] = b"Dear reader,\n";

/// A folder with one file that is not a profile; everybody may read it.
fn folder_with(name: &str, content: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    fs::write(&file, content).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    (folder, file)
}

#[track_caller]
fn assert_untouched(file: &Path, content: &[u8]) {
    assert_eq!(fs::read(file).unwrap(), content, "its content");
    assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o644, "its mode");
}

fn profiled(devices: &TempDir, output: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_profiled"));
    command.arg("--scheme").arg(devices.path()).arg("-o").arg(output).args(more);
    command
}

/// Runs it for a moment; whether it succeeded, and what it said.
fn run(output: &Path, more: &[&str]) -> (bool, String) {
    let ended = profiled(&devices(), output, &[&["--duration", "10ms"], more].concat()).output().unwrap();
    (ended.status.success(), String::from_utf8(ended.stderr).unwrap())
}

#[test]
fn an_output_that_is_no_profile_keeps_its_content_and_its_mode() {
    for form in [&[][..], &["--binary"]] {
        let (_folder, file) = folder_with("letter.txt", LETTER);
        let (success, said) = run(&file, form);
        assert!(!success && said.contains("not a file of this program"), "{said}");
        assert_untouched(&file, LETTER);
    }
}

#[test]
fn a_new_file_is_private_and_one_that_others_may_read_becomes_so() {
    let (folder, file) = folder_with("profiling.txt", b"");
    for file in [file, folder.path().join("new")] {
        assert!(run(&file, &[]).0);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn a_binary_file_of_a_newer_version_is_refused_and_not_cut() {
    let newer = [&kprof_format::chunk::MAGIC[..], &[9, 1, 0, 0], &[0; 40]].concat();
    let (_folder, file) = folder_with("profiling.bin", &newer);
    let (success, said) = run(&file, &["--binary"]);
    assert!(!success && said.contains("newer program (form 9)"), "{said}");
    assert_untouched(&file, &newer);
}

#[test]
fn a_rotation_neither_cuts_a_file_called_new_nor_follows_a_link() {
    let rotate = ["--max-size", "64K", "--rotate", "3"];
    let (folder, foreign) = folder_with("profiling.txt.new", LETTER);
    let (success, said) = run(&folder.path().join("profiling.txt"), &rotate);
    assert!(!success && said.contains("profiling.txt.new") && said.contains("move it away"), "{said}");
    assert_untouched(&foreign, LETTER);

    let (folder, target) = folder_with("target", b"");
    symlink(&target, folder.path().join("profiling.txt.new")).unwrap();
    let (success, said) = run(&folder.path().join("profiling.txt"), &rotate);
    assert!(!success && said.contains("opening the next file"), "{said}");
    assert_untouched(&target, b"");
}

#[test]
fn a_rotation_is_refused_at_once_where_older_files_are_not_of_this_program_and_through_a_link() {
    let rotate = ["--max-size", "64K", "--rotate", "2"];
    for name in ["profiling.txt.1", "profiling.txt.2"] {
        let (folder, foreign) = folder_with(name, LETTER);
        let output = folder.path().join("profiling.txt");
        if name.ends_with('2') {
            fs::write(folder.path().join("profiling.txt.1"), "# kprof-profile 1\n").unwrap();
        }
        let (success, said) = run(&output, &rotate);
        assert!(!success && said.contains(name) && said.contains("move it away"), "{said}");
        assert!(!output.exists(), "nothing was begun");
        assert_untouched(&foreign, LETTER);
    }
    let (folder, target) = folder_with("on-the-large-disk", b"");
    let link = folder.path().join("profiling.txt");
    symlink(&target, &link).unwrap();
    let (success, said) = run(&link, &rotate);
    assert!(!success && said.contains("profiling.txt: a symbolic link"), "{said}");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_untouched(&target, b"");
    assert!(run(&link, &[]).0, "nothing is renamed without a rotation");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_file_called_new_that_is_no_profile_does_not_become_the_output() {
    let (folder, foreign) = folder_with("profiling.txt.new", LETTER);
    let output = folder.path().join("profiling.txt");
    assert!(run(&output, &[]).0);
    assert!(fs::read(&output).unwrap().starts_with(b"# kprof-profile"));
    assert_untouched(&foreign, LETTER);
}

#[test]
fn a_standard_error_that_nobody_reads_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("profiling.txt");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = profiled(&devices(), &output, &["--duration", "10ms"]).stderr(Stdio::from(writer)).status().unwrap();
    assert!(status.success(), "{status}");
    let help = Command::new(env!("CARGO_BIN_EXE_kprof-record")).arg("--help").stdout(closed()).status().unwrap();
    assert!(help.success(), "{help}");
    let failed = Command::new(env!("CARGO_BIN_EXE_kprof-record")).arg("--frob").stderr(closed()).status().unwrap();
    assert_eq!(failed.code(), Some(2));
}

/// The writing end of a pipe without a reader.
fn closed() -> Stdio {
    Stdio::from(std::io::pipe().unwrap().1)
}

/// A session whose pipe nobody reads, and how it ended after the shell has done this to its process `$0`.
fn stalled(kill: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let devices = devices();
    let mut session = profiled(&devices, &pipe, &[]).stderr(Stdio::piped()).spawn().unwrap();
    // After the first byte the signal handlers are installed; the rest of the file is larger than the pipe.
    let mut reader = fs::File::open(&pipe).unwrap();
    reader.read_exact(&mut [0]).unwrap();
    // The shell's own `kill` is used, because the program is in a package that may be missing.
    let sent = Command::new("sh").args(["-c", kill, &session.id().to_string()]).status().unwrap();
    assert!(sent.success());
    let ended = session.wait().unwrap();
    let mut said = String::new();
    session.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (ended.code(), said)
}

#[test]
fn sigterm_ends_a_session_whose_pipe_nobody_reads() {
    let (code, said) = stalled("kill -TERM $0");
    assert_eq!(code, Some(8), "{said}");
    assert!(said.contains("its reader takes nothing"), "{said}");
}

#[test]
fn a_second_signal_ends_the_process_at_once_with_the_code_of_a_signal() {
    // Both signals are there when the process goes on, in an order that the system chooses.
    let (code, said) = stalled("kill -STOP $0 && kill -TERM $0 && kill -INT $0 && kill -CONT $0");
    assert!([Some(128 + 2), Some(128 + 15)].contains(&code), "{code:?}: {said}");
    assert!(!said.contains("its reader takes nothing"), "{said}");
}

#[test]
fn the_process_id_is_in_its_file_while_the_session_runs_and_no_other_file_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (pipe, pid_file) = (folder.path().join("pipe"), folder.path().join("pid"));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // What an earlier process has left there is replaced.
    fs::write(&pid_file, "4711\n").unwrap();
    let devices = devices();
    let words = ["--duration", "1s", "--pid-file", pid_file.to_str().unwrap()];
    let mut session = profiled(&devices, &pipe, &words).spawn().unwrap();
    // More than the pipe holds: after that the session is running and waits for the reader.
    let mut reader = fs::File::open(&pipe).unwrap();
    reader.read_exact(&mut [0; 70_000]).unwrap();
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), format!("{}\n", session.id()));
    std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    assert!(session.wait().unwrap().success() && !pid_file.exists());

    let (_folder, foreign) = folder_with("letter.txt", LETTER);
    let (success, said) = run(&folder.path().join("profiling.txt"), &["--pid-file", foreign.to_str().unwrap()]);
    assert!(!success && said.contains("not a file with a process id"), "{said}");
    assert_untouched(&foreign, LETTER);
}
