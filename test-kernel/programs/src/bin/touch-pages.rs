//! Workload: page faults. Maps memory, touches every page, shares it by fork, writes it again, unmaps it.
//!
//! In: the number of rounds. Out: page faults, copies on write, mappings; exit code 0 if every byte was right.

use std::process::ExitCode;
use std::ptr;

const PAGES: usize = 512;
const PAGE: usize = 4096;

fn main() -> ExitCode {
    let rounds: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(10);
    for round in 0..rounds {
        if let Err(message) = touch(round) {
            eprintln!("touch-pages: round {round}: {message}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn touch(round: usize) -> Result<(), String> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: this makes a new anonymous mapping at addresses that nothing else uses.
    let memory = unsafe { libc::mmap(ptr::null_mut(), PAGES * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    if memory == libc::MAP_FAILED {
        return Err("mmap failed".into());
    }
    // SAFETY: this is the mapping that was made above. It has PAGES pages, and nothing else uses it.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory.cast::<u8>(), PAGES * PAGE) };
    if bytes.iter().step_by(PAGE).any(|byte| *byte != 0) {
        return Err("new memory is not zero".into());
    }
    for (index, byte) in bytes.iter_mut().step_by(PAGE).enumerate() {
        *byte = (index + round) as u8;
    }
    // SAFETY: this program has one thread. The child only writes to its own copy and ends.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err("fork failed".into());
    }
    for byte in bytes.iter_mut().step_by(PAGE) {
        *byte = byte.wrapping_add(1);
    }
    let right = bytes.iter().step_by(PAGE).enumerate().all(|(index, byte)| *byte == (index + round + 1) as u8);
    if child == 0 {
        // SAFETY: this ends the child at once.
        unsafe { libc::_exit(!right as i32) };
    }
    let mut status = 0;
    // SAFETY: this waits for the child that was made above.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    // SAFETY: this is the mapping that was made above, and `bytes` is no longer used.
    unsafe { libc::munmap(memory, PAGES * PAGE) };
    match (right, waited == child && status == 0) {
        (true, true) => Ok(()),
        (false, _) => Err("the parent's bytes are wrong".into()),
        (true, false) => Err(format!("the child's bytes are wrong (status {status:#x})")),
    }
}
