//! Probes: what happens at the first instruction of chosen functions, and until they return. Stage: capture.
//!
//! In: a file of words; from the shadow stack, entries of functions and returns. Out: for each probe how often it was
//! hit, by whom, and how long the calls took in the guest's clock. Runs in: QEMU's process, before a block. The guest
//! has no way to notice: nothing is written to it, and its clock counts its own instructions only.
//!
//! A hit waits at the frame of its call, so it ends when that frame is returned to, also if its task has slept
//! meanwhile. A function that jumps to another one shares its frame. Where no frame is (the kernel's entry from user
//! code, the first function of a thread), and in calls that never return, a hit does not end.

use super::block::Machine;
use super::context::WordMap;
use super::functions::words;
use super::histogram;

/// The words of one probe, before its conditions: address, 1 if the time is measured, key, number of the call that is
/// reported or 0, number of conditions. A condition is three words: register, comparison, value.
const WORDS: usize = 5;
/// The most keys of a probe; calls with others are counted under [`OTHER`].
const MAX_KEYS: usize = 1 << 16;
const OTHER: u64 = u64::MAX;
/// Two stack pointers within this many bytes are taken for the same stack.
const STACK_BYTES: u64 = 16 * 1024;
/// The registers of arguments: RDI, RSI, RDX, RCX, R8, R9.
const ARGUMENTS: [usize; 6] = [7, 6, 2, 1, 8, 9];
/// No hit.
pub const NONE: u32 = 0;

/// A condition on an argument.
#[derive(Clone, Copy, Debug)]
struct Condition {
    argument: usize,
    comparison: u64,
    value: u64,
}

impl Condition {
    fn holds(&self, arguments: &[u64; 6]) -> bool {
        let (found, value) = (arguments.get(self.argument).copied().unwrap_or(0), self.value);
        match self.comparison {
            0 => found == value,
            1 => found != value,
            2 => found < value,
            3 => found <= value,
            4 => found > value,
            5 => found >= value,
            _ => found & value != 0,
        }
    }
}

/// The times of calls that have returned.
#[derive(Clone, Debug)]
pub struct Times {
    pub returned: u64,
    pub sum: u64,
    pub min: u64,
    pub max: u64,
    /// By range, as far as there are any.
    pub by_range: Vec<u64>,
}

impl Default for Times {
    fn default() -> Self {
        Self { returned: 0, sum: 0, min: u64::MAX, max: 0, by_range: Vec::new() }
    }
}

/// A probe at one function.
#[derive(Default)]
pub struct Probe {
    has_time: bool,
    key: u64,
    nth: u64,
    conditions: Vec<Condition>,
    pub calls: u64,
    pub times: Times,
    pub keys: WordMap<u64>,
}

/// A call that has not returned yet.
#[derive(Clone, Copy, Debug)]
struct Hit {
    probe: u32,
    start: u64,
    /// Another one at the same frame.
    next: u32,
}

/// What is at the first instruction of a function.
pub struct Here {
    pub caller: u32,
    /// The outermost place of the present stack.
    pub stack: u64,
    pub executed: u64,
}

/// All probes.
#[derive(Default)]
pub struct Probes {
    pub list: Vec<Probe>,
    at: WordMap<Vec<u32>>,
    hits: Vec<Hit>,
    free: Vec<u32>,
}

impl Probes {
    /// Reads the file's bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let words = words(bytes);
        let (mut probes, mut rest) = (Self::default(), &words[..]);
        while let [address, time, key, nth, conditions, after @ ..] = rest {
            let (own, next) = after.split_at((*conditions as usize * 3).min(after.len()));
            let condition = |one: &[u64; 3]| Condition { argument: one[0] as usize, comparison: one[1], value: one[2] };
            let conditions = own.as_chunks().0.iter().map(condition).collect();
            probes.at.entry(*address).or_default().push(probes.list.len() as u32);
            let probe = Probe { has_time: *time != 0, key: *key, nth: *nth, conditions, ..Probe::default() };
            probes.list.push(probe);
            rest = next;
        }
        debug_assert!(rest.len() < WORDS);
        probes
    }

    /// The kernel runs higher than its file says: moves the probes in this range.
    pub fn slide(&mut self, (from, to): (u64, u64), by: u64) {
        let all = std::mem::take(&mut self.at).into_iter();
        let moved = |at: u64| if (from..to).contains(&at) { at.wrapping_add(by) } else { at };
        self.at = all.map(|(at, probes)| (moved(at), probes)).collect();
    }

    pub fn has(&self, address: u64) -> bool {
        self.at.contains_key(&address)
    }

    /// A function is entered. Its hits are added to those at its frame. Calls `report` with the number of a probe and
    /// the arguments if this call is to be reported.
    pub fn enter(
        &mut self,
        address: u64,
        here: &Here,
        frame: Option<&mut u32>,
        machine: &impl Machine,
        mut report: impl FnMut(u32, &[u64; 6]),
    ) {
        let Some(numbers) = self.at.get(&address) else { return };
        let arguments = ARGUMENTS.map(|register| machine.register(register));
        let mut first = frame.as_ref().map_or(NONE, |first| **first);
        for number in numbers {
            let probe = &mut self.list[*number as usize];
            if !probe.conditions.iter().all(|condition| condition.holds(&arguments)) {
                continue;
            }
            probe.calls += 1;
            if probe.calls == probe.nth {
                report(*number, &arguments);
            }
            let key = match probe.key {
                0 => None,
                1 => Some(u64::from(here.caller)),
                2 => Some(here.stack / STACK_BYTES * STACK_BYTES),
                argument => arguments.get(argument as usize - 3).copied(),
            };
            if let Some(key) = key {
                let is_full = probe.keys.len() >= MAX_KEYS && !probe.keys.contains_key(&key);
                *probe.keys.entry(if is_full { OTHER } else { key }).or_default() += 1;
            }
            if probe.has_time && frame.is_some() {
                let hit = Hit { probe: *number, start: machine.time(here.executed), next: first };
                first = match self.free.pop() {
                    Some(at) => {
                        self.hits[at as usize - 1] = hit;
                        at
                    }
                    None => {
                        self.hits.push(hit);
                        self.hits.len() as u32
                    }
                };
            }
        }
        if let Some(frame) = frame {
            *frame = first;
        }
    }

    /// A frame with hits was returned to.
    #[cold]
    pub fn leave(&mut self, first: u32, executed: u64, machine: &impl Machine) {
        let mut at = first;
        let now = if at == NONE { 0 } else { machine.time(executed) };
        while at != NONE {
            let hit = self.hits[at as usize - 1];
            let (took, times) = (now.saturating_sub(hit.start), &mut self.list[hit.probe as usize].times);
            times.returned += 1;
            times.sum += took;
            (times.min, times.max) = (times.min.min(took), times.max.max(took));
            let range = histogram::range(took);
            if range >= times.by_range.len() {
                times.by_range.resize(range + 1, 0);
            }
            times.by_range[range] += 1;
            self.free.push(at);
            at = hit.next;
        }
    }
}
