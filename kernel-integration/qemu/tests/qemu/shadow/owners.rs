//! Whose instructions they are: those of a system call, of an interrupt, of an exception, of none.

use super::guest::{Guest, STACK, block, plain, start};
use crate::plugin::calls::Call;
use crate::plugin::decode::Ending;
use crate::plugin::functions::USER;

const OTHER: u64 = STACK + 0x10_0000;

/// A guest that counts calls.
fn guest() -> Guest {
    let mut guest = Guest::new();
    guest.shadow.calls.begin(None);
    guest
}

/// User code asks for a call, whose entry is function 5.
fn enter(guest: &mut Guest, number: u64) -> &mut Guest {
    guest.memory.rax = number;
    guest.run(plain(USER, 0, Ending::ToKernel)).run(plain(5, 0, Ending::Falls))
}

/// Returns to user code.
fn leave(guest: &mut Guest) -> &mut Guest {
    guest.run(plain(5, 0x100, Ending::ToUser)).run(plain(USER, 0x100, Ending::Falls))
}

/// Number, own instructions, those of interrupts, whether it has returned.
type Words = (u64, u64, u64, bool);

/// All calls, and the sums of all that is no call.
fn found(guest: &mut Guest) -> (Vec<Words>, [u64; 4]) {
    guest.end();
    let words = |call: &Call| (call.number, call.own, call.interrupts, call.has_returned);
    let calls: Vec<_> = guest.shadow.calls.all().map(words).collect();
    let mut kinds = [0; 5];
    guest.shadow.calls.functions().for_each(|[kind, .., count]| kinds[kind as usize] += count);
    assert_eq!(kinds[4], calls.iter().map(|call| call.1).sum::<u64>());
    (calls, [kinds[0], kinds[1], kinds[2], kinds[3]])
}

#[test]
fn a_call_has_the_instructions_from_its_entry_to_the_return_to_user_code() {
    let mut guest = guest();
    leave(enter(&mut guest, 7));
    leave(enter(&mut guest, 9).run(plain(5, 16, Ending::Falls)));
    assert_eq!(found(&mut guest), (vec![(7, 8, 0, true), (9, 12, 0, true)], [0, 16, 0, 0]));
}

#[test]
fn an_interrupt_is_not_the_calls_and_an_exception_in_it_is() {
    let mut guest = guest();
    enter(&mut guest, 7).interrupt(start(5) + 16, None).run(plain(9, 0, Ending::InterruptReturn)).iret();
    let faulting = plain(5, 16, Ending::Falls);
    guest.part(faulting, 2).interrupt(faulting.address(1), Some(2)).run(plain(8, 0, Ending::InterruptReturn));
    guest.pop(1).iret().part(plain(5, 20, Ending::Falls), 3);
    leave(&mut guest);
    // Own: 4 of the entry, 2, 4 of the handler of the fault, 3, 4 of the return.
    assert_eq!(found(&mut guest), (vec![(7, 17, 4, true)], [0, 8, 4, 0]));
}

#[test]
fn what_another_thread_executes_while_a_call_sleeps_is_not_the_calls() {
    let mut guest = guest();
    let switch = block(5, 16, Ending::Call, start(6));
    enter(&mut guest, 7).run(switch).push(switch.end).run(plain(6, 0, Ending::Return));
    // Another thread begins in function 7, returns to user code, and asks for a call that switches back.
    guest.memory.rsp = OTHER;
    guest.run(plain(7, 0, Ending::ToUser)).run(plain(USER, 0x200, Ending::Falls));
    enter(&mut guest, 8).run(switch).push(switch.end).run(plain(6, 0, Ending::Return));
    guest.memory.rsp = STACK;
    leave(guest.run(plain(5, 32, Ending::Falls)));
    // 8 is never returned to.
    assert_eq!(found(&mut guest), (vec![(7, 20, 0, true), (8, 12, 0, false)], [4, 16, 0, 0]));
}

#[test]
fn interrupts_and_exceptions_of_user_code_are_no_calls() {
    let mut guest = guest();
    let user = plain(USER, 0, Ending::Falls);
    guest.part(user, 2).user_interrupt(user.address(1), Some(4)).run(plain(8, 0, Ending::InterruptReturn));
    guest.pop(1).iret().part(plain(USER, 4, Ending::ToKernel), 3).user_interrupt(start(USER) + 20, None);
    guest.run(plain(9, 0, Ending::InterruptReturn)).iret();
    assert_eq!(found(&mut guest), (vec![], [0, 5, 4, 4]));
}

#[test]
fn an_nmi_before_the_first_instruction_of_the_entry_comes_before_the_call() {
    let mut guest = guest();
    guest.memory.rax = 7;
    guest.run(plain(USER, 0, Ending::ToKernel)).interrupt(start(5), None);
    guest.run(plain(9, 0, Ending::InterruptReturn)).iret().run(plain(5, 0, Ending::Falls));
    leave(&mut guest);
    assert_eq!(found(&mut guest), (vec![(7, 8, 0, true)], [0, 8, 4, 0]));
}

#[test]
fn with_an_entry_only_what_begins_there_is_a_call() {
    let mut guest = Guest::new();
    guest.shadow.calls.begin(Some(start(8)));
    guest.memory.rax = 7;
    let user = plain(USER, 0, Ending::Falls);
    guest.run(user).user_interrupt(user.end, None).run(plain(9, 0, Ending::InterruptReturn)).iret();
    guest.run(plain(USER, 16, Ending::Falls)).user_interrupt(start(USER) + 32, None);
    guest.run(plain(8, 0, Ending::InterruptReturn)).iret().run(plain(USER, 32, Ending::Falls));
    assert_eq!(found(&mut guest), (vec![(7, 4, 0, true)], [0, 12, 4, 0]));
}

#[test]
fn a_call_has_returned_when_an_interrupt_comes_before_the_first_instruction_of_user_code() {
    for (error_code, kinds) in [(None, [0, 8, 4, 0]), (Some(4), [0, 8, 0, 4])] {
        let mut guest = guest();
        enter(&mut guest, 7).run(plain(5, 0x100, Ending::ToUser)).user_interrupt(start(USER) + 0x100, error_code);
        guest.run(plain(9, 0, Ending::InterruptReturn)).pop(error_code.map_or(0, |_| 1)).iret();
        guest.run(plain(USER, 0x100, Ending::Falls));
        assert_eq!(found(&mut guest), (vec![(7, 8, 0, true)], kinds), "{error_code:?}");
    }
}
