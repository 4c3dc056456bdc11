//! Probes: calls, keys, conditions, and times until the return. The made guest's clock counts instructions.

use super::guest::{Guest, STACK, block, plain, start};
use crate::plugin::decode::Ending;
use crate::plugin::probes::{Probe, Probes};

/// Words for a probe at the first instruction of a function: time, key, number of the call to report, conditions.
fn probe(function: u32, words: &[u64]) -> Vec<u64> {
    [&[start(function)], words].concat()
}

/// A guest with probes.
fn guest(probes: &[Vec<u64>]) -> Guest {
    let mut guest = Guest::new();
    let bytes: Vec<u8> = probes.concat().iter().flat_map(|word| word.to_le_bytes()).collect();
    guest.shadow.probes = Probes::read(&bytes);
    guest
}

/// Runs the first block of a probed function. Gives the probes that report the call, with its first argument.
fn enter(guest: &mut Guest, function: u32, ending: Ending, target: u32) -> Vec<(u32, u64)> {
    guest.run(block(function, 0, ending, start(target)));
    let mut reported = Vec::new();
    guest.shadow.probe(0, &guest.memory, |probe, _, arguments| reported.push((probe, arguments[0])));
    reported
}

/// Function 5 calls function 6, which returns.
fn call(guest: &mut Guest, rdi: u64) -> Vec<(u32, u64)> {
    let caller = block(5, 0, Ending::Call, start(6));
    guest.memory.rdi = rdi;
    guest.run(caller).push(caller.end);
    let reported = enter(guest, 6, Ending::Return, 0);
    guest.pop(1).run(plain(5, 16, Ending::Jump));
    reported
}

fn keys(probe: &Probe) -> Vec<(u64, u64)> {
    let mut keys: Vec<_> = probe.keys.iter().map(|(key, calls)| (*key, *calls)).collect();
    keys.sort_unstable();
    keys
}

#[test]
fn calls_have_keys_conditions_and_a_number() {
    // By caller, the second one; by stack; by the first argument, only if that is above 5 and has bit 1.
    let all = [
        probe(6, &[0, 1, 2, 0]),
        probe(6, &[0, 2, 0, 0]),
        probe(6, &[0, 3, 3, 2, 0, 4, 5, 0, 6, 2]),
        probe(9, &[0, 1, 1, 0]),
    ];
    let mut guest = guest(&all);
    let reported: Vec<_> = [10, 3, 11, 12, 6].into_iter().map(|rdi| call(&mut guest, rdi)).collect();
    assert_eq!(reported, [vec![], vec![(0, 3)], vec![], vec![], vec![(2, 6)]]);
    let list = &guest.shadow.probes.list;
    assert_eq!([0, 1, 2, 3].map(|at| list[at].calls), [5, 5, 3, 0]);
    assert_eq!(keys(&list[0]), [(5, 5)]);
    assert_eq!(keys(&list[1]), [(STACK - 0x4000, 5)]);
    assert_eq!(keys(&list[2]), [(6, 1), (10, 1), (11, 1)]);
    assert_eq!(list[0].times.returned, 0);
}

#[test]
fn a_loop_to_the_first_instruction_is_no_call() {
    let mut guest = guest(&[probe(6, &[0, 0, 0, 0])]);
    let caller = block(5, 0, Ending::Call, start(6));
    guest.run(caller).push(caller.end);
    enter(&mut guest, 6, Ending::Jump, 6);
    enter(&mut guest, 6, Ending::Return, 0);
    assert_eq!(guest.shadow.probes.list[0].calls, 1);
}

#[test]
fn a_call_takes_until_its_return_also_if_its_task_sleeps_and_another_one_calls() {
    let mut guest = guest(&[probe(6, &[1, 0, 0, 0])]);
    let caller = block(5, 0, Ending::Call, start(6));
    let switch = block(6, 16, Ending::Call, start(7));
    guest.run(caller).push(caller.end);
    enter(&mut guest, 6, Ending::Falls, 0);
    guest.run(switch).push(switch.end).run(plain(7, 0, Ending::Return));
    // Another task calls and returns, twice; then it switches back.
    let asleep = guest.memory.rsp + 8;
    guest.memory.rsp = STACK + 0x10_0000;
    let other = block(8, 0, Ending::Call, start(6));
    for _ in 0..2 {
        guest.run(other).push(other.end);
        enter(&mut guest, 6, Ending::Return, 0);
        guest.pop(1).run(plain(8, 16, Ending::Jump));
    }
    let back = block(8, 32, Ending::Call, start(7));
    guest.run(back).push(back.end).run(plain(7, 0, Ending::Return));
    guest.memory.rsp = asleep;
    guest.run(plain(6, 32, Ending::Return)).pop(1).run(plain(5, 16, Ending::Falls));
    let (probe, times) = (&guest.shadow.probes.list[0], guest.shadow.probes.list[0].times.clone());
    assert_eq!((probe.calls, times.returned, times.min), (3, 3, 4));
    // 4 before and 4 in the call of the switch, 4 in the switch, twice 12 of the other task, 8 for its switch, 4.
    assert_eq!((times.max, times.sum), (48, 56));
    assert_eq!((times.by_range[4], times.by_range[48], times.by_range.len()), (2, 1, 49));
}

#[test]
fn a_function_that_jumps_to_another_one_shares_its_return_and_a_call_that_does_not_return_has_no_time() {
    let mut guest = guest(&[probe(6, &[1, 0, 0, 0]), probe(7, &[1, 1, 0, 0]), probe(8, &[1, 0, 0, 0])]);
    let caller = block(5, 0, Ending::Call, start(6));
    guest.run(caller).push(caller.end);
    enter(&mut guest, 6, Ending::Jump, 7);
    enter(&mut guest, 7, Ending::Return, 0);
    guest.pop(1).run(plain(5, 16, Ending::Falls));
    let again = block(5, 32, Ending::Call, start(8));
    guest.run(again).push(again.end);
    enter(&mut guest, 8, Ending::Falls, 0);
    guest.end();
    let times = |at: usize| guest.shadow.probes.list[at].times.clone();
    assert_eq!([0, 1, 2].map(|at| (times(at).returned, times(at).sum)), [(1, 8), (1, 4), (0, 0)]);
    assert_eq!(keys(&guest.shadow.probes.list[1]), [(5, 1)]);
    assert_eq!(guest.shadow.probes.list[2].calls, 1);
}

#[test]
fn a_return_across_a_call_that_does_not_return_and_one_to_another_address_end_the_call() {
    let mut guest = guest(&[probe(6, &[1, 0, 0, 0])]);
    let caller = block(5, 0, Ending::Call, start(6));
    let inner = block(6, 16, Ending::Call, start(7));
    // Function 7 returns to function 5, not to function 6, which called it.
    guest.run(caller).push(caller.end);
    enter(&mut guest, 6, Ending::Falls, 0);
    guest.run(inner).push(inner.end).run(plain(7, 0, Ending::Return)).pop(2).run(plain(5, 16, Ending::Jump));
    assert_eq!(guest.shadow.probes.list[0].times.sum, 12);
    // Function 6 has replaced its return address.
    guest.run(caller).push(caller.end);
    enter(&mut guest, 6, Ending::Return, 0);
    guest.pop(1).run(plain(5, 48, Ending::Falls));
    let times = guest.shadow.probes.list[0].times.clone();
    assert_eq!((times.returned, times.sum), (2, 16));
}
