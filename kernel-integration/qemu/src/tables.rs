//! Unwind tables of a kernel without frame pointers. Stage: symbolize.
//!
//! In: what the file of a kernel for x86_64, aarch64 or riscv64 says in `.eh_frame` or `.debug_frame` (read by
//! `kprof_fold::unwind::described`). Out: rows for the walk, by which the return address is found at each instruction;
//! or nothing if the kernel keeps frame pointers. Rules that the walk does not know become rows at which a stack ends.

use crate::walk::Tables;
use crate::walk::tables::{LOST, Row, Rule, SAME};
use crate::{framed, orc};
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use kprof_fold::unwind::described::{Cfa, Described, Place, Row as CfiRow};
use std::fs;

/// A kernel has frame pointers if this many of 100 functions that build a frame use RBP for it.
const FRAME_POINTERS_PERCENT: usize = 50;
/// A function has built a frame if its return address is further away than this: a pushed register or two.
const MIN_FRAME: i64 = 24;

/// How stacks are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Unwind {
    /// By the tables if the kernel's file has some, and most of its functions have no frame pointer; else by frames.
    Auto,
    /// By frame pointers.
    Frames,
    /// By the unwind tables (`.eh_frame`, `.debug_frame`) of the kernel's file.
    Tables,
}

/// The tables, if stacks are to be found by them: of the kernel's file, or of another one. Says so.
///
/// # Errors
/// If they are asked for and the file has none.
pub fn choose(kernel: &str, other: Option<&str>, unwind: Unwind) -> Result<Option<Tables>> {
    if unwind == Unwind::Frames {
        return Ok(None);
    }
    let file = other.unwrap_or(kernel);
    let unwind = if other.is_some() { Unwind::Tables } else { unwind };
    let data = fs::read(file).with_context(|| format!("{file}: cannot read"))?;
    if let Some(rows) = orc::rows(&data).with_context(|| format!("{file}: its ORC tables"))? {
        eprintln!("kprof-qemu: stacks are found by the ORC tables of {file}, which have {} rows", rows.len());
        return Ok(Some(Tables::new(rows)));
    }
    let described = if data.starts_with(b"\x7fELF") { Described::read(&data)? } else { Described::default() };
    let (with, all) = with_frame_pointers(&described);
    match unwind {
        _ if described.functions.is_empty() && unwind == Unwind::Tables => {
            bail!(
                "{file}: has neither .eh_frame nor .debug_frame nor ORC tables; build it with \
                 -C force-unwind-tables=yes, and keep .eh_frame in the linker script"
            )
        }
        Unwind::Auto if described.functions.is_empty() => {
            if let Some(said) = framed::warning(file, &data) {
                eprintln!("kprof-qemu: {said}");
            }
            return Ok(None);
        }
        Unwind::Auto if all == 0 || with * 100 >= all * FRAME_POINTERS_PERCENT => return Ok(None),
        _ => {}
    }
    eprintln!(
        "kprof-qemu: stacks are found by the unwind tables of {file}, which describe {} functions; {with} of the {all} \
         that build a frame have a frame pointer",
        described.functions.len()
    );
    Ok(Some(Tables::new(rows(described))))
}

/// As a file for the plugin.
pub fn bytes(tables: &Tables) -> Vec<u8> {
    let words = |row: &Row| [row.start, row.rule as u64, row.offset as u64, row.rbp as u64, row.link as u64];
    tables.rows.iter().flat_map(words).flat_map(u64::to_le_bytes).collect()
}

/// How many functions that build a frame use RBP for it, and how many there are.
fn with_frame_pointers(described: &Described) -> (usize, usize) {
    let is_frame = |row: &CfiRow| match row.cfa {
        Cfa::Frame(_) => true,
        Cfa::Stack(offset) => offset > MIN_FRAME,
        Cfa::Outermost | Cfa::Unknown => false,
    };
    let frames = described.functions.values().filter(|(_, rows)| rows.iter().any(is_frame));
    let all: Vec<bool> = frames.map(|(_, rows)| rows.iter().any(|row| matches!(row.cfa, Cfa::Frame(_)))).collect();
    (all.iter().filter(|has| **has).count(), all.len())
}

/// All rows for the walk, sorted, with one of nothing after the end of each function.
fn rows(described: Described) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    let nothing = |start| Row::new(start, Rule::Nothing, 0, LOST);
    for (start, (end, rows)) in described.functions {
        // Functions that overlap: nobody knows.
        while all.last().is_some_and(|last| last.start >= start) {
            all.pop();
        }
        let is_sole = rows.len() == 1;
        all.extend(rows.iter().map(|row| translated(row, is_sole)));
        all.push(nothing(end));
    }
    all
}

fn translated(row: &CfiRow, is_sole: bool) -> Row {
    let place = |place| match place {
        Place::Same => SAME,
        Place::At(offset) => offset,
        Place::Lost => LOST,
    };
    let (rule, offset) = match row.cfa {
        Cfa::Stack(offset) => (if is_sole { Rule::Sole } else { Rule::Rsp }, offset),
        Cfa::Frame(offset) => (Rule::Rbp, offset),
        Cfa::Outermost => (Rule::Outermost, 0),
        Cfa::Unknown => (Rule::Unknown, 0),
    };
    Row { start: row.start, rule, offset, rbp: place(row.frame), link: place(row.link) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_a_program_are_sorted_and_know_nearly_all_of_their_rows() {
        let data = fs::read(std::env::current_exe().unwrap()).unwrap();
        let described = Described::read(&data).unwrap();
        let functions = described.functions.len();
        assert!(functions > 1000, "{functions} functions");
        let rows = rows(described);
        assert!(rows.is_sorted_by_key(|row| row.start));
        let count = |rule| rows.iter().filter(|row| row.rule == rule).count();
        assert!(count(Rule::Rsp) > functions && count(Rule::Nothing) > functions / 2, "{functions} functions");
        assert!(count(Rule::Unknown) * 100 < rows.len(), "{} of {} rows", count(Rule::Unknown), rows.len());
        // The first row of a function is that of its first instruction: the return address is on top of the stack.
        let first = |pair: &&[Row]| pair[0].rule == Rule::Nothing && pair[1].rule != Rule::Nothing;
        let firsts: Vec<&Row> = rows.windows(2).filter(first).map(|pair| &pair[1]).collect();
        let on_top = firsts.iter().filter(|row| row.offset == 8 && row.rbp == SAME).count();
        assert!(on_top * 100 > firsts.len() * 95, "{on_top} of {}", firsts.len());
    }

    #[test]
    fn a_kernel_has_frame_pointers_if_most_functions_with_a_frame_use_rbp() {
        let row = |cfa| CfiRow { start: 1, cfa, frame: Place::Same, link: Place::At(-8) };
        let of = |functions: &[&[CfiRow]]| {
            let all = (1_u64..).zip(functions).map(|(at, rows)| (at, (at + 1, rows.to_vec())));
            with_frame_pointers(&Described { functions: all.collect() })
        };
        let [leaf, framed, pushed, deep] = [
            &[Cfa::Stack(8)][..],
            &[Cfa::Stack(8), Cfa::Stack(16), Cfa::Frame(16)],
            &[Cfa::Stack(8), Cfa::Stack(16)],
            &[Cfa::Stack(8), Cfa::Stack(64)],
        ]
        .map(|cfas| cfas.iter().copied().map(row).collect::<Vec<_>>());
        assert_eq!(of(&[&leaf, &framed, &pushed]), (1, 1));
        assert_eq!(of(&[&leaf, &framed, &deep, &deep]), (1, 3));
        assert_eq!(of(&[&leaf, &pushed]), (0, 0));
    }
}
