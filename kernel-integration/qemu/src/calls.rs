//! System calls with their exact instructions. Stage: fold.
//!
//! In: a message for each call, and the instructions by function of each number and of all that is no call. Out: a row
//! for each number. Every executed instruction is in one of the sums, which is checked by function.

use anyhow::{Result, ensure};
use std::collections::BTreeMap;

/// A system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is asked for: RAX.
    pub number: u64,
    /// Its own instructions.
    pub own: u64,
    /// Those of interrupts that came meanwhile.
    pub interrupts: u64,
    /// Whether it has returned to user code.
    pub has_returned: bool,
}

/// What instructions were executed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Boot, kernel threads, idle.
    Outside,
    /// User code.
    User,
    /// Interrupts, whatever they came in.
    Interrupts,
    /// Exceptions that user code raised.
    Exceptions,
    /// System calls.
    Calls,
}

impl From<u64> for Kind {
    fn from(number: u64) -> Self {
        [Self::Outside, Self::User, Self::Interrupts, Self::Exceptions]
            .get(number as usize)
            .copied()
            .unwrap_or(Self::Calls)
    }
}

/// Instructions of a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// What they were executed for.
    pub kind: Kind,
    /// The call's number.
    pub number: u64,
    /// The function's number.
    pub function: u64,
    /// How many.
    pub instructions: u64,
}

/// All calls of a number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row {
    /// Of each call that has returned, its own instructions; sorted by [`Calls::finish`].
    pub each: Vec<u64>,
    /// Calls that have not returned.
    pub open: u64,
    /// Instructions of all calls, also of those.
    pub own: u64,
    /// Instructions of interrupts meanwhile.
    pub interrupts: u64,
    /// Instructions by number of the function.
    pub functions: BTreeMap<u32, u64>,
}

impl Row {
    /// The quantile `part`, 0 to 1, of the instructions of a call.
    pub fn quantile(&self, part: f64) -> Option<u64> {
        let rank = (self.each.len() as f64 * part).ceil() as usize;
        self.each.get(rank.max(1) - 1).copied()
    }

    /// The functions with the most instructions.
    pub fn top(&self, count: usize) -> Vec<(u32, u64)> {
        let mut all: Vec<(u32, u64)> = self.functions.iter().map(|(function, own)| (*function, *own)).collect();
        all.sort_by_key(|(function, own)| (std::cmp::Reverse(*own), *function));
        all.truncate(count);
        all
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub struct Calls {
    /// By number.
    pub rows: BTreeMap<u64, Row>,
    /// All instructions by kind.
    pub kinds: BTreeMap<Kind, u64>,
    by_function: BTreeMap<u64, u64>,
}

impl Calls {
    /// Takes a call.
    pub fn add(&mut self, call: &Call) {
        let row = self.rows.entry(call.number).or_default();
        if call.has_returned {
            row.each.push(call.own);
        } else {
            row.open += 1;
        }
        row.own += call.own;
        row.interrupts += call.interrupts;
    }

    /// Takes instructions of a function.
    ///
    /// # Errors
    /// If it is no function.
    pub fn hold(&mut self, held: &Held) -> Result<()> {
        let function = u32::try_from(held.function)?;
        *self.kinds.entry(held.kind).or_default() += held.instructions;
        *self.by_function.entry(held.function).or_default() += held.instructions;
        if held.kind == Kind::Calls {
            *self.rows.entry(held.number).or_default().functions.entry(function).or_default() += held.instructions;
        }
        Ok(())
    }

    /// All instructions of a kind.
    pub fn of(&self, kind: Kind) -> u64 {
        self.kinds.get(&kind).copied().unwrap_or(0)
    }

    /// Checks all sums against the instructions by function, and sorts.
    ///
    /// # Errors
    /// If two counts differ.
    pub fn finish(&mut self, by_function: impl Iterator<Item = u64>) -> Result<()> {
        for (function, own) in (0..).zip(by_function) {
            let found = self.by_function.get(&function).copied().unwrap_or(0);
            ensure!(
                found == own,
                "the counts differ for function {function}: {own} instructions by address, {found} by what they were \
                 executed for; please report this"
            );
        }
        for (number, row) in &mut self.rows {
            let sum: u64 = row.functions.values().sum();
            ensure!(
                sum == row.own,
                "the counts differ for system call {number}: {} instructions by call, {sum} by function; please report \
                 this",
                row.own
            );
            row.each.sort_unstable();
        }
        let interrupts: u64 = self.rows.values().map(|row| row.interrupts).sum();
        ensure!(interrupts <= self.of(Kind::Interrupts), "the counts differ: {interrupts} instructions of interrupts");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calls(each: &[(u64, u64)]) -> Calls {
        let mut calls = Calls::default();
        for (number, own) in each {
            calls.add(&Call { number: *number, own: *own, interrupts: 1, has_returned: *own < 1000 });
            let held = Held { kind: Kind::Calls, number: *number, function: *number % 2, instructions: *own };
            calls.hold(&held).unwrap();
        }
        calls.hold(&Held { kind: Kind::Interrupts, number: 0, function: 0, instructions: 9 }).unwrap();
        calls
    }

    #[test]
    fn quantiles_are_of_calls_that_have_returned_and_sums_of_all() {
        let mut all = calls(&[(3, 40), (3, 10), (3, 5000), (3, 20), (3, 30), (4, 7)]);
        all.finish([16, 5100].into_iter()).unwrap();
        let row = &all.rows[&3];
        assert_eq!((row.open, row.own, row.interrupts), (1, 5100, 5));
        assert_eq!([0.0, 0.5, 0.51, 0.99].map(|part| row.quantile(part)), [Some(10), Some(20), Some(30), Some(40)]);
        assert_eq!(row.top(1), [(1, 5100)]);
        assert_eq!(Row::default().quantile(0.5), None);
    }

    #[test]
    fn sums_that_differ_are_an_error() {
        let said = |mut calls: Calls, rows: [u64; 2]| calls.finish(rows.into_iter()).unwrap_err().to_string();
        assert!(said(calls(&[(4, 7)]), [17, 0]).contains("function 0: 17 instructions by address, 16 by"));
        let mut more = calls(&[(4, 7)]);
        more.add(&Call { number: 4, own: 1, interrupts: 0, has_returned: true });
        assert!(said(more, [16, 0]).contains("system call 4: 8 instructions by call, 7 by function"));
        assert!(said(calls(&[(4, 7); 10]), [79, 0]).contains("10 instructions of interrupts"));
    }
}
