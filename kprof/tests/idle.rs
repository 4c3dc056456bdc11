//! Interrupts on an idle CPU are not idle time, however deep the handler is and however few frames are recorded.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::marker::{Facts, Marker};
use kprof::{Config, Outcome, Registers};
use std::sync::atomic::Ordering;

/// The registers of an interrupt handler with this many callers inside it, on the idle task's stack.
fn in_handler(callers: u64) -> Registers {
    (0..64).for_each(|word| set(word, 0));
    for caller in 0..callers {
        set(4 + 2 * caller, stack(6 + 2 * caller));
        set(5 + 2 * caller, text(20));
    }
    let words = [0, Marker::Interrupt(0x40).encode(), text(40), 8, 2, stack(60), 0];
    (4 + 2 * callers..).zip(words).for_each(|(at, word)| set(at, word));
    Registers { pc: text(30), sp: stack(2), fp: stack(4), link: 0, from_user: false, interrupts_on: false }
}

#[test]
fn an_interrupt_on_an_idle_cpu_is_work_at_any_depth() {
    let _alone = alone();
    for include in ["exclude idle", "include idle"] {
        for (depth, callers) in [(64, 2), (64, 12), (4, 12), (1, 1)] {
            let (profiler, slots) = machine();
            set_up(profiler, slots, Config { running: true, ..Config::new() });
            let daemon = Daemon::claim(profiler, 1);
            daemon.ctl.write(format!("{include}\ndepth {depth}").as_bytes()).unwrap();
            let at = in_handler(callers);
            IDLE.store(true, Ordering::Relaxed);
            slots[1].raise_tick();
            let outcome = profiler.on_nmi(&token(), &at);
            IDLE.store(false, Ordering::Relaxed);
            assert_eq!(outcome, Outcome::Sampled, "{include}, depth {depth}, {callers} callers");
            assert_eq!(counters(profiler, ["idle", "recorded-idle", "recorded"]), [0, 0, 1]);
            let mut buffer = [0; 8192];
            let bytes = daemon.stream.read(&mut buffer).unwrap();
            let facts = Marker::decode(records(&buffer[..bytes])[0].stack()[1]);
            assert_eq!(facts, Some(Marker::Facts(Facts(Facts::INTERRUPTS_OFF))), "idle is not said");
        }
    }
}
