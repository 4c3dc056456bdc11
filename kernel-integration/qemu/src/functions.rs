//! The functions of the guest, by number. Stage: symbolize.
//!
//! In: the kernel's symbols, and those of modules and user programs. Out: a number for each function, which the plugin
//! uses too, its name, and the function at an address. An address belongs to the function that `kprof-fold` finds
//! there. Number 0 is kernel code in no function, number 1 user code in no function.

use crate::place::Given;
use crate::plugin::{OF_USER, UNKNOWN, USER};
use anyhow::{Context, Result, ensure};
use kprof_fold::problems::Problems;
use kprof_fold::symbols::table::FAR_BYTES;
use kprof_fold::symbols::{Symbols, name};

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its first address.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
    /// Its name, fit for the output.
    pub name: String,
    /// The number of its image: 0 is the kernel.
    pub image: usize,
}

impl Function {
    /// Whether it is of a program in user space.
    pub fn is_of_user(&self) -> bool {
        self.image > 0 && self.start >> 63 == 0
    }
}

/// All functions.
#[derive(Debug, Default)]
pub struct Functions {
    /// Sorted by kind, kernel first, then by address.
    list: Vec<Function>,
    /// The images' names.
    pub images: Vec<String>,
}

impl Functions {
    /// Reads the kernel, and other images given as `FILE` or `FILE@ADDRESS`.
    ///
    /// # Errors
    /// If a file cannot be read, has no code symbols, or two images overlap.
    pub fn open(given: &Given) -> Result<Self> {
        let mut functions = Self::default();
        functions.add(&given.kernel, "kernel", None)?;
        for other in &given.image {
            let (file, address) = match other.rsplit_once("@0x") {
                Some((file, digits)) => {
                    let address = u64::from_str_radix(digits, 16);
                    (file, Some(address.with_context(|| format!("{other}: `{digits}` is no address"))?))
                }
                None => (&other[..], None),
            };
            functions.add(file, file.rsplit('/').next().unwrap_or(file), address)?;
        }
        functions.list.sort_by_key(|function| (function.is_of_user(), function.start));
        functions.check()?;
        Ok(functions)
    }

    fn check(&self) -> Result<()> {
        for pair in self.list.windows(2) {
            ensure!(
                pair[0].is_of_user() != pair[1].is_of_user() || pair[0].end <= pair[1].start,
                "{} and {} overlap: {} and {} are at the same addresses",
                self.images[pair[0].image],
                self.images[pair[1].image],
                pair[0].name,
                pair[1].name
            );
        }
        Ok(())
    }

    /// The kernel runs higher than its file says: moves its functions in this range. Their numbers do not change.
    ///
    /// # Errors
    /// If they would then overlap other functions, or come after them.
    pub fn slide(&mut self, (from, to): (u64, u64), by: u64) -> Result<()> {
        for function in self.list.iter_mut().filter(|it| it.image == 0 && (from..to).contains(&it.start)) {
            (function.start, function.end) = (function.start.wrapping_add(by), function.end.wrapping_add(by));
        }
        let is_sorted = self.list.is_sorted_by_key(|function| (function.is_of_user(), function.start));
        ensure!(is_sorted, "the kernel runs {by:#x} higher than its file says, among its modules");
        self.check()
    }

    /// Kernel functions of 16 bytes each.
    #[cfg(test)]
    pub fn of<const COUNT: usize>(all: [(&str, u64); COUNT]) -> Self {
        let function =
            |(name, start): (&str, u64)| Function { start, end: start + 16, name: name.to_owned(), image: 0 };
        Self { list: all.into_iter().map(function).collect(), images: vec!["kernel".to_owned()] }
    }

    /// Adds the functions of an image, which is moved so that it begins at `address`.
    fn add(&mut self, file: &str, image: &str, address: Option<u64>) -> Result<()> {
        let symbols = Symbols::open(file, &mut Problems::default())?;
        let base = symbols.elf.as_ref().map_or(0, |elf| elf.base);
        let slide = address.map_or(0, |address| address.wrapping_sub(base));
        let number = self.images.len();
        self.images.push(image.to_owned());
        let table = &symbols.table;
        for at in 0..table.len() {
            let symbol = table.get(at);
            let next = if at + 1 < table.len() { table.get(at + 1).start } else { u64::MAX };
            // A list may have no sizes.
            let code = match &symbols.elf {
                Some(elf) => elf.code(symbol.start).map_or(0, |code| code.len() as u64),
                None => FAR_BYTES,
            };
            let size = if symbol.size > 0 { symbol.size } else { code };
            let end = symbol.start.saturating_add(size).min(next);
            // Linker scripts put symbols at ends (`etext`): such a one has no code, so it is no function.
            if end == symbol.start {
                continue;
            }
            let name = name::clean(&symbols.function(at)).into_owned();
            let (start, end) = (symbol.start.wrapping_add(slide), end.wrapping_add(slide));
            self.list.push(Function { start, end, name, image: number });
        }
        Ok(())
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.list.len() + 2
    }

    /// The function with this number, if it is one.
    fn get(&self, number: u32) -> Option<&Function> {
        self.list.get((number as usize).checked_sub(2)?)
    }

    /// The name of a number.
    pub fn name(&self, number: u32) -> &str {
        match number {
            UNKNOWN => "[unknown]",
            USER => "[user]",
            _ => self.get(number).map_or("[?]", |function| &function.name),
        }
    }

    /// The image of a number.
    pub fn image(&self, number: u32) -> &str {
        self.get(number).map_or(self.name(number), |function| &self.images[function.image])
    }

    /// The number of the function at an address, and whether it begins there.
    pub fn at(&self, address: u64, is_user: bool) -> (u32, bool) {
        let after = self.list.partition_point(|function| (function.is_of_user(), function.start) <= (is_user, address));
        let found = self.list[..after].last().filter(|it| it.is_of_user() == is_user && address < it.end);
        match found {
            Some(function) => (after as u32 + 1, function.start == address),
            None => (if is_user { USER } else { UNKNOWN }, false),
        }
    }

    /// Number, first address and name of each function of the kernel and its modules.
    pub fn of_kernel(&self) -> impl Iterator<Item = (u32, u64, &str)> {
        let all = (2..).zip(&self.list).filter(|(_, function)| !function.is_of_user());
        all.map(|(number, function)| (number, function.start, &function.name[..]))
    }

    /// The first address of the kernel's function with this name.
    pub fn start(&self, name: &str) -> Option<u64> {
        self.list.iter().find(|function| function.image == 0 && function.name == name).map(|function| function.start)
    }

    /// The file for the plugin.
    pub fn bytes(&self) -> Vec<u8> {
        let words = |(function, number): (&Function, u64)| {
            [function.start, function.end, number | if function.is_of_user() { OF_USER } else { 0 }]
        };
        self.list.iter().zip(2..).flat_map(words).flat_map(u64::to_le_bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_a_list_without_sizes_end_where_the_next_one_begins() {
        let mut list = tempfile::NamedTempFile::new().unwrap();
        let text = "ffffffff81000000 T first\nffffffff81000070 t second\nffffffff82000000 T far\n";
        std::io::Write::write_all(&mut list, text.as_bytes()).unwrap();
        let kernel = list.path().display().to_string();
        let mut functions = Functions::open(&Given { kernel, slide: None, image: Vec::new() }).unwrap();
        let at = |functions: &Functions, address| functions.name(functions.at(address, false).0).to_owned();
        let base = 0xffff_ffff_8100_0000;
        for (offset, name) in [(0, "first"), (0x6f, "first"), (0x70, "second"), (0x1_0000, "second")] {
            assert_eq!(at(&functions, base + offset), name, "{offset:#x}");
        }
        assert_eq!(at(&functions, base + 0x2_0000), "[unknown]");
        functions.slide((base, base + 0x100), 0x1000).unwrap();
        assert_eq!([0, 0x1070, 0x100_0000].map(|offset| at(&functions, base + offset)), ["[unknown]", "second", "far"]);
        assert!(functions.slide((base, base + 0x2000), 0x200_0000).is_err());
    }
}
