//! A nested NMI before each instruction of the handler, on the host. The handler runs with the CPU's trap flag set, and
//! the signal before its instruction number k calls the handler again, as a nested NMI does. For every k, and for any
//! number of ticks with either NMI: each tick is taken once, none stays pending, each NMI is counted as the outcome
//! that it returned, and no record is torn.
#![cfg(all(feature = "profiling", target_os = "linux", target_arch = "x86_64", not(miri)))]

mod array_kernel;

use array_kernel::*;
use core::arch::asm;
use kprof::{Config, CpuSlot, Outcome, Profiler};
use std::sync::atomic::{AtomicU64, Ordering};

static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

/// Instructions left until the nested NMI, and the ticks that come with it.
static LEFT: AtomicU64 = AtomicU64::new(0);
static TICKS: AtomicU64 = AtomicU64::new(0);
static NESTED: AtomicU64 = AtomicU64::new(0);
/// How often each outcome was returned: sampled, lost, spurious, foreign.
static OUTCOMES: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

const TRAP_FLAG: i64 = 1 << 8;

fn nmi() {
    let outcome = PROFILER.on_nmi(&token(), &registers());
    let all = [Outcome::Sampled, Outcome::Lost, Outcome::Spurious, Outcome::Foreign];
    let place = all.into_iter().position(|known| known == outcome).expect("nothing is filtered");
    OUTCOMES[place].fetch_add(1, Ordering::Relaxed);
}

extern "C" fn on_trap(_signal: i32, _info: *mut libc::siginfo_t, task: *mut libc::c_void) {
    if LEFT.fetch_sub(1, Ordering::Relaxed) > 1 {
        return;
    }
    // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO. No other call uses this one.
    let registers = unsafe { &mut (*task.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
    (0..TICKS.load(Ordering::Relaxed)).for_each(|_| SLOTS[1].raise_tick());
    NESTED.fetch_add(1, Ordering::Relaxed);
    nmi();
}

/// Runs one NMI, with a nested one before the instruction number `at` after the trap flag was set. Returns whether that
/// instruction was reached.
fn stepped(at: u64) -> bool {
    LEFT.store(at, Ordering::Relaxed);
    let before = NESTED.load(Ordering::Relaxed);
    // SAFETY: with the flag set the CPU traps before each instruction, and the handler of this test takes the signal.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    nmi();
    // SAFETY: this only clears the flag again.
    unsafe { asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq") };
    NESTED.load(Ordering::Relaxed) > before
}

/// Checks that all records in the ring are whole and have the right stack, and acknowledges them.
fn check_records(buffer: &mut [u8], end: u64) {
    let daemon = Daemon::claim(&PROFILER, 1);
    let bytes = daemon.stream.read(buffer).unwrap();
    for record in records(&buffer[..bytes]) {
        assert_eq!(record.stack(), [text(30), text(20), text(40)]);
    }
    daemon.acknowledge(end).unwrap();
}

#[test]
fn an_nmi_before_any_instruction_of_the_handler_takes_its_own_tick_or_none() {
    set_up(&PROFILER, &SLOTS, Config { running: true, ..Config::new() });
    // SAFETY: the installed handler only changes atomics and the registers that it was given.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, core::ptr::null_mut()), 0);
    }
    let mut buffer = vec![0; 8192];
    let mut places = 0;
    // The number of ticks for the interrupted handler, and for the nested one.
    for (outer, inner) in [(1, 1), (0, 1), (1, 0), (2, 2), (0, 0)] {
        TICKS.store(inner, Ordering::Relaxed);
        // A build without optimisation has many times as many instructions, so there only every 11th is tried.
        for at in (1..).step_by(if cfg!(debug_assertions) { 11 } else { 1 }) {
            (0..outer).for_each(|_| SLOTS[1].raise_tick());
            let reached = stepped(at);
            let place = format!("instruction {at}, {outer} and {inner} ticks");
            let counters = control(&PROFILER);
            let counter = |name: &str| -> u64 { counters[&format!("cpu.1.{name}")].parse().unwrap() };
            assert_eq!(counter("sent"), counter("taken") + counter("coalesced"), "{place}");
            assert_eq!(counter("taken"), counter("lost-nested") + counter("recorded"), "{place}");
            let counted = ["recorded", "lost-nested", "spurious", "foreign"].map(counter);
            assert_eq!(counted, OUTCOMES.each_ref().map(|count| count.load(Ordering::Relaxed)), "{place}");
            check_records(&mut buffer, counter("position-in"));
            if !reached {
                break;
            }
            places += 1;
        }
    }
    assert!(places > 100, "{places} places");
    assert!(OUTCOMES.iter().all(|count| count.load(Ordering::Relaxed) > 0), "{OUTCOMES:?}");
}
