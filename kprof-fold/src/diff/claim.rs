//! `--fail-if 'mm::* > +2%'`: tests a claim about a change. Stage: diff.
//!
//! In: the claim as written. Out: the rows for which it holds at the chosen confidence. The number is in percent of all
//! samples: `mm::map > +2%` says that the share of samples with `mm::map` in their stack has grown by more than two
//! percent points. `self mm::* > +2%` is about self time. A claim holds for a row if the one-sided confidence interval
//! of the change lies completely beyond the number. A claim is chosen before the profiles are known, so it is tested by
//! itself: its allowed chance of a false alarm is 1 minus the confidence. If it names several functions, that chance is
//! divided among them. So a gate with ten claims raises a false alarm ten times as often as one with a single claim.

use super::significance::Interval;
use super::{Diff, Kind, Row};
use crate::select::Pattern;
use crate::symbols::INLINED;

/// A claim.
#[derive(Clone, Debug)]
pub struct Claim {
    text: String,
    kind: Kind,
    pattern: Pattern,
    grows: bool,
    by: f64,
}

impl std::str::FromStr for Claim {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a claim such as 'mm::* > +2%', 'self memcpy > +0.5%' or 'idle < -3%'");
        let (left, sign, right) = text
            .rsplit_once('>')
            .map(|(left, right)| (left, '>', right))
            // The last `<` or `>` is the comparison; names of generic functions may contain others before it.
            .filter(|(.., right)| !right.contains('<'))
            .or_else(|| text.rsplit_once('<').map(|(left, right)| (left, '<', right)))
            .ok_or_else(bad)?;
        let by: f64 = right.trim().strip_suffix('%').and_then(|number| number.parse().ok()).ok_or_else(bad)?;
        if !by.is_finite() {
            return Err(bad());
        }
        let left = left.trim();
        let (kind, pattern) = match left.split_once(char::is_whitespace) {
            Some(("self", pattern)) => (Kind::SelfSamples, pattern.trim_start()),
            Some(("total", pattern)) => (Kind::Total, pattern.trim_start()),
            _ => (Kind::Total, left),
        };
        if pattern.is_empty() {
            return Err(bad());
        }
        let pattern = pattern.parse()?;
        Ok(Self { text: text.to_owned(), kind, pattern, grows: sign == '>', by: by / 100.0 })
    }
}

impl Claim {
    /// The rows that the claim is about; `None` if neither they nor `functions`, the names of all functions on both
    /// sides, have such a name.
    pub fn rows<'a>(&self, diff: &'a Diff, functions: &[String]) -> Option<Vec<&'a Row>> {
        let rows = || diff.rows.iter().filter(|row| row.kind == self.kind);
        let names = rows().map(|row| function(&row.name)).chain(functions.iter().map(String::as_str));
        let meant = self.pattern.among(names);
        meant.closest.map(|_| rows().filter(|row| meant.is(function(&row.name))).collect())
    }

    /// The change of each row that the claim is about, and whether the claim holds for it. `rows` must be all rows that
    /// [`rows`](Self::rows) has returned.
    pub fn test<'a>(&self, rows: &[&'a Row], confidence: f64) -> Vec<Tested<'a>> {
        let chance = (1.0 - confidence) / rows.len().max(1) as f64;
        let test = |row: &&'a Row| {
            // `interval` puts half of its chance on each side. Only one end is used here, so it gets twice the chance.
            let change = row.interval(2.0 * chance);
            let is_beyond = if self.grows { change.low > self.by } else { change.high < self.by };
            // A claim of a change needs the exact test too; a claim that something did not change otherwise has none.
            let is_of_change = if self.grows { self.by >= 0.0 } else { self.by <= 0.0 };
            let holds = is_beyond && (!is_of_change || row.one_sided(self.grows) <= chance);
            Tested { row, change, holds }
        };
        rows.iter().map(test).collect()
    }

    /// The functions that the claim is about, as written.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The claim as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// A row that a claim is about.
#[derive(Clone, Copy, Debug)]
pub struct Tested<'a> {
    /// The row.
    pub row: &'a Row,
    /// Its change, with an interval of which the claim uses only one end.
    pub change: Interval,
    /// Whether the claim holds for it.
    pub holds: bool,
}

/// The name of a function without the mark of an inlined one.
fn function(name: &str) -> &str {
    name.strip_suffix(INLINED).unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::super::{Method, Run, compare};
    use super::*;

    fn held(text: &str, diff: &Diff) -> usize {
        let claim: Claim = text.parse().expect("is a claim");
        let rows = claim.rows(diff, &[]).unwrap_or_default();
        claim.test(&rows, 0.99).into_iter().filter(|tested| tested.holds).count()
    }

    /// One run on each side, with 10 000 samples.
    fn diff(name: &str, old: u64, new: u64) -> Diff {
        let run = |samples| Run {
            counts: [((Kind::Total, name.to_owned()), samples)].into(),
            samples: 10_000,
            ..Run::default()
        };
        compare(&[run(old)], &[run(new)], Method { confidence: 0.99, is_same_work: false })
    }

    #[test]
    fn a_claim_holds_only_beyond_the_interval() {
        let diff = diff("mm::map", 1000, 1500);
        let holds = |text: &str| held(text, &diff) > 0;
        assert!(holds("total  mm::map > +2%") && holds(" mm::map  >  +2%") && holds("total\tmm::* > +2%"));
        assert!(holds("mm::*>+2%") && holds("mm::* > +2%") && holds("total mm::map > +0%"));
        assert!(!holds("mm::* > +5%") && !holds("self mm::* > +2%") && !holds("mm::* < -2%") && !holds("fs::* > +2%"));
    }

    #[test]
    fn one_sample_of_a_short_run_is_no_proof() {
        let run =
            |count, samples| Run { counts: [((Kind::Total, "f".to_owned()), count)].into(), samples, ..Run::default() };
        let method = Method { confidence: 0.99, is_same_work: false };
        // Chance alone gives the first one in one of fifty cases, and the second one in one of ten thousand.
        let diff = compare(&[run(0, 1000)], &[run(1, 20)], method);
        assert!(held("f > +0%", &diff) == 0 && !diff.rows[0].is_significant() && diff.rows[0].p_value > 0.019);
        let diff = compare(&[run(0, 1000)], &[run(3, 20)], method);
        assert!(held("f > +0%", &diff) == 1 && diff.rows[0].is_significant());
    }

    #[test]
    fn a_function_that_is_inlined_is_spoken_of_by_its_name() {
        let diff = diff("mm::map (inlined)", 1000, 1500);
        assert_eq!(held("mm::map > +2%", &diff), 1);
    }

    #[test]
    fn what_is_no_claim_is_explained() {
        for text in ["", "mm", "mm > 2", "mm > x%", "> 2%", "mm = 2%"] {
            assert!(text.parse::<Claim>().is_err_and(|why| why.contains("mm::* > +2%")), "{text}");
        }
    }
}
