//! Tests of how calls, probes and leases end: what counts, what is lost, and what stays.

use super::*;
use kprof::format::point::PointState;

#[test]
fn an_end_whose_beginning_was_not_seen_does_not_count() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8").unwrap();
    let set = |state: &str| {
        machine.events.state.probes.memory.get().unwrap().memory.probes[0].point.set(match state {
            "off" => PointState::Off,
            _ => PointState::Count,
        });
    };
    // The first call begins while the point is on, and ends while it is off. The second one is the other way round.
    for (begins, ends, between) in [("count", "off", true), ("off", "count", true), ("count", "off", false)] {
        set(begins);
        machine.hit(0, &mut stack, 20);
        set(ends);
        if between {
            machine.hit(8, &mut stack, 20);
        }
    }
    // The beginning of the third call was seen, and its end was not; that of the fourth was not, and its end is.
    machine.hit(0, &mut stack, 20);
    set("count");
    machine.hit(8, &mut stack, 20);
    assert_eq!(machine.taken(0), (0, 0, 0));
    machine.hit(0, &mut stack, 20);
    machine.hit(8, &mut stack, 20);
    assert_eq!(machine.taken(0).0, 1, "a call that is seen as a whole");
}

#[test]
fn an_end_that_was_not_seen_to_begin_removes_the_call_of_another_function() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    ["probe @0 8", "probe @40 6"].iter().for_each(|line| machine.write(line).unwrap());
    machine.hit(0, &mut stack, 20);
    // The first function has panicked; the second one was called before its probe was there.
    machine.hit(0x46, &mut stack, 20);
    machine.hit(8, &mut stack, 20);
    assert_eq!([0, 0x40].map(|at| machine.taken(at)), [(0, 0, 0); 2]);
}

#[test]
fn a_call_inside_a_hit_is_lost_once_and_so_is_one_on_a_cpu_without_a_slot() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8").unwrap();
    let nested = &machine.events.state.slots()[0].in_probe;
    let mut call = |begins_inside: bool, ends_inside: bool, far: bool| {
        machine.events.kernel().cpu.store(if far { 7 } else { 0 }, Ordering::Relaxed);
        for (offset, is_inside) in [(0, begins_inside), (8, ends_inside)] {
            nested.store(is_inside, Ordering::Relaxed);
            machine.hit(offset, &mut stack, 20);
        }
        nested.store(false, Ordering::Relaxed);
        let (hits, _, lost) = machine.taken(0);
        (hits, lost)
    };
    assert_eq!(call(false, false, false), (1, 0));
    for (begins, ends, far) in [(true, true, false), (true, false, false), (false, true, false), (false, false, true)] {
        assert_eq!(call(begins, ends, far), (0, 1), "{begins} {ends} {far}");
    }
}

#[test]
fn calls_that_never_end_give_way_to_others() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @0 8").unwrap();
    // Their tasks were killed.
    (20..60).for_each(|word| assert!(machine.hit(0, &mut stack, word).is_some()));
    machine.taken(0);
    let call = |stack: &mut [u64; STACK_WORDS]| {
        machine.hit(0, stack, 19);
        machine.hit(8, stack, 19);
        machine.taken(0)
    };
    let (hits, _, lost) = call(&mut stack);
    assert_eq!((hits, lost), (1, 1), "one of the others is lost");
    assert_eq!(call(&mut stack).0, 1);
}

#[test]
fn calls_of_a_removed_probe_leave_their_room_and_are_not_lost() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    machine.write("probe @40 6").unwrap();
    machine.hit(0x40, &mut stack, 19);
    machine.write("probe @0 8").unwrap();
    (20..60).for_each(|word| assert!(machine.hit(0, &mut stack, word).is_some()));
    // The newest calls of the first function have pushed that of the other one out, or not.
    let lost = machine.taken(0x40).2;
    machine.taken(0);
    machine.write("unprobe @0").unwrap();
    machine.hit(0x46, &mut stack, 19);
    assert_eq!(machine.taken(0x40).0 + lost, 1, "the other function's call is still its own");
    let entries = || machine.events.state.probes.memory.get().unwrap().memory.calls.iter();
    assert!(entries().all(|set| set.is_free()));
    (20..60).for_each(|word| {
        machine.hit(0x40, &mut stack, word);
        machine.hit(0x46, &mut stack, word);
    });
    assert_eq!((machine.taken(0x40).0, machine.taken(0x40).2, machine.taken(0).2), (40, 0, 0));
}

#[test]
fn the_instructions_of_a_removed_probe_belong_to_nobody() {
    let (machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    // A wrong exit: it is that of the other function.
    machine.write("probe @0 46").unwrap();
    assert!(machine.write("probe @40 6").unwrap_err().contains("belongs to another probe"));
    machine.write("unprobe all").unwrap();
    machine.write("probe @40 6").unwrap();
    machine.hit(0x40, &mut stack, 20);
    machine.hit(0x46, &mut stack, 20);
    assert_eq!((machine.taken(0x40).0, machine.taken(0).0), (1, 0));
    assert!(machine.write("probe @0 46").unwrap_err().contains("belongs to another probe"));
}

#[test]
fn the_end_of_a_lease_leaves_the_probes_of_others_and_they_count() {
    let _alone = alone();
    let (mut machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    let others = machine.profiler.open_control(2);
    let probe = |at: usize, exit: usize| format!("probe {:x} {exit:x}", machine.at(at));
    machine.write("lease\nprobe @0 8").unwrap();
    // One after the lease has put it, one before.
    others.write(probe(0, 8).as_bytes()).unwrap();
    others.write(probe(0x40, 6).as_bytes()).unwrap();
    machine.write("probe @40 6").unwrap();
    let error = machine.write("probe @40 6 if arg1 == 3").unwrap_err();
    assert!(error.contains("somebody else has a probe there"), "{error}");
    assert!(machine.write("probe @0 8 10").unwrap_err().contains("somebody else has a probe there"));
    machine.control = None;
    for (entry, exit) in [(0, 8), (0x40, 0x46)] {
        machine.hit(entry, &mut stack, 20);
        machine.hit(exit, &mut stack, 20);
        assert_eq!((machine.byte(entry), machine.byte(exit), machine.taken(entry).0), (INT3, INT3, 1));
    }
}

#[test]
fn a_point_that_somebody_else_has_switched_off_is_off_again_when_the_lease_ends() {
    let _alone = alone();
    let (mut machine, mut stack) = (with_memory(), [0; STACK_WORDS]);
    let others = machine.profiler.open_control(2);
    let probe = format!("probe {:x} 8", machine.at(0));
    others.write(format!("{probe}\nevent probe.{:016x} off", machine.at(0)).as_bytes()).unwrap();
    let hits = |machine: &Machine, stack: &mut [u64; STACK_WORDS]| {
        machine.hit(0, stack, 20);
        machine.hit(8, stack, 20);
        machine.taken(0).0
    };
    assert_eq!(hits(&machine, &mut stack), 0);
    machine.write("lease\nprobe @0 8").unwrap();
    assert_eq!(hits(&machine, &mut stack), 1);
    machine.control = None;
    assert_eq!((machine.byte(0), hits(&machine, &mut stack)), (INT3, 0), "the probe stays");
}

#[test]
fn a_line_is_checked_as_if_the_line_before_it_were_carried_out() {
    let machine = with_memory();
    machine.write("probe @0 8").unwrap();
    let both = format!("probe {0:x} 6\nunprobe {0:x}", machine.at(0x40));
    machine.write(&both).unwrap();
    assert_eq!([0, 8, 0x40, 0x46].map(|at| machine.byte(at)), [INT3, INT3, 0x55, 0xc3]);
}
