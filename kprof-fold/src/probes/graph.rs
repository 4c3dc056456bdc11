//! Which functions call which others. Stage: probes, third.
//!
//! In: all functions of a kernel. Out: for each of them the functions that it calls or jumps to, and all that a set of
//! functions reaches. Runs on the host. A call through a pointer at a fixed address is taken for one of the function
//! whose address the file has there. Other calls through pointers are not seen; the functions that have some are
//! reported.

use super::body::{self, Body};
use super::switch;
use crate::symbols::Symbols;
use iced_x86::FlowControl;
use std::collections::{BTreeMap, BTreeSet};

/// What is asked of the kernel's file.
pub trait Image<'a> {
    /// The number of the function that an address belongs to.
    fn function(&self, address: u64) -> Option<usize>;
    /// The bytes from an address on, if the kernel cannot write to them.
    fn constant(&self, address: u64) -> Option<&'a [u8]>;
    /// The word at an address, as it is before the kernel runs.
    fn word(&self, address: u64) -> Option<u64>;
}

impl<'a> Image<'a> for &'a Symbols {
    fn function(&self, address: u64) -> Option<usize> {
        self.table.find(address)
    }

    fn constant(&self, address: u64) -> Option<&'a [u8]> {
        self.elf.as_ref()?.constant(address)
    }

    fn word(&self, address: u64) -> Option<u64> {
        self.elf.as_ref()?.word(address)
    }
}

/// The calls of one function.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// The functions that it calls or jumps to, by number, and the address where each is entered.
    pub to: BTreeSet<(usize, u64)>,
    /// Whether it also calls or jumps to code that is not known: through a pointer, or where no function is.
    pub has_unknown_call: bool,
}

/// The calls of all functions, by the number of the function.
#[derive(Debug, Default)]
pub struct Graph {
    calls: BTreeMap<usize, Calls>,
}

impl Graph {
    /// Adds a function.
    pub fn add<'a>(&mut self, number: usize, body: &Body<'_>, image: &impl Image<'a>) {
        let mut calls = Calls::default();
        let mut add = |target: Option<u64>| match target.and_then(|to| image.function(to).map(|number| (number, to))) {
            Some(to) => drop(calls.to.insert(to)),
            None => calls.has_unknown_call = true,
        };
        for (at, instruction) in body.instructions.iter().enumerate() {
            let target = body::target(instruction);
            match instruction.flow_control() {
                FlowControl::IndirectBranch if switch::targets(body, at, &|place| image.constant(place)).is_some() => {}
                FlowControl::IndirectCall | FlowControl::IndirectBranch => {
                    add(body::pointer(instruction).and_then(|place| image.word(place)));
                }
                _ if target.is_some_and(|target| !body.contains(target)) => add(target),
                _ => {}
            }
        }
        calls.has_unknown_call |= body.undecoded.is_some();
        self.calls.insert(number, calls);
    }

    /// The calls of a function.
    pub fn of(&self, number: usize) -> Option<&Calls> {
        self.calls.get(&number)
    }

    /// These functions and all that they reach.
    pub fn reached(&self, roots: impl IntoIterator<Item = usize>) -> BTreeSet<usize> {
        let mut open: Vec<usize> = roots.into_iter().collect();
        let mut reached = BTreeSet::new();
        while let Some(number) = open.pop() {
            if reached.insert(number)
                && let Some(calls) = self.calls.get(&number)
            {
                open.extend(calls.to.iter().map(|(to, _)| *to));
            }
        }
        reached
    }

    /// The functions that call or jump to one of these, and those that do so to them, and so on.
    pub fn callers(&self, of: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut back: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, calls) in &self.calls {
            calls.to.iter().for_each(|(to, _)| back.entry(*to).or_default().push(*number));
        }
        let (mut open, mut callers): (Vec<usize>, _) = (of.iter().copied().collect(), BTreeSet::new());
        while let Some(number) = open.pop() {
            let new = back.get(&number).into_iter().flatten().filter(|caller| callers.insert(**caller));
            open.extend(new.copied().collect::<Vec<_>>());
        }
        callers
    }

    /// For each function that is entered past its start by another one: the number of one that does so.
    pub fn entered_inside(&self, start: impl Fn(usize) -> u64) -> BTreeMap<usize, usize> {
        let all = self.calls.iter().flat_map(|(number, calls)| calls.to.iter().map(move |to| (*number, *to)));
        all.filter(|(_, (to, address))| start(*to) != *address).map(|(number, (to, _))| (to, number)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Functions of 16 bytes each at 0x1000 and on, and a pointer to the second one at 0x2000.
    struct Five;

    impl Image<'static> for Five {
        fn function(&self, address: u64) -> Option<usize> {
            usize::try_from(address.checked_sub(0x1000)? / 16).ok().filter(|number| *number < 5)
        }

        fn constant(&self, _: u64) -> Option<&'static [u8]> {
            None
        }

        fn word(&self, address: u64) -> Option<u64> {
            (address == 0x2000).then_some(0x1010)
        }
    }

    fn graph() -> Graph {
        // 0: call [0x2000]; ret. 1: jmp 2. 2: call rax; ret. 3: call 0; ret. 4: jmp into the middle of 0.
        let codes: [&[u8]; 5] = [
            &[0xff, 0x14, 0x25, 0, 0x20, 0, 0, 0xc3],
            &[0xe9, 0x0b, 0, 0, 0],
            &[0xff, 0xd0, 0xc3],
            &[0xe8, 0xcb, 0xff, 0xff, 0xff, 0xc3],
            &[0xe9, 0xc0, 0xff, 0xff, 0xff],
        ];
        let mut graph = Graph::default();
        for (number, code) in codes.iter().enumerate() {
            graph.add(number, &Body::decode(code, 0x1000 + 16 * number as u64), &Five);
        }
        graph
    }

    #[test]
    fn a_call_of_what_is_no_function_is_unknown() {
        // call far below; call [0x3000], where the file has nothing; a byte that is no instruction
        for code in [&[0xe8, 0, 0, 0, 0x80][..], &[0xff, 0x14, 0x25, 0, 0x30, 0, 0], &[0x06]] {
            let mut graph = Graph::default();
            graph.add(0, &Body::decode(code, 0x1000), &Five);
            assert_eq!(graph.of(0), Some(&Calls { to: BTreeSet::new(), has_unknown_call: true }), "{code:x?}");
        }
    }

    #[test]
    fn calls_and_jumps_are_followed_in_both_directions() {
        let graph = graph();
        assert_eq!(graph.reached([3]), [0, 1, 2, 3].into());
        assert_eq!(graph.reached([2]), [2].into());
        assert_eq!(graph.callers(&[1].into()), [0, 3, 4].into());
        assert_eq!(graph.callers(&[3].into()), [].into());
        let indirect: Vec<usize> = (0..5).filter(|number| graph.of(*number).unwrap().has_unknown_call).collect();
        assert_eq!(indirect, [2]);
    }

    #[test]
    fn a_jump_past_the_start_of_a_function_is_told() {
        assert_eq!(graph().entered_inside(|number| 0x1000 + 16 * number as u64), [(0, 4)].into());
    }
}
