//! How an NMI without a tick is classified. It is spurious as many times as ticks were coalesced or signalled again;
//! after that it is foreign. So an NMI of a watchdog is not withheld from the kernel for long.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::{Config, CpuSlot, Outcome, Profiler};

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
    let counted = ["sent", "taken", "coalesced", "spurious", "foreign"].map(|name| counter(&PROFILER, name));
    assert_eq!(counted, [7, 4, 3, 3, 4]);
}
