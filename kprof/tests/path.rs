//! The whole path on a host: ticks by `self`, drain, acknowledgement, account.
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
    PROFILER.start();
    while PROFILER.on_timer(&token, &at).outcome != Outcome::Sampled {
        core::hint::spin_loop();
    }
    PROFILER.stop().unwrap();

    let mut buffer = [0; 4096];
    PROFILER.control(1, b"protocol 1").unwrap();
    assert!(PROFILER.control(2, b"protocol 1").is_err(), "one claim at a time");
    for _ in 0..2 {
        let bytes = PROFILER.read_stream(1, &mut buffer).unwrap();
        let words = words(&buffer[..bytes]);
        assert_eq!(Header::decode(words[0]), Ok(Header { kind: Kind::Sample, words: 8 }));
        assert_eq!(words[SAMPLE_HEADER_WORDS..], [text(30), text(20), text(40)]);
        assert_eq!(PROFILER.read_stream(1, &mut buffer), Ok(0));
        // The reader goes away without an acknowledgement; the next one gets the record again.
        PROFILER.close_control(1);
        PROFILER.control(1, b"protocol 1").unwrap();
    }
    assert!(PROFILER.control(1, b"ack 1 8").is_err(), "not read under this claim");
    assert_eq!(PROFILER.read_stream(1, &mut buffer), Ok(64));
    assert!(PROFILER.control(1, b"ack 1 7").is_err(), "not the end of a record");
    PROFILER.control(1, b"ack 1 8").unwrap();

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
