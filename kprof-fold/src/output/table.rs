//! Self and total time per function. Stage: output, shared by report, top and diff.
//!
//! In: folded stacks. Out: one row per function. Self: samples in which the function is the innermost frame.
//! Total: samples in whose stack it is, counted once per sample even if it is recursive.

use crate::fold::Folded;
use crate::fold::frames::FrameId;

/// A function's samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its frame.
    pub frame: FrameId,
    /// Samples in which it is innermost.
    pub self_samples: u64,
    /// Samples in whose stack it is.
    pub total: u64,
}

/// Rows of all functions, sorted by self time, then total time, then name.
pub fn rows(folded: &Folded) -> Vec<Row> {
    let mut rows: Vec<Row> =
        (0..folded.frames.len() as u32).map(|frame| Row { frame, self_samples: 0, total: 0 }).collect();
    let mut last_stack = vec![usize::MAX; rows.len()];
    for (number, stack) in folded.stacks.iter().enumerate() {
        for frame in folded.frames_of(stack) {
            if std::mem::replace(&mut last_stack[*frame as usize], number) != number {
                rows[*frame as usize].total += stack.samples;
            }
        }
        if let Some(innermost) = folded.frames_of(stack).last() {
            rows[*innermost as usize].self_samples += stack.samples;
        }
    }
    rows.retain(|row| row.total > 0);
    let name = |row: &Row| folded.frames.name(row.frame);
    rows.sort_by(|a, b| {
        b.self_samples.cmp(&a.self_samples).then(b.total.cmp(&a.total)).then_with(|| name(a).cmp(name(b)))
    });
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_calls_itself_is_counted_once() {
        let mut folded = Folded::default();
        let [main, f] = ["main", "f"].map(|name| folded.frames.named(name));
        folded.push([main, f, f, f], 5);
        folded.push([main], 2);
        assert_eq!(
            rows(&folded),
            [Row { frame: f, self_samples: 5, total: 5 }, Row { frame: main, self_samples: 2, total: 7 }]
        );
    }
}
