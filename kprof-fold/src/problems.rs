//! Problems: pieces of the input that were skipped or look wrong, each with its place. Stage: read and symbolize.
//!
//! In: one report per damaged piece. Out: at most ten messages per kind, and the number of all. So memory is bounded,
//! however damaged the input is. This module only stores the reports; the readers decide what is skipped.

use std::fmt;

/// Messages kept per kind.
const KEPT_PER_KIND: u64 = 10;
/// Bytes of foreign input shown in a message.
const SHOWN_BYTES: usize = 40;

/// What is wrong with a piece of input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A sample line with a missing, empty, non-hexadecimal or too large field.
    Sample,
    /// A line longer than 4 MiB.
    LongLine,
    /// A `#` line whose key is known but whose value cannot be read.
    Metadata,
    /// A batch that does not match its checksum, or has no end.
    VoidBatch,
    /// Lines outside any batch, in a file that has batches.
    Stray,
    /// A batch whose positions partly overlap those of an earlier one.
    Overlap,
    /// A batch with fewer readable samples than its last line says.
    BatchCount,
    /// A batch whose first or last line is missing but whose samples are used.
    BatchLine,
    /// Positions that are in no batch of the file.
    Hole,
    /// A damaged line or gap of the serial form.
    Serial,
    /// A damaged chunk of the binary form.
    Chunk,
    /// A line of the symbol file that is not a symbol.
    Symbol,
    /// Something unusual that caused no loss.
    Note,
}

impl Kind {
    const ALL: [Self; 13] = [
        Self::Sample,
        Self::LongLine,
        Self::Metadata,
        Self::VoidBatch,
        Self::Stray,
        Self::Overlap,
        Self::BatchCount,
        Self::BatchLine,
        Self::Hole,
        Self::Serial,
        Self::Chunk,
        Self::Symbol,
        Self::Note,
    ];

    /// Whether a problem of this kind means that something was skipped.
    fn skips(self) -> bool {
        !matches!(self, Self::Note)
    }

    fn what(self) -> &'static str {
        match self {
            Self::Sample => "sample lines skipped",
            Self::LongLine => "lines longer than 4 MiB skipped",
            Self::Metadata => "metadata lines skipped",
            Self::VoidBatch => "damaged batches left out",
            Self::Stray => "pieces outside any batch left out",
            Self::Overlap => "batches that overlap earlier ones left out",
            Self::BatchCount => "batches with fewer samples than they name",
            Self::BatchLine => "batches without a first or last line",
            Self::Hole => "holes between batches",
            Self::Serial => "serial lines damaged or missing",
            Self::Chunk => "binary chunks skipped",
            Self::Symbol => "symbol lines skipped",
            Self::Note => "notes",
        }
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What kind of problem.
    pub kind: Kind,
    /// File and line or byte, then the cause.
    pub text: String,
}

/// All problems found so far.
#[derive(Debug, Default)]
pub struct Problems {
    kept: Vec<Problem>,
    counts: [u64; Kind::ALL.len()],
    /// For each kind, the number of lines in its pieces, if they are counted.
    lines: [u64; Kind::ALL.len()],
}

impl Problems {
    /// Stores one problem. `text` is called only if its message will be kept.
    pub fn add(&mut self, kind: Kind, text: impl FnOnce() -> String) {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        if *count <= KEPT_PER_KIND {
            self.kept.push(Problem { kind, text: text() });
        }
    }

    /// Stores one problem with a piece of this many lines.
    pub fn add_lines(&mut self, kind: Kind, lines: u64, text: impl FnOnce() -> String) {
        self.lines[kind as usize] += lines;
        self.add(kind, text);
    }

    /// How many problems of this kind were found.
    pub fn count(&self, kind: Kind) -> u64 {
        self.counts[kind as usize]
    }

    /// How many pieces were skipped.
    pub fn skipped(&self) -> u64 {
        Kind::ALL.into_iter().filter(|kind| kind.skips()).map(|kind| self.count(kind)).sum()
    }

    /// The kept messages, in the order in which the problems were found.
    pub fn kept(&self) -> &[Problem] {
        &self.kept
    }

    /// Adds the problems of another part of the input.
    pub fn append(&mut self, other: Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.lines.iter_mut().zip(other.lines) {
            *mine += theirs;
        }
        self.kept.extend(other.kept);
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.kept {
            writeln!(f, "{}", problem.text)?;
        }
        for kind in Kind::ALL {
            let count = self.count(kind);
            if count > KEPT_PER_KIND {
                let lines = self.lines[kind as usize];
                let with = if lines > 0 { format!(", with {lines} lines") } else { String::new() };
                writeln!(f, "... {count} {} in all{with}", kind.what())?;
            }
        }
        Ok(())
    }
}

/// Bytes of the input in a form for messages: escaped, and truncated to 40 bytes.
pub fn shown(bytes: &[u8]) -> String {
    let cut = bytes.len() > SHOWN_BYTES;
    let text = bytes[..bytes.len().min(SHOWN_BYTES)].escape_ascii();
    format!("`{text}`{}", if cut { "..." } else { "" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_ten_messages_of_a_kind_are_kept_and_all_are_counted() {
        let mut problems = Problems::default();
        for line in 1..=2000 {
            problems.add(Kind::Sample, || format!("file:{line}: bad"));
        }
        problems.add(Kind::Note, || "file:9: odd".to_owned());
        assert_eq!(problems.kept().len(), 11);
        assert_eq!(problems.skipped(), 2000);
        let text = problems.to_string();
        assert!(text.contains("file:10: bad") && !text.contains("file:11: bad"));
        assert!(text.ends_with("... 2000 sample lines skipped in all\n"), "{text}");
    }

    #[test]
    fn every_kind_has_its_own_count() {
        for (index, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
    }
}
