//! The whole path on a host: ticks by the trigger `timer`, drain, acknowledgement, account.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::record::{Header, Kind, SAMPLE_HEADER_WORDS};
use kprof::{Config, CpuSlot, Outcome, Profiler};

#[test]
fn a_tick_becomes_a_record_that_is_read_again_until_it_is_acknowledged() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    set_up(&PROFILER, &SLOTS, Config::new());
    let (token, at) = (token(), registers());
    assert_eq!(PROFILER.on_nmi(&token, &at), Outcome::Foreign);
    PROFILER.start().unwrap();
    while PROFILER.on_timer(&token, &at).outcome != Outcome::Sampled {
        core::hint::spin_loop();
    }
    PROFILER.stop().unwrap();

    let mut buffer = [0; 4096];
    let mut daemon = Daemon::claim(&PROFILER, 1);
    assert!(PROFILER.open_control(1).write(b"protocol 1").unwrap_err().is_busy(), "one claim at a time");
    for _ in 0..2 {
        let bytes = daemon.stream.read(&mut buffer).unwrap();
        let words = words(&buffer[..bytes]);
        assert_eq!(Header::decode(words[0]), Ok(Header { kind: Kind::Sample, words: 8 }));
        assert_eq!(words[SAMPLE_HEADER_WORDS..], [text(30), text(20), text(40)]);
        assert_eq!(daemon.stream.read(&mut buffer), Ok(0));
        // The reader closes its files without an acknowledgement, so the next one gets the record again.
        drop(daemon);
        daemon = Daemon::claim(&PROFILER, 2);
    }
    assert!(daemon.acknowledge(8).is_err(), "not read under this claim");
    assert_eq!(daemon.stream.read(&mut buffer), Ok(64));
    assert!(daemon.acknowledge(7).is_err(), "not the end of a record");
    daemon.acknowledge(8).unwrap();

    let expected = [
        ("sent", 1),
        ("taken", 1),
        ("recorded", 1),
        ("irq-on", 1),
        ("delivered", 1),
        ("in-ring", 0),
        ("spurious", 0),
        ("foreign", 1),
    ];
    for (name, value) in expected {
        assert_eq!(counter(&PROFILER, name), value, "{name}");
    }
}
