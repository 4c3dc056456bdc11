//! The kernel's unwind tables, as the tool has made them of its call frame information. Stage: capture.
//!
//! In: a file of rows of five words: first address, rule, offset of the canonical frame address (CFA), place of the
//! caller's frame pointer and of the return address from there on. The names are those of x86_64: RSP and RBP stand for
//! SP and x29 of aarch64, sp and s0 of riscv64. A row is valid until the next one begins; addresses are those of the
//! kernel's file. Out: the row of an address. Runs in: QEMU's process, and in the tool.

/// What a row says of the CFA, which is the caller's RSP after the return. The numbers are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Rule {
    /// No function is here, or none that is described.
    Nothing = 0,
    /// RSP and the offset.
    Rsp = 1,
    /// RBP and the offset.
    Rbp = 2,
    /// The same as [`Rule::Rsp`], in a function that never says anything else: assembly that forgets to may be one.
    Sole = 3,
    /// The outermost function.
    Outermost = 4,
    /// What this walk does not know: another register, an expression.
    Unknown = 5,
    /// The word at RSP, and the offset: after a change from one stack to another.
    Indirect = 6,
    /// An entry: at RSP and the offset are all registers of what was interrupted, as Linux saves them.
    Saved = 7,
    /// An entry: at RSP and the offset are the five words that the processor has pushed.
    Pushed = 8,
    /// Code that nothing is known to have called: the outermost function, or a thunk.
    Uncalled = 9,
}

/// Stands for "the register is the caller's", and for "nobody knows".
pub const SAME: i64 = i64::MAX;
pub const LOST: i64 = i64::MIN;
/// Where a call of x86_64 has left the return address.
pub const PUSHED: i64 = -8;
/// The words of a row in the file.
const WORDS: usize = 5;

/// A row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub start: u64,
    pub rule: Rule,
    pub offset: i64,
    /// Where the caller's RBP is, from the CFA on; or [`SAME`], or [`LOST`].
    pub rbp: i64,
    /// Where the return address is, from the CFA on: [`PUSHED`] on x86_64; [`SAME`] if it is in the link register.
    pub link: i64,
}

impl Row {
    /// A row of x86_64.
    pub const fn new(start: u64, rule: Rule, offset: i64, rbp: i64) -> Self {
        Self { start, rule, offset, rbp, link: PUSHED }
    }
}

/// All rows, sorted.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    pub rows: Vec<Row>,
    /// How much higher the kernel runs than its file says. Until that is known, nothing is described.
    pub slide: Option<u64>,
}

impl Tables {
    pub fn new(rows: Vec<Row>) -> Self {
        Self { rows, slide: None }
    }

    /// Reads the file's bytes.
    pub fn read(bytes: &[u8]) -> Self {
        let words: Vec<u64> = bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect();
        let row = |words: &[u64; WORDS]| {
            let rule = match words[1] {
                0 => Rule::Nothing,
                1 => Rule::Rsp,
                2 => Rule::Rbp,
                3 => Rule::Sole,
                4 => Rule::Outermost,
                6 => Rule::Indirect,
                7 => Rule::Saved,
                8 => Rule::Pushed,
                9 => Rule::Uncalled,
                _ => Rule::Unknown,
            };
            Row { start: words[0], rule, offset: words[2] as i64, rbp: words[3] as i64, link: words[4] as i64 }
        };
        Self::new(words.as_chunks().0.iter().map(row).collect())
    }

    /// The row of an address of the running kernel; `None` where no function is described.
    pub fn row(&self, address: u64) -> Option<Row> {
        let place = address.wrapping_sub(self.slide?);
        let after = self.rows.partition_point(|row| row.start <= place);
        self.rows[..after].last().copied().filter(|row| row.rule != Rule::Nothing)
    }

    /// Whether another row, or none, begins at this address.
    pub fn ends_before(&self, address: u64) -> bool {
        self.row(address).is_none_or(|row| self.slide.is_some_and(|slide| row.start == address.wrapping_sub(slide)))
    }
}
