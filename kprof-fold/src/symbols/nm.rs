//! Symbols from the text that `nm` prints. Stage: symbolize.
//!
//! In: `nm -CS`, plain `nm`, `llvm-nm`, demangled or not, in any order. Out: the [`Table`] of its code symbols (types
//! t, T, w, W). A malformed line is reported with its number and skipped.

use super::name::is_label;
use super::table::Table;
use crate::error::Error;
use crate::problems::{Kind, Problems, shown};
use crate::read::blocks::{Block, Blocks};
use crate::read::hex::{hex64, sixteen_and_space};
use crate::read::lines::Lines;
use std::io::Read;

/// Reads the whole text; `head` are bytes already taken from `reader`.
///
/// # Errors
/// If the file cannot be read or has no code symbol.
pub fn read(file: &str, head: Vec<u8>, reader: impl Read, problems: &mut Problems) -> Result<Table, Error> {
    let mut table = Table::default();
    let mut number = 0u64;
    let mut take = |line: &[u8], problems: &mut Problems| {
        number += 1;
        if let Err(why) = add(&mut table, line.strip_suffix(b"\r").unwrap_or(line)) {
            problems.add(Kind::Symbol, || format!("{file}:{number}: {why} in {}; line skipped", shown(line)));
        }
    };
    let mut blocks = Blocks::new(head, reader);
    loop {
        match blocks.next_block().map_err(|error| Error::io(file, "read", error))? {
            Block::Lines(lines) => Lines::of(lines).for_each(|line| take(line, problems)),
            Block::Unfinished(line) => take(line, problems),
            Block::TooLong(_) => take(b"(a line longer than 4 MiB)", problems),
            Block::End => break,
        }
    }
    table.finish();
    if table.is_empty() {
        let todo = "print them with `nm -CS KERNEL > syms.txt`, from a kernel that is not stripped, or give the ELF file itself";
        return Err(Error::unusable(file, format!("no code symbol (type t, T, w or W) in {number} lines; {todo}")));
    }
    if let Some(both) = table.at_zero() {
        let [one, other] = both.map(|name| String::from_utf8_lossy(name).into_owned());
        let todo = "give the symbols at the addresses where they ran, as /proc/kallsyms has them";
        return Err(Error::unusable(
            file,
            format!("{one} and {other} both begin at 0, so it lists a relocatable file (.o, .ko); {todo}"),
        ));
    }
    Ok(table)
}

/// Adds the symbol of one line, if it is code. Blank lines, archive members and undefined symbols are not errors.
fn add(table: &mut Table, line: &[u8]) -> Result<(), &'static str> {
    // Nearly every line is like this: two numbers of 16 digits, a letter, a name.
    if let Some((start, rest)) = sixteen_and_space(line)
        && let Some((size, rest)) = sixteen_and_space(rest)
        && let [kind, b' ', name @ ..] = rest
        && !name.is_empty()
        && name.last() != Some(&b':')
    {
        return take(table, start, size, *kind, name);
    }
    if line.first().is_none_or(|byte| byte.is_ascii_whitespace()) || line.last() == Some(&b':') {
        return Ok(());
    }
    let (address, rest) = field(line).ok_or("no type and name")?;
    let start = hex64(address).map_err(|_| "the address is not a hexadecimal number")?;
    let (second, rest) = field(rest).ok_or("no name")?;
    let (size, kind, name) = match second {
        // A single letter is a type, not a size. nm prints sizes with at least two digits; other tools may print one,
        // so a single digit is not a type.
        [kind] if !kind.is_ascii_digit() => (0, *kind, rest),
        _ => {
            let size = hex64(second).map_err(|_| "neither a size nor a type after the address")?;
            match field(rest) {
                Some(([kind], name)) => (size, *kind, name),
                _ => return Err("no type after the size"),
            }
        }
    };
    if name.is_empty() {
        return Err("the name is empty");
    }
    take(table, start, size, kind, name)
}

fn take(table: &mut Table, start: u64, size: u64, kind: u8, name: &[u8]) -> Result<(), &'static str> {
    // After a TAB come the source line (nm -l) or the module (/proc/kallsyms).
    let name = name.split(|byte| *byte == b'\t').next().unwrap_or_default();
    if !matches!(kind, b't' | b'T' | b'w' | b'W') || is_label(name) {
        return Ok(());
    }
    let added = table.add(start, size, kind.is_ascii_uppercase(), name);
    if added { Ok(()) } else { Err("more than 4 GiB of names") }
}

/// The bytes before the first space, and those after it.
fn field(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = bytes.iter().position(|byte| *byte == b' ')?;
    Some((&bytes[..space], &bytes[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbols(text: &[u8]) -> (Vec<(u64, u64, bool, String)>, Problems) {
        let mut problems = Problems::default();
        let table = read("syms", text.to_vec(), std::io::empty(), &mut problems).expect("has symbols");
        let one = |number| {
            let symbol = table.get(number);
            let name = String::from_utf8_lossy(table.name(number)).into_owned();
            (symbol.start, symbol.size, symbol.global, name)
        };
        ((0..table.len()).map(one).collect(), problems)
    }

    #[test]
    fn the_forms_of_gnu_and_llvm_nm_are_read() {
        let text = b"0000000000001000 0000000000000020 T with size\n0000000000002000 t plain\r\n\
            \x20                U undefined\n0000000000003000 D data\n\nfile.o:\n3500 W <A as B<[u8; 4]>>::f\n4000 5 t short";
        let (symbols, problems) = symbols(text);
        let expected = [
            (0x1000, 0x20, true, "with size"),
            (0x2000, 0, false, "plain"),
            (0x3500, 0, true, "<A as B<[u8; 4]>>::f"),
            (0x4000, 5, false, "short"),
        ];
        assert_eq!(symbols, expected.map(|(start, size, global, name)| (start, size, global, name.to_owned())));
        assert_eq!(problems.skipped(), 0, "{problems}");
    }

    #[test]
    fn a_name_ends_at_a_tab() {
        let text = b"1000 0000000000000020 T map\t/build/mm.rs:3\n2000 t e1000_receive\t[e1000]\n";
        let names: Vec<String> = symbols(text).0.into_iter().map(|symbol| symbol.3).collect();
        assert_eq!(names, ["map", "e1000_receive"]);
    }

    #[test]
    fn a_damaged_line_costs_itself_and_is_named() {
        let text = b"zz T a\n1000 T good\n99999999999999999 T b\n1000\n1000 xyz T c\n1000 T \n1000 10 TT d\n";
        let (symbols, problems) = symbols(text);
        assert_eq!(symbols.len(), 1);
        assert_eq!(problems.count(Kind::Symbol), 6, "{problems}");
        assert!(problems.to_string().contains("syms:3: the address"), "{problems}");
    }

    #[test]
    fn a_file_without_code_symbols_is_refused_with_what_to_do() {
        for text in [&b""[..], b"1000 D data\n", b"kmain 0 1 2\n", b"\0\0\0"] {
            let error = read("syms", text.to_vec(), std::io::empty(), &mut Problems::default()).unwrap_err();
            assert!(error.to_string().contains("nm -CS"), "{error}");
        }
    }
}
