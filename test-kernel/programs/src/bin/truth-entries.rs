//! Workload: a fixed mix of user code, system calls, page faults and interrupts, for `cargo xtask truth`.
//!
//! In: the number of rounds. With 0 the mix is counted without the profiler: the instruction clock is read before and
//! after each part, and a line for each part says how many instructions of a round it has: `truth: e user 2111`. These
//! figures do not depend on any sample. The number of user instructions is known, because the loops are written in
//! assembly. With any other number the kernel is asked to count the places of this program (`/kernel/places`); it does
//! so only with the trigger `published`.

use std::arch::asm;
use std::io::Read;

/// Number of rounds that are counted. The mean is used: an occasional timer interrupt affects all parts alike.
const COUNTED: u64 = 4000;
const USER_TURNS: u64 = 900;
const CALLS: u64 = 2;
const CALL_BYTES: u64 = 500;
const PAGES: u64 = 1;
/// Number of interrupts in one system call, and the text for it, which is written to `/kernel/interrupts`.
const INTERRUPTS: u64 = 5;
const INTERRUPTS_TEXT: &[u8; 1] = b"5";

/// User code: two instructions in each turn of the loop.
#[inline(never)]
fn user() {
    // SAFETY: the code only changes the declared registers.
    unsafe {
        asm!("2:", "dec {count}", "jnz 2b", count = inout(reg) USER_TURNS => _, options(nomem, nostack));
    }
}

/// User instructions for one call in `calls`.
const CALL_INSTRUCTIONS: u64 = 7;

/// Reads zeros.
#[inline(never)]
fn calls(zeros: u64, buffer: &mut [u8]) {
    // SAFETY: this reads at most as many bytes as the buffer has. The kernel only changes rax, rcx and r11.
    unsafe {
        asm!(
            "2:", "xor eax, eax", "mov rdi, {zeros}", "mov rsi, {buffer}", "mov edx, {bytes}", "syscall",
            "dec {count}", "jnz 2b",
            zeros = in(reg) zeros, buffer = in(reg) buffer.as_mut_ptr(), bytes = const CALL_BYTES,
            count = inout(reg) CALLS => _,
            out("rax") _, out("rcx") _, out("rdx") _, out("rdi") _, out("rsi") _, out("r11") _, options(nostack)
        );
    }
}

/// A system call of Linux.
fn call(number: u64, a: u64, b: u64, c: u64, d: u64) -> u64 {
    let result;
    // SAFETY: only used for `mmap`, `munmap` of memory that nothing else uses, and writes to an open file.
    unsafe {
        asm!("syscall", inout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") u64::MAX, in("r9") 0, out("rcx") _, out("r11") _, options(nostack));
    }
    result
}

/// A system call in which the number of interrupts given by the text comes.
fn interrupts(file: u64, text: &[u8; 1]) {
    call(1, file, text.as_ptr() as u64, 1, 0);
}

fn map() -> u64 {
    call(9, 0, PAGES * 4096, 3, 0x22)
}

fn unmap(memory: u64) {
    call(11, memory, PAGES * 4096, 0, 0);
}

/// User instructions for one page in `faults`.
const FAULT_INSTRUCTIONS: u64 = 4;

/// Writes to each page for the first time.
#[inline(never)]
fn faults(memory: u64) {
    // SAFETY: `map` has just made these PAGES pages.
    unsafe {
        asm!("2:", "mov byte ptr [{at}], 1", "add {at}, 4096", "dec {count}", "jnz 2b",
            at = inout(reg) memory => _, count = inout(reg) PAGES => _, options(nostack));
    }
}

/// The open files that a round uses.
struct Files {
    zeros: u64,
    interrupts: u64,
    buffer: [u8; CALL_BYTES as usize],
}

fn round(files: &mut Files) {
    user();
    calls(files.zeros, &mut files.buffer);
    let memory = map();
    faults(memory);
    unmap(memory);
    interrupts(files.interrupts, INTERRUPTS_TEXT);
}

/// Reads the kernel's file in a single read, as the kernel requires.
fn places() -> std::io::Result<String> {
    let mut text = vec![0; 4096];
    let bytes = std::fs::File::open("/kernel/places")?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..bytes]).into_owned())
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    // SAFETY: the paths end with a zero byte.
    let [zeros, interrupts] = [(c"/scheme/zero", libc::O_RDONLY), (c"/kernel/interrupts", libc::O_WRONLY)]
        .map(|(path, how)| unsafe { libc::open(path.as_ptr(), how) });
    assert!(zeros >= 0 && interrupts >= 0, "/scheme/zero or /kernel/interrupts cannot be opened");
    let mut files = Files { zeros: zeros as u64, interrupts: interrupts as u64, buffer: [0; CALL_BYTES as usize] };
    if rounds == 0 {
        return count(&mut files);
    }
    // The write is refused if no places are published. Then nothing is printed.
    if std::fs::write("/kernel/places", "this").is_ok() {
        print!("{}", places().expect("the places are counted"));
    }
    (0..rounds).for_each(|_| round(&mut files));
}

/// User instructions of a raw system call: setting seven registers, and the instruction itself.
const RAW_CALL_INSTRUCTIONS: u64 = 8;
/// User instructions around the loops of `calls` and `faults`: arguments, call, registers, return.
const AROUND_CALLS: u64 = 7;
const AROUND_FAULTS: u64 = 4;

/// Counts the parts of a round in their usual order, because the kernel's work in a part depends on the parts before.
fn count(files: &mut Files) {
    // SAFETY: this only reads a counter.
    let now = || unsafe { std::arch::x86_64::_rdtsc() };
    let (mut sums, mut nothing, mut few, mut many) = ([0; 6], 0, 0, 0);
    for _ in 0..COUNTED {
        let mut at = [now(), 0, 0, 0, 0, 0, 0];
        user();
        at[1] = now();
        calls(files.zeros, &mut files.buffer);
        at[2] = now();
        let memory = map();
        at[3] = now();
        faults(memory);
        at[4] = now();
        unmap(memory);
        at[5] = now();
        interrupts(files.interrupts, INTERRUPTS_TEXT);
        at[6] = now();
        sums.iter_mut().zip(at.windows(2)).for_each(|(sum, part)| *sum += part[1] - part[0]);
        let start = now();
        nothing += now() - start;
        for (text, sum) in [(b"1", &mut few), (b"9", &mut many)] {
            let start = now();
            interrupts(files.interrupts, text);
            *sum += now() - start;
        }
    }
    let [user, called, mapped, faulted, unmapped, interrupted] = sums.map(|sum| sum - nothing);
    let own = |instructions| COUNTED * instructions;
    let of_calls = own(CALLS * CALL_INSTRUCTIONS + AROUND_CALLS + 3 * RAW_CALL_INSTRUCTIONS);
    let of_faults = own(PAGES * FAULT_INSTRUCTIONS + AROUND_FAULTS);
    // `many` has eight interrupts more than `few`. Three instructions for each belong to the loop, including the `int`.
    let interrupts = ((many - few) / 8 - own(3)) * INTERRUPTS;
    let calls = called + mapped + unmapped + interrupted - of_calls - interrupts;
    let (user, faults) = (user + of_calls + of_faults, faulted - of_faults);
    let parts = [("user", user), ("[syscall]", calls), ("[exception-14]", faults), ("[interrupt-240]", interrupts)];
    for (name, instructions) in parts {
        println!("truth: e {name} {}", instructions / COUNTED);
    }
}
