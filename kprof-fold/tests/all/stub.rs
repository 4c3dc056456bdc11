//! An entry stub that the port has not listed takes the interrupted function out of each stack that goes through it.
//! With the kernel's ELF file this is reported, and `--strict` refuses the profile.
//!
//! The kernel of these tests is this test's own executable. It has two stubs that are never called: one is only
//! assembly, and the other one begins as a compiled handler does.
#![cfg(target_arch = "x86_64")]

use crate::sealed::{batch, sealed};
use kprof_fold::symbols::Symbols;
use std::path::PathBuf;
use std::process::{Command, Output};

#[expect(unsafe_code, reason = "assembly that is only read, never executed")]
mod stubs {
    core::arch::global_asm!(
        ".pushsection .text.kprof_test_stub, \"axR\", @progbits",
        ".globl kprof_test_stub",
        ".type kprof_test_stub, @function",
        "kprof_test_stub: push rax; call kprof_test_stub; pop rax; iretq",
        ".size kprof_test_stub, . - kprof_test_stub",
        ".globl kprof_test_compiled",
        ".type kprof_test_compiled, @function",
        "kprof_test_compiled: push rbp; mov rbp, rsp; call kprof_test_compiled; pop rbp; iretq",
        ".size kprof_test_compiled, . - kprof_test_compiled",
        ".popsection",
    );
}

const LOAD: u64 = 0xffff_ffff_8000_0000;
/// Lengths in bytes of what is before the end of the call in each stub.
const AFTER_CALL: u64 = 1 + 5;
const AFTER_COMPILED_CALL: u64 = 1 + 3 + 5;

fn elf() -> String {
    std::env::current_exe().expect("has a path").display().to_string()
}

/// A profile in which the words that `stack` gives are a stack. It receives the addresses of both stubs and of another
/// function.
fn profile(name: &str, stack: impl Fn(u64, u64, u64) -> Vec<u64>) -> String {
    let symbols = Symbols::open(&elf(), &mut Default::default()).expect("is an ELF file");
    let base = symbols.elf.as_ref().expect("is an ELF file").base;
    let at = |name: &str| symbols.table.named(name).next().expect("is in this file") - base + LOAD;
    let words = stack(at("kprof_test_stub"), at("kprof_test_compiled"), at("main"));
    let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
    let head = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# hz 1000\n# load {LOAD:x}\n");
    let text = sealed(&(head + &batch(0, &format!("a 0 1 {}\n", words.join(" ")))));
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("stub-{name}"));
    std::fs::write(&path, text).expect("the test folder is writable");
    path.display().to_string()
}

fn run(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_kprof-fold")).args(words).output().expect("kprof-fold runs")
}

fn all(done: &Output) -> String {
    String::from_utf8_lossy(&[done.stdout.clone(), done.stderr.clone()].concat()).into_owned()
}

const MISSING: &str = "1 of 1 different stacks go through the entry stub kprof_test_stub without a marker, so the \
                       interrupted function is missing in them: list the stub in Kernel::is_entry_code";

#[test]
fn a_stub_without_a_marker_is_named_and_strict_refuses_the_profile() {
    let profile =
        profile("unlisted", |stub, compiled, main| vec![main, stub + AFTER_CALL, compiled + AFTER_COMPILED_CALL]);
    for verb in ["folded", "report", "flamegraph"] {
        let done = run(&[verb, &profile, &elf(), "1"]);
        assert!(done.status.success() && all(&done).contains(MISSING), "{verb}: {}", all(&done));
        let done = run(&[verb, "--strict", &profile, &elf(), "1"]);
        assert!(done.status.code() == Some(2) && all(&done).contains(MISSING), "{verb}: {}", all(&done));
    }
    let done = run(&["doctor", &profile, &elf(), "1"]);
    assert!(done.status.code() == Some(1) && all(&done).contains(MISSING), "{}", all(&done));
}

#[test]
fn a_marker_raw_words_a_compiled_handler_and_a_sample_in_the_stub_are_right() {
    const INTERRUPT_33: u64 = 0xffff_ffff_ffff_f121;
    const CANDIDATE: u64 = 0xffff_ffff_ffff_f600;
    let profiles = [
        profile("marked", |stub, _, main| vec![main, stub + AFTER_CALL, INTERRUPT_33, main + 8, main + 8]),
        profile("compiled", |_, compiled, main| vec![main, compiled + AFTER_COMPILED_CALL, main + 8]),
        profile("sampled", |stub, _, main| vec![stub + 1, main + 8, main + 8]),
        profile("candidate", |stub, _, main| vec![main, CANDIDATE, stub + AFTER_CALL, main + 8]),
        profile("last", |stub, _, main| vec![main, stub + AFTER_CALL]),
        // Raw words have no markers: here the stack goes on with the interrupted instruction, which is in `compiled`.
        profile("raw", |stub, compiled, main| vec![main, stub + AFTER_CALL, compiled + 1, main + 8]),
    ];
    for profile in profiles {
        let done = run(&["report", "--strict", &profile, &elf(), "1"]);
        assert!(done.status.success() && !all(&done).contains("entry stub"), "{profile}: {}", all(&done));
    }
}
