//! The live stream by itself: what it queues, sends, drops and counts.
//!
//! In: a device that takes some bytes, none, or fails. Out: the bytes that the device got, and the counts of lines or
//! chunks. `files` has the live stream of whole sessions.

use crate::support;

use kprof_daemon::signals::Signals;
use kprof_daemon::system::System;
use kprof_daemon::write::live::Live;
use kprof_format::chunk::{Chunk, ChunkKind};
use std::time::Duration;
use support::scenario::world;
use support::system::Simulated;

const KIB: usize = 1024;

/// A stream whose device is open and has room for this many bytes.
fn connected(is_binary: bool, room: Option<usize>) -> (Simulated, Live<Simulated>) {
    let (mut system, mut live) = (world(0, &Signals::default()), Live::new("/dev/live".into(), is_binary));
    (system.0.borrow_mut().receiver.takes, system.0.borrow_mut().receiver.room) = (usize::MAX, room);
    assert!(live.connect(&mut system), "it needs the header now");
    assert!(!live.connect(&mut system), "it is open already");
    (system, live)
}

fn set_room(system: &Simulated, room: usize) {
    system.0.borrow_mut().receiver.room = Some(room);
}

/// A line of the sample file of this length in bytes.
fn line(length: usize) -> Vec<u8> {
    [vec![b'x'; length - 1], vec![b'\n']].concat()
}

/// A chunk of this length in bytes.
fn chunk(length: usize) -> Vec<u8> {
    let payload = vec![1; length - kprof_format::chunk::HEADER_BYTES];
    let header = Chunk { kind: ChunkKind::Lines, samples: 0, payload: &payload }.header();
    [&header[..], &payload].concat()
}

#[test]
fn a_device_that_blocks_or_is_interrupted_gets_everything_later() {
    let (mut system, mut live) = connected(false, Some(0));
    live.queue(b"one\ntwo\n");
    assert!(!live.pump(&mut system), "the device takes nothing");
    set_room(&system, 10);
    assert!(live.pump(&mut system), "it takes some bytes");
    (system.0.borrow_mut().receiver.interrupts, system.0.borrow_mut().receiver.room) = (1, None);
    assert!(live.pump(&mut system));
    live.finish(&mut system);
    let got = system.0.borrow().receiver.got.clone();
    assert_eq!(got.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(), 2);
    assert_eq!(live.counts(), (2, 0));
    assert!(system.0.borrow().said.is_empty(), "none of this is a failure");
    assert!(system.0.borrow().sleeps.is_empty(), "nothing is left to wait for");
}

#[test]
fn a_device_that_fails_is_named_once_and_tried_again_after_a_second() {
    let (mut system, mut live) = connected(false, None);
    for failures in 1..=2 {
        live.queue(b"one\ntwo\n");
        system.0.borrow_mut().receiver.is_absent = true;
        assert!(!live.pump(&mut system));
        assert_eq!(live.counts(), (0, 2 * failures));
        assert_eq!(system.0.borrow().said.len(), 1);
        system.0.borrow_mut().receiver.is_absent = false;
        assert!(!live.connect(&mut system), "the next try is due in a second");
        system.0.borrow_mut().clock += Duration::from_secs(1);
        assert!(live.connect(&mut system));
    }
}

#[test]
fn what_has_no_device_or_no_room_is_dropped_and_counted() {
    for is_binary in [false, true] {
        let mut live = Live::<Simulated>::new("/dev/live".into(), is_binary);
        let piece = if is_binary { chunk(100) } else { line(100) };
        live.queue(&piece.repeat(3));
        assert_eq!(live.counts(), (0, 3), "binary: {is_binary}");
    }
    // A queue of lines has 256 KiB, of which the last line may exceed some; one of chunks has 1 MiB.
    for (is_binary, queue) in [(false, 256 * KIB), (true, 1024 * KIB)] {
        for taken in [0, 100 * KIB] {
            let (mut system, mut live) = connected(is_binary, Some(taken));
            let piece = if is_binary { chunk(50 * KIB) } else { line(50 * KIB) };
            live.queue(&piece.repeat(4));
            assert_eq!(live.pump(&mut system), taken > 0);
            live.queue(&piece.repeat(40));
            let (queued, dropped) = live.counts();
            let waiting = queued as usize * 50 * KIB - taken;
            let may_wait = if is_binary { queue - 50 * KIB..=queue } else { queue - KIB..=queue + 51 * KIB };
            assert!(may_wait.contains(&waiting), "binary: {is_binary}, {taken} taken: {waiting} bytes wait");
            assert_eq!(queued + dropped, 44);
        }
    }
}

#[test]
fn what_the_device_does_not_take_at_the_end_is_counted_as_dropped() {
    for is_binary in [false, true] {
        let (mut system, mut live) = connected(is_binary, Some(150));
        let piece = if is_binary { chunk(100) } else { line(100) };
        live.queue(&piece.repeat(3));
        live.finish(&mut system);
        // Of a line that was sent in part the end is missing, of a chunk its magic number was sent.
        let expected = if is_binary { (2, 1) } else { (1, 2) };
        assert_eq!(live.counts(), expected, "binary: {is_binary}");
        let sleeps = system.0.borrow().sleeps.clone();
        assert_eq!(sleeps, [Duration::from_millis(100)], "it waits once for the device");
        let before = system.0.borrow().receiver.got.len();
        set_room(&system, usize::MAX);
        live.finish(&mut system);
        assert_eq!(system.0.borrow().receiver.got.len(), before, "what was dropped is not sent");
        assert!(system.now() > Duration::ZERO);
    }
}
