//! What a counted run has given: rows by function, and the proof that they are exact. Stage: fold.
//!
//! In: runs of instructions with their counts, contexts, totals, and the functions. Out: a row for each function that
//! was executed. Every executed instruction is in one row. The instructions were counted twice, by runs and one by one:
//! a difference is an error. The contexts are a third sum, which must be the same for every function.

use crate::calls::Calls;
use crate::found::Found;
use crate::functions::Functions;
use crate::message::{Context, Message, Run, Totals};
use crate::plugin::UNKNOWN;
use crate::window::Window;
use anyhow::{Result, bail, ensure};
use std::collections::BTreeMap;

/// A function's row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Instructions that were executed in it.
    pub own: u64,
    /// Those and the ones in functions called by it.
    pub total: u64,
    /// How often it was called; without contexts, how often its first instruction was executed.
    pub calls: u64,
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Counted {
    /// By number of the function.
    pub rows: Vec<Row>,
    /// All contexts; empty if only instructions were counted.
    pub contexts: Vec<Context>,
    /// The totals; `None` if they were not received.
    pub totals: Option<Totals>,
    /// What was executed between two functions.
    pub window: Window,
    /// System calls.
    pub calls: Calls,
    /// What probes have found.
    pub probes: Found,
}

impl Counted {
    /// Nothing was counted yet.
    pub fn new(functions: &Functions) -> Self {
        Self { rows: vec![Row::default(); functions.len()], ..Self::default() }
    }

    /// Takes a message.
    ///
    /// # Errors
    /// If it is no message of a counted run.
    pub fn take(&mut self, message: &Message, functions: &Functions) -> Result<()> {
        match message {
            Message::Run(run) => self.run(run, functions),
            Message::Context(context) => {
                let (parent, function) = (context.parent as usize, context.function as usize);
                let is_root = self.contexts.is_empty();
                let is_known = parent < self.contexts.len() && function < self.rows.len();
                ensure!(is_root || is_known, "the plugin sent a context of an unknown caller or function: {context:?}");
                self.contexts.push(*context);
            }
            Message::Totals(totals) => self.totals = Some(*totals),
            Message::Part(part) => self.window.parts.push(*part),
            Message::Visit(visit) => self.window.visits.push(*visit),
            Message::Stop(number, visit) => self.window.stops.push((*number, *visit)),
            Message::Halted(halted) => self.window.halts.push(*halted),
            Message::Call(call) => self.calls.add(call),
            Message::Held(held) => self.calls.hold(held)?,
            Message::Probed(probed) => drop(self.probes.probes.insert(probed.number, probed.clone())),
            Message::Key(probe, key, calls) => {
                self.probes.keys.entry(*probe).or_default().insert(*key, *calls);
            }
            Message::Times(probe, range, calls) => {
                self.probes.times.entry(*probe).or_default().insert(usize::try_from(*range)?, *calls);
            }
            Message::Hit(hit) => drop(self.probes.hits.insert(hit.probe, hit.clone())),
            _ => bail!("the plugin samples, and was not asked to"),
        }
        Ok(())
    }

    fn run(&mut self, run: &Run, functions: &Functions) {
        let mut address = run.start;
        for length in &run.lengths {
            let (number, is_first) = match run.is_unknown {
                true => (UNKNOWN, false),
                false => functions.at(address, run.is_user),
            };
            let row = &mut self.rows[number as usize];
            row.own += run.count;
            row.calls += if is_first { run.count } else { 0 };
            address = address.wrapping_add(u64::from(*length));
        }
    }

    /// Checks that all sums are the same, and adds calls and totals from the contexts.
    ///
    /// # Errors
    /// If QEMU was killed before the counts were sent; if two counts differ.
    pub fn finish(&mut self, functions: &Functions) -> Result<Totals> {
        let Some(totals) = self.totals else {
            bail!("QEMU ended without sending its counts (was it killed?); end it with Ctrl-C, quit or a power-off");
        };
        let by_runs = self.own();
        ensure!(
            by_runs == totals.executed,
            "the counts differ: {by_runs} instructions by function, {} one by one; please report this",
            totals.executed
        );
        if !self.contexts.is_empty() {
            self.compare(functions)?;
            self.add_contexts();
        }
        Ok(totals)
    }

    /// The sum over all functions.
    pub fn own(&self) -> u64 {
        self.rows.iter().map(|row| row.own).sum()
    }

    /// The contexts below the root.
    fn below_root(&self) -> impl Iterator<Item = &Context> {
        self.contexts.iter().skip(1)
    }

    fn compare(&self, functions: &Functions) -> Result<()> {
        let mut by_context = vec![0; self.rows.len()];
        self.below_root().for_each(|context| by_context[context.function as usize] += context.instructions);
        let root = self.contexts.first().map_or(0, |root| root.instructions);
        ensure!(root == 0, "the counts differ: {root} instructions are in no context; please report this");
        for ((row, by_context), number) in self.rows.iter().zip(by_context).zip(0..) {
            ensure!(
                row.own == by_context,
                "the counts differ for {}: {} instructions by address, {by_context} by context; please report this",
                functions.name(number),
                row.own
            );
        }
        Ok(())
    }

    fn add_contexts(&mut self) {
        // A context comes after its caller's.
        let mut below: Vec<u64> = self.contexts.iter().map(|context| context.instructions).collect();
        for number in (1..self.contexts.len()).rev() {
            below[self.contexts[number].parent as usize] += below[number];
        }
        self.rows.iter_mut().for_each(|row| (row.calls, row.total) = (0, 0));
        for (number, below) in below.into_iter().enumerate().skip(1) {
            let context = self.contexts[number];
            // A function that is in a stack more than once counts once.
            let is_outermost = !self.callers(number).any(|caller| caller.function == context.function);
            let row = &mut self.rows[context.function as usize];
            row.calls += context.calls;
            row.total += if is_outermost { below } else { 0 };
        }
    }

    /// The contexts of all callers, innermost first.
    fn callers(&self, number: usize) -> impl Iterator<Item = &Context> {
        let next = |number: &usize| Some(self.contexts[*number].parent as usize).filter(|parent| *parent != 0);
        std::iter::successors(next(&number), next).map(|number| &self.contexts[number])
    }

    /// The stack of each context: names from the outermost.
    pub fn names(&self, functions: &Functions) -> Vec<String> {
        let mut names: Vec<String> = vec![String::new()];
        for context in self.below_root() {
            let (caller, own) = (&names[context.parent as usize], functions.name(context.function));
            names.push(if caller.is_empty() { own.to_owned() } else { format!("{caller};{own}") });
        }
        names
    }

    /// Folded stacks, sorted: names from the outermost, and instructions.
    pub fn folded(&self, functions: &Functions) -> BTreeMap<String, u64> {
        let mut folded = BTreeMap::new();
        let names = self.names(functions).into_iter().skip(1);
        for (context, name) in self.below_root().zip(names).filter(|(context, _)| context.instructions > 0) {
            *folded.entry(name).or_insert(0) += context.instructions;
        }
        folded
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three functions of 16 bytes: numbers 2, 3, 4, names f, g, h.
    fn functions() -> Functions {
        Functions::of([("f", 0x1000), ("g", 0x1010), ("h", 0x1020)])
    }

    fn run(count: u64, start: u64, instructions: usize) -> Message {
        let (is_user, is_unknown) = (false, false);
        Message::Run(Run { count, start, is_user, is_unknown, lengths: vec![4; instructions] })
    }

    fn context(parent: u32, function: u32, instructions: u64, calls: u64) -> Message {
        Message::Context(Context { parent, function, instructions, calls })
    }

    fn counted(messages: &[Message], executed: u64) -> Result<Counted> {
        let mut counted = Counted::new(&functions());
        messages.iter().try_for_each(|message| counted.take(message, &functions()))?;
        counted.take(&Message::Totals(Totals { executed, ..Totals::default() }), &functions())?;
        counted.finish(&functions()).map(|_| counted)
    }

    #[test]
    fn every_instruction_is_in_one_row_and_a_run_may_be_of_two_functions() {
        let rows = counted(&[run(10, 0x1000, 6), run(3, 0x1010, 1), run(2, 0x1030, 2)], 67).unwrap().rows;
        let row = |own, calls| Row { own, total: 0, calls };
        assert_eq!(rows, [row(4, 0), row(0, 0), row(40, 10), row(23, 13), row(0, 0)]);
    }

    /// The plugin has not found a moved kernel yet when the first code of it is executed.
    #[test]
    fn code_that_was_translated_before_the_kernel_was_found_is_unknown_by_address_as_in_its_context() {
        let early =
            Message::Run(Run { count: 10, start: 0x1000, is_user: false, is_unknown: true, lengths: vec![4; 4] });
        let messages = [early, context(0, u32::MAX, 0, 0), context(0, UNKNOWN, 40, 0)];
        assert_eq!(counted(&messages, 40).unwrap().rows[UNKNOWN as usize].own, 40);
    }

    #[test]
    fn counts_that_differ_are_an_error() {
        let root = context(0, u32::MAX, 0, 0);
        let good = [run(10, 0x1000, 4), root.clone(), context(0, 2, 40, 1)];
        assert!(counted(&good, 40).is_ok());
        let said = |messages: &[Message], executed| counted(messages, executed).unwrap_err().to_string();
        assert!(said(&good, 41).contains("40 instructions by function, 41 one by one"));
        let elsewhere = [good[0].clone(), root.clone(), context(0, 2, 39, 1), context(1, 3, 1, 1)];
        assert!(said(&elsewhere, 40).contains("differ for f: 40 instructions by address, 39 by context"));
        assert!(said(&[good[0].clone(), context(0, u32::MAX, 40, 0)], 40).contains("in no context"));
        assert!(said(&[root, context(7, 2, 40, 0)], 40).contains("unknown caller"));
        assert!(Counted::new(&functions()).finish(&functions()).unwrap_err().to_string().contains("was it killed"));
    }

    #[test]
    fn a_recursive_function_has_its_callees_once() {
        // f calls g, which calls f, which calls h.
        let contexts = [context(0, 2, 4, 1), context(1, 3, 8, 2), context(2, 2, 12, 2), context(3, 4, 16, 4)];
        let mut messages = vec![run(4, 0x1000, 4), run(4, 0x1010, 2), run(4, 0x1020, 4), context(0, u32::MAX, 0, 0)];
        messages.extend(contexts);
        let counted = counted(&messages, 40).unwrap();
        let row = |own, total, calls| Row { own, total, calls };
        assert_eq!(counted.rows[2..], [row(16, 40, 3), row(8, 36, 2), row(16, 16, 4)]);
        let folded: Vec<_> = counted.folded(&functions()).into_iter().collect();
        let expected = [("f", 4), ("f;g", 8), ("f;g;f", 12), ("f;g;f;h", 16)];
        assert_eq!(folded, expected.map(|(stack, count)| (stack.to_owned(), count)));
    }
}
