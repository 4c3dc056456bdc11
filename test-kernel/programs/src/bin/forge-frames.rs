//! For the scenario `forged-frames`: jumps to addresses that look like the profiler's markers, and to kernel code. The
//! frames on its stack have such return addresses too. Each jump is a page fault with that address as its RIP.
//!
//! In: the number of rounds, and an address of kernel code in hex. Out: page faults; exit code 0 if the program
//! continued after each of them.

use std::arch::asm;
use std::hint::black_box;
use std::io;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// One marker of each kind: facts, interrupt, exception, system call, truncated, user, candidate; and the last address.
const MARKERS: [u64; 8] = [
    0xffff_ffff_ffff_f001,
    0xffff_ffff_ffff_f120,
    0xffff_ffff_ffff_f20e,
    0xffff_ffff_ffff_f300,
    0xffff_ffff_ffff_f401,
    0xffff_ffff_ffff_f500,
    0xffff_ffff_ffff_f600,
    0xffff_ffff_ffff_ffff,
];

/// Faults that the handler has seen.
static FAULTS: AtomicU64 = AtomicU64::new(0);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rounds, kernel] = &arguments[..] else {
        eprintln!("forge-frames: ROUNDS ADDRESS");
        return ExitCode::FAILURE;
    };
    let (Ok(rounds), Ok(kernel)) = (rounds.parse::<u64>(), u64::from_str_radix(kernel, 16)) else {
        eprintln!("forge-frames: {rounds} {kernel}: a decimal and a hex number are expected");
        return ExitCode::FAILURE;
    };
    if let Err(error) = handle_faults() {
        eprintln!("forge-frames: {error}");
        return ExitCode::FAILURE;
    }
    let targets: Vec<u64> = MARKERS.into_iter().chain([kernel]).collect();
    for _ in 0..rounds {
        targets.iter().zip(targets.iter().cycle().skip(3)).for_each(|(target, caller)| jump(*target, *caller));
    }
    let faults = FAULTS.load(Ordering::Relaxed);
    if faults == rounds * targets.len() as u64 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Jumps to `target`, which a program cannot execute. The stack has two frames that return to `caller`.
fn jump(target: u64, caller: u64) {
    let mut frames = [0, caller, 0, caller];
    frames[0] = &raw const frames[2] as u64;
    let frames = black_box(&frames);
    // SAFETY: the jump faults, and the handler continues at the address in r12. rbp is restored, and nothing else is
    // changed.
    unsafe {
        asm!(
            "push rbp", "mov rbp, {frames}", "lea r12, [rip + 2f]", "jmp {target}", "2:", "pop rbp",
            frames = in(reg) frames.as_ptr(), target = in(reg) target, out("r12") _,
        );
    }
}

fn handle_faults() -> io::Result<()> {
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature for SA_SIGINFO.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = go_on as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSEGV, &action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn go_on(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    FAULTS.fetch_add(1, Ordering::Relaxed);
    // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_RIP as usize] = registers[libc::REG_R12 as usize];
}
