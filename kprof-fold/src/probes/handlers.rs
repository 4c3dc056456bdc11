//! Which functions a probe would break: those that the kernel's handlers of NMIs and breakpoints may execute. Stage:
//! probes, fourth.
//!
//! In: names, code, DWARF and calls of all functions. Out: the handlers, and what they may execute: all that they call,
//! the functions that call them, and what those may call before. Runs on the host. A call through a pointer is not
//! followed, so the functions with such calls are reported.
//!
//! A probe in the path to kprof's breakpoint handler would cause a breakpoint before that handler has run, and so on
//! without end. A probe in an NMI handler would end the NMI at the return from the breakpoint. What a caller does after
//! a handler has returned is not refused: it may be the rest of the kernel's work, such as a task switch.

use super::body::{Body, pointer, target};
use super::graph::{Graph, Image};
use crate::symbols::elf::Elf;
use crate::symbols::name::merge_generics;
use iced_x86::FlowControl;
use std::collections::BTreeSet;

/// The last components of the names of functions that handle NMIs.
const NMI: [&str; 3] = ["on_nmi", "nmi", "nmi_entry"];
/// The same of breakpoints.
const BREAKPOINT: [&str; 3] = ["on_breakpoint", "breakpoint", "breakpoint_entry"];
/// The last components of kprof's functions that take a tick.
const TICK: [&str; 3] = ["on_nmi", "on_timer", "on_overflow"];
/// The same for breakpoints.
const PROBE: [&str; 1] = ["on_breakpoint"];
/// What the name of each of kprof's functions contains, or the path of its source.
const KPROF: &str = "kprof";

/// Handlers by number.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Handlers {
    /// Those of ticks, and those that were given.
    pub ticks: BTreeSet<usize>,
    /// Those of breakpoints, and those that were given.
    pub breakpoints: BTreeSet<usize>,
}

/// What handlers may execute, by number.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// Handlers, what they call, what calls them, and what that calls before.
    pub functions: BTreeSet<usize>,
    /// Those of the functions that call what they do not name.
    pub with_unknown_calls: BTreeSet<usize>,
}

impl Handlers {
    /// Finds handlers by the names of symbols, and by the names of functions that were inlined. `given` are names from
    /// the user, in full or the last component.
    pub fn find(names: &[String], bodies: &[Option<Body<'_>>], elf: &Elf, given: &[String]) -> Self {
        let mut found = Self::default();
        for (number, name) in names.iter().enumerate() {
            let last = last(name);
            let is_given = given.iter().any(|given| is_named(name, given));
            let mut is_tick = NMI.contains(&&last[..]) || is_of_kprof(name, &TICK);
            let mut is_breakpoint = BREAKPOINT.contains(&&last[..]);
            if let Some(body) = bodies.get(number).and_then(Option::as_ref) {
                let addresses = body.instructions.iter().map(iced_x86::Instruction::ip);
                for frame in addresses.flat_map(|address| elf.frames(address)) {
                    // DWARF that was made for lines only has no paths in the names of functions.
                    let file = frame.location.as_ref().map_or("", |place| &place.file);
                    let inlined = format!("{file} {}", frame.name.as_deref().unwrap_or_default());
                    is_tick |= is_of_kprof(&inlined, &TICK);
                    is_breakpoint |= is_of_kprof(&inlined, &PROBE);
                }
            }
            if is_tick || is_given {
                found.ticks.insert(number);
            }
            if is_breakpoint || is_given {
                found.breakpoints.insert(number);
            }
        }
        found
    }

    /// All of them.
    pub fn all(&self) -> BTreeSet<usize> {
        self.ticks.union(&self.breakpoints).copied().collect()
    }

    /// What they may execute.
    pub fn executed<'a>(&self, graph: &Graph, bodies: &[Option<Body<'_>>], image: &impl Image<'a>) -> Executed {
        let handlers = self.all();
        let callers = graph.callers(&handlers);
        let is_path = |to: usize| handlers.contains(&to) || callers.contains(&to);
        let bodies_of_callers = callers.iter().filter_map(|caller| bodies.get(*caller)?.as_ref());
        let before: BTreeSet<usize> = bodies_of_callers.flat_map(|body| called_before(body, image, is_path)).collect();
        let mut functions = graph.reached(handlers.iter().copied().chain(before));
        functions.extend(&callers);
        let has_unknown_call = |number: &usize| graph.of(*number).is_some_and(|calls| calls.has_unknown_call);
        let with_unknown_calls = functions.iter().copied().filter(has_unknown_call).collect();
        Executed { functions, with_unknown_calls }
    }
}

/// The functions that a function may call or jump to before it calls one of those of the path.
fn called_before<'a>(body: &Body<'_>, image: &impl Image<'a>, is_path: impl Fn(usize) -> bool) -> BTreeSet<usize> {
    let count = body.instructions.len();
    let mut previous = vec![Vec::new(); count];
    // Jumps whose targets are not known may lead to any instruction.
    let mut anywhere = Vec::new();
    for (number, instruction) in body.instructions.iter().enumerate() {
        let (is_jump, goes_on) = match instruction.flow_control() {
            FlowControl::IndirectBranch => {
                anywhere.push(number);
                (false, false)
            }
            FlowControl::UnconditionalBranch => (true, false),
            FlowControl::ConditionalBranch | FlowControl::XbeginXabortXend => (true, true),
            FlowControl::Return | FlowControl::Exception => (false, false),
            _ => (false, true),
        };
        let to = target(instruction).filter(|_| is_jump).and_then(|target| body.at(target));
        let next = (number + 1 < count && goes_on).then_some(number + 1);
        to.into_iter().chain(next).for_each(|to| previous[to].push(number));
    }
    let called = |number: usize| {
        let instruction = &body.instructions[number];
        let by_pointer = || image.word(pointer(instruction)?);
        let to = target(instruction).or_else(by_pointer).filter(|target| !body.contains(*target))?;
        image.function(to)
    };
    let mut open: Vec<usize> = (0..count).filter(|number| called(*number).is_some_and(&is_path)).collect();
    if !open.is_empty() {
        open.extend(anywhere);
    }
    let mut seen = vec![false; count];
    let mut before = BTreeSet::new();
    while let Some(number) = open.pop() {
        if !std::mem::replace(&mut seen[number], true) {
            open.extend(&previous[number]);
            before.extend(called(number).filter(|to| !is_path(*to)));
        }
    }
    before
}

/// Whether a function has this name: the whole of it, or the last component.
pub fn is_named(function: &str, name: &str) -> bool {
    function == name || last(function) == name
}

/// The last component of a name, without the types of a generic instance.
fn last(name: &str) -> String {
    let name = merge_generics(name);
    name.rsplit([':', ' ']).next().unwrap_or_default().to_owned()
}

fn is_of_kprof(name: &str, functions: &[&str]) -> bool {
    name.contains(KPROF) && functions.contains(&&last(name)[..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0xffff_ffff_8000_1000;

    /// Functions of 256 bytes each from `START` on, and a pointer to the sixth one at 0x100.
    struct Pages;

    impl Image<'static> for Pages {
        fn function(&self, address: u64) -> Option<usize> {
            usize::try_from(address.checked_sub(START)? / 0x100).ok()
        }

        fn constant(&self, _: u64) -> Option<&'static [u8]> {
            None
        }

        fn word(&self, address: u64) -> Option<u64> {
            (address == 0x100).then_some(START + 0x600)
        }
    }

    fn before(body: &Body<'_>, path: usize) -> Vec<usize> {
        called_before(body, &Pages, |function| function == path).into_iter().collect()
    }

    #[test]
    fn what_is_called_before_the_handler_is_found_and_what_comes_after_or_beside_is_not() {
        // push rbp; call 1; call [0x100]; test edi, edi; je 1f; call 2; call 3; ret; 1: call 4; ret
        let mut code = vec![0x55, 0xe8, 0, 0, 0, 0, 0xff, 0x14, 0x25, 0, 1, 0, 0, 0x85, 0xff, 0x74, 11];
        code.extend([0xe8, 0, 0, 0, 0, 0xe8, 0, 0, 0, 0, 0xc3, 0xe8, 0, 0, 0, 0, 0xc3]);
        for (at, to) in [(2, 0x100u32), (18, 0x200), (23, 0x300), (29, 0x400)] {
            code[at..at + 4].copy_from_slice(&(to - (at as u32 + 4)).to_le_bytes());
        }
        let body = Body::decode(&code, START);
        assert_eq!(before(&body, 2), [1, 6]);
        assert_eq!(before(&body, 3), [1, 2, 6]);
        assert_eq!(before(&body, 4), [1, 6]);
        assert_eq!(before(&body, 6), [1]);
        assert_eq!(before(&body, 5), [0; 0]);
    }

    #[test]
    fn a_jump_that_may_lead_anywhere_may_come_before() {
        // push rbp; call 1; ret; call 2; jmp rax
        let code = [0x55, 0xe8, 0xfa, 0, 0, 0, 0xc3, 0xe8, 0xf4, 1, 0, 0, 0xff, 0xe0];
        assert_eq!(before(&Body::decode(&code, START), 1), [2]);
    }

    #[test]
    fn only_kprofs_own_functions_are_known_by_a_name_that_is_not_special() {
        assert!(is_of_kprof("kprof::timer::on_timer::<test_kernel::Port>", &TICK));
        assert!(is_of_kprof("<kprof::profiler::Profiler<K>>::on_overflow", &TICK));
        assert!(!is_of_kprof("test_kernel::task::scheduler::on_timer", &TICK));
        assert!(!is_of_kprof("kprof::timer::on_timers", &TICK));
        assert!(is_of_kprof("/src/kprof/src/profiler.rs on_overflow", &TICK));
        assert!(!is_of_kprof("/src/kernel/src/timer.rs on_timer", &TICK));
        assert!(is_of_kprof("kprof::probes::hit::on_breakpoint", &PROBE));
    }
}
