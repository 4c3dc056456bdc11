//! Which words a user program can put into a record: addresses of the user half; every other word is recorded as 0.
//! This is tested through the whole handler, for the interrupted instruction itself and for the user instruction after
//! an entry frame. The handler's fast path and its slow path write both, and the program's callers after them.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::marker::{Facts, Marker, TruncationReason};
use kprof::{Config, CpuSlot, Outcome, Profiler, Registers};
use std::sync::MutexGuard;
use std::sync::atomic::Ordering;

static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];

/// Words that a program may choose, most of them like the kernel's own, and whether they may be recorded unchanged.
fn chosen() -> Vec<(u64, bool)> {
    let mut words = vec![(text(30), false), (0x40_1000, true), ((1 << 56) - 1, true), (1 << 56, false)];
    words.extend((0xffff_ffff_ffff_f000..=u64::MAX).step_by(0x80).map(|word| (word, false)));
    // The text of this test is an array in the host's user half, so its addresses count as user addresses.
    words.retain(|(word, kept)| *kept || *word >= 1 << 56);
    words
}

fn set_up_and_claim() -> (MutexGuard<'static, ()>, Daemon) {
    let alone = alone();
    set_up(&PROFILER, &SLOTS, Config { include_user: true, ..Config::new() });
    let daemon = Daemon::claim(&PROFILER, 1);
    daemon.ctl.write(b"include user\ndepth 64").unwrap();
    user_callers(0);
    (alone, daemon)
}

/// The stack of one tick at these registers.
fn sampled(daemon: &Daemon, at: &Registers) -> Vec<u64> {
    SLOTS[1].raise_tick();
    assert_eq!(PROFILER.on_nmi(&token(), at), Outcome::Sampled);
    let mut buffer = [0; 4096];
    let bytes = daemon.stream.read(&mut buffer).unwrap();
    let [record] = &records(&buffer[..bytes])[..] else { panic!("not one record") };
    daemon.acknowledge(record.end()).unwrap();
    record.stack()
}

#[test]
fn no_instruction_of_user_mode_is_written_as_a_kernel_word() {
    let (_alone, daemon) = set_up_and_claim();
    for (word, kept) in chosen() {
        let written = if kept { word } else { 0 };
        let at = Registers { pc: word, from_user: true, fp: 0, ..registers() };
        assert_eq!(sampled(&daemon, &at), [written], "the interrupted instruction {word:#x}");
    }
}

#[test]
fn no_instruction_after_an_entry_is_written_as_a_kernel_word() {
    let (_alone, daemon) = set_up_and_claim();
    for include in ["include user", "exclude user"] {
        daemon.ctl.write(include.as_bytes()).unwrap();
        for (word, kept) in chosen() {
            let at = registers();
            let marker = Marker::Exception(14).encode();
            // g's frame leads to the entry stub's frame, and the hardware's frame follows that.
            for (place, value) in (8..).zip([0, marker, word, 0x33, 0x202, 0x7fff_0000, 0x2b]) {
                set(place, value);
            }
            let written = if kept { word } else { 0 };
            assert_eq!(
                sampled(&daemon, &at),
                [text(30), text(20), marker, Marker::User.encode(), written],
                "{include}, {word:#x}"
            );
        }
    }
}

/// At each depth some of these samples fit the fast path and some do not; the ring is small, so records begin and end
/// at every place of it.
#[test]
fn the_callers_in_user_code_are_whole_or_marked_as_truncated_at_each_depth() {
    let (_alone, daemon) = set_up_and_claim();
    let marker = Marker::Syscall.encode();
    let truncated = Marker::Truncated(Ok(TruncationReason::Depth)).encode();
    let depths = [1, 2, 3, 4, 5, 6, 16, 17, 18, 20, 33, 40, 64];
    for depth in depths.into_iter().step_by(if cfg!(miri) { 4 } else { 1 }) {
        daemon.ctl.write(format!("depth {depth}").as_bytes()).unwrap();
        for callers in (0..70).step_by(if cfg!(miri) { 16 } else { 1 }) {
            let rbp = user_callers(callers);
            // Two words of each frame, one frame to see that the stack is truncated, and the word that ends the chain.
            let reads = 2 * (callers as usize).min(depth) + 1;
            let callers: Vec<u64> = (0..callers).map(user_caller).collect();
            let at = Registers { pc: 0x40_1000, from_user: true, fp: rbp, ..registers() };
            let frames = [&[0x40_1000], &callers[..]].concat();
            let whole = |frames: &[u64]| {
                [&frames[..frames.len().min(depth)], &[truncated][..usize::from(frames.len() > depth)]].concat()
            };
            USER_READS.store(0, Ordering::Relaxed);
            assert_eq!(sampled(&daemon, &at), whole(&frames), "depth {depth}, in user code");
            let is = USER_READS.load(Ordering::Relaxed);
            assert!(is <= reads, "depth {depth}, {} callers: {is} words were read, so a frame twice", callers.len());

            let at = registers();
            for (place, value) in (8..).zip([rbp, marker, 0x40_1000, 0x33, 0x202, rbp, 0x2b]) {
                set(place, value);
            }
            let mut expected = whole(&[&[text(30), text(20)], &frames[..]].concat());
            // The two markers are no frames, and come after the second frame.
            if depth >= 2 {
                expected.splice(2..2, [marker, Marker::User.encode()]);
            }
            USER_READS.store(0, Ordering::Relaxed);
            assert_eq!(sampled(&daemon, &at), expected, "depth {depth}, after an entry");
            let is = USER_READS.load(Ordering::Relaxed);
            assert!(is <= reads, "depth {depth}, {} callers after an entry: {is} words", callers.len());
        }
    }
}

#[test]
fn each_kind_of_sample_with_user_code_has_its_facts_and_its_counter() {
    let (_alone, daemon) = set_up_and_claim();
    let counted = |name: &str, at: &Registers, expected: &[u64]| {
        let before = counter(&PROFILER, name);
        assert_eq!(sampled(&daemon, at), expected, "{name}");
        assert_eq!(counter(&PROFILER, name), before + 1, "{name}");
    };
    let user_marker = Marker::User.encode();
    for (interrupts_on, irq) in [(true, "irq-on"), (false, "irq-off")] {
        // Under Miri two of the four combinations must do.
        for idle in [false, true].into_iter().filter(|idle| !cfg!(miri) || *idle == interrupts_on) {
            IDLE.store(idle, Ordering::Relaxed);
            let off = u8::from(!interrupts_on) * Facts::INTERRUPTS_OFF;
            let with_facts = |rest: &[u64], is_idle: bool| {
                let facts = off | (u8::from(is_idle) * Facts::IDLE);
                let facts = (facts != 0).then_some(Marker::Facts(Facts(facts)).encode());
                [&rest[..1], facts.as_slice(), &rest[1..]].concat()
            };
            let rbp = user_callers(1);
            let at = Registers { pc: 0x40_1000, from_user: true, interrupts_on, fp: rbp, ..registers() };
            counted("recorded-user", &at, &with_facts(&[0x40_1000, user_caller(0)], idle));
            for (marker, name) in [(Marker::Syscall, irq), (Marker::Interrupt(33), "interrupt")] {
                let marker = marker.encode();
                let at = Registers { interrupts_on, ..registers() };
                for (place, value) in (8..).zip([rbp, marker, 0x40_1000, 0x33, 0x202, rbp, 0x2b]) {
                    set(place, value);
                }
                let name = if idle && name == irq { "recorded-idle" } else { name };
                let stack = [text(30), text(20), marker, user_marker, 0x40_1000, user_caller(0)];
                daemon.ctl.write(b"include idle").unwrap();
                // What runs in an interrupt on an idle CPU is not idle.
                counted(name, &at, &with_facts(&stack, idle && name != "interrupt"));
            }
        }
    }
    IDLE.store(false, Ordering::Relaxed);
}

#[test]
fn an_interrupt_on_an_idle_cpu_is_not_idle_time() {
    let (_alone, daemon) = set_up_and_claim();
    daemon.ctl.write(b"exclude idle").unwrap();
    let at = |marker: Marker| {
        let at = registers();
        for (place, value) in (8..).zip([0, marker.encode(), 0x40_1000, 0x33, 0x202, 0x7fff_0000, 0x2b]) {
            set(place, value);
        }
        at
    };
    IDLE.store(true, Ordering::Relaxed);
    let before = counters(&PROFILER, ["idle", "interrupt"]);
    SLOTS[1].raise_tick();
    assert_eq!(PROFILER.on_nmi(&token(), &at(Marker::Syscall)), Outcome::Filtered);
    sampled(&daemon, &at(Marker::Interrupt(33)));
    IDLE.store(false, Ordering::Relaxed);
    assert_eq!(counters(&PROFILER, ["idle", "interrupt"]), before.map(|count| count + 1));
}
