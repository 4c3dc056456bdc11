//! Linux's own unwind tables (ORC), as rows for the walk. Stage: symbolize.
//!
//! In: the ELF file of Linux for x86_64, with `.orc_unwind_ip` and `.orc_unwind` in the form of Linux 6.1. Out: rows.
//! The method is explained in Documentation/arch/x86/orc-unwinder. For each range of instructions there is the distance
//! of its first one from the entry itself, in 32 bits; and 6 bytes: two offsets of 16 bits for the stack pointer before
//! the call and for the caller's RBP; the registers they count from, 4 bits each; the type in 2 bits; 1 if nothing
//! called it. Later versions have other types, more bits, and at last `.orc_header`: they are refused.

use crate::walk::tables::{LOST, Row, Rule, SAME};
use anyhow::{Result, bail, ensure};
use object::{Object, ObjectSection};

/// Registers that offsets count from.
const PREVIOUS: u16 = 1;
const RBP: u16 = 4;
const RSP: u16 = 5;
const RSP_INDIRECT: u16 = 9;
/// Types, and the bit of code that nothing is known to have called.
const CALL: u16 = 0;
const SAVED: u16 = 1;
const PUSHED: u16 = 2;
const END: u16 = 4;

/// The rows of a file; `None` if it has no such tables.
///
/// # Errors
/// If they are of a form that is not known.
pub fn rows(data: &[u8]) -> Result<Option<Vec<Row>>> {
    let Ok(image) = object::File::parse(data) else { return Ok(None) };
    let section = |name: &str| image.section_by_name(name);
    let (Some(places), Some(entries)) = (section(".orc_unwind_ip"), section(".orc_unwind")) else { return Ok(None) };
    if section(".orc_header").is_some() {
        bail!("are of Linux 6.4 or later, whose form is not known (6.1 is)");
    }
    let (at, places, entries) = (places.address(), places.data()?, entries.data()?);
    ensure!(places.len() / 4 == entries.len() / 6, "have {} bytes for {} places", entries.len(), places.len() / 4);
    let is_known = |entry: &[u8; 6]| entry[5] & !(END as u8) <= PUSHED as u8;
    let (entries, _) = entries.as_chunks();
    ensure!(entries.iter().all(is_known), "have types that are not known; those of Linux 6.1 are");
    let place =
        |(number, bytes): (u64, &[u8; 4])| (at + 4 * number).wrapping_add_signed(i64::from(i32::from_le_bytes(*bytes)));
    let places = (0..).zip(places.as_chunks().0).map(place);
    let mut rows: Vec<Row> = places.zip(entries).map(|(start, entry)| row(start, entry)).collect();
    // Of two at one place that which knows more counts: the other is the end of what was before.
    rows.sort_by_key(|row| (row.start, row.rule == Rule::Nothing));
    rows.dedup_by_key(|row| row.start);
    Ok(Some(rows))
}

fn row(start: u64, entry: &[u8; 6]) -> Row {
    let half = |at: usize| u16::from_le_bytes([entry[at], entry[at + 1]]);
    let (stack, frame, flags) = (i64::from(half(0) as i16), i64::from(half(2) as i16), half(4));
    let (of_stack, of_frame, kind) = (flags & 15, flags >> 4 & 15, flags >> 8);
    let rule = match (kind, of_stack) {
        (kind, _) if kind & END != 0 => Rule::Uncalled,
        (_, 0) => Rule::Nothing,
        (CALL, RSP) => Rule::Rsp,
        (CALL, RBP) => Rule::Rbp,
        (CALL, RSP_INDIRECT) => Rule::Indirect,
        (SAVED, RSP) => Rule::Saved,
        (PUSHED, RSP) => Rule::Pushed,
        _ => Rule::Unknown,
    };
    let rbp = match of_frame {
        0 => SAME,
        PREVIOUS => frame,
        // From RBP, which is the base of the stack pointer too.
        RBP if of_stack == RBP => frame - stack,
        _ => LOST,
    };
    Row::new(start, rule, stack, rbp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(stack: i16, frame: i16, flags: u16) -> (Rule, i64, i64) {
        let bytes = [stack.to_le_bytes(), frame.to_le_bytes(), flags.to_le_bytes()].concat();
        let row = row(0x1000, bytes[..].try_into().unwrap());
        (row.rule, row.offset, row.rbp)
    }

    #[test]
    fn entries_become_rows() {
        assert_eq!(of(8, 0, 0x0005), (Rule::Rsp, 8, SAME));
        assert_eq!(of(24, -16, 0x0015), (Rule::Rsp, 24, -16));
        assert_eq!(of(16, -16, 0x0014), (Rule::Rbp, 16, -16));
        assert_eq!(of(16, 0, 0x0044), (Rule::Rbp, 16, -16));
        assert_eq!(of(8, 0, 0x0009), (Rule::Indirect, 8, SAME));
        assert_eq!(of(0, 0, 0x0105), (Rule::Saved, 0, SAME));
        assert_eq!(of(8, 0, 0x0205), (Rule::Pushed, 8, SAME));
        assert_eq!(of(0, 0, 0x0400).0, Rule::Uncalled);
        assert_eq!(of(0, 0, 0).0, Rule::Nothing);
        assert_eq!(of(0, 0, 0x0006).0, Rule::Unknown);
        assert_eq!(of(8, 0, 0x0045), (Rule::Rsp, 8, LOST));
    }

    #[test]
    fn other_files_have_none() {
        assert_eq!(rows(b"ffffffff81000000 T startup_64").unwrap(), None);
        assert_eq!(rows(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap(), None);
    }
}
