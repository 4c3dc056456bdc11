//! The shadow stack on made blocks and a made memory: calls, tail jumps, interrupts at every place, faults, switches of
//! stacks, calls that never return. In each case every instruction is in the context that really executed it.

mod guest;
mod owners;
mod probed;
mod visits;

use self::guest::{Guest, STACK, block, expected, plain, start};
use crate::plugin::block::Block;
use crate::plugin::context;
use crate::plugin::decode::Ending;
use crate::plugin::functions;
use crate::plugin::totals::Counts;
use std::cell::Cell;

#[test]
fn calls_returns_and_tail_jumps_have_their_contexts() {
    let mut guest = Guest::new();
    let caller = block(5, 0, Ending::Call, start(6));
    guest.run(caller).push(caller.end);
    // Function 6 ends by a jump to function 7, which returns to function 5, which calls it by a pointer.
    guest.run(block(6, 0, Ending::Jump, start(7))).run(plain(7, 0, Ending::Return)).pop(1);
    let again = plain(5, 16, Ending::CallIndirect);
    guest.run(again).push(again.end).run(plain(7, 0, Ending::Return)).pop(1).run(plain(5, 32, Ending::Falls));
    let (contexts, counts) = guest.end();
    assert_eq!(contexts, expected(&[("5", 12, 1), ("5 6", 4, 1), ("5 7", 8, 2)]));
    assert_eq!(counts, Counts::default());
}

#[test]
fn returns_from_deep_calls_go_back_to_each_caller() {
    let mut guest = Guest::new();
    for function in 5..9 {
        let caller = block(function, 0, Ending::Call, start(function + 1));
        guest.run(caller).push(caller.end);
    }
    guest.run(plain(9, 0, Ending::Return)).pop(1);
    for function in (5..9).rev() {
        guest.run(plain(function, 16, Ending::Return)).pop(1);
    }
    let (contexts, counts) = guest.end();
    let rows = [("5", 8, 1), ("5 6", 8, 1), ("5 6 7", 8, 1), ("5 6 7 8", 8, 1), ("5 6 7 8 9", 4, 1)];
    assert_eq!((contexts, counts), (expected(&rows), Counts::default()));
}

#[test]
fn an_interrupt_at_any_place_is_below_what_it_interrupts_and_nothing_is_lost_after_it() {
    // What runs when the interrupt comes, how the stack changes before it, and what goes on after it, in context 5.
    let cases: [(Ending, &[u64], u64, &str); 5] = [
        (Ending::Falls, &[], start(5) + 16, "5"),
        (Ending::Branch, &[], start(6), "6"),
        (Ending::Jump, &[], start(6), "6"),
        (Ending::Call, &[start(5) + 16], start(6), "5 6"),
        (Ending::CallIndirect, &[start(5) + 16], start(6), "5 6"),
    ];
    for (ending, pushed, next, context) in cases {
        let mut guest = Guest::new();
        guest.run(block(5, 0, ending, start(6)));
        pushed.iter().for_each(|word| {
            guest.push(*word);
        });
        guest.interrupt(next, None).run(plain(9, 0, Ending::InterruptReturn)).iret();
        let goes_on = if next == start(6) { plain(6, 0, Ending::Falls) } else { plain(5, 16, Ending::Falls) };
        let (contexts, counts) = guest.run(goes_on).end();
        let handler = contexts.get("5 9").copied();
        assert_eq!(handler, Some((4, 1)), "{ending:?} {contexts:?}");
        let own = if context == "5" { 8 } else { 4 };
        assert_eq!(contexts.get(context).map(|row| row.0), Some(own), "{ending:?} {contexts:?}");
        assert_eq!(counts, Counts { interrupts: 1, ..Counts::default() }, "{ending:?}");
    }
}

#[test]
fn an_interrupt_after_a_return_and_before_the_caller_goes_on() {
    let mut guest = Guest::new();
    let caller = block(5, 0, Ending::Call, start(6));
    guest.run(caller).push(caller.end).run(plain(6, 0, Ending::Return)).pop(1).interrupt(caller.end, None);
    // Another one comes right after its end.
    guest.run(plain(9, 0, Ending::InterruptReturn)).iret().interrupt(caller.end, None);
    guest.run(plain(8, 0, Ending::InterruptReturn)).iret().run(plain(5, 16, Ending::Falls));
    let (contexts, counts) = guest.end();
    assert_eq!(contexts, expected(&[("5", 8, 1), ("5 6", 4, 1), ("5 8", 4, 1), ("5 9", 4, 1)]));
    assert_eq!((counts.interrupts, counts.unexplained), (2, 0));
}

#[test]
fn interrupts_one_after_the_other_are_below_the_same_code() {
    let mut guest = Guest::new();
    let idle = plain(5, 0, Ending::Falls);
    guest.run(idle).interrupt(idle.end, None);
    for function in [7, 8, 9] {
        guest.run(plain(function, 0, Ending::InterruptReturn)).iret();
        if function != 9 {
            guest.interrupt(idle.end, None);
        }
    }
    let (contexts, counts) = guest.run(plain(5, 16, Ending::Falls)).end();
    assert_eq!(contexts, expected(&[("5", 8, 1), ("5 7", 4, 1), ("5 8", 4, 1), ("5 9", 4, 1)]));
    assert_eq!((counts.interrupts, counts.unexplained), (3, 0));
}

#[test]
fn a_block_that_begins_again_after_a_stop_of_the_machine_is_no_second_interrupt() {
    let mut guest = Guest::new();
    let (code, handler) = (plain(5, 0, Ending::Falls), plain(9, 0, Ending::InterruptReturn));
    guest.run(code).interrupt(code.end, None).part(handler, 0).run(handler).iret().run(plain(5, 16, Ending::Falls));
    let (contexts, counts) = guest.end();
    assert_eq!(contexts, expected(&[("5", 8, 1), ("5 9", 4, 1)]));
    assert_eq!((counts.interrupts, counts.unexplained), (1, 0));
}

/// After a jump to an address in a register nothing speaks against old words of an entry on the stack.
#[test]
fn what_qemu_tells_of_entries_is_believed_and_the_guess_is_compared() {
    for (entered, [interrupts, told, misguessed]) in
        [(None, [1, 0, 0]), (Some(true), [1, 1, 0]), (Some(false), [0, 0, 1])]
    {
        let mut guest = Guest::new();
        guest.run(plain(5, 0, Ending::JumpIndirect)).interrupt(start(5) + 16, None).memory.entered = entered;
        let (contexts, counts) = guest.run(plain(9, 0, Ending::Falls)).end();
        assert_eq!([counts.interrupts, counts.told, counts.misguessed], [interrupts, told, misguessed], "{entered:?}");
        assert_eq!(contexts.contains_key("5 9"), interrupts == 1, "{contexts:?}");
    }
}

#[test]
fn a_fault_is_counted_once_and_its_instruction_begins_again() {
    for error_code in [None, Some(2)] {
        let mut guest = Guest::new();
        let first = plain(5, 0, Ending::Return);
        // The second instruction faults; the block is executed again from there.
        guest.part(first, 2).interrupt(first.address(1), error_code).run(plain(9, 0, Ending::InterruptReturn));
        guest.pop(error_code.map_or(0, |_| 1)).iret().part(plain(5, 4, Ending::Return), 3);
        let (contexts, counts) = guest.end();
        assert_eq!(contexts, expected(&[("5", 5, 1), ("5 9", 4, 1)]));
        assert_eq!(counts, Counts { interrupts: 1, faults: 1, ..Counts::default() });
    }
}

#[test]
fn an_nmi_before_the_first_instruction_of_another_handler_is_below_the_same_code() {
    for function in [5, functions::USER] {
        let mut guest = Guest::new();
        let faulting = plain(function, 0, Ending::Falls);
        guest.part(faulting, 2);
        if function == functions::USER {
            guest.user_interrupt(faulting.address(1), Some(2));
        } else {
            guest.interrupt(faulting.address(1), Some(2));
        }
        guest.interrupt(start(8), None).run(plain(9, 0, Ending::InterruptReturn)).iret();
        guest.run(plain(8, 0, Ending::InterruptReturn)).pop(1).iret().part(plain(function, 4, Ending::Falls), 3);
        let (contexts, counts) = guest.end();
        let calls = u64::from(function == 5);
        let of = |below: &str| format!("{function}{below}");
        assert_eq!(contexts, expected(&[(&of(""), 5, calls), (&of(" 8"), 4, 1), (&of(" 9"), 4, 1)]));
        assert_eq!(counts, Counts { interrupts: 2, faults: 1, ..Counts::default() });
    }
}

#[test]
fn after_an_access_to_a_device_the_block_goes_on() {
    let mut guest = Guest::new();
    let (contexts, counts) = guest.part(plain(5, 0, Ending::Return), 2).part(plain(5, 8, Ending::Return), 2).end();
    assert_eq!((contexts, counts), (expected(&[("5", 4, 1)]), Counts::default()));
}

#[test]
fn each_stack_has_its_own_callers_and_a_switch_back_finds_them() {
    let mut guest = Guest::new();
    let other = STACK + 0x10_0000;
    for (function, stack) in [(5, STACK), (7, other)] {
        let caller = block(function, 0, Ending::Call, start(6));
        guest.memory.rsp = stack;
        // The switch: function 6 is called, and returns on another stack.
        guest.run(caller).push(caller.end).run(plain(6, 0, Ending::Return));
    }
    // Back to the first stack, where the switch is called again, and to the second one.
    guest.memory.rsp = STACK;
    let again = block(5, 16, Ending::Call, start(6));
    guest.run(again).push(again.end).run(plain(6, 0, Ending::Return));
    guest.memory.rsp = other;
    guest.run(plain(7, 16, Ending::Falls));
    let (contexts, counts) = guest.end();
    assert_eq!(contexts, expected(&[("5", 8, 1), ("5 6", 8, 2), ("7", 8, 1), ("7 6", 4, 1)]));
    assert_eq!((counts.switches, counts.unexplained), (3, 0));
}

#[test]
fn a_function_that_saves_registers_returns_below_its_call() {
    let mut guest = Guest::new();
    let call = block(5, 0, Ending::Call, start(6));
    guest.run(call).push(call.end).run(plain(6, 0, Ending::Falls));
    // It moves its return address below the registers that it has pushed.
    guest.memory.rsp = STACK - 8 * 16;
    guest.run(plain(6, 16, Ending::Return)).pop(1);
    let (contexts, counts) = guest.run(plain(5, 16, Ending::Falls)).end();
    assert_eq!(contexts, expected(&[("5", 8, 1), ("5 6", 8, 1)]));
    assert_eq!((counts.switches, counts.unexplained), (0, 0));
}

#[test]
fn calls_that_never_return_do_not_stay_on_the_stack() {
    for ending in [Ending::JumpIndirect, Ending::Jump] {
        let mut guest = Guest::new();
        let outer = block(5, 0, Ending::Call, start(6));
        let inner = block(6, 0, Ending::Call, start(7));
        for _ in 0..100 {
            guest.run(outer).push(outer.end).run(inner).push(inner.end).run(block(7, 0, ending, start(5)));
            // Function 7 has gone far up the stack, and jumps back to function 5.
            guest.memory.rsp = STACK;
        }
        let (contexts, _) = guest.end();
        assert!(contexts.keys().all(|context| context.split(' ').count() <= 3), "{contexts:?}");
        assert_eq!(contexts.get("5 6 7"), Some(&(400, 100)), "{contexts:?}");
    }
}

#[test]
fn a_block_of_two_functions_is_split_and_too_deep_stacks_stay_as_deep() {
    let mut guest = Guest::new();
    let both = Block {
        pieces: [(1, 5), (3, 6)].into(),
        cached: Cell::new((0, 0)),
        lengths: [4; 4].into(),
        ..*plain(5, 0, Ending::Falls)
    };
    let (contexts, _) = guest.run(Box::leak(Box::new(both))).end();
    assert_eq!(contexts, expected(&[("5", 1, 1), ("6", 3, 1)]));

    let mut guest = Guest::new();
    let again = block(5, 0, Ending::Call, start(5));
    for _ in 0..context::MAX_DEPTH + 50 {
        guest.run(again).push(again.end);
    }
    guest.end();
    assert_eq!(guest.shadow.tree.nodes.len() as u32, context::MAX_DEPTH + 1);
    assert!(guest.shadow.tree.too_deep > 0);
}

#[test]
fn the_kernel_is_below_the_user_code_that_it_serves() {
    let mut guest = Guest::new();
    guest.run(plain(functions::USER, 0, Ending::Falls)).run(block(5, 0, Ending::Call, start(6)));
    guest.push(start(5) + 16).run(plain(6, 0, Ending::ToUser)).run(plain(functions::USER, 16, Ending::Falls));
    let (contexts, counts) = guest.end();
    assert_eq!(contexts, expected(&[("1", 8, 0), ("1 5", 4, 1), ("1 5 6", 4, 1)]));
    assert_eq!(counts, Counts::default());
}
