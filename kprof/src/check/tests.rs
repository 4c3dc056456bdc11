//! One test for each result of the check, with a port that is right except for one thing.

use super::*;
use crate::extension::NoExtension;
use crate::kernel::Task;
use crate::quiet::{Quiet, set_up};
use crate::{CpuSet, NmiToken, Profiler, Registers};
use core::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

#[path = "tests/arrival.rs"]
mod arrival;

const TSC_HZ: u64 = 1_000_000_000;
const TEXT: u64 = 0x10_0000;
const NMI_STACK: Range<u64> = 0x50_0000..0x50_2000;
const STUB: u64 = TEXT + 0x100;
const OTHER_STUB: u64 = TEXT + 0x200;
/// A compiled entry with an error code.
const FUNCTION: u64 = TEXT + 0x300;
/// A compiled entry without.
const LEAF: u64 = TEXT + 0x400;

/// The kernel, and the machine that it runs on.
struct Port {
    cpu: AtomicUsize,
    /// By how much a sleep is too long. `late_sleeps` is how many sleeps are.
    late_ns: AtomicU64,
    late_sleeps: AtomicUsize,
    sleep_factor: AtomicU64,
    now: AtomicU64,
    nmi: Option<Gate>,
    timer: Option<Gate>,
    fault: Option<Gate>,
    device: Option<Gate>,
    nmi_stack: Option<u64>,
    stacks: fn(u64) -> Option<Range<u64>>,
    entry_code: Range<u64>,
    /// The profiler whose ticks arrive; without it no tick does.
    profiler: OnceLock<&'static Profiler<Port>>,
}

impl Port {
    fn right() -> Self {
        Self {
            cpu: AtomicUsize::new(1),
            late_ns: AtomicU64::new(0),
            late_sleeps: AtomicUsize::new(0),
            sleep_factor: AtomicU64::new(1),
            now: AtomicU64::new(5),
            nmi: Some(Gate { handler: STUB, ist: 1 }),
            timer: Some(Gate { handler: OTHER_STUB, ist: 0 }),
            fault: None,
            device: None,
            nmi_stack: Some(NMI_STACK.end),
            // All of memory except the NMI's stack is declared as the stack of the test's thread.
            stacks: |address| Some(if NMI_STACK.contains(&address) { NMI_STACK } else { 0x1000..!7 }),
            entry_code: STUB..FUNCTION,
            profiler: OnceLock::new(),
        }
    }
}

// SAFETY: no NMI comes in these tests, so no stack is walked.
unsafe impl Kernel for Port {
    fn cpu(&self) -> usize {
        self.cpu.load(Relaxed)
    }
    fn signal(&self, cpus: &CpuSet<'_>) {
        let Some(profiler) = self.profiler.get() else { return };
        for cpu in cpus.iter() {
            let sender = self.cpu.swap(cpu, Relaxed);
            let at = Registers { pc: TEXT, sp: 0, fp: 0, link: 0, from_user: false, interrupts_on: false };
            // SAFETY: one thread is all CPUs here, and no handler runs.
            profiler.on_nmi(&unsafe { NmiToken::new() }, &at);
            self.cpu.store(sender, Relaxed);
        }
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        (self.stacks)(address)
    }
    fn task(&self) -> Task {
        Task { id: 1, idle: false }
    }
    fn is_entry_code(&self, address: u64) -> bool {
        self.entry_code.contains(&address)
    }
    fn sleep_ns(&self, ns: u64) {
        // Only the sampler's thread sleeps.
        let left = self.late_sleeps.load(Relaxed);
        self.late_sleeps.store(left.saturating_sub(1), Relaxed);
        let late = if left > 0 { self.late_ns.load(Relaxed) } else { 0 };
        self.now.fetch_add(ns * self.sleep_factor.load(Relaxed) + late, Relaxed);
    }
}

impl Machine for Port {
    fn gate(&self, vector: u8) -> Option<Gate> {
        match vector {
            2 => self.nmi,
            32 => self.timer,
            14 => self.fault,
            33 => self.device,
            _ => None,
        }
    }
    fn nmi_vector(&self) -> Option<u8> {
        Some(2)
    }
    fn interrupt_stack(&self, _: u8) -> Option<u64> {
        self.nmi_stack
    }
    fn ticks(&self) -> u64 {
        self.now.load(Relaxed)
    }
    unsafe fn code(&self, address: u64) -> u64 {
        match address {
            FUNCTION => 0x0051_41e5_8948_5550,
            LEAF => 0xe589_4855_fa1e_0ff3,
            _ => 0x9090_9090_9090_9050,
        }
    }
}

/// Two CPUs, of which the first is the sampler CPU; the ones in `registered` have registered.
fn shared(registered: &[usize], tsc_hz: u64) -> &'static Shared {
    let instance = Box::leak(Box::new(Instance { kernel: Quiet::new(), shared: Shared::new() }));
    set_up(instance, &NoExtension, config(tsc_hz), registered);
    &instance.shared
}

fn config(tsc_hz: u64) -> Config {
    Config { sampler_cpu: Some(0), tsc_hz, text: (TEXT, TEXT + 0x1000), ..Config::new() }
}

/// The result of the check on the CPU that is sampled.
fn sampled(change: impl FnOnce(&mut Port)) -> Result<(), CheckError> {
    let mut port = Port::right();
    change(&mut port);
    on(&port, shared(&[1], TSC_HZ), &port)
}

/// The result of the check on the sampler CPU.
fn sampler(registered: &[usize], change: impl FnOnce(&Port)) -> Result<(), CheckError> {
    let port = Port::right();
    port.cpu.store(0, Relaxed);
    change(&port);
    on(&port, shared(registered, TSC_HZ), &port)
}

#[test]
fn a_port_that_is_right_is_found_right_on_both_cpus() {
    assert_eq!(sampled(|_| {}), Ok(()));
    assert_eq!(sampler(&[1], |_| {}), Ok(()));
}

#[test]
fn a_profiler_that_is_not_set_up_is_said_first() {
    let port = Port::right();
    assert_eq!(on(&port, &Shared::new(), &port), Err(CheckError::NotReady));
}

#[test]
fn cpus_without_a_slot_and_cpus_that_have_not_registered_are_named() {
    assert_eq!(sampled(|port| *port.cpu.get_mut() = 2), Err(CheckError::Cpu(2)));
    let port = Port::right();
    assert_eq!(on(&port, shared(&[], TSC_HZ), &port), Err(CheckError::NotRegistered(1)));
    assert_eq!(sampler(&[], |_| {}), Err(CheckError::NotRegistered(1)));
}

#[test]
fn an_nmi_without_a_gate_or_with_one_that_leads_nowhere_is_found() {
    assert_eq!(sampled(|port| port.nmi = None), Err(CheckError::NoGate));
    let outside = TEXT + 0x1000;
    let found = sampled(|port| port.nmi = Some(Gate { handler: outside, ist: 1 }));
    assert_eq!(found, Err(CheckError::GateOutsideText(outside)));
}

#[test]
fn an_nmi_without_a_stack_of_its_own_is_found() {
    assert_eq!(sampled(|port| port.nmi = Some(Gate { handler: STUB, ist: 0 })), Err(CheckError::NoInterruptStack));
    for end in [None, Some(0), Some(NMI_STACK.end - 8)] {
        assert_eq!(sampled(|port| port.nmi_stack = end), Err(CheckError::EmptyInterruptStack { ist: 1, end }));
    }
    let shared = sampled(|port| port.timer = Some(Gate { handler: OTHER_STUB, ist: 1 }));
    assert_eq!(shared, Err(CheckError::SharedInterruptStack { ist: 1, vector: 32 }));
    let small = sampled(|port| port.nmi_stack = Some(NMI_STACK.start + MIN_STACK_BYTES - 16));
    assert_eq!(small, Err(CheckError::SmallInterruptStack { bytes: MIN_STACK_BYTES - 16 }));
}

#[test]
fn entries_that_the_kernel_does_not_know_are_all_named_stubs_and_compiled_ones_apart() {
    let stub = |port: &mut Port| port.entry_code = STUB..OTHER_STUB;
    let compiled = |port: &mut Port| {
        (port.fault, port.device) = (Some(Gate { handler: FUNCTION, ist: 0 }), Some(Gate { handler: LEAF, ist: 0 }));
    };
    let said = |change: &dyn Fn(&mut Port)| sampled(|port| change(port)).unwrap_err().to_string();
    let only_stub = said(&stub);
    assert!(only_stub.contains(" stubs of vectors 32 ") && !only_stub.contains("compiled"), "{only_stub}");
    let only_compiled = said(&compiled);
    assert!(only_compiled.contains(" compiled handlers of vectors 14, 33 "), "{only_compiled}");
    assert!(!only_compiled.contains("stubs"), "{only_compiled}");
    let both = said(&|port| (stub(port), compiled(port)).0);
    assert!(both.contains(" stubs of vectors 32 ") && both.contains(" handlers of vectors 14, 33 "), "{both}");
    assert_eq!(sampled(|port| (compiled(port), port.entry_code = STUB..LEAF + 16).0), Ok(()), "all are described");
}

#[test]
fn a_stack_that_is_not_declared_or_not_as_it_is_is_found() {
    assert!(matches!(sampled(|port| port.stacks = |_| None), Err(CheckError::NoStack(_))));
    for wrong in [|_: u64| Some(8..16), |address: u64| Some(address - 1..!7), |address: u64| Some(8..(address | 7))] {
        let found = sampled(|port| port.stacks = wrong);
        assert!(matches!(found, Err(CheckError::BadStackRange { .. })), "{found:?}");
    }
}

#[test]
fn a_sleep_that_is_too_long_each_time_is_found_and_one_that_is_long_now_and_then_is_not() {
    let late = |ms: u64, sleeps| {
        sampler(&[1], move |port| {
            port.late_ns.store(ms * 1_000_000, Relaxed);
            port.late_sleeps.store(sleeps, Relaxed);
        })
    };
    // A busy host: it goes on for a time. A timer that is much too slow: it does not wait for ever.
    for (ms, least) in [(31, SLEEPS_MS.div_ceil(32) as usize), (999, SLEEPS)] {
        assert_eq!(late(ms, least - 1), Ok(()));
        assert_eq!(late(ms, least), Err(CheckError::SleepsLong((ms + 1) * 1000)));
    }
}

#[test]
fn a_sleep_that_comes_back_at_once_is_found() {
    assert_eq!(sampler(&[1], |port| port.sleep_factor.store(0, Relaxed)), Err(CheckError::SleepsNot));
}

#[test]
fn a_clock_that_was_not_calibrated_is_found() {
    let port = Port::right();
    for hz in [1000, 20_000_000_000] {
        assert_eq!(on(&port, shared(&[1], hz), &port), Err(CheckError::Clock(hz)));
    }
}

#[test]
fn every_answer_says_what_is_wrong_in_a_sentence() {
    let said = CheckError::EmptyInterruptStack { ist: 2, end: Some(0) }.to_string();
    assert_eq!(said, "the NMI's stack is IST 2, which is 0 on this CPU: not the end of a stack");
}
