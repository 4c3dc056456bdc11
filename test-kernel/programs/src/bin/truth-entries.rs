//! Workload: a fixed mix of user code, system calls, page faults and interrupts, for `cargo xtask truth`.
//!
//! In: the number of rounds. With 0 the mix is counted: each part between two looks at the instruction clock, without
//! the profiler; a line for each says how many instructions a round spends in it: `truth: e user 2111`. No sample has a
//! part in these figures. What the user's own instructions take is known: the loops are written out. Otherwise the
//! kernel is asked to count the places that this program is in, which it does where it publishes them
//! (`/kernel/places`).

use std::arch::asm;
use std::io::Read;

/// Rounds that are counted. Their mean counts: what comes between now and then (a timer) comes everywhere alike.
const COUNTED: u64 = 4000;
const USER_TURNS: u64 = 900;
const CALLS: u64 = 2;
const CALL_BYTES: u64 = 500;
const PAGES: u64 = 1;
/// Interrupts in one system call: what is written to `/kernel/interrupts`.
const INTERRUPTS: u64 = 5;
const INTERRUPTS_TEXT: &[u8; 1] = b"5";

/// Two instructions a turn.
#[inline(never)]
fn user() {
    // SAFETY: registers that are named, nothing else.
    unsafe {
        asm!("2:", "dec {count}", "jnz 2b", count = inout(reg) USER_TURNS => _, options(nomem, nostack));
    }
}

/// User instructions of a call in `calls`.
const CALL_INSTRUCTIONS: u64 = 7;

/// Reads zeros.
#[inline(never)]
fn calls(zeros: u64, buffer: &mut [u8]) {
    // SAFETY: a read of at most as many bytes as the buffer has; the kernel changes rax, rcx and r11 only.
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
    // SAFETY: `mmap` and `munmap` of memory that nobody else knows.
    unsafe {
        asm!("syscall", inout("rax") number => result, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") u64::MAX, in("r9") 0, out("rcx") _, out("r11") _, options(nostack));
    }
    result
}

/// A system call in which as many interrupts come as the text says.
fn interrupts(file: u64, text: &[u8; 1]) {
    call(1, file, text.as_ptr() as u64, 1, 0);
}

fn map() -> u64 {
    call(9, 0, PAGES * 4096, 3, 0x22)
}

fn unmap(memory: u64) {
    call(11, memory, PAGES * 4096, 0, 0);
}

/// User instructions of a page in `faults`.
const FAULT_INSTRUCTIONS: u64 = 4;

/// Writes to each page for the first time.
#[inline(never)]
fn faults(memory: u64) {
    // SAFETY: PAGES pages that `map` has just made.
    unsafe {
        asm!("2:", "mov byte ptr [{at}], 1", "add {at}, 4096", "dec {count}", "jnz 2b",
            at = inout(reg) memory => _, count = inout(reg) PAGES => _, options(nostack));
    }
}

/// What the round works with.
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

/// The kernel's file in one read, as it wants it.
fn places() -> std::io::Result<String> {
    let mut text = vec![0; 4096];
    let bytes = std::fs::File::open("/kernel/places")?.read(&mut text)?;
    Ok(String::from_utf8_lossy(&text[..bytes]).into_owned())
}

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    // SAFETY: paths that end with 0.
    let [zeros, interrupts] = [(c"/scheme/zero", libc::O_RDONLY), (c"/kernel/interrupts", libc::O_WRONLY)]
        .map(|(path, how)| unsafe { libc::open(path.as_ptr(), how) });
    assert!(zeros >= 0 && interrupts >= 0, "/scheme/zero or /kernel/interrupts cannot be opened");
    let mut files = Files { zeros: zeros as u64, interrupts: interrupts as u64, buffer: [0; CALL_BYTES as usize] };
    if rounds == 0 {
        return count(&mut files);
    }
    // Refused where no places are published: then there is nothing to say.
    if std::fs::write("/kernel/places", "this").is_ok() {
        print!("{}", places().expect("the places are counted"));
    }
    (0..rounds).for_each(|_| round(&mut files));
}

/// User instructions of a raw system call: seven registers, and the instruction itself.
const RAW_CALL_INSTRUCTIONS: u64 = 8;
/// Those around the loops of `calls` and `faults`: arguments, call, registers, return.
const AROUND_CALLS: u64 = 7;
const AROUND_FAULTS: u64 = 4;

/// The parts of a round where they are: what the kernel does in one depends on what was done before.
fn count(files: &mut Files) {
    // SAFETY: reads a counter.
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
    // Eight interrupts more. Three instructions for each are the loop's around it, the `int` included.
    let interrupts = ((many - few) / 8 - own(3)) * INTERRUPTS;
    let calls = called + mapped + unmapped + interrupted - of_calls - interrupts;
    let (user, faults) = (user + of_calls + of_faults, faulted - of_faults);
    let parts = [("user", user), ("[syscall]", calls), ("[exception-14]", faults), ("[interrupt-240]", interrupts)];
    for (name, instructions) in parts {
        println!("truth: e {name} {}", instructions / COUNTED);
    }
}
