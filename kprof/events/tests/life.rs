//! What happens in long use: daemons that start late, CPUs that go offline, samplers that sleep too long, leases that
//! end, setups that cannot work.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use core::ops::Range;
use kprof::format::record::Kind;
use kprof::{
    BadMemory, CommandError, Config, CountedEvent, CpuSet, CpuSlot, InitError, Kernel, Mode, Outcome, Profiler,
    RegisterError, Setup, StateError, Task, Trigger,
};
use kprof_events::EventSlot;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn fresh(config: Config) -> Machine {
    let (profiler, slots) = machine();
    set_up(profiler, slots, config);
    (profiler, slots)
}

#[test]
fn a_change_before_init_is_refused_because_init_sets_everything() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    let ctl = PROFILER.open_control(1);
    for command in ["start", "hz 77", "protocol 1"] {
        let refused = ctl.write(command.as_bytes()).map(|_| ()).map_err(|error| error.reason);
        assert_eq!(refused, Err(CommandError::Change(StateError::NotReady)), "{command}");
    }
    assert_eq!([PROFILER.start(), PROFILER.stop()], [Err(StateError::NotReady); 2]);
    set_up(&PROFILER, &SLOTS, Config::new());
    ctl.write(b"start\nhz 77").unwrap();
    let status = control(&PROFILER);
    assert_eq!([&status["state"], &status["hz"]], ["running", "77"]);
}

/// All records of the meta stream: kind, first value, text.
fn meta(daemon: &Daemon) -> Vec<(Kind, u64, String)> {
    let (mut all, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
    loop {
        let bytes = daemon.meta.read(&mut buffer).unwrap();
        if bytes == 0 {
            return all;
        }
        let records = records(&buffer[..bytes]);
        all.extend(records.iter().map(|record| (record.kind, record.meta().first, record.text())));
    }
}

#[test]
fn a_daemon_that_starts_late_gets_the_living_names_and_the_settings() {
    let (profiler, _) = fresh(Config::new());
    let ctl = profiler.open_control(1);
    ctl.write(b"hz 250\ninclude user").unwrap();
    (0..3000).for_each(|id| profiler.task_name(id, "a thread that is dead now"));
    let overwritten = || control(profiler)["meta.overwritten"].parse::<u64>().unwrap();
    let before = overwritten();
    assert!(profiler.open_meta(3).read(&mut vec![0; 64 * 1024]).is_err());
    assert_eq!(overwritten(), before, "a read that is refused makes no room");
    let daemon = Daemon::claim(profiler, 2);
    // A kernel does this when the result of a control write has `wants_names` set.
    (5000..5005).for_each(|id| profiler.task_name(id, "alive"));
    let records = meta(&daemon);
    let living: Vec<u64> =
        records.iter().filter(|record| record.0 == Kind::TaskName && record.2 == "alive").map(|r| r.1).collect();
    assert_eq!(living, [5000, 5001, 5002, 5003, 5004]);
    for setting in ["hz 250", "include user", "trigger timer", "cpus all", "mode drop"] {
        assert!(records.iter().any(|record| record.0 == Kind::Setting && record.2 == setting), "{setting}");
    }
    assert_eq!(control(profiler)["meta.lost"], "0");
    assert!(overwritten() > 2900);
}

#[test]
fn what_a_daemon_has_read_is_not_replaced_and_names_leave_room_for_settings() {
    let (profiler, _) = fresh(Config::new());
    let daemon = Daemon::claim(profiler, 1);
    profiler.task_name(1, "first");
    assert!(!meta(&daemon).is_empty());
    (0..300).for_each(|id| profiler.task_name(id, "later"));
    assert!(control(profiler)["meta.lost"].parse::<u64>().unwrap() > 0);
    assert_eq!(control(profiler)["meta.overwritten"], "0");
    daemon.ctl.write(b"hz 333").unwrap();
    assert!(meta(&daemon).iter().any(|record| record.2 == "hz 333"), "the setting has found room");
    let end = control(profiler)["meta.position-in"].clone();
    daemon.ctl.write(format!("ack meta {end}").as_bytes()).unwrap();
    assert_eq!(control(profiler)["meta.position-out"], end);
}

#[test]
fn every_choice_that_changes_leaves_a_record() {
    let (profiler, _) = fresh(Config::new());
    let daemon = Daemon::claim(profiler, 1);
    meta(&daemon);
    let commands = [
        "hz 50",
        "interval fixed",
        "seed 7",
        "include idle",
        "exclude user",
        "backoff on",
        "depth 9",
        "cpus 1",
        "mode overwrite",
    ];
    daemon.ctl.write(commands.join("\n").as_bytes()).unwrap();
    let told: Vec<String> = meta(&daemon).into_iter().map(|record| record.2).collect();
    for command in commands {
        assert!(told.iter().any(|text| text == command), "{command} in {told:?}");
    }
}

#[test]
fn names_find_room_until_a_late_daemon_has_acknowledged_its_first_batch() {
    let (profiler, _) = fresh(Config::new());
    (0..3000).for_each(|id| profiler.task_name(id, "a thread that is dead now"));
    let daemon = Daemon::claim(profiler, 2);
    // A daemon on a slow disk reads for the first time long after its claim.
    (3000..6000).for_each(|id| profiler.task_name(id, "a thread that is dead now"));
    let first = meta(&daemon);
    assert!(!first.is_empty());
    // Records that were read but not acknowledged cannot be replaced.
    (6000..6020).for_each(|id| profiler.task_name(id, "born meanwhile"));
    let born = meta(&daemon).iter().filter(|record| record.2 == "born meanwhile").count();
    assert_eq!((born, control(profiler)["meta.lost"].as_str()), (20, "0"));
}

#[test]
fn a_lease_is_undone_when_its_file_is_closed() {
    let (profiler, _) = fresh(Config::new());
    let keys = ["hz", "include", "depth", "seed", "mode", "state", "backoff"];
    let values = || keys.map(|key| control(profiler)[key].clone());
    let before = values();
    let recorder = profiler.open_control(1);
    recorder.write(b"lease\nhz 5000\ninclude user\ndepth 8\ncpus 1\nmode overwrite\nstart").unwrap();
    assert_eq!(control(profiler)["state"], "running");
    assert_eq!(profiler.open_control(2).write(b"lease").unwrap_err().reason, CommandError::Claimed);
    // A setting that another process has made in the meantime stays.
    profiler.open_control(2).write(b"seed 99").unwrap();
    profiler.events.count(kprof_events::Event::PageFault);
    drop(recorder);
    let mut expected = before.clone();
    expected[3] = "99".to_owned();
    assert_eq!(values(), expected);
    let daemon = Daemon::claim(profiler, 3);
    let records = meta(&daemon);
    assert_eq!(records.iter().rfind(|record| record.2.starts_with("cpus")).unwrap().2, "cpus all");
    // The end of sampling writes the counts by task, whoever ends it.
    let events = records.iter().filter(|record| record.0 == Kind::Events);
    assert!(events.into_iter().any(|record| record.2.contains("page-faults=1")), "{records:?}");
    // Without a lease every setting stays after its file is closed, so that `echo start` works from a shell.
    profiler.open_control(4).write(b"hz 10\nstart").unwrap();
    assert_eq!((control(profiler)["hz"].as_str(), control(profiler)["state"].as_str()), ("10", "running"));
}

#[test]
fn a_recording_beside_a_daemon_ends_as_it_began() {
    let (profiler, _) = fresh(Config { running: true, ..Config::new() });
    let _daemon = Daemon::claim(profiler, 1);
    let recorder = profiler.open_control(2);
    recorder.write(b"lease\nhz 5000\nstart").unwrap();
    drop(recorder);
    assert_eq!((control(profiler)["hz"].as_str(), control(profiler)["state"].as_str()), ("1000", "running"));
}

#[test]
fn a_cpu_that_goes_away_holds_nothing_up_and_comes_back() {
    let (profiler, slots) = fresh(Config { running: true, ..Config::new() });
    // The CPU goes offline while a tick is pending.
    slots[1].raise_tick();
    assert!(matches!(profiler.stop(), Err(StateError::Pending { cpu: 1, ticks: 1 })));
    profiler.offline(1);
    profiler.stop().unwrap();
    let ctl = profiler.open_control(1);
    ctl.write(b"mode overwrite\nstart\nfreeze\nthaw\nstop").unwrap();
    ctl.write(b"mode drop").unwrap();
    assert_eq!(counter(profiler, "pending"), 1);
    assert_eq!(counter(profiler, "sent"), counter(profiler, "taken") + counter(profiler, "pending"));
    profiler.register(1, || unreachable!("it has its ring")).unwrap();
    profiler.on_nmi(&token(), &registers());
    assert_eq!((counter(profiler, "pending"), counter(profiler, "taken")), (0, 1));
    profiler.stop().unwrap();
}

#[test]
fn a_tick_that_is_on_its_way_is_taken_before_the_cpu_is_offline() {
    let (profiler, slots) = fresh(Config { running: true, tsc_hz: 1_000_000_000_000, ..Config::new() });
    slots[1].raise_tick();
    std::thread::scope(|scope| {
        let later = std::time::Duration::from_millis(20);
        scope.spawn(move || (std::thread::sleep(later), profiler.on_nmi(&token(), &registers())));
        profiler.offline(1);
        assert_eq!(counter(profiler, "pending"), 0, "ten milliseconds of this clock are seconds");
    });
}

#[test]
fn a_mode_is_not_changed_while_a_tick_is_on_its_way() {
    let (profiler, slots) = fresh(Config { running: true, mode: Mode::Overwrite, ..Config::new() });
    slots[1].raise_tick();
    let ctl = profiler.open_control(1);
    let pending = |error: kprof::ControlError| matches!(error.reason, CommandError::Change(StateError::Pending { .. }));
    assert!(pending(ctl.write(b"stop").unwrap_err()));
    assert_eq!(control(profiler)["state"], "stopped", "no more ticks are sent all the same");
    assert!(pending(ctl.write(b"mode drop").unwrap_err()));
    assert_eq!((control(profiler)["mode"].as_str(), control(profiler)["state"].as_str()), ("overwrite", "stopped"));
    ctl.write(b"hz 50").expect("a change that stops nothing does not wait for the tick");
    profiler.on_nmi(&token(), &registers());
    ctl.write(b"mode drop").unwrap();
    assert_eq!(control(profiler)["mode"], "drop");
}

/// A machine with three samples that a daemon has claimed.
fn claimed(config: Config) -> (Machine, Daemon) {
    let (profiler, slots) = fresh(Config { running: true, ..config });
    let daemon = Daemon::claim(profiler, 1);
    for _ in 0..3 {
        slots[1].raise_tick();
        assert_eq!(profiler.on_nmi(&token(), &registers()), Outcome::Sampled);
    }
    ((profiler, slots), daemon)
}

#[test]
fn acknowledgements_with_a_change_own_their_streams_too() {
    let ((profiler, _), daemon) = claimed(Config::new());
    let mut refused = None;
    let read = daemon.stream.read_to(4096, &mut [], &mut |_, _| {
        refused = Some(daemon.ctl.write(b"hz 77\nack 1 8").unwrap_err());
        true
    });
    assert_eq!(read, Ok(3 * 64));
    let refused = refused.expect("records were passed");
    assert_eq!((refused.line, refused.reason), (2, CommandError::State("somebody is reading that stream right now")));
    assert_ne!(control(profiler)["hz"], "77");
    // A change of mode owns all streams, so its acknowledgements wait for nobody: with this clock for half a minute.
    let ((profiler, _), daemon) = claimed(Config { tsc_hz: 100_000_000_000, ..Config::new() });
    assert_eq!(daemon.stream.read(&mut [0; 4096]), Ok(3 * 64));
    let begin = std::time::Instant::now();
    daemon.ctl.write(b"ack 1 24\nmode overwrite").unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!((counter(profiler, "delivered"), control(profiler)["mode"].as_str()), (3, "overwrite"));
    // A write that ends a flight recorder may acknowledge what was freed before.
    let (_, daemon) = claimed(Config { mode: Mode::Overwrite, ..Config::new() });
    daemon.ctl.write(b"mode drop\nack 1 0").unwrap();
}

#[test]
fn sampling_goes_on_after_a_change_of_mode_that_was_given_up() {
    let (profiler, slots) = fresh(Config { running: true, ..Config::new() });
    slots[1].raise_tick();
    let refused = profiler.open_control(1).write(b"mode overwrite").unwrap_err().reason;
    assert!(matches!(refused, CommandError::Change(StateError::Pending { cpu: 1, ticks: 1 })), "{refused:?}");
    let begin = std::time::Instant::now();
    while profiler.on_timer(&token(), &registers()).outcome != Outcome::Sampled {
        assert!(begin.elapsed() < Duration::from_secs(30), "no tick is due any more");
    }
}

#[test]
fn a_freeze_that_was_refused_comes_to_its_end_when_it_is_tried_again() {
    let (profiler, slots) = fresh(Config { running: true, mode: Mode::Overwrite, ..Config::new() });
    let (ctl, stream) = (profiler.open_control(1), profiler.open_stream(1, 1).unwrap());
    slots[1].raise_tick();
    assert!(ctl.write(b"freeze").is_err());
    assert_eq!(stream.read(&mut [0; 4096]), Err(kprof::ReadError::Recorder), "a tick may still be written");
    profiler.on_nmi(&token(), &registers());
    ctl.write(b"freeze").unwrap();
    assert_eq!(stream.read(&mut [0; 4096]), Ok(48), "one record, in Redox's words");
    ctl.write(b"thaw").unwrap();
}

#[test]
fn a_wait_is_at_most_a_minute() {
    let (profiler, _) = fresh(Config { can_wait: true, ..Config::new() });
    let done = profiler.open_control(1).write(b"wait 18446744073709551615").unwrap();
    assert_eq!(done.wait_ms, Some(60_000));
}

/// A kernel whose sampler CPU sleeps for ever inside `signal`.
struct Asleep;

static PROFILER: Profiler<Asleep> = Profiler::new(Asleep);
static IS_ASLEEP: AtomicBool = AtomicBool::new(false);

// SAFETY: the stack and the text are static arrays. CPU 1 is the only one that is sampled.
unsafe impl Kernel for Asleep {
    fn cpu(&self) -> usize {
        1
    }
    fn signal(&self, _: &CpuSet<'_>) {
        PROFILER.on_nmi(&token(), &registers());
        IS_ASLEEP.store(true, Ordering::SeqCst);
        loop {
            std::thread::park();
        }
    }
    fn stack_range(&self, address: u64) -> Option<Range<u64>> {
        ArrayKernel.stack_range(address)
    }
    fn is_entry_code(&self, _: u64) -> bool {
        false
    }
    fn task(&self) -> Task {
        Task { id: 7, idle: false }
    }
    fn sleep_ns(&self, _: u64) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
#[cfg_attr(miri, ignore = "waits in real time")]
fn stop_ends_whatever_the_sampler_does_and_one_sampler_runs() {
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), running: true, ..Config::new() };
    PROFILER.init(|| Setup { slots: &SLOTS, meta: memory(1024), config }).unwrap();
    PROFILER.register(1, || memory(1024)).unwrap();
    std::thread::spawn(|| PROFILER.run_sampler(0));
    while !IS_ASLEEP.load(Ordering::SeqCst) {
        std::thread::yield_now();
    }
    PROFILER.run_sampler(0);
    PROFILER.run_sampler(1);
    assert_eq!(PROFILER.stop(), Err(StateError::Sampler));
}

#[test]
fn a_setup_that_can_only_give_no_samples_is_refused() {
    let good = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..Config::new() };
    let try_init = |slots: &'static [CpuSlot], meta: usize, config: Config| {
        let profiler: &'static Both = Both::new();
        (profiler.init(slots.len(), || Setup { slots, meta: memory(meta), config }), profiler)
    };
    let slots = |count: usize| -> &'static [CpuSlot] { Vec::leak((0..count).map(|_| CpuSlot::new()).collect()) };
    let event = CountedEvent { name: "dtlb-load-misses", period: 200 };
    let alone = Config { sampler_cpu: None, trigger: Trigger::Timer, ..good };
    let cases = [
        (0, 1024, good, InitError::NoSlots),
        (2, 1024, Config { trigger: Trigger::Published, ..good }, InitError::NoForeignStacks),
        (2, 1024, Config { depth: 0, ..good }, InitError::Depth(0)),
        (2, 1024, Config { depth: 251, ..good }, InitError::Depth(251)),
        (2, 1024, Config { hz: 0, ..good }, InitError::Hz(0)),
        (2, 1024, Config { event: Some(event), ..good }, InitError::Event),
        (1, 1024, Config { event: Some(CountedEvent { name: "a b", ..event }), ..alone }, InitError::Event),
        (1, 1024, Config { event: Some(CountedEvent { period: 0, ..event }), ..alone }, InitError::Event),
        (2, 1024, Config { tsc_hz: 0, ..good }, InitError::TscHz(0)),
        (2, 1024, Config { tsc_hz: u64::MAX - 5, ..good }, InitError::TscHz(u64::MAX - 5)),
        (2, 1024, Config { text: (5, 5), ..good }, InitError::Text((5, 5))),
        (2, 1024, Config { sampler_cpu: Some(2), ..good }, InitError::SamplerCpu(2)),
        (2, 1024, Config { sampler_cpu: None, ..good }, InitError::NoSampler),
        (1, 1024, good, InitError::OnlySampler),
        (2, 1000, good, InitError::MetaMemory(BadMemory::NotPowerOfTwo(1000))),
    ];
    for (count, meta, config, error) in cases {
        let (result, profiler) = try_init(slots(count), meta, config);
        assert_eq!(result, Err(error));
        assert!(!error.to_string().is_empty());
        assert_eq!(profiler.register(1, || memory(1024)), Err(RegisterError::NoSlot(1)));
        assert_eq!(profiler.on_nmi(&token(), &registers()), kprof::Outcome::Foreign);
    }
    assert!(try_init(slots(1), 1024, alone).0.is_ok());
    assert!(try_init(slots(1), 1024, Config { event: Some(event), ..alone }).0.is_ok());
}

#[test]
fn event_slots_are_one_for_each_cpu_belong_to_one_kernel_and_are_given_back_if_they_are_refused() {
    let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..Config::new() };
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let events: &'static [EventSlot; 3] = Box::leak(Box::new([const { EventSlot::new() }; 3]));
    let init = |events, config| Both::new().events.init(|| events, || Setup { slots, meta: memory(1024), config });
    let too_few = InitError::FewEventSlots { cpus: 2, slots: 1 };
    assert_eq!(init(&events[..1], config), Err(too_few));
    assert_eq!(too_few.to_string(), "1 event slots for 2 CPUs: each slot of the profiler needs one for events");
    assert_eq!(init(&events[1..], config), Ok(()), "those of the profiler were given back");
    let other: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let refused = Both::new().events.init(|| events, || Setup { slots: other, meta: memory(1024), config });
    assert_eq!(refused, Err(InitError::SlotTaken(1)));
    let first = Both::new().events.init(|| &events[..1], || Setup { slots: &other[..1], meta: memory(1024), config });
    assert_eq!(first, Err(InitError::OnlySampler));
    let first = Both::new().events.init(
        || &events[..1],
        || {
            let config = Config { sampler_cpu: None, trigger: Trigger::Timer, ..config };
            Setup { slots: &other[..1], meta: memory(1024), config }
        },
    );
    assert_eq!(first, Ok(()), "the first slot was given back");
}

#[test]
fn a_kernel_without_events_samples_and_refuses_what_needs_them() {
    let profiler: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    set_up(profiler, slots, Config { running: true, ..Config::new() });
    slots[1].raise_tick();
    assert_eq!(profiler.on_nmi(&token(), &registers()), Outcome::Sampled);
    let refused = profiler.open_control(1).write(b"hz 5\nevent * count").unwrap_err();
    assert_eq!((refused.line, matches!(refused.reason, CommandError::State(_))), (2, true));
    let status = control(profiler);
    assert!(!status.keys().any(|key| key.starts_with("event.") || key == "cpu.1.page-faults"), "{status:?}");
    assert_eq!(profiler.open_events(1, 1).unwrap().read(&mut [0; 64]), Err(kprof::ReadError::NoStream));
    let other: &'static Profiler<ArrayKernel> = Box::leak(Box::new(Profiler::new(ArrayKernel)));
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), lockup_ms: 100, ..Config::new() };
    assert_eq!(other.init(|| Setup { slots, meta: memory(1024), config }), Err(InitError::NoEvents));
}

#[test]
fn slots_belong_to_one_profiler_and_a_number_to_one_cpu() {
    let (_, slots) = fresh(Config::new());
    let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..Config::new() };
    let second = Both::new();
    assert_eq!(second.init(2, || Setup { slots, meta: memory(1024), config }), Err(InitError::SlotTaken(0)));
    assert_eq!(second.init(2, || unreachable!("the first call was it")), Err(InitError::Twice));

    let third = Both::new();
    let slots: &'static [CpuSlot; 2] = Box::leak(Box::new([const { CpuSlot::new() }; 2]));
    third.init(2, || Setup { slots, meta: memory(1024), config }).unwrap();
    let nested = third.register(1, || {
        assert_eq!(third.register(1, || memory(2048)), Err(RegisterError::Twice(1)));
        memory(1024)
    });
    assert_eq!(nested, Ok(()));
    assert_eq!(control(third)["cpu.1.ring-words"], "1024");
    assert_eq!(third.register(0, || memory(512)), Err(RegisterError::Memory(BadMemory::TooSmall(512))));
    third.register(0, || memory(1024)).expect("with better memory the CPU may try again");
}

#[test]
fn nothing_vanishes_after_what_a_daemon_has_acknowledged() {
    let (profiler, _) = fresh(Config::new());
    let daemon = Daemon::claim(profiler, 1);
    profiler.task_name(1, "first");
    assert!(!meta(&daemon).is_empty());
    let end = control(profiler)["meta.position-in"].clone();
    daemon.ctl.write(format!("ack meta {end}").as_bytes()).unwrap();
    (0..300).for_each(|id| profiler.task_name(id, "later"));
    assert_eq!(control(profiler)["meta.overwritten"], "0");
    assert!(control(profiler)["meta.lost"].parse::<u64>().unwrap() > 0);
    assert_eq!(meta(&daemon)[0].1, 0, "the next record is the first one after what was acknowledged");
}

#[test]
fn flush_and_stop_write_the_counts_by_task() {
    let (profiler, _) = fresh(Config { running: true, ..Config::new() });
    let daemon = Daemon::claim(profiler, 1);
    profiler.events.count(kprof_events::Event::PageFault);
    let events = || meta(&daemon).into_iter().filter(|record| record.0 == Kind::Events).count();
    assert_eq!(events(), 0, "the sampler writes them once a second, and there is none");
    daemon.ctl.write(b"flush").unwrap();
    assert_eq!((events(), control(profiler)["state"].as_str()), (1, "running"));
    daemon.ctl.write(b"flush").unwrap();
    assert_eq!(events(), 0, "nothing was counted since");
    profiler.events.count(kprof_events::Event::PageFault);
    daemon.ctl.write(b"stop").unwrap();
    assert_eq!(events(), 1);
    // The counts are also written if the kernel itself stops sampling.
    profiler.start().unwrap();
    profiler.events.count(kprof_events::Event::PageFault);
    profiler.stop().unwrap();
    assert_eq!(events(), 1);
}

#[test]
fn a_frozen_recorder_goes_on_by_thaw_only() {
    let (profiler, _) = fresh(Config { mode: Mode::Overwrite, running: true, ..Config::new() });
    let ctl = profiler.open_control(1);
    assert_eq!(ctl.write(b"thaw").unwrap_err().reason, CommandError::State("not frozen"));
    ctl.write(b"freeze").unwrap();
    for command in ["start", "mode drop"] {
        let refused = ctl.write(command.as_bytes()).unwrap_err().reason;
        assert!(matches!(refused, CommandError::State(why) if why.starts_with("frozen: `thaw`")), "{command}");
    }
    assert_eq!(control(profiler)["state"], "frozen");
    ctl.write(b"thaw").unwrap();
    assert_eq!(control(profiler)["state"], "running");
}

#[test]
fn a_command_that_cannot_be_carried_out_says_why() {
    let (profiler, _) = fresh(Config { can_wait: false, ..Config::new() });
    let (other, claimed) = (profiler.open_control(1), profiler.open_control(2));
    claimed.write(b"protocol 1").unwrap();
    let freeze = "`freeze` is for a running recorder (mode overwrite)";
    for (file, commands, line, reason) in [
        (&other, "wait 5", 1, "this kernel cannot wait: poll"),
        (&other, "start\nfreeze", 2, freeze),
        (&other, "mode overwrite\nfreeze", 2, freeze),
        (&other, "ack 0 0", 1, "`protocol 1` comes before `ack`"),
        (&claimed, "ack 7 0", 1, "a cpu that has registered"),
    ] {
        let error = file.write(commands.as_bytes()).unwrap_err();
        let why = format!("{:?}", error.reason);
        assert!(error.line == line && why.contains(reason), "{commands:?}: line {}: {why}", error.line);
    }
    assert_eq!(control(profiler)["state"], "stopped");
}
