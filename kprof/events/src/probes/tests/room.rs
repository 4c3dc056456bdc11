//! Tests of the room that removed probes leave: other functions use it, and what was counted before stays what it was.

use super::*;
use crate::points::{POINTS, put_account_back};
use kprof::format::record::{Header, Kind, MetaHeader};

/// A machine with more functions, of 16 bytes each: at 0x50, 0x60 and so on, with a `ret` at their end.
fn with_functions() -> Machine {
    with_functions_on(1)
}

fn with_functions_on(cpus: usize) -> Machine {
    let machine = with_memory_of(cpus);
    for entry in functions() {
        machine.events.kernel().code[entry].store(0x55, Ordering::Relaxed);
        machine.events.kernel().code[entry + 8].store(0xc3, Ordering::Relaxed);
    }
    machine
}

fn functions() -> impl Iterator<Item = usize> {
    (0x50..0xe0).step_by(16)
}

fn probe(entry: usize) -> String {
    format!("probe @{entry:x} 8")
}

fn call(machine: &Machine, entry: usize) {
    let mut stack = [0; STACK_WORDS];
    machine.hit(entry, &mut stack, 20);
    machine.hit(entry + 8, &mut stack, 20);
}

/// The accounts in the meta stream of the point of a function: its number, and the text after unit and name.
fn accounts(machine: &Machine, entry: usize) -> Vec<(u64, String)> {
    let (ring, mut all) = (machine.events.state.meta().stream.ring.get().unwrap(), Vec::new());
    let name = format!("ns probe.{:016x} ", machine.at(entry));
    // Nothing was replaced yet.
    let mut at = 0;
    while at < ring.head() {
        let header = Header::decode(ring.word(at)).unwrap();
        let record = MetaHeader::read(|index| ring.word(at + index as u64));
        let words = (at + MetaHeader::WORDS as u64..at + u64::from(header.words)).map(|at| ring.word(at));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).take(record.text_bytes as usize).collect();
        let text = String::from_utf8(bytes).unwrap();
        if let Some(rest) = text.strip_prefix(&name).filter(|_| header.kind == Kind::PointAccount) {
            all.push((record.values()[0], rest.to_owned()));
        }
        at += u64::from(header.words);
    }
    all
}

#[test]
fn the_room_of_removed_probes_is_that_of_the_next_ones() {
    let machine = with_functions();
    // There is room for two functions and six instructions.
    for round in 0..10 {
        for entry in functions() {
            machine.write(&probe(entry)).unwrap_or_else(|error| panic!("{entry:x} in round {round}: {error}"));
            call(&machine, entry);
            assert_eq!(machine.taken(entry).0, 1, "{entry:x} in round {round}");
            machine.write("unprobe all").unwrap();
        }
    }
}

#[test]
fn what_a_removed_probe_has_counted_is_its_own_and_nobody_gets_its_number() {
    let machine = with_functions();
    let entries: Vec<usize> = functions().take(3).collect();
    let number = |entry: usize| {
        let name = format!("probe.{:016x}", machine.at(entry));
        POINTS.iter().find(|point| point.name() == name.as_str()).map(|point| point.number())
    };
    machine.write(&probe(entries[0])).unwrap();
    call(&machine, entries[0]);
    let first = number(entries[0]).unwrap();
    machine.write("unprobe all").unwrap();
    assert_eq!(accounts(&machine, entries[0]), []);
    machine.write(&probe(entries[1])).unwrap();
    assert_eq!(number(entries[0]), Some(first), "its room is not needed yet");
    machine.write(&probe(entries[2])).unwrap();
    let written = accounts(&machine, entries[0]);
    assert_eq!(written.len(), 1);
    assert!(written[0].0 == first && written[0].1.ends_with(" filtered=1"), "{written:?}");
    assert_eq!((number(entries[0]), POINTS.name_of(first)), (None, None));
    assert_eq!((machine.taken(entries[2]), number(entries[2]) > Some(first)), ((0, 0, 0), true));
    // The account is replaced unread.
    let places = &machine.events.state.slots()[0].points;
    put_account_back(|_, offset| places.get(offset), [first, 0, 5], "ns probe b2=1 filtered=1");
    assert_eq!(machine.taken(entries[2]), (0, 0, 0));
}

#[test]
fn a_cpu_whose_int3_was_removed_executes_the_instruction_that_is_there_again() {
    let machine = with_functions();
    let mut stack = [0; STACK_WORDS];
    let entries: Vec<usize> = functions().take(4).collect();
    machine.write(&probe(entries[0])).unwrap();
    machine.write("unprobe all").unwrap();
    assert_eq!(machine.hit(entries[0], &mut stack, 20), Some((entries[0] + 1, 19)), "its place is not needed yet");
    // Other functions need all places.
    for entry in &entries[1..3] {
        machine.write(&format!("probe @{entry:x} 8")).unwrap();
    }
    machine.write("unprobe all").unwrap();
    machine.write(&probe(entries[3])).unwrap();
    for offset in [entries[0], entries[0] + 8] {
        assert_eq!(machine.hit(offset, &mut stack, 20), Some((offset, 20)), "back to the instruction");
    }
    assert_eq!(machine.taken(entries[3]), (0, 0, 0));
    // A breakpoint of the kernel itself.
    machine.events.kernel().code[0x30].store(INT3, Ordering::Relaxed);
    assert_eq!([0x30, 0x31].map(|offset| machine.hit(offset, &mut stack, 20)), [None, None]);
}

#[test]
fn room_is_not_given_away_while_a_cpu_may_use_it() {
    let machine = with_functions();
    let entries: Vec<usize> = functions().take(3).collect();
    machine.write(&probe(entries[0])).unwrap();
    machine.write("unprobe all").unwrap();
    machine.write(&probe(entries[1])).unwrap();
    let flag = &machine.events.state.slots()[0].in_probe;
    flag.store(true, Ordering::Relaxed);
    let error = machine.write(&probe(entries[2])).unwrap_err();
    assert!(error.contains("their hits have ended: try again"), "{error}");
    assert_eq!(machine.write(&probe(entries[0])), Ok(()), "it still has its own");
    flag.store(false, Ordering::Relaxed);
    machine.write(&format!("unprobe {:x}", machine.at(entries[0]))).unwrap();
    machine.events.state.guests.with(|| assert!(machine.write(&probe(entries[2])).is_err()));
    assert_eq!(machine.write(&probe(entries[2])), Ok(()));
}

#[test]
fn the_lines_of_one_write_leave_each_other_their_room() {
    let machine = with_functions();
    let entries: Vec<usize> = functions().take(3).collect();
    entries[..2].iter().for_each(|entry| machine.write(&probe(*entry)).unwrap());
    machine.write("unprobe all").unwrap();
    let line = |entry: usize| format!("probe {:x} 8", machine.at(entry));
    // The first function had a probe, and its room is asked for first: the second line gets that of the other one.
    machine.write(&format!("{}\n{}", line(entries[0]), line(entries[2]))).unwrap();
    assert_eq!([0, 1, 2].map(|index| machine.byte(entries[index])), [INT3, 0x55, INT3]);
    let error = machine.write(&format!("{}\n{}", line(entries[0]), line(entries[1]))).unwrap_err();
    assert!(error.contains("no room for another probe"), "{error}");
}

#[test]
fn an_instruction_of_a_removed_probe_needs_room_again() {
    let machine = with_functions();
    let entries: Vec<usize> = functions().take(2).collect();
    let code = machine.events.kernel().code;
    [4, 5].iter().for_each(|distance| code[entries[0] + distance].store(0xc3, Ordering::Relaxed));
    code[entries[1] + 4].store(0xc3, Ordering::Relaxed);
    // Two places of a removed probe, and four of another one: all six.
    machine.write(&probe(entries[1])).unwrap();
    machine.write("unprobe all").unwrap();
    machine.write(&format!("probe @{:x} 4 5 8", entries[0])).unwrap();
    let error = machine.write(&format!("probe @{:x} 4 8", entries[1])).unwrap_err();
    assert!(error.contains("no room for another probe"), "three places, and there is room for two: {error}");
    machine.write(&probe(entries[1])).unwrap();
}

/// Executes the instruction at this offset as a CPU does: an `int3` that is there now is handled a little later.
fn execute(machine: &Machine, offset: usize, stack: &mut [u64; STACK_WORDS], delay: u32) {
    while machine.byte(offset) == INT3 {
        (0..delay).for_each(|_| core::hint::spin_loop());
        let after = machine.hit(offset, stack, 20).expect("it is no breakpoint of the kernel");
        let is_entry = offset.is_multiple_of(16);
        let expected = if is_entry { (offset + 1, 19) } else { (0x30, 21) };
        match after == (offset, 20) {
            // Back to the instruction.
            true => {}
            false => return assert_eq!(after, expected, "{offset:x}"),
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn probes_that_come_and_go_while_other_cpus_call_their_functions_change_no_call_and_count_none_twice() {
    const ROUNDS: usize = 300;
    let machine = with_functions_on(2);
    let (is_over, calls) = (AtomicUsize::new(0), AtomicU64::new(0));
    let entries: Vec<usize> = functions().collect();
    let (mut counted, mut weight) = (0, 0);
    std::thread::scope(|scope| {
        // The last of these has no slot, so its calls are lost.
        for cpu in 0..3_usize {
            let (machine, is_over, calls, entries) = (&machine, &is_over, &calls, &entries);
            scope.spawn(move || {
                OWN_CPU.set(Some(cpu));
                let mut stack = [0; STACK_WORDS];
                stack[20] = machine.at(0x30);
                for round in 0.. {
                    if is_over.load(Ordering::Relaxed) != 0 {
                        return;
                    }
                    let entry = entries[(round * 7 + cpu) % entries.len()];
                    execute(machine, entry, &mut stack, (round % 5 * 20) as u32);
                    calls.fetch_add(1, Ordering::Relaxed);
                    execute(machine, entry + 8, &mut stack, (round % 3 * 20) as u32);
                }
            });
        }
        let _ends = Ends(&is_over);
        for round in 0..ROUNDS {
            let two = [round % entries.len(), (round * 5 + 1) % entries.len()].map(|index| entries[index]);
            for entry in two {
                // A CPU may be paused inside a hit for longer than the writer waits.
                while machine.write(&probe(entry)).is_err_and(|error| error.contains("try again")) {}
            }
            std::thread::yield_now();
            machine.write("unprobe all").unwrap();
            while !machine.events.state.has_no_hit() {}
            for entry in if two[0] == two[1] { &two[..1] } else { &two[..] } {
                let (hits, ns, lost) = machine.taken(*entry);
                (counted, weight) = (counted + hits + lost, weight + ns);
            }
        }
    });
    let calls = calls.into_inner();
    assert!(counted > 0 && counted <= calls, "{counted} counted, {calls} calls");
    assert!(weight < 1_000_000_000_000, "no time is that of a call that ended long ago: {weight} ns");
    for pair in entries.chunks(2) {
        pair.iter().for_each(|entry| machine.write(&probe(*entry)).unwrap());
        machine.write("unprobe all").unwrap();
    }
    let memory = machine.events.state.probes.memory.get().unwrap().memory;
    assert!(memory.calls.iter().all(|set| set.is_free()), "what has not ended was removed");
}

/// Ends the other threads, also if the test fails.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(1, Ordering::Relaxed);
    }
}
