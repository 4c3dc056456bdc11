//! The stacks of the sampler beside those of gdb, and beside exact ones where they differ.
//!
//! In: for each sample the stack that the sampler found, the one that gdb found at the same stop, and the one of the
//! shadow stack, which follows every call, if the vCPU went on from there. Out: how many are the same, and each kind of
//! difference with its number and an example. gdb may be wrong, too: it has to guess where code has no unwind
//! information, and knows no registers of interrupted code. So the shadow stack decides.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};

use crate::stacks::Stack;

/// At least this many of 100 stacks must reach their root.
const MIN_COMPLETE: usize = 90;
/// At least this many of 100 frames must be confirmed by gdb. Less shows nothing.
const MIN_FRAMES: usize = 50;

/// A frame of gdb: address, and function; `?` without debug information.
pub type Frame = (u64, String);

/// One sample.
pub struct Sample {
    pub ours: Stack,
    pub gdb: Vec<Frame>,
    pub exact: Option<Stack>,
}

/// What a comparison says. The text is the function whose caller is another one, or the reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Same,
    /// gdb ends with this function, and confirms all until there.
    GdbEnds(String),
    /// Ours ends at its root, and gdb goes on from this function.
    GdbGoesOn(String),
    /// Ours is the exact one; gdb finds another caller of this function.
    GdbIsWrong(String),
    /// No exact one is known, and gdb has to guess the caller of this function.
    GdbGuesses(String),
    /// Ours ends early, for this reason; all until there is confirmed.
    Incomplete(String),
    /// Ours is another one than the exact one, or than that of gdb and no exact one is known.
    Wrong(String),
}

impl Sample {
    /// How many frames both have, from the sampled instruction on.
    fn common(&self) -> usize {
        let pairs = self.ours.addresses.iter().zip(&self.gdb);
        pairs.take_while(|(ours, (gdb, _))| *ours == gdb).count()
    }

    /// Whether gdb has to guess the caller of this frame: it has no debug information, or was interrupted, or is
    /// outside of one that was.
    fn guesses(&self, frame: usize) -> bool {
        let is_interrupted = self.ours.frames.len().checked_sub(self.ours.first_interrupted());
        self.gdb.get(frame).is_none_or(|(_, name)| name == "?") || is_interrupted.is_some_and(|first| frame >= first)
    }

    fn is_exact(&self, exact: &Stack) -> bool {
        exact.frames.ends_with(&self.ours.frames) || self.ours.differs_where_interrupted(exact)
    }

    fn is_whole(&self) -> bool {
        self.exact.as_ref().is_some_and(|exact| exact.frames.len() == self.ours.frames.len())
    }

    /// Whether the shadow stack has lost callers, as it does where a kernel patches its own code: gdb confirms every
    /// frame of ours, and the shadow stack has the innermost ones only.
    fn has_lost_callers(&self) -> bool {
        let is_part =
            |exact: &Stack| exact.frames.len() < self.ours.frames.len() && self.ours.frames.ends_with(&exact.frames);
        self.common() == self.ours.addresses.len() && self.exact.as_ref().is_some_and(is_part)
    }

    /// The outermost function, if the shadow stack says that it is that.
    fn root(&self) -> Option<&String> {
        self.ours.frames.first().filter(|_| self.is_whole() && self.ours.truncated.is_none())
    }

    /// In: the outermost functions of all samples.
    fn verdict(&self, roots: &BTreeSet<&String>) -> Verdict {
        let (common, ours, gdb) = (self.common(), self.ours.addresses.len(), self.gdb.len());
        let last = common.saturating_sub(1);
        let callee = self.ours.frames.iter().rev().nth(last).cloned().unwrap_or_default();
        let has_lost_callers = self.has_lost_callers();
        let exact = self.exact.as_ref().filter(|_| !has_lost_callers);
        let is_exact = exact.map(|exact| self.is_exact(exact));
        match (&self.ours.truncated, is_exact) {
            _ if is_exact == Some(false) && (common < ours || common < gdb) => Verdict::Wrong(callee),
            (Some(reason), _) if common == ours => Verdict::Incomplete(format!("{reason}, after {callee}")),
            _ if common == ours && common == gdb => Verdict::Same,
            _ if common == gdb => Verdict::GdbEnds(callee),
            _ if has_lost_callers && roots.contains(&callee) => Verdict::GdbGoesOn(callee),
            _ if common == ours && (self.is_whole() || self.guesses(last)) => Verdict::GdbGoesOn(callee),
            (_, Some(true)) if common < ours => Verdict::GdbIsWrong(callee),
            (_, None) if common < ours && self.guesses(last) => Verdict::GdbGuesses(callee),
            _ => Verdict::Wrong(callee),
        }
    }

    fn example(&self) -> String {
        let numbers =
            |all: &mut dyn Iterator<Item = u64>| all.map(|it| format!("{it:x}")).collect::<Vec<_>>().join(" ");
        let ours = numbers(&mut self.ours.addresses.iter().copied());
        let exact = self.exact.as_ref().map_or("not known".to_owned(), |exact| exact.frames.join(";"));
        let gdb = numbers(&mut self.gdb.iter().map(|(at, _)| *at));
        format!("ours {ours} ({}) | gdb {gdb} | exact {exact}", self.ours.frames.join(";"))
    }
}

/// Compares them, prints what differs, and returns how many are of kernel code.
///
/// # Errors
/// If a stack is wrong; if too many are incomplete, or too few frames are confirmed.
pub fn judge(samples: &[Sample]) -> Result<usize> {
    let mut verdicts = BTreeMap::<Verdict, (usize, String)>::new();
    let (mut frames, mut confirmed, mut decided) = (0, 0, 0);
    let roots: BTreeSet<&String> = samples.iter().filter_map(Sample::root).collect();
    for sample in samples {
        verdicts.entry(sample.verdict(&roots)).or_insert_with(|| (0, sample.example())).0 += 1;
        frames += sample.ours.addresses.len();
        confirmed += sample.common();
        decided += usize::from(sample.exact.is_some() && !sample.has_lost_callers());
    }
    let sum = |of: fn(&Verdict) -> bool| -> usize {
        verdicts.iter().filter(|(verdict, _)| of(verdict)).map(|(_, (count, _))| count).sum()
    };
    let wrong = sum(|verdict| matches!(verdict, Verdict::Wrong(_)));
    let incomplete = samples.iter().filter(|sample| sample.ours.truncated.is_some()).count();
    let all = samples.len();
    println!(
        "{all} stacks beside those of gdb: {} are the same; gdb ends early in {}, goes on below the root in {}, has a \
         wrong caller in {}, guesses in {}; ours end early in {incomplete}, are wrong in {wrong}. {confirmed} of \
         {frames} frames are confirmed; the exact stack is known for {decided}",
        sum(|verdict| *verdict == Verdict::Same),
        sum(|verdict| matches!(verdict, Verdict::GdbEnds(_))),
        sum(|verdict| matches!(verdict, Verdict::GdbGoesOn(_))),
        sum(|verdict| matches!(verdict, Verdict::GdbIsWrong(_))),
        sum(|verdict| matches!(verdict, Verdict::GdbGuesses(_))),
    );
    for (verdict, (count, example)) in verdicts.iter().filter(|(verdict, _)| **verdict != Verdict::Same) {
        println!("{count:>7}  {verdict:?}: {example}");
    }
    ensure!(wrong == 0, "{wrong} of {all} stacks have a wrong frame");
    ensure!((all - incomplete) * 100 >= all * MIN_COMPLETE, "{incomplete} of {all} stacks end early");
    ensure!(confirmed * 100 >= frames * MIN_FRAMES, "gdb confirms {confirmed} of {frames} frames: too few");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(addresses: &[u64]) -> Stack {
        let mut stack = Stack::default();
        stack.frames = addresses.iter().rev().map(|address| format!("f{address}")).collect();
        stack.addresses = addresses.to_vec();
        stack
    }

    fn sample(ours: &[u64], gdb: &[u64], exact: Option<&[u64]>) -> Sample {
        let gdb = gdb.iter().map(|address| (*address, format!("f{address}"))).collect();
        Sample { ours: stack(ours), gdb, exact: exact.map(stack) }
    }

    #[test]
    fn a_stack_that_gdb_and_the_shadow_stack_have_otherwise_is_wrong() {
        let verdict = |ours: &[u64], gdb: &[u64], exact| sample(ours, gdb, exact).verdict(&BTreeSet::new());
        let f = |number: u64| format!("f{number}");
        assert_eq!(verdict(&[1, 2, 3], &[1, 2, 3], None), Verdict::Same);
        assert_eq!(verdict(&[1, 9, 3], &[1, 2, 3], Some(&[1, 2, 3])), Verdict::Wrong(f(1)));
        assert_eq!(verdict(&[1, 9, 3], &[1, 2, 3], None), Verdict::Wrong(f(1)));
        assert_eq!(verdict(&[1, 3], &[1, 2, 3], Some(&[1, 2, 3])), Verdict::Wrong(f(1)), "a caller is missing");
        assert_eq!(verdict(&[1, 2, 3], &[1, 9, 3], Some(&[1, 2, 3])), Verdict::GdbIsWrong(f(1)));
        assert_eq!(verdict(&[1, 2, 3], &[1, 2], None), Verdict::GdbEnds(f(2)));
        assert_eq!(verdict(&[1, 2], &[1, 2, 3], Some(&[1, 2])), Verdict::GdbGoesOn(f(2)));
        assert_eq!(verdict(&[1, 2], &[1, 2, 3], None), Verdict::Wrong(f(2)), "it ends early without saying so");
        assert_eq!(verdict(&[1, 2], &[1, 2, 3], Some(&[1, 2, 3])), Verdict::Wrong(f(2)), "and the exact one goes on");
        assert!(judge(&[sample(&[1, 2], &[1, 2, 3], None)]).is_err());
    }

    #[test]
    fn where_the_shadow_stack_has_lost_callers_gdb_decides() {
        let root = "f3".to_owned();
        let verdict = |ours: &[u64], gdb: &[u64]| sample(ours, gdb, Some(&[1])).verdict(&BTreeSet::from([&root]));
        let f = |number: u64| format!("f{number}");
        assert_eq!(verdict(&[1, 2, 3], &[1, 2, 3]), Verdict::Same);
        assert_eq!(verdict(&[1, 2, 3], &[1, 2, 3, 4]), Verdict::GdbGoesOn(f(3)), "f3 is a root elsewhere");
        assert_eq!(verdict(&[1, 2], &[1, 2, 3]), Verdict::Wrong(f(2)), "f2 is no root");
        assert_eq!(verdict(&[1, 9], &[1, 2]), Verdict::Wrong(f(1)), "gdb does not confirm it");
        let whole = sample(&[1, 2, 3], &[1, 2, 3, 4], Some(&[1, 2, 3]));
        assert_eq!(whole.root(), Some(&root));
        assert_eq!(sample(&[1, 2, 3], &[1, 2, 3], Some(&[1])).root(), None);
    }

    #[test]
    fn where_gdb_has_no_debug_information_it_guesses() {
        let mut guessed = sample(&[1, 2, 3], &[1, 9, 3], None);
        guessed.gdb[0].1 = "?".to_owned();
        assert_eq!(guessed.verdict(&BTreeSet::new()), Verdict::GdbGuesses("f1".to_owned()));
        let mut short = sample(&[1, 2], &[1, 2, 3], None);
        short.ours.truncated = Some("6".to_owned());
        assert_eq!(short.verdict(&BTreeSet::new()), Verdict::Incomplete("6, after f2".to_owned()));
        assert!(judge(&[short]).is_err_and(|error| error.to_string().contains("end early")));
    }
}
