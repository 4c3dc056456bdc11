//! How an NMI without a tick is classified. It is spurious as many times as ticks were coalesced or signalled again;
//! after that it is foreign. So an NMI of a watchdog is not withheld from the kernel for long.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::{Config, CpuSlot, Outcome, Profiler};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn an_empty_nmi_is_spurious_as_often_as_ticks_were_coalesced_and_then_foreign() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    set_up(&PROFILER, &SLOTS, Config { running: true, ..Config::new() });
    let nmi = |ticks: usize| {
        (0..ticks).for_each(|_| SLOTS[1].raise_tick());
        PROFILER.on_nmi(&token(), &registers())
    };
    use Outcome::{Foreign, Sampled, Spurious};
    assert_eq!(nmi(0), Foreign, "nothing was coalesced yet");
    assert_eq!(nmi(1), Sampled);
    assert_eq!(nmi(0), Foreign, "a plain tick allows nothing");
    assert_eq!(nmi(3), Sampled);
    assert_eq!([nmi(0), nmi(0), nmi(0)], [Spurious, Spurious, Foreign]);
    assert_eq!(nmi(2), Sampled);
    assert_eq!(nmi(1), Sampled, "an allowance lasts");
    assert_eq!([nmi(0), nmi(0)], [Spurious, Foreign]);
    let counted = counters(&PROFILER, ["sent", "taken", "coalesced", "spurious", "foreign"]);
    assert_eq!(counted, [7, 4, 3, 3, 4]);
}

#[test]
fn an_empty_nmi_is_spurious_as_often_as_a_pending_tick_was_signalled_again() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    set_up(&PROFILER, &SLOTS, Config::new());
    SLOTS[1].raise_tick();
    std::thread::spawn(|| PROFILER.run_sampler(0));
    let signals = || SIGNALS.load(Ordering::SeqCst);
    while signals() < 3 {
        std::thread::sleep(Duration::from_millis(1));
    }
    // The sampler is stopped and has only this tick to signal. All signals but the first NMI find no tick.
    let first = PROFILER.on_nmi(&token(), &registers());
    assert_eq!(first, Outcome::Sampled);
    let nmis_until_foreign = || {
        let outcomes = std::iter::repeat_with(|| PROFILER.on_nmi(&token(), &registers()));
        outcomes.take_while(|outcome| *outcome == Outcome::Spurious).count() as u64
    };
    // The sampler sees some time later that its tick was taken, and may signal again while the NMIs are counted. It
    // counts a repeated signal before it sends it, so one NMI more than the signals sent by then can be spurious.
    let mut spurious = 0;
    loop {
        let sent_before = signals();
        spurious += nmis_until_foreign();
        let allowed = sent_before..=signals() + 1;
        assert!(allowed.contains(&spurious), "{spurious} spurious NMIs, allowed are {allowed:?}");
        let shown = counters(&PROFILER, ["spurious", "resent"]);
        assert!(shown[0] == spurious && spurious <= shown[1], "{spurious}, shown as {shown:?}");
        if spurious == signals() {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
