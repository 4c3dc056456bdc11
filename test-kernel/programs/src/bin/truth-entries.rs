//! Workload: a fixed mix of user code, system calls and page faults, for `cargo xtask truth`.
//!
//! In: the number of rounds. With 0 the mix is counted: each part between two looks at the instruction clock, without the
//! profiler; a line for each says how many instructions a round spends in it: `truth: e user 2111`. No sample has a part in
//! these figures. What the user's own instructions take is known: the loops are written out.

use std::arch::asm;

/// Rounds that are counted. Their mean counts: what comes between now and then (a timer) comes everywhere alike.
const COUNTED: u64 = 400;
const USER_TURNS: u64 = 900;
const CALLS: u64 = 2;
const CALL_BYTES: u64 = 500;
const PAGES: u64 = 1;

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

fn main() {
    let rounds: u64 = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    // SAFETY: a path that ends with 0.
    let zeros = unsafe { libc::open(c"/scheme/zero".as_ptr(), libc::O_RDONLY) };
    let mut buffer = [0; CALL_BYTES as usize];
    assert!(zeros >= 0 && buffer.len() as u64 == CALL_BYTES, "/scheme/zero cannot be opened");
    for _ in 0..rounds {
        user();
        calls(zeros as u64, &mut buffer);
        let memory = map();
        faults(memory);
        unmap(memory);
    }
    if rounds == 0 {
        count(zeros as u64, &mut buffer);
    }
}

fn count(zeros: u64, buffer: &mut [u8]) {
    // SAFETY: reads a counter.
    let now = || unsafe { std::arch::x86_64::_rdtsc() };
    let (mut all, mut called, mut mapped, mut faulted, mut unmapped, mut nothing) = (0, 0, 0, 0, 0, 0);
    for _ in 0..COUNTED {
        let start = now();
        user();
        calls(zeros, buffer);
        let memory = map();
        faults(memory);
        unmap(memory);
        all += now() - start;
        let start = now();
        nothing += now() - start;
        let start = now();
        calls(zeros, buffer);
        called += now() - start;
        let start = now();
        let memory = map();
        mapped += now() - start;
        let start = now();
        faults(memory);
        faulted += now() - start;
        let start = now();
        unmap(memory);
        unmapped += now() - start;
    }
    // A call of a function and its frame are some six instructions, as are the registers of a raw call.
    let calls = called + mapped + unmapped - 3 * nothing - COUNTED * (CALLS * CALL_INSTRUCTIONS + 3 * 6);
    let faults = faulted - nothing - COUNTED * (PAGES * FAULT_INSTRUCTIONS + 6);
    let user = all - nothing - calls - faults;
    for (name, instructions) in [("user", user), ("[syscall]", calls), ("[exception 14]", faults)] {
        println!("truth: e {} {}", name.replace(' ', "-"), instructions / COUNTED);
    }
}
