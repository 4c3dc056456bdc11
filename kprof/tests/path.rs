//! The whole path on a host: ticks by the trigger `timer`, drain, acknowledgement, account.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::record::Kind;
use kprof::{Config, CountedEvent, CpuSlot, Outcome, Profiler, Trigger};

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
        let records = records(&buffer[..bytes]);
        let stacks: Vec<_> = records.iter().map(|record| (record.kind, record.stack())).collect();
        assert_eq!(stacks, [(Kind::Sample, vec![text(30), text(20), text(40)])]);
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

#[test]
fn acknowledgements_free_up_to_the_greatest_of_their_write_and_those_of_a_refused_write_nothing() {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config { running: true, ..Config::new() });
    for _ in 0..6 {
        slots[1].raise_tick();
        assert_eq!(profiler.on_nmi(&token(), &registers()), Outcome::Sampled);
    }
    let daemon = Daemon::claim(profiler, 1);
    assert_eq!(daemon.stream.read(&mut [0; 8192]), Ok(6 * 64));
    let write = |lines: &str| {
        let is_written = daemon.ctl.write(lines.as_bytes()).is_ok();
        (is_written, counter(profiler, "delivered"), counter(profiler, "in-ring"))
    };
    assert_eq!(write("ack 1 32\nack 1 33"), (false, 0, 6), "33 is not the end of a record");
    assert_eq!(write("ack 1 16"), (true, 2, 4));
    assert_eq!(write("ack 1 40\nack 1 24\nack 1 40"), (true, 5, 1));
    assert_eq!(write("ack 1 16\nack 1 48"), (true, 6, 0), "what is freed already is accepted");
}

#[test]
fn every_overflow_of_a_counter_is_a_tick_whatever_the_time_is() {
    const TICKS: usize = if cfg!(miri) { 8 } else { 50 };
    let event = CountedEvent { name: "dtlb-load-misses", period: 1000 };
    let config = Config { trigger: Trigger::Timer, event: Some(event), ..Config::new() };
    let next = |config| {
        let profiler: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
        let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
        set_up(profiler, slots, config);
        let (token, at) = (token(), registers());
        let stopped = profiler.on_overflow(&token, &at);
        assert_eq!((stopped.outcome, stopped.next_events), (Outcome::Foreign, 1000));
        profiler.start().unwrap();
        assert_eq!(profiler.on_timer(&token, &at).outcome, Outcome::Foreign, "time causes no tick");
        let ticks: Vec<_> = (0..TICKS).map(|_| profiler.on_overflow(&token, &at)).collect();
        assert!(ticks.iter().all(|tick| tick.outcome == Outcome::Sampled));
        assert_eq!(counters(profiler, ["sent", "recorded"]), [TICKS as u64; 2]);
        let status = control(profiler);
        assert_eq!((status["event"].as_str(), status.get("hz")), ("dtlb-load-misses every 1000", None));
        let refused = profiler.open_control(1).write(b"hz 99").unwrap_err();
        assert!(refused.to_string().contains("there is no rate"), "{refused}");
        ticks.iter().map(|tick| tick.next_events).collect::<Vec<_>>()
    };
    let random = next(config);
    assert!(random.iter().all(|events| (750..=1250).contains(events)), "{random:?}");
    assert_ne!(random.iter().min(), random.iter().max());
    assert_eq!(next(config), random, "the same seed");
    assert_ne!(next(Config { seed: 7, ..config }), random);
    assert_eq!(next(Config { random_interval: false, ..config }), [1000; TICKS]);

    let profiler: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    set_up(profiler, slots, Config { trigger: Trigger::Timer, event: None, ..Config::new() });
    profiler.start().unwrap();
    let tick = profiler.on_overflow(&token(), &registers());
    assert!(tick.outcome == Outcome::Foreign && tick.next_events > 1 << 30, "no event is chosen");
}

#[test]
fn the_cost_of_the_handler_is_measured_on_one_tick_of_64() {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config { running: true, ..Config::new() });
    let ticks = |count: u64| {
        for _ in 0..count {
            slots[1].raise_tick();
            assert_ne!(profiler.on_nmi(&token(), &registers()), Outcome::Foreign);
        }
        counters(profiler, ["self-samples", "self-tsc"])
    };
    assert_eq!(ticks(63), [0, 0]);
    let [samples, cost] = ticks(1);
    assert!(samples == 1 && cost > 0 && cost.is_multiple_of(64), "{samples} {cost}");
    assert_eq!(ticks(64)[0], 2);
}
