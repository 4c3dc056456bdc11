//! `--fail-if 'mm::* > +2%'`: tests a claim about a change. Stage: diff.
//!
//! In: the claim as written. Out: the rows for which it holds at the chosen confidence. The number is in percent of all
//! samples: `mm::map > +2%` says that the share of samples with `mm::map` in their stack has grown by more than two
//! percent points. `own mm::* > +2%` is about self time. A claim holds for a row if the whole interval of the change
//! lies beyond the number.

use super::{Diff, Kind, Row};
use crate::select::Pattern;
use crate::symbols::INLINED;

/// A claim.
#[derive(Clone, Debug, PartialEq)]
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
            Some(("self", pattern)) => (Kind::Own, pattern.trim_start()),
            Some(("total", pattern)) => (Kind::Total, pattern.trim_start()),
            _ => (Kind::Total, left),
        };
        if pattern.is_empty() {
            return Err(bad());
        }
        Ok(Self { text: text.to_owned(), kind, pattern: Pattern::new(pattern), grows: sign == '>', by: by / 100.0 })
    }
}

impl Claim {
    /// The rows for which the claim holds.
    pub fn holds<'a>(&self, diff: &'a Diff) -> Vec<&'a Row> {
        let beyond = |row: &&Row| if self.grows { row.change.low > self.by } else { row.change.high < self.by };
        diff.rows.iter().filter(|row| self.speaks_of(row)).filter(beyond).collect()
    }

    /// Whether the claim is about this kind of row.
    pub fn speaks_of(&self, row: &Row) -> bool {
        let function = row.name.strip_suffix(INLINED).unwrap_or(&row.name);
        row.kind == self.kind && (self.pattern.fits(&row.name) || self.pattern.fits(function))
    }

    /// The functions that the claim is about.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// The claim as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::super::compare_counts;
    use super::*;

    #[test]
    fn a_claim_holds_only_beyond_the_interval() {
        let counts = |samples| [((Kind::Total, "mm::map".to_owned()), samples)].into();
        let diff = compare_counts(&counts(1000), 10_000, &counts(1500), 10_000, 0.99);
        let holds = |text: &str| !text.parse::<Claim>().expect("is a claim").holds(&diff).is_empty();
        assert!(holds("total  mm::map > +2%") && holds(" mm::map  >  +2%") && holds("total\tmm::* > +2%"));
        assert!(holds("mm::*>+2%") && holds("mm::* > +2%") && holds("total mm::map > +0%"));
        assert!(!holds("mm::* > +5%") && !holds("self mm::* > +2%") && !holds("mm::* < -2%") && !holds("fs::* > +2%"));
    }

    #[test]
    fn a_function_that_is_inlined_is_spoken_of_by_its_name() {
        let counts = |samples| [((Kind::Total, "mm::map (inlined)".to_owned()), samples)].into();
        let diff = compare_counts(&counts(1000), 10_000, &counts(1500), 10_000, 0.99);
        assert_eq!("mm::map > +2%".parse::<Claim>().expect("is a claim").holds(&diff).len(), 1);
    }

    #[test]
    fn what_is_no_claim_is_explained() {
        for text in ["", "mm", "mm > 2", "mm > x%", "> 2%", "mm = 2%"] {
            assert!(text.parse::<Claim>().is_err_and(|why| why.contains("mm::* > +2%")), "{text}");
        }
    }
}
