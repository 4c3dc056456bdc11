//! Bad input, case by case: the message, the samples that still count, and the exit code. There is never a panic, and
//! memory stays bounded.
#![forbid(unsafe_code)]

use nix::sys::resource::{UsageWho, getrusage};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

const SYMS: &[u8] = b"ffffffff80001000 0000000000000100 T kmain\n";
const GOOD: &[u8] = b"a 0 1 ffffffff80001000\n";

/// A file in a folder of this test run.
fn file(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("the test folder is writable");
    path
}

fn fold(arguments: &[&str], profile: &[u8], syms: &[u8], name: &str) -> Output {
    let profile = file(&format!("{name}.profile"), profile);
    let syms = file(&format!("{name}.syms"), syms);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    command.args(arguments).arg(profile).arg(syms).output().expect("kprof-fold runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn each_damage_costs_itself_and_is_named_with_its_line() {
    let cases: &[(&str, &[u8], &str)] = &[
        ("nul", b"a 0 1 ffff\0ffff\n", ":2: address is not a plain hexadecimal number"),
        ("not-utf8", b"a 0 \xff\xfe ffffffff80001000\n", ":2: tsc is not a plain hexadecimal number"),
        ("double-space", b"a 0  1 ffffffff80001000\n", ":2: tsc is empty"),
        ("glued", b"a 0 1 ffffffff80001000a 0 1 ffffffff80001000\n", ":2: address is too large"),
        ("cpu-too-large", b"a 100000000 1 ffffffff80001000\n", ":2: cpu is too large"),
        ("tsc-too-large", b"a 0 ffffffffffffffff0 ffffffff80001000\n", ":2: tsc is too large"),
        ("signed", b"a 0 +1 ffffffff80001000\n", ":2: tsc is not a plain"),
        ("prefixed", b"a 0 1 0xffffffff80001000\n", ":2: address is not a plain"),
        ("task-with-space", b"a b 0 1 ffffffff80001000\n", ""),
    ];
    for (name, bad, message) in cases {
        let done = fold(&[], &[GOOD, bad, GOOD].concat(), SYMS, name);
        assert_eq!(done.status.code(), Some(0), "{name}");
        let out = text(&done.stdout);
        assert!(out.starts_with("kmain 2\n") || *name == "task-with-space", "{name}: {out}");
        assert!(text(&done.stderr).contains(message), "{name}: {}", text(&done.stderr));
        let strict = fold(&["--strict"], &[GOOD, bad, GOOD].concat(), SYMS, name);
        assert_eq!(strict.status.code(), Some(if message.is_empty() { 0 } else { 1 }), "{name}");
    }
}

#[test]
fn carriage_returns_are_tolerated() {
    let done = fold(
        &["--strict"],
        b"a 0 1 ffffffff80001000\r\na 0 1 ffffffff80001000\r\n",
        b"ffffffff80001000 T kmain\r\n",
        "crlf",
    );
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(0), "kmain 2\n".to_owned()));
}

#[test]
fn unusable_input_is_exit_code_two_with_a_reason() {
    let cases: &[(&str, &[u8], &[u8], &str)] = &[
        ("empty", b"", SYMS, "is empty"),
        ("other", b"\x7fELF\x02\x01\x01\0\0\0", SYMS, "not a profile"),
        ("only-newlines", b"\n\n\n", SYMS, "not a profile"),
        ("no-symbols", GOOD, b"", "nm -CS"),
        ("data-symbols", GOOD, b"1000 D data\n", "nm -CS"),
    ];
    for (name, profile, syms, message) in cases {
        let done = fold(&[], profile, syms, name);
        assert_eq!(done.status.code(), Some(2), "{name}");
        assert_eq!(text(&done.stdout), "", "{name}");
        assert!(text(&done.stderr).contains(message), "{name}: {}", text(&done.stderr));
    }
    let folder = env!("CARGO_TARGET_TMPDIR");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = command.args([folder, folder]).output().expect("kprof-fold runs");
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("directory"), "{}", text(&done.stderr));
}

#[test]
fn a_line_of_100_mib_is_passed_over_in_bounded_memory() {
    let syms = file("long.syms", SYMS);
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    command.arg("-").arg(syms).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kprof-fold runs");
    let mut input = child.stdin.take().expect("is piped");
    let piece = vec![b'f'; 1 << 20];
    input.write_all(GOOD).expect("is read");
    input.write_all(b"a 0 1 ").expect("is read");
    (0..100).for_each(|_| input.write_all(&piece).expect("is read"));
    input.write_all(b"\n").expect("is read");
    input.write_all(GOOD).expect("is read");
    drop(input);
    let done = child.wait_with_output().expect("kprof-fold ends");
    assert_eq!(text(&done.stdout), "kmain 2\n");
    assert!(text(&done.stderr).contains("standard input:2: line of 104857606 bytes skipped"), "{}", text(&done.stderr));
    let peak_kib = getrusage(UsageWho::RUSAGE_CHILDREN).expect("getrusage works").max_rss();
    assert!(peak_kib < 200 * 1024, "{peak_kib} KiB");
}

#[test]
fn a_million_symbols_out_of_order_that_overlap_are_read() {
    let mut syms = Vec::new();
    for number in (0..1_000_000u64).rev() {
        let start = 0xffff_ffff_8000_0000 + (number * 7919) % 1_000_000 * 16;
        writeln!(syms, "{start:016x} {:016x} t function_{number}", 64).expect("memory takes everything");
    }
    let done = fold(&[], b"a 0 1 ffffffff80000025 ffffffff80000031\n", &syms, "million");
    let out = text(&done.stdout);
    assert_eq!((done.status.code(), out.matches("function_").count()), (Some(0), 2), "{out}");
}

#[test]
fn a_closed_output_ends_quietly() {
    let mut profile = Vec::new();
    for number in 0..50_000u64 {
        writeln!(profile, "a 0 1 ffffffff80001000 {:x}", 0xffff_ffff_8000_1001 + number % 255).expect("memory");
    }
    let (profile, syms) = (file("closed.profile", &profile), file("closed.syms", SYMS));
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let mut child =
        command.arg("-q").arg(profile).arg(syms).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    drop(child.stdout.take());
    let mut said = String::new();
    child.stderr.take().expect("is piped").read_to_string(&mut said).expect("is text");
    assert_eq!((child.wait().expect("ends").code(), said), (Some(0), String::new()));
}

#[test]
fn a_full_disk_is_an_error_and_not_quiet() {
    let (profile, syms) = (file("full.profile", GOOD), file("full.syms", SYMS));
    let mut command = Command::new(env!("CARGO_BIN_EXE_kprof-fold"));
    let done = command.arg(profile).arg(syms).args(["-o", "/dev/full"]).output().expect("runs");
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("cannot write /dev/full"), "{}", text(&done.stderr));
}
