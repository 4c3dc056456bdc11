//! An NMI before each instruction of the handler, on the host: the handler runs with the CPU's trap flag set, and the
//! signal that comes before its instruction number k calls the handler again, as a nested NMI does. Whatever the place,
//! and however many ticks came with either NMI: each tick is taken once, none is left behind, each NMI has the name
//! that is counted, and no record is torn.
#![cfg(all(feature = "profiling", target_os = "linux", target_arch = "x86_64", not(miri)))]

mod array_kernel;

use array_kernel::*;
use core::arch::asm;
use kprof::format::record::Header;
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

extern "C" fn on_trap(_signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    if LEFT.fetch_sub(1, Ordering::Relaxed) > 1 {
        return;
    }
    // SAFETY: the kernel passes a ucontext_t to a handler installed with SA_SIGINFO; it is this call's own.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    registers[libc::REG_EFL as usize] &= !TRAP_FLAG;
    (0..TICKS.load(Ordering::Relaxed)).for_each(|_| SLOTS[1].raise_tick());
    NESTED.fetch_add(1, Ordering::Relaxed);
    nmi();
}

/// One NMI, with another before the instruction number `at` behind the setting of the trap flag. Whether that was
/// reached.
fn stepped(at: u64) -> bool {
    LEFT.store(at, Ordering::Relaxed);
    let before = NESTED.load(Ordering::Relaxed);
    // SAFETY: the flag makes the CPU trap before each instruction, to the handler of this test.
    unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq") };
    nmi();
    // SAFETY: clears it again.
    unsafe { asm!("pushfq", "and qword ptr [rsp], ~0x100", "popfq") };
    NESTED.load(Ordering::Relaxed) > before
}

/// The shapes of all records in the ring, which are given up.
fn check_records(buffer: &mut [u8], end: u64) {
    let daemon = Daemon::claim(&PROFILER, 1);
    let bytes = daemon.stream.read(buffer).unwrap();
    let read = words(&buffer[..bytes]);
    let mut from = 0;
    while from < read.len() {
        let words = Header::decode(read[from]).expect("whole records").words as usize;
        assert_eq!(read[from + 5..from + words], [text(30), text(20), text(40)]);
        from += words;
    }
    daemon.acknowledge(end).unwrap();
}

#[test]
fn an_nmi_before_any_instruction_of_the_handler_takes_its_own_tick_or_none() {
    set_up(&PROFILER, &SLOTS, Config { running: true, ..Config::new() });
    // SAFETY: installs a handler that changes atomics and its own context only.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = on_trap as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGTRAP, &raw const action, core::ptr::null_mut()), 0);
    }
    let mut buffer = vec![0; 8192];
    let mut places = 0;
    // Ticks of the handler that is interrupted, and of the one that interrupts it.
    for (outer, inner) in [(1, 1), (0, 1), (1, 0), (2, 2), (0, 0)] {
        TICKS.store(inner, Ordering::Relaxed);
        // A build without optimisation has many times the instructions, and each is trapped: one in 11 is tried there.
        for at in (1..).step_by(if cfg!(debug_assertions) { 11 } else { 1 }) {
            (0..outer).for_each(|_| SLOTS[1].raise_tick());
            let reached = stepped(at);
            let place = format!("instruction {at}, {outer} and {inner} ticks");
            let counters = control(&PROFILER);
            let counter = |name: &str| -> u64 { counters[&format!("cpu.1.{name}")].parse().unwrap() };
            assert_eq!(counter("sent"), counter("taken") + counter("merged"), "{place}");
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
