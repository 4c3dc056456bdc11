//! What an interrupt has interrupted, at places where two blocks meet, and counts between two functions.

use super::guest::{Guest, STACK, block, plain, start};
use crate::plugin::block::Block;
use crate::plugin::decode::Ending;
use crate::plugin::functions::{Functions, USER};
use crate::plugin::tasks::Tasks;
use crate::plugin::window::{Watched, visit};

/// Functions 2 to 9, of a page each.
fn functions() -> Functions {
    let words = (2..10).flat_map(|number| [start(number), start(number + 1), u64::from(number)]);
    Functions::read(&words.flat_map(u64::to_le_bytes).collect::<Vec<_>>())
}

/// The stack that an NMI at `rip` finds, whose handler is function 9, as numbers of functions from the outermost.
fn found(guest: &mut Guest, rip: u64) -> Vec<u32> {
    guest.interrupt(rip, None).run(plain(9, 0, Ending::InterruptReturn));
    let [at, _, mut node, _] = visit(&mut guest.shadow, 0, &functions(), &guest.memory);
    assert_eq!(at, rip);
    let mut stack = Vec::new();
    while node != 0 {
        stack.insert(0, guest.shadow.tree.function(node as u32));
        node = u64::from(guest.shadow.tree.parent(node as u32));
    }
    guest.iret();
    stack
}

#[test]
fn an_interrupt_before_the_first_instruction_of_a_callee_and_after_its_return_finds_the_right_caller() {
    let mut guest = Guest::new();
    let caller = block(5, 0, Ending::Call, start(6));
    guest.run(caller).push(caller.end);
    assert_eq!(found(&mut guest, start(6)), [5, 6]);
    guest.run(plain(6, 0, Ending::Return)).pop(1);
    assert_eq!(found(&mut guest, caller.end), [5]);
    let by_pointer = plain(5, 16, Ending::CallIndirect);
    guest.run(by_pointer).push(by_pointer.end);
    assert_eq!(found(&mut guest, start(7)), [5, 7]);
    guest.run(block(7, 0, Ending::Jump, start(8)));
    assert_eq!(found(&mut guest, start(8)), [5, 8]);
    guest.part(plain(8, 0, Ending::Falls), 2);
    assert_eq!(found(&mut guest, start(8) + 8), [5, 8]);
}

#[test]
fn an_nmi_before_the_first_instruction_of_another_handler_finds_what_that_one_has_interrupted() {
    let mut guest = Guest::new();
    let caller = block(5, 0, Ending::Call, start(6));
    let halt = plain(6, 0, Ending::Falls);
    guest.run(caller).push(caller.end).run(halt);
    assert_eq!(found(guest.interrupt(halt.end, None), start(8)), [5, 6, 8]);
    // The other handler runs, and after its end the halted function goes on.
    guest.run(plain(8, 0, Ending::InterruptReturn)).iret();
    assert_eq!(found(&mut guest, halt.end), [5, 6]);
    // The same after a return.
    guest.run(plain(6, 16, Ending::Return)).pop(1);
    assert_eq!(found(guest.interrupt(caller.end, None), start(8)), [5, 8]);
}

#[test]
fn an_interrupt_after_a_change_of_stacks_finds_the_new_one() {
    let mut guest = Guest::new();
    let first = block(5, 0, Ending::Call, start(6));
    guest.run(first).push(first.end).run(plain(6, 0, Ending::Return));
    // The first task's stack is put aside; the second one begins in function 7.
    let aside = guest.memory.rsp + 8;
    guest.memory.rsp = STACK + 0x10_0000;
    let second = block(7, 0, Ending::Call, start(6));
    guest.run(second).push(second.end).run(plain(6, 16, Ending::Return));
    guest.memory.rsp = aside;
    assert_eq!(found(&mut guest, first.end), [5]);
}

#[test]
fn user_code_is_a_stack_of_its_own() {
    let mut guest = Guest::new();
    guest.run(plain(USER, 0, Ending::Falls)).user_interrupt(start(USER) + 16, None);
    guest.run(plain(9, 0, Ending::InterruptReturn));
    let [_, cs, node, _] = visit(&mut guest.shadow, 0, &functions(), &guest.memory);
    assert_eq!((cs & 3, guest.shadow.tree.function(node as u32)), (3, USER));
}

#[test]
fn counts_begin_with_one_function_and_end_before_the_other() {
    let watched = Watched { from: Some(start(6)), to: Some(start(8)), ..Watched::default() };
    let mut guest = Guest::new();
    for function in [5, 6, 7, 8, 6] {
        let next: &'static Block = plain(function, 0, Ending::JumpIndirect);
        guest.run(next);
        if watched.has(next.start) {
            guest.shadow.window.at(next.start, &watched);
        }
    }
    guest.end();
    let tree = &guest.shadow.tree;
    let parts: Vec<_> =
        guest.shadow.window.parts().map(|(cpu, node, count, _)| (cpu, tree.function(node as u32), count)).collect();
    assert_eq!(parts, [(0, 6, 4), (0, 7, 4)]);
}

#[test]
fn counts_are_by_task_from_the_change_on_also_if_a_task_gets_a_new_number() {
    let (mut guest, mut tasks) = (Guest::new(), Tasks::default());
    guest.shadow.window.is_open = true;
    let word = STACK + 0x100;
    let switch = |guest: &mut Guest, tasks: &mut Tasks, task| {
        (guest.memory.rdx, guest.memory.rcx) = (word, task);
        guest.shadow.window.set_task(0, tasks.switch(0, &guest.memory));
        guest.memory.words.insert(word, task);
    };
    guest.run(plain(5, 0, Ending::JumpIndirect)).run(plain(6, 0, Ending::JumpIndirect));
    switch(&mut guest, &mut tasks, 7);
    guest.run(plain(6, 16, Ending::JumpIndirect));
    tasks.rename(0);
    // The word has not changed yet.
    assert_eq!((tasks.changed(0, &guest.memory), tasks.changing), (None, Some(0)));
    guest.memory.words.insert(word, 8);
    let changed = tasks.changed(0, &guest.memory);
    assert_eq!((changed, tasks.changing), (Some(8), None));
    guest.run(plain(6, 32, Ending::JumpIndirect));
    guest.shadow.window.set_task(0, 8);
    switch(&mut guest, &mut tasks, 7);
    guest.end();
    let mut by_task = std::collections::BTreeMap::new();
    guest.shadow.window.parts().for_each(|(cpu, _, count, task)| *by_task.entry((cpu, task)).or_insert(0) += count);
    let expected = [((0, 0), 4), ((0, 7), 4)];
    assert_eq!(expected.map(|(key, _)| by_task.contains_key(&key)), [true, true], "{by_task:?}");
    assert_eq!(by_task.values().sum::<u64>(), 16);
}
