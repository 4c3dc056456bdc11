//! What each vCPU executes in each context from one function to another, and the visits of a handler. Stage: capture.
//!
//! In: `from=ADDRESS`, `to=ADDRESS`, `visits=ADDRESS`, decimal, of the first instructions of functions. Out: parts of
//! the contexts' counts, by vCPU: from the first time that the first instruction of `from` is about to be executed (or
//! from the start), until that of `to` is for the first time after it (or until the end). `to` itself is not in it. For
//! each execution of the first instruction of `visits`, an interrupt handler without an error code: what it has
//! interrupted. Without any of them nothing is kept.

use super::block::{Machine, Past, Place};
use super::context::Tree;
use super::decode::Ending;
use super::entries::{self, Entry};
use super::functions::Functions;
use super::shadow::{Frame, Shadow};

/// The addresses.
#[derive(Debug, Default)]
pub struct Watched {
    pub from: Option<u64>,
    pub to: Option<u64>,
    pub visits: Option<u64>,
    /// Of a function that changes to another task, and of one that gives a task a new number: see `tasks.rs`.
    pub switch: Option<u64>,
    pub rename: Option<u64>,
}

impl Watched {
    pub fn new(word: impl Fn(&str) -> Option<u64>) -> Self {
        let [from, to, visits, switch, rename] = ["from", "to", "visits", "switch", "rename"].map(word);
        Self { from, to, visits, switch, rename }
    }

    /// The kernel runs higher than its file says.
    pub fn slide(&mut self, by: u64) {
        for address in [&mut self.from, &mut self.to, &mut self.visits, &mut self.switch, &mut self.rename] {
            *address = address.map(|address| address.wrapping_add(by));
        }
    }

    pub fn has(&self, address: u64) -> bool {
        [self.from, self.to, self.visits, self.switch, self.rename].contains(&Some(address))
    }
}

/// The counts.
#[derive(Debug, Default)]
pub struct Window {
    pub is_open: bool,
    is_over: bool,
    /// By number of the context, for each vCPU and task.
    counts: Vec<Counts>,
    /// By vCPU: where the counts of its present task are.
    present: Vec<usize>,
}

#[derive(Debug, Default)]
struct Counts {
    cpu: usize,
    task: u64,
    by_node: Vec<u64>,
}

impl Window {
    /// A block begins at a watched address.
    pub fn at(&mut self, address: u64, watched: &Watched) {
        let is = |one: Option<u64>| one == Some(address);
        if self.is_open && is(watched.to) {
            (self.is_open, self.is_over) = (false, true);
        } else if is(watched.from) && !self.is_over {
            self.is_open = true;
        }
    }

    /// A vCPU has executed this many instructions in a context.
    #[inline]
    pub fn add(&mut self, cpu: usize, node: u32, instructions: u64) {
        if self.is_open {
            self.add_open(cpu, node as usize, instructions);
        }
    }

    fn add_open(&mut self, cpu: usize, node: usize, instructions: u64) {
        if cpu >= self.present.len() {
            self.set_task(cpu, 0);
        }
        let counts = &mut self.counts[self.present[cpu]].by_node;
        if node >= counts.len() {
            counts.resize(node * 2 + 64, 0);
        }
        counts[node] += instructions;
    }

    /// From now on the vCPU runs this task.
    #[cold]
    pub fn set_task(&mut self, cpu: usize, task: u64) {
        for cpu in self.present.len()..=cpu {
            self.present.push(self.counts.len());
            self.counts.push(Counts { cpu, ..Counts::default() });
        }
        let is_its = |counts: &Counts| (counts.cpu, counts.task) == (cpu, task);
        self.present[cpu] = self.counts.iter().position(is_its).unwrap_or_else(|| {
            self.counts.push(Counts { cpu, task, by_node: Vec::new() });
            self.counts.len() - 1
        });
    }

    /// vCPU, context, instructions, task; those that are not 0.
    pub fn parts(&self) -> impl Iterator<Item = (usize, u64, u64, u64)> {
        let of = |counts: &'_ Counts| (counts.cpu, counts.task);
        let all = self.counts.iter().flat_map(move |counts| {
            let (cpu, task) = of(counts);
            (0..).zip(&counts.by_node).map(move |(node, count)| (cpu, node, *count, task))
        });
        all.filter(|(_, _, count, _)| *count > 0)
    }
}

/// What a handler has interrupted, before its first instruction: RIP, CS, the number of the context that RIP is in, in
/// which nothing may have been executed yet, and whether this is between the two functions.
#[cold]
pub fn visit(shadow: &mut Shadow, cpu: usize, functions: &Functions, machine: &impl Machine) -> [u64; 4] {
    let rsp = machine.rsp();
    let [rip, cs] = [0, 8].map(|offset| machine.word(rsp + offset).unwrap_or(0));
    let handler = shadow.cpus[cpu].node;
    let Shadow { tree, cpus, suspended, .. } = shadow;
    let node = match (cpus[cpu].frames.split_last(), entries::entry(rsp, machine)) {
        (Some((Frame { interrupted: Some(past), node, .. }, below)), Some(entry)) if cs & 3 == 0 => {
            let of = |entry: Entry| At { entry, function: functions.at(entry.rip, false).0 };
            let suspended = |at: &Entry| suspended.get(&at.rsp).map_or(&[][..], Vec::as_slice);
            let stacks = Stacks { below, suspended: suspended(&entry) };
            let first = entry.first(machine).map(|first| (of(first), Stacks { below, suspended: suspended(&first) }));
            let first = first.filter(|(first, its)| !stacks.fit(&entry, past) && its.fit(&first.entry, past));
            match first {
                Some((first, its)) => {
                    let interrupted = context(tree, (*node, *past), its, &first, machine);
                    tree.child(interrupted, of(entry).function)
                }
                None => context(tree, (*node, *past), stacks, &of(entry), machine),
            }
        }
        _ => tree.parent(handler),
    };
    [rip, cs, u64::from(node), u64::from(shadow.window.is_open)]
}

/// Where code was interrupted.
struct At {
    entry: Entry,
    function: u32,
}

/// The frames below the interrupted code, and those of the stack that it may have changed to.
struct Stacks<'a> {
    below: &'a [Frame],
    suspended: &'a [Frame],
}

impl Stacks<'_> {
    /// The frame that a return to this place leaves.
    fn place(&self, at: &Entry) -> Option<(&[Frame], usize)> {
        [self.below, self.suspended].into_iter().find_map(|frames| {
            let at = frames.iter().rposition(|frame| frame.returns(at.rip, at.rsp))?;
            Some((frames, at))
        })
    }

    /// Whether the interrupted place can have come after this block.
    fn fit(&self, at: &Entry, past: &Past) -> bool {
        let is_return = !past.is_partial() && matches!(past.block.ending, Ending::Return | Ending::InterruptReturn);
        at.can_follow(past) && (!is_return || self.place(at).is_some())
    }
}

/// The context of `at`, which comes after the block `past` in the context `node`, as `Shadow::step` will find it.
fn context(tree: &mut Tree, (mut node, past): (u32, Past), stacks: Stacks<'_>, at: &At, machine: &impl Machine) -> u32 {
    let block = past.block;
    if past.is_partial() {
        return node;
    }
    if block.place != Place::Kernel {
        return tree.child(node, at.function);
    }
    match block.ending {
        Ending::Call if at.entry.rip == block.target => return tree.child(node, at.function),
        Ending::CallIndirect if machine.word(at.entry.rsp) == Some(block.end) => return tree.child(node, at.function),
        Ending::Return | Ending::InterruptReturn => {
            if let Some((frames, number)) = stacks.place(&at.entry) {
                node = frames[number].node;
                if let Some(past) = frames[number].interrupted {
                    let stacks = Stacks { below: &frames[..number], suspended: &[] };
                    return context(tree, (node, past), stacks, at, machine);
                }
            }
        }
        _ => {}
    }
    if tree.function(node) == at.function { node } else { tree.child(tree.parent(node), at.function) }
}
