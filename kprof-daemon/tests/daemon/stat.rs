//! `kprof-record stat` on the simulated kernel.
//!
//! In: counts of ticks and of points, beside other readers. Out: what is printed, and what the kernel and the other
//! readers still have.

use crate::support;

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};
use support::recording::{run, world};
use support::scenario::OUTPUT;

#[test]
fn stat_prints_counts_and_keeps_no_samples() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    let (ended, talk) = run(&system, &["stat", "--", "sh", "-c", "sleep 0.05; exit 3"]);
    assert_eq!(ended.unwrap(), 3, "{talk}");
    assert!(talk.contains("`sh -c sleep 0.05; exit 3`") && talk.contains("ticks"), "{talk}");
    assert!(system.file(OUTPUT).is_empty());
    let world = system.0.borrow();
    assert!(world.kernel.rings.values().all(|ring| ring.tail == ring.head && ring.lost_full == 0));
}

#[test]
fn what_is_read_after_the_end_of_the_command_is_not_part_of_its_time() {
    let system = world();
    let (began, ended) = (Instant::now(), Rc::new(Cell::new(None)));
    let note = Rc::clone(&ended);
    {
        let world = &mut *system.0.borrow_mut();
        // There is something to read, and another reader has it until the command has ended, and for a while longer.
        world.disk.open(Path::new("/dev/null"));
        world.kernel.tick();
        world.kernel.nasty.busy_reads = u32::MAX;
        world.on_pause = Box::new(move |kernel, _| {
            std::thread::sleep(Duration::from_millis(1));
            if kernel.nasty.busy_reads > 0 && kernel.commands.iter().any(|command| command == "stop") {
                note.set(Some(Instant::now()));
                std::thread::sleep(Duration::from_millis(300));
                kernel.nasty.busy_reads = 0;
            }
        });
    }
    let (code, talk) = run(&system, &["stat", "--", "true"]);
    assert_eq!(code.unwrap(), 0, "{talk}");
    let seconds =
        talk.split_once(": ").and_then(|(_, rest)| rest.split_once(" s, ")).unwrap_or_else(|| panic!("{talk}")).0;
    let command = ended.get().expect("it reads after the end").duration_since(began).as_secs_f64();
    assert!(seconds.parse::<f64>().unwrap() <= command + 0.005, "{command} s for the command: {talk}");
}

#[test]
fn stat_counts_the_hits_of_points_since_it_began() {
    for gives_copies in [false, true] {
        let system = world();
        system.0.borrow_mut().disk.open(Path::new("/dev/null"));
        // Hits that were counted before, and told to nobody yet.
        {
            let kernel = &mut system.0.borrow_mut().kernel;
            (kernel.hits, kernel.counts_hits) = (5, true);
            if gives_copies {
                kernel.control(7, b"protocol 1").unwrap();
            }
        }
        let (ended, talk) = run(&system, &["stat", "-e", "null.*", "-e", "block.read", "--", "sleep", "0.05"]);
        assert_eq!(ended.unwrap(), 0, "{talk}");
        let kernel = &system.0.borrow().kernel;
        let hits = kernel.told_hits - 5;
        let row = |name: &str| talk.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{talk}"));
        assert!(
            hits > 0 && row("null.write").trim_start().starts_with(&format!("{hits}  null.write")),
            "{hits}: {talk}"
        );
        assert!(row("null.write").ends_with(&format!(" {} bytes, mean 100.0 bytes", 100 * hits)), "{talk}");
        assert!(row("block.read").trim_start().starts_with("0  block.read"), "{talk}");
        let commands: Vec<&str> = kernel.commands.iter().map(String::as_str).collect();
        let flush = commands.iter().position(|command| *command == "flush").expect("flushed");
        let event = commands.iter().position(|command| *command == "event null.* count").expect("counted");
        assert!(flush < event && commands.contains(&"event block.read count"), "{commands:?}");
    }
}

/// More points than the meta ring has room for: for their names, and for their counts.
const CROWD: usize = 1600;

#[test]
fn stat_counts_the_hits_of_more_points_than_the_meta_ring_has_room_for() {
    for is_beside_another in [false, true] {
        let system = world();
        {
            let world = &mut *system.0.borrow_mut();
            world.disk.open(Path::new("/dev/null"));
            // Five hits of each were counted before.
            (world.kernel.crowd, world.kernel.counts_hits) = (vec![5; CROWD], true);
            (world.kernel.meta.replaces, world.kernel.reader_is_fast) = (!is_beside_another, is_beside_another);
            if is_beside_another {
                world.kernel.control(7, b"protocol 1").unwrap();
            }
        }
        let words = ["stat", "-e", "crowd.*", "-e", "null.*", "-x", ",", "--", "sleep", "0.05"];
        let (ended, talk) = run(&system, &words);
        assert_eq!(ended.unwrap(), 0, "{talk}");
        let kernel = &system.0.borrow().kernel;
        assert!(kernel.kept == 0 && kernel.tick > 0, "everything was told");
        for (number, untold) in kernel.crowd.iter().enumerate() {
            let name = format!(",,crowd.{number:04},");
            let row = talk.lines().find_map(|line| line.split_once(&name)).unwrap_or_else(|| panic!("{talk:.2000}"));
            assert_eq!(row.0.parse::<u64>().unwrap() + untold, kernel.tick, "crowd.{number:04}");
        }
    }
}

#[test]
fn stat_says_that_hits_of_points_are_not_known_if_nobody_makes_room_for_them() {
    let system = world();
    {
        let world = &mut *system.0.borrow_mut();
        world.disk.open(Path::new("/dev/null"));
        // The other reader acknowledges nothing, and there are no new tasks.
        world.kernel.control(7, b"protocol 1").unwrap();
        world.on_pause = Box::new(|kernel, _| kernel.tick_without_names());
        (world.kernel.crowd, world.kernel.counts_hits) = (vec![0; CROWD], true);
    }
    let (ended, talk) = run(&system, &["stat", "-e", "crowd.*", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.contains("<not counted>  crowd.*: other programs read"), "{talk}");
}

#[test]
fn stat_says_that_hits_of_points_are_not_known_if_two_others_read_them() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    system.0.borrow_mut().kernel.control(7, b"protocol 1").unwrap();
    system.0.borrow_mut().kernel.control(8, b"copy 1").unwrap();
    let (ended, talk) = run(&system, &["stat", "-e", "null.write", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.contains("<not counted>  null.write: other programs read"), "{talk}");
}

#[test]
fn stat_says_that_hits_of_points_are_not_known_if_their_counts_were_overwritten_before_they_were_copied() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    system.0.borrow_mut().kernel.control(7, b"protocol 1").unwrap();
    system.0.borrow_mut().kernel.nasty.overtakes_counts = true;
    let (ended, talk) = run(&system, &["stat", "-e", "null.write", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.contains("<not counted>  null.write: other programs read"), "{talk}");
}

#[test]
fn stat_works_beside_another_reader_and_leaves_its_samples_and_its_sampling_alone() {
    let system = world();
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    (0..9).for_each(|_| system.0.borrow_mut().kernel.tick());
    run(&system, &["-o", OUTPUT, "--", "true"]).0.unwrap();
    let before: Vec<u64> = system.0.borrow().kernel.rings.values().map(|ring| ring.tail).collect();
    system.0.borrow_mut().kernel.commands.clear();
    system.0.borrow_mut().kernel.control(u64::MAX, b"protocol 1\nstart").unwrap();
    // Neither what is in the stream nor what is still being counted belongs to the run.
    (0..7).for_each(|_| system.0.borrow_mut().kernel.tick());
    system.0.borrow_mut().kernel.control(u64::MAX, b"flush").unwrap();
    (0..5).for_each(|_| system.0.borrow_mut().kernel.tick());
    let ticks_before = system.0.borrow().kernel.tick;
    let (ended, talk) = run(&system, &["stat", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.contains("ticks"), "{talk}");
    let row = talk.lines().find(|line| line.ends_with("  task 1 #%")).expect("a row for task 1");
    let ticks = system.0.borrow().kernel.tick - ticks_before;
    assert_eq!(row.split_whitespace().nth(1), Some(ticks.to_string().as_str()), "{talk}");
    let world = system.0.borrow_mut();
    assert!(world.kernel.running, "the other reader's sampling was stopped");
    assert!(!world.kernel.ledger.is_empty());
    let after: Vec<u64> = world.kernel.rings.values().map(|ring| ring.tail).collect();
    assert!(before[0] > 0 && after == before, "its records were taken: {after:?}");
    assert!(world.kernel.commands.iter().all(|command| !command.starts_with("ack")));
    assert!(world.kernel.commands.iter().any(|command| command == "copy 1"), "the table by task needs the records");
    drop(world);

    // One process at a time gets copies; the counters are for everybody.
    system.0.borrow_mut().kernel.gives_copies = false;
    // The simulated /dev/null keeps what is written to it.
    system.0.borrow_mut().disk.names.remove(Path::new("/dev/null"));
    system.0.borrow_mut().disk.open(Path::new("/dev/null"));
    let (ended, talk) = run(&system, &["stat", "--", "sleep", "0.05"]);
    assert_eq!(ended.unwrap(), 0, "{talk}");
    assert!(talk.contains("ticks") && !talk.contains(" task"), "{talk}");
}
