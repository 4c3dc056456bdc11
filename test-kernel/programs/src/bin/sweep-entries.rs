//! For `cargo xtask sweep`: enters the kernel by one kind of entry, with an NMI after one instruction, after two, and
//! so on, counted from the system call that orders the NMI (`/kernel/sweep`).
//!
//! In: the kind (`call`, `page`, `divide`, `breakpoint`, `undefined`, `protection`; `spin`, `deep`: user code with few
//! or many callers; `many`: a call with many callers; `root`, `nowhere`, `half`: a call whose callers end at a saved
//! rbp or a return address of 0, or at a page that is not mapped), the first number of instructions, and one past the
//! last. With three more numbers N, M, S a second NMI comes N to M instructions after each S-th first one. Out: exit
//! code 0 if every result was right.

use std::arch::asm;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::process::ExitCode;
use std::ptr;

const PAGE: usize = 4096;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<usize> = arguments.iter().skip(1).filter_map(|text| text.parse().ok()).collect();
    let (kind, firsts, seconds) = match (arguments.first(), &numbers[..]) {
        (Some(kind), [from, to]) => (kind, (*from..*to).step_by(1), None),
        (Some(kind), [from, to, second, end, step]) => (kind, (*from..*to).step_by(*step), Some(*second..*end)),
        _ => {
            eprintln!("sweep-entries: KIND FROM TO [SECOND-FROM SECOND-TO STEP]");
            return ExitCode::FAILURE;
        }
    };
    match sweep(kind, firsts, seconds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sweep-entries: {kind}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn sweep(
    kind: &str,
    firsts: std::iter::StepBy<std::ops::Range<usize>>,
    seconds: Option<std::ops::Range<usize>>,
) -> io::Result<()> {
    let mut order = OpenOptions::new().write(true).open("/kernel/sweep")?;
    for (signal, length) in [(libc::SIGFPE, 2), (libc::SIGILL, 2), (libc::SIGSEGV, 1), (libc::SIGTRAP, 0)] {
        handle(signal, length)?;
    }
    // Each entry has two pages, of which `half` unmaps the second.
    let pages = new_pages(2 * firsts.len() * seconds.as_ref().map_or(1, ExactSizeIterator::len))?;
    let mut next_page = (0..).map(|index| pages + 2 * index * PAGE);
    for first in firsts {
        match &seconds {
            None => enter(kind, &mut order, &first.to_string(), next_page.next().unwrap_or(pages))?,
            Some(seconds) => {
                for second in seconds.clone() {
                    enter(kind, &mut order, &format!("{first} {second}"), next_page.next().unwrap_or(pages))?;
                }
            }
        }
    }
    Ok(())
}

/// Orders NMIs and enters the kernel once.
fn enter(kind: &str, order: &mut File, text: &str, page: usize) -> io::Result<()> {
    // Before the order, so that the NMI comes in the call.
    let half = if kind == "half" { half_mapped(page)? } else { 0 };
    let (mut few, mut many) = ([[0; 2]; 3], [[0; 2]; 24]);
    link(&mut few);
    link(&mut many);
    order.write_all(text.as_bytes())?;
    let right = match kind {
        // SAFETY: this call has no arguments.
        "call" => unsafe { libc::getppid() > 0 },
        "page" => {
            let byte = page as *mut u8;
            // SAFETY: this page is part of a mapping that was made for this, and nothing else uses it.
            unsafe {
                let new = byte.read_volatile() == 0;
                byte.write_volatile(7);
                new && byte.read_volatile() == 7
            }
        }
        "divide" => {
            // SAFETY: this faults, and the handler of SIGFPE continues after the two bytes of the instruction.
            unsafe { asm!("div ecx", in("ecx") 0, inout("eax") 1 => _, inout("edx") 0 => _) };
            true
        }
        "undefined" => {
            // SAFETY: this faults, and the handler of SIGILL continues after the two bytes of the instruction.
            unsafe { asm!("ud2") };
            true
        }
        "protection" => {
            // SAFETY: this faults, and the handler of SIGSEGV continues after the one byte of the instruction.
            unsafe { asm!("hlt") };
            true
        }
        "breakpoint" => {
            // SAFETY: this traps, and the handler of SIGTRAP continues after it.
            unsafe { asm!("int3") };
            true
        }
        "root" => call_with([[0, 0x40_1000]]),
        "nowhere" => call_with([[usize::MAX, 0]]),
        "half" => call_at(half),
        "spin" => spin(few.as_ptr() as usize),
        "deep" => spin(many.as_ptr() as usize),
        "many" => call_at(many.as_ptr() as usize),
        _ => return Err(io::Error::other("there is no such kind")),
    };
    let right = right && few[2] == [0, 0x40_1000 * 3] && many[23] == [0, 0x40_1000 * 24];
    if right { Ok(()) } else { Err(io::Error::other(format!("a wrong result, with an NMI at {text}"))) }
}

/// The address of a frame whose saved rbp is the last word of this page, and whose return address is not mapped.
fn half_mapped(page: usize) -> io::Result<usize> {
    // SAFETY: both pages are part of a mapping that was made for this, and no other entry has them.
    let result = unsafe {
        (page as *mut u8).write_volatile(1);
        libc::munmap((page + PAGE) as *mut libc::c_void, PAGE)
    };
    if result == 0 { Ok(page + PAGE - size_of::<usize>()) } else { Err(io::Error::last_os_error()) }
}

/// A system call with such frames. Returns whether it had the right result.
fn call_with<const FRAMES: usize>(frames: [[usize; 2]; FRAMES]) -> bool {
    call_at(frames.as_ptr() as usize)
}

/// A system call with this frame pointer. Returns whether it had the right result.
fn call_at(frame: usize) -> bool {
    let mut number = libc::SYS_getppid;
    // SAFETY: rbp is restored. The call has no arguments, and changes nothing but these registers.
    unsafe {
        asm!(
            "push rbp", "mov rbp, {frames}", "syscall", "pop rbp",
            frames = in(reg) frame, inout("rax") number, out("rcx") _, out("r11") _,
        );
    }
    number > 0
}

/// Makes a chain of these frames.
fn link(frames: &mut [[usize; 2]]) {
    for frame in 0..frames.len() {
        let next = frames.get(frame + 1).map_or(0, |next| next.as_ptr() as usize);
        frames[frame] = [next, 0x40_1000 * (frame + 1)];
    }
}

/// Spins with this frame pointer. Returns whether the loop had the right result.
fn spin(frame: usize) -> bool {
    let mut turns = 2000_u64;
    // SAFETY: rbp is restored, and nothing else is changed.
    unsafe {
        asm!(
            "push rbp", "mov rbp, {frames}", "2:", "dec {turns}", "jnz 2b", "pop rbp",
            frames = in(reg) frame, turns = inout(reg) turns,
        );
    }
    turns == 0
}

/// For each signal the number of bytes that its handler skips.
static LENGTHS: [std::sync::atomic::AtomicUsize; 32] = [const { std::sync::atomic::AtomicUsize::new(0) }; 32];

fn handle(signal: i32, length: usize) -> io::Result<()> {
    LENGTHS[signal as usize].store(length, std::sync::atomic::Ordering::Relaxed);
    // SAFETY: a zeroed sigaction is a valid one; the handler has the signature for SA_SIGINFO.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = step_over as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(signal, &action, ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

extern "C" fn step_over(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let length = LENGTHS[signal as usize].load(std::sync::atomic::Ordering::Relaxed);
    // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO.
    unsafe { (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] += length as i64 };
}

/// Maps new pages, none of which was used yet. Returns the address of the first.
fn new_pages(count: usize) -> io::Result<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let bytes = count.max(1) * PAGE;
    // SAFETY: this makes a new anonymous mapping at addresses that nothing else uses.
    let memory = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if memory == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(memory as usize) }
}
