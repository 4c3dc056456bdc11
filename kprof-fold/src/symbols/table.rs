//! The table of code symbols: finds the function that an address belongs to. Stage: symbolize.
//!
//! In: symbols in any order, from `nm` or an ELF file. Out: one symbol per address, looked up by binary search. Rules
//! (design, symbols and folding): of several symbols at one address, a sized one is preferred to an unsized one, then a
//! global one to a local one, then the smallest name by bytes. An address belongs to the symbol with the greatest start
//! that is not above it. If that symbol ends before the address, the address belongs to no symbol, even if an earlier
//! symbol reaches that far. A symbol without a size ends with its section, if that is known, and after 64 KiB. Within a
//! function that has a size it is a label of an assembler, to which no address belongs.

/// A symbol as in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// First address.
    pub start: u64,
    /// Its length in bytes; 0 if the file does not give it.
    pub size: u64,
    /// How many bytes from its first address on belong to it.
    reach: u64,
    /// Whether it is visible to other object files (`T`, `W`).
    pub global: bool,
    /// Where its raw name begins in the names.
    name: u32,
    /// The length of its name in bytes.
    name_len: u32,
}

/// Symbols by address.
#[derive(Debug, Default)]
pub struct Table {
    symbols: Vec<Symbol>,
    /// Symbols without a size within functions that have one.
    labels: Vec<Symbol>,
    /// Symbols of the same code as one in `symbols`, whose name was preferred; by address.
    others: Vec<Symbol>,
    names: Vec<u8>,
    /// Two functions of different sizes that both begin at address 0, as in a list of a file that is not linked.
    at_zero: Option<[Symbol; 2]>,
}

/// A symbol without a size is taken to end after so many bytes, because such a long function is rare.
pub const FAR_BYTES: u64 = 64 * 1024;

impl Table {
    /// Adds a symbol. If the names fill 4 GiB, adds nothing and returns false.
    pub fn add(&mut self, start: u64, size: u64, global: bool, name: &[u8]) -> bool {
        self.add_within(u64::MAX, (start, size), global, name)
    }

    /// As [`add`](Self::add), with the end of the section.
    pub fn add_within(&mut self, end: u64, (start, size): (u64, u64), global: bool, name: &[u8]) -> bool {
        let (Ok(at), Ok(name_len)) = (u32::try_from(self.names.len()), u32::try_from(name.len())) else { return false };
        self.names.extend_from_slice(name);
        let reach = if size > 0 { size } else { FAR_BYTES.min(end.saturating_sub(start)) };
        self.symbols.push(Symbol { start, size, reach, global, name: at, name_len });
        true
    }

    /// Sorts the symbols and keeps one per address. Called after all of them have been added.
    pub fn finish(&mut self) {
        let names = &self.names;
        let name = |symbol: &Symbol| &names[symbol.name as usize..][..symbol.name_len as usize];
        if !self.symbols.is_sorted_by(|a, b| a.start < b.start) {
            self.symbols.sort_unstable_by(|a, b| {
                let sized_first = (a.size == 0).cmp(&(b.size == 0));
                let then = || sized_first.then(b.global.cmp(&a.global)).then_with(|| name(a).cmp(name(b)));
                a.start.cmp(&b.start).then_with(|| then().then(a.size.cmp(&b.size)))
            });
            let at_zero =
                || self.symbols.iter().take_while(|symbol| symbol.start == 0).filter(|symbol| symbol.size > 0);
            let first = at_zero().next().copied();
            let other = first.and_then(|first| at_zero().find(|symbol| symbol.size != first.size).copied());
            self.at_zero = first.zip(other).map(|(first, other)| [first, other]);
            self.symbols.dedup_by(|other, kept| {
                if other.start == kept.start && other.size == kept.size && kept.size > 0 {
                    self.others.push(*other);
                }
                other.start == kept.start
            });
        }
        // Where the last symbol with a size ends. An earlier one that reaches further is no function.
        let mut covered = 0;
        let mut is_label = |symbol: &mut Symbol| {
            let is_label = symbol.size == 0 && symbol.start < covered;
            if symbol.size > 0 {
                covered = symbol.start.saturating_add(symbol.size);
            }
            is_label
        };
        self.labels = self.symbols.extract_if(.., &mut is_label).collect();
    }

    /// The number of the symbol that `address` belongs to.
    #[inline]
    pub fn find(&self, address: u64) -> Option<usize> {
        self.nearest(address).filter(|number| address - self.get(*number).start < self.get(*number).reach)
    }

    /// The names of two different functions that both begin at address 0: the list is of a file whose sections have no
    /// addresses yet.
    pub fn at_zero(&self) -> Option<[&[u8]; 2]> {
        self.at_zero.as_ref().map(|both| [self.name_of(&both[0]), self.name_of(&both[1])])
    }

    /// The raw names of the same code that were not preferred to that of the symbol with this number.
    pub fn other_names(&self, number: usize) -> impl Iterator<Item = &[u8]> {
        let start = self.symbols[number].start;
        let from = self.others.partition_point(|other| other.start < start);
        self.others[from..].iter().take_while(move |other| other.start == start).map(|other| self.name_of(other))
    }

    /// The number of the symbol with the greatest start that is not above `address`.
    #[inline]
    pub fn nearest(&self, address: u64) -> Option<usize> {
        self.symbols.partition_point(|symbol| symbol.start <= address).checked_sub(1)
    }

    /// Whether a symbol or a label starts at this address.
    pub fn has_start(&self, address: u64) -> bool {
        let starts = |all: &[Symbol]| all.binary_search_by_key(&address, |symbol| symbol.start).is_ok();
        starts(&self.symbols) || starts(&self.labels)
    }

    /// Whether a symbol starts in the range from `from` to one before `to`.
    pub fn starts_within(&self, from: u64, to: u64) -> bool {
        let first = self.symbols.partition_point(|symbol| symbol.start < from);
        self.symbols.get(first).is_some_and(|symbol| symbol.start < to)
    }

    /// The symbol with this number.
    pub fn get(&self, number: usize) -> &Symbol {
        &self.symbols[number]
    }

    /// The raw name of the symbol with this number.
    pub fn name(&self, number: usize) -> &[u8] {
        self.name_of(&self.symbols[number])
    }

    fn name_of(&self, symbol: &Symbol) -> &[u8] {
        &self.names[symbol.name as usize..][..symbol.name_len as usize]
    }

    /// The number of symbols.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// The addresses of all symbols and labels with this name. The name may be raw, demangled, or the last part of a
    /// path.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = u64> + 'a {
        let is_it = move |symbol: &&Symbol| {
            let raw = self.name_of(symbol);
            if memchr::memmem::find(raw, name.rsplit("::").next().unwrap_or(name).as_bytes()).is_none() {
                return false;
            }
            let frame = super::name::frame_name(raw);
            frame == name || frame.strip_suffix(name).is_some_and(|path| path.ends_with("::"))
        };
        self.symbols.iter().chain(&self.labels).filter(is_it).map(|symbol| symbol.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(symbols: &[(u64, u64, bool, &str)]) -> Table {
        let mut table = Table::default();
        for (start, size, global, name) in symbols {
            assert!(table.add(*start, *size, *global, name.as_bytes()));
        }
        table.finish();
        table
    }

    fn name(table: &Table, address: u64) -> Option<&str> {
        table.find(address).map(|number| std::str::from_utf8(table.name(number)).unwrap())
    }

    #[test]
    fn one_symbol_per_address_by_size_then_visibility_then_name() {
        let all = [(16, 0, true, "a"), (16, 8, false, "c"), (16, 8, true, "e"), (16, 8, true, "d"), (16, 0, true, "0")];
        for turn in 0..all.len() {
            let mut symbols = all;
            symbols.rotate_left(turn);
            assert_eq!(name(&table(&symbols), 16), Some("d"));
        }
        assert_eq!(name(&table(&all[..2]), 16), Some("c"));
    }

    #[test]
    fn past_the_end_of_a_sized_symbol_is_nobody_even_under_an_earlier_one() {
        let table = table(&[(0x100, 0x1000, true, "wide"), (0x200, 0x10, true, "inner"), (0x1100, 0, false, "open")]);
        assert_eq!(name(&table, 0xff), None);
        assert_eq!(name(&table, 0x1ff), Some("wide"));
        assert_eq!(name(&table, 0x20f), Some("inner"));
        assert_eq!(name(&table, 0x210), None);
        assert_eq!(name(&table, 0x10ff), None);
        assert_eq!(name(&table, 0x1100), Some("open"));
    }

    #[test]
    fn a_symbol_without_a_size_ends_with_its_section_and_after_64_kib() {
        let mut table = Table::default();
        assert!(table.add_within(0x1080, (0x1000, 0), false, b"near") && table.add(0x2000, 0, false, b"far"));
        table.finish();
        assert_eq!((name(&table, 0x107f), name(&table, 0x1080)), (Some("near"), None));
        assert_eq!((name(&table, 0x1_1fff), name(&table, 0x1_2000)), (Some("far"), None));
    }

    #[test]
    fn a_label_within_a_sized_function_is_found_by_its_name_only() {
        let table = table(&[(0x100, 0x20, true, "copy"), (0x110, 0, false, "copy_loop"), (0x120, 0, false, "next")]);
        assert_eq!([0x10f, 0x110, 0x11f, 0x120].map(|at| name(&table, at)), ["copy", "copy", "copy", "next"].map(Some));
        assert_eq!(table.named("copy_loop").collect::<Vec<_>>(), [0x110]);
        assert!(table.has_start(0x110) && table.has_start(0x120) && !table.has_start(0x111));
    }
}
