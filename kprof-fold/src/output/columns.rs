//! Tables of text: the one writer of all columns. Stage: output.
//!
//! In: rows of cells. Out: lines in which each column is aligned to the right and as wide as its widest cell, or as a
//! least width, so that tables of small numbers look alike. The last word of a row is not aligned: it may be long.

/// A table that is being made.
#[derive(Debug, Default)]
pub struct Columns {
    widths: Vec<usize>,
    rows: Vec<(Vec<String>, String)>,
}

impl Columns {
    /// A table without rows, whose columns have these least widths.
    pub fn new(widths: &[usize]) -> Self {
        Self { widths: widths.to_vec(), rows: Vec::new() }
    }

    /// A table whose first row is these heads, each with the least width of its column.
    pub fn with_heads<T: ToString>(heads: impl IntoIterator<Item = (T, usize)>, last: &str) -> Self {
        let (heads, widths): (Vec<_>, Vec<_>) = heads.into_iter().unzip();
        let mut table = Self::new(&widths);
        table.row(heads, last);
        table
    }

    /// Adds a row.
    pub fn row<T: ToString>(&mut self, cells: impl IntoIterator<Item = T>, last: impl Into<String>) {
        self.rows.push((cells.into_iter().map(|cell| cell.to_string()).collect(), last.into()));
    }

    /// Adds a line that has no columns.
    pub fn line(&mut self, text: String) {
        self.rows.push((Vec::new(), text));
    }

    /// The lines.
    pub fn text(&self) -> String {
        let widest = |at: usize| self.rows.iter().filter_map(|(cells, _)| Some(cells.get(at)?.chars().count())).max();
        let width = |(at, least): (usize, &usize)| widest(at).unwrap_or(0).max(*least);
        let widths: Vec<usize> = self.widths.iter().enumerate().map(width).collect();
        let line = |(cells, last): &(Vec<String>, String)| {
            if cells.is_empty() {
                return format!("{last}\n");
            }
            let cells = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$} "));
            format!("{} {last}", cells.collect::<String>()).trim_end().to_owned() + "\n"
        };
        self.rows.iter().map(line).collect()
    }
}

/// A bar whose length is the part that `count` has of `most`.
pub fn bar(count: u64, most: u64) -> String {
    /// Length of the longest bar in characters.
    const WIDTH: u128 = 40;
    "#".repeat((u128::from(count) * WIDTH).div_ceil(u128::from(most.max(1))) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell_and_the_last_word_is_not_aligned() {
        let mut table = Columns::with_heads([("self %", 8), ("self", 3)], "function");
        table.row(["1.00", "7"], "a");
        table.row(["99.00", "123456"], "");
        assert_eq!(table.text(), "  self %   self  function\n    1.00      7  a\n   99.00 123456\n");
        assert_eq!((bar(1, 1).len(), bar(0, 5).len(), bar(u64::MAX, u64::MAX).len()), (40, 0, 40));
    }
}
