//! Which executed instructions are a system call's own. Stage: capture.
//!
//! In: from the shadow stack, entries from user code, interrupts, returns to user code, and executed instructions. Out:
//! for each call its own instructions and those of interrupts that came meanwhile; for each number of a call, and for
//! all that is no call, the instructions by function. Every executed instruction has one owner.
//!
//! Each guest stack has an owner. A frame of the shadow stack keeps the one below it, so a call that sleeps, or that an
//! interrupt has preempted, goes on with its own counts when its stack is used again, on whatever vCPU. An exception
//! that the call's own code raises (a page that is not mapped yet) is part of the call. A call ends when user code runs
//! on its stack. One whose stack is never used again (`exit`) has not returned; it is counted until its last
//! instruction.

use super::block::{Block, Past};
use super::context::WordMap;
use super::decode::Ending;

/// What is no call. The numbers are those of messages.
pub const OUTSIDE: u32 = 0;
pub const USER: u32 = 1;
pub const INTERRUPT: u32 = 2;
pub const EXCEPTION: u32 = 3;
/// Owners from here on are calls.
const FIRST: u32 = 4;
const NO_CALL: u32 = u32::MAX;

/// Who owns the instructions that a guest stack executes now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// What is no call, or the place of the call's number.
    kind: u32,
    /// The call: that itself, or the one that an interrupt has interrupted.
    call: u32,
}

impl Default for Owner {
    fn default() -> Self {
        Self::no_call(OUTSIDE)
    }
}

impl Owner {
    pub fn no_call(kind: u32) -> Self {
        Self { kind, call: NO_CALL }
    }

    /// The owner in a handler. A call keeps its exceptions, and user code's are of a kind of their own.
    pub fn interrupted(self, is_exception: bool) -> Self {
        match (is_exception, self.kind) {
            (true, USER) => Self::no_call(EXCEPTION),
            (true, _) => self,
            (false, _) => Self { kind: INTERRUPT, call: self.call },
        }
    }
}

/// A system call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    pub number: u64,
    pub own: u64,
    pub interrupts: u64,
    pub has_returned: bool,
}

/// Instructions by function, of a kind or of a call's number.
#[derive(Default)]
struct Held {
    number: u64,
    by_function: Vec<u64>,
}

/// All calls.
#[derive(Default)]
pub struct Calls {
    pub is_on: bool,
    /// The first instruction of the kernel's entry, if `syscall` is not what leads there.
    pub entry: Option<u64>,
    open: Vec<Option<Call>>,
    free: Vec<u32>,
    finished: Vec<Call>,
    held: Vec<Held>,
    places: WordMap<u32>,
}

impl Calls {
    /// Counts calls from now on.
    pub fn begin(&mut self, entry: Option<u64>) {
        (self.is_on, self.entry) = (true, entry);
        self.held.resize_with(FIRST as usize, Held::default);
    }

    /// Whether the kernel's block, which follows after user code, is the entry of a system call.
    pub fn is_entry(&self, past: &Past, block: &Block) -> bool {
        match self.entry {
            Some(entry) => block.start == entry,
            None => past.block.ending == Ending::ToKernel && !past.is_partial(),
        }
    }

    /// A call begins.
    #[cold]
    pub fn enter(&mut self, number: u64) -> Owner {
        if !self.is_on {
            return Owner::default();
        }
        let held = &mut self.held;
        let kind = *self.places.entry(number).or_insert_with(|| {
            held.push(Held { number, ..Held::default() });
            held.len() as u32 - 1
        });
        let call = self.free.pop().unwrap_or_else(|| {
            self.open.push(None);
            self.open.len() as u32 - 1
        });
        self.open[call as usize] = Some(Call { number, ..Call::default() });
        Owner { kind, call }
    }

    /// The stack of this owner is left for user code.
    pub fn leave(&mut self, owner: Owner) {
        if owner.kind < FIRST {
            return;
        }
        if let Some(call) = self.open.get_mut(owner.call as usize).and_then(Option::take) {
            self.finished.push(Call { has_returned: true, ..call });
            self.free.push(owner.call);
        }
    }

    /// So many instructions of a function were executed.
    #[inline]
    pub fn add(&mut self, owner: Owner, function: u32, count: u64) {
        if self.is_on {
            self.add_on(owner, function as usize, count);
        }
    }

    fn add_on(&mut self, owner: Owner, function: usize, count: u64) {
        let by_function = &mut self.held[owner.kind as usize].by_function;
        if function >= by_function.len() {
            by_function.resize(function + 1, 0);
        }
        by_function[function] += count;
        if let Some(Some(call)) = self.open.get_mut(owner.call as usize) {
            let of = if owner.kind < FIRST { &mut call.interrupts } else { &mut call.own };
            *of += count;
        }
    }

    /// All calls: those that have returned, in the order in which they did, then the others.
    pub fn all(&self) -> impl Iterator<Item = &Call> {
        self.finished.iter().chain(self.open.iter().flatten())
    }

    /// Kind, number of the call or 0, function, instructions; those that are not 0. All calls are of kind 4.
    pub fn functions(&self) -> impl Iterator<Item = [u64; 4]> {
        let all = (0..).zip(&self.held);
        all.flat_map(|(kind, held)| {
            let rows = (0..).zip(&held.by_function).filter(|(_, count)| **count > 0);
            rows.map(move |(function, count)| [u64::from(FIRST.min(kind)), held.number, function, *count])
        })
    }
}
