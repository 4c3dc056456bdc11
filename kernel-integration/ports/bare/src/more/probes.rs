//! The feature `probes`: a probe counts the calls of `is_prime` while the kernel runs, and the kernel counts them too.
//!
//! In: the ctl command that puts the probe, as the machine's command line. The host makes it: `kprof-fold probes bare
//! bare::is_prime` prints address and exits, which QEMU gets as `-append 'probe ADDRESS EXIT...'`. Out: the counted
//! calls in the profile, and a line of the log. Runs in: the breakpoints; everything else in ordinary code.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use kprof::format::marker::Marker;
use kprof::{EntryFrame, Registers};
use kprof_events::ProbeMemory;
use kprof_port::breakpoint::{self, BreakpointFrame};
use kprof_port::entry::{SavedFrame, is_stub};
use kprof_port::{breakpoint_stub, entry_stub, gate};
use x86_64::instructions::{interrupts, port::Port};

use super::{EVENTS, pages};
use crate::profiling::PROFILER;
use crate::{Log, is_prime, tell};

/// The round in which the probe is there for a while.
const ROUND: u64 = 10;
const NUMBERS: u32 = 30_000;
const COMMAND_BYTES: usize = 256;

static PROBES: ProbeMemory<1, 64, 64> = ProbeMemory::new();
static OWN_BREAKPOINTS: AtomicU64 = AtomicU64::new(0);

breakpoint_stub!(breakpoint_entry, breakpoint, own_entry);
entry_stub!(own_entry, Marker::Exception(3), own);

extern "C" fn breakpoint(frame: &mut BreakpointFrame) -> bool {
    // SAFETY: called by the breakpoint's stub only, with what it interrupted.
    frame.handle(|at, arguments| unsafe { EVENTS.on_breakpoint(at, || *arguments) })
}

/// What this kernel does at a breakpoint that no probe has caused.
extern "C" fn own(_: &SavedFrame) {
    OWN_BREAKPOINTS.fetch_add(1, Relaxed);
}

/// Whether an address is in one of these stubs. NMI.
pub fn is_entry_code(address: u64) -> bool {
    is_stub(breakpoint_entry, address) || is_stub(own_entry, address)
}

/// The frame of the breakpoint's stub, at an instruction of it. NMI.
pub fn entry_frame(at: &Registers) -> Option<EntryFrame> {
    breakpoint::entry_frame(breakpoint_entry, at)
}

/// The port's `EventKernel::patch`.
///
/// # Safety
/// As there.
pub unsafe fn patch(address: u64, byte: u8) -> bool {
    // SAFETY: the caller's promise.
    let done = unsafe { pages::MEMORY.write(address, byte) };
    tell(done);
    done.is_ok()
}

/// On the CPU that works and exports.
pub fn begin() {
    // SAFETY: the table is this kernel's own static; nothing causes a breakpoint yet.
    unsafe { gate::set(3, breakpoint_entry, 0).expect("256 gates") };
    tell(EVENTS.register_probes(&PROBES));
}

/// Does the same work before the probe is there, with it, and when it was removed.
pub fn work(round: u64) {
    if round != ROUND {
        return;
    }
    let mut memory = [0; COMMAND_BYTES];
    let command = match command(&mut memory) {
        Ok(command) => command,
        Err(why) => return tell(Err(why)),
    };
    let control = |line: &[u8]| PROFILER.open_control(0).write(line).map(drop);
    let before = primes();
    let put = control(command);
    if put.is_err() {
        return tell(put);
    }
    let with = primes();
    interrupts::int3();
    tell(control(b"unprobe all"));
    let after = primes();
    tell(control(b"flush"));
    let own = OWN_BREAKPOINTS.load(Relaxed);
    let _ = writeln!(Log, "bare: (calls, primes): {before:?}, with a probe {with:?}, then {after:?}; {own} own int3");
}

/// How many calls of `is_prime` this has made, and how many said yes.
fn primes() -> (u32, u32) {
    (2..NUMBERS).fold((0, 0), |(calls, primes), number| (calls + 1, primes + u32::from(is_prime(number))))
}

/// The machine's command line, by QEMU's fw_cfg (item 0x15). It ends with a 0.
fn command(memory: &mut [u8; COMMAND_BYTES]) -> Result<&[u8], &'static str> {
    // SAFETY: an index register and its data, which nothing else uses.
    unsafe { Port::<u16>::new(0x510).write(0x15) };
    // SAFETY: the same.
    memory.fill_with(|| unsafe { Port::new(0x511).read() });
    match memory.iter().position(|byte| *byte == 0) {
        None => Err("there is no probe: the machine's command line is longer than 255 bytes"),
        Some(0) => Err("there is no probe: give the machine its command (QEMU: -append 'probe ADDRESS EXIT...')"),
        Some(end) => Ok(&memory[..end]),
    }
}
