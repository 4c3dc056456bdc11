//! Linux's own unwind tables (ORC), as rows for the walk. Stage: symbolize.
//!
//! In: the ELF file of Linux for x86_64, with `.orc_unwind_ip` and `.orc_unwind`. Out: rows. The method is explained in
//! Documentation/arch/x86/orc-unwinder. For each range of instructions there is the distance of its first one from the
//! entry itself, in 32 bits; and 6 bytes: two offsets of 16 bits for the stack pointer before the call and for the
//! caller's RBP; the registers they count from, 4 bits each; the type. Since 6.4 `.orc_header` has a hash of the form,
//! so the numbers of types and registers are known by it. Forms with another hash are refused.

use crate::walk::tables::{LOST, Row, Rule, SAME};
use anyhow::{Result, bail, ensure};
use object::{Object, ObjectSection};

/// RBP, in all forms.
const RBP: u16 = 4;

/// What the numbers of a form mean.
#[derive(Debug)]
struct Form {
    /// What `.orc_header` has; nothing before Linux 6.4.
    header: &'static [u8],
    /// Registers that offsets count from: the caller's stack pointer, RSP, and the word at RSP.
    previous: u16,
    rsp: u16,
    rsp_indirect: u16,
    /// The types: a call, all registers on the stack, some of them.
    types: [u16; 3],
    /// The type, or in the oldest form the bit, of code that nothing is known to have called.
    end: u16,
    /// Bits of the type that say nothing of it.
    others: u16,
}

/// Those of Linux 6.1, 6.12 and 7.2, as Debian has them.
const FORMS: [Form; 3] = [OF_6_1, OF_6_12, OF_7_2];
const OF_6_1: Form = Form { header: &[], previous: 1, rsp: 5, rsp_indirect: 9, types: [0, 1, 2], end: 4, others: 0 };
const OF_6_12: Form = Form {
    header: b"\xfe\x5d\x32\xbf\x58\x1b\xd6\x3b\x2c\xa9\xa5\xc6\x5b\xa5\xa6\x25\xea\xb3\xfe\x24",
    types: [2, 3, 4],
    end: 1,
    others: 8,
    ..OF_6_1
};
const OF_7_2: Form = Form {
    header: b"\x13\x7c\x36\xad\x76\x27\xc4\xdd\x55\x93\x21\x76\xbb\x0e\xcd\xbd\x50\x41\xfc\x82",
    previous: 8,
    rsp: 3,
    ..OF_6_12
};

/// The rows of a file; `None` if it has no such tables.
///
/// # Errors
/// If they are of a form that is not known.
pub fn rows(data: &[u8]) -> Result<Option<Vec<Row>>> {
    let Ok(image) = object::File::parse(data) else { return Ok(None) };
    let section = |name: &str| image.section_by_name(name);
    let (Some(places), Some(entries)) = (section(".orc_unwind_ip"), section(".orc_unwind")) else { return Ok(None) };
    let header = section(".orc_header").map_or(Ok(&[][..]), |header| header.data())?;
    let Some(form) = FORMS.iter().find(|form| form.header == header) else {
        let hash: String = header.iter().map(|byte| format!("{byte:02x}")).collect();
        bail!("are of a form that is not known: those of Linux 6.1, 6.12 and 7.2 are, and its .orc_header has {hash}");
    };
    let (at, places, entries) = (places.address(), places.data()?, entries.data()?);
    ensure!(places.len() / 4 == entries.len() / 6, "have {} bytes for {} places", entries.len(), places.len() / 4);
    let (entries, _) = entries.as_chunks();
    ensure!(entries.iter().all(|entry| form.knows(entry)), "have types that are not known in the form of their Linux");
    let place =
        |(number, bytes): (u64, &[u8; 4])| (at + 4 * number).wrapping_add_signed(i64::from(i32::from_le_bytes(*bytes)));
    let places = (0..).zip(places.as_chunks().0).map(place);
    let mut rows: Vec<Row> = places.zip(entries).map(|(start, entry)| form.row(start, entry)).collect();
    // Of two at one place that which knows more counts: the other is the end of what was before.
    rows.sort_by_key(|row| (row.start, row.rule == Rule::Nothing));
    rows.dedup_by_key(|row| row.start);
    Ok(Some(rows))
}

impl Form {
    fn kind(&self, entry: &[u8; 6]) -> u16 {
        u16::from(entry[5]) & !self.others
    }

    fn is_end(&self, kind: u16) -> bool {
        if self.header.is_empty() { kind & self.end != 0 } else { kind == self.end }
    }

    fn knows(&self, entry: &[u8; 6]) -> bool {
        let kind = self.kind(entry);
        kind == 0 || self.is_end(kind) || self.types.contains(&kind)
    }

    fn row(&self, start: u64, entry: &[u8; 6]) -> Row {
        let half = |at: usize| i64::from(i16::from_le_bytes([entry[at], entry[at + 1]]));
        let (stack, frame, registers, kind) = (half(0), half(2), u16::from(entry[4]), self.kind(entry));
        let (of_stack, of_frame, [call, saved, pushed]) = (registers & 15, registers >> 4, self.types);
        let rule = match () {
            () if self.is_end(kind) => Rule::Uncalled,
            () if of_stack == 0 => Rule::Nothing,
            () if kind == call && of_stack == self.rsp => Rule::Rsp,
            () if kind == call && of_stack == RBP => Rule::Rbp,
            () if kind == call && of_stack == self.rsp_indirect => Rule::Indirect,
            () if kind == saved && of_stack == self.rsp => Rule::Saved,
            () if kind == pushed && of_stack == self.rsp => Rule::Pushed,
            () => Rule::Unknown,
        };
        let rbp = match of_frame {
            0 => SAME,
            _ if of_frame == self.previous => frame,
            // From RBP, which is the base of the stack pointer too.
            RBP if of_stack == RBP => frame - stack,
            _ => LOST,
        };
        Row::new(start, rule, stack, rbp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: usize, stack: i16, frame: i16, flags: u16) -> (Rule, i64, i64) {
        let bytes = [stack.to_le_bytes(), frame.to_le_bytes(), flags.to_le_bytes()].concat();
        let entry = bytes[..].try_into().unwrap();
        assert!(FORMS[form].knows(entry), "{flags:x}");
        let row = FORMS[form].row(0x1000, entry);
        (row.rule, row.offset, row.rbp)
    }

    #[test]
    fn entries_become_rows() {
        assert_eq!(of(0, 8, 0, 0x0005), (Rule::Rsp, 8, SAME));
        assert_eq!(of(0, 24, -16, 0x0015), (Rule::Rsp, 24, -16));
        assert_eq!(of(0, 16, -16, 0x0014), (Rule::Rbp, 16, -16));
        assert_eq!(of(0, 16, 0, 0x0044), (Rule::Rbp, 16, -16));
        assert_eq!(of(0, 8, 0, 0x0009), (Rule::Indirect, 8, SAME));
        assert_eq!(of(0, 0, 0, 0x0105), (Rule::Saved, 0, SAME));
        assert_eq!(of(0, 8, 0, 0x0205), (Rule::Pushed, 8, SAME));
        assert_eq!(of(0, 0, 0, 0x0400).0, Rule::Uncalled);
        assert_eq!(of(0, 0, 0, 0).0, Rule::Nothing);
        assert_eq!(of(0, 0, 0, 0x0006).0, Rule::Unknown);
        assert_eq!(of(0, 8, 0, 0x0045), (Rule::Rsp, 8, LOST));
    }

    #[test]
    fn newer_forms_have_other_numbers_of_types_and_then_of_registers() {
        for (form, rsp, previous) in [(1, 5, 1 << 4), (2, 3, 8 << 4)] {
            assert_eq!(of(form, 8, 0, 0x0200 | rsp), (Rule::Rsp, 8, SAME));
            assert_eq!(of(form, 24, -24, 0x0200 | rsp | previous), (Rule::Rsp, 24, -24));
            assert_eq!(of(form, 16, -16, 0x0204 | previous), (Rule::Rbp, 16, -16));
            assert_eq!(of(form, 136, -48, 0x0209 | previous), (Rule::Indirect, 136, -48));
            // With the bit of an interrupted instruction.
            assert_eq!(of(form, 0, 0, 0x0b00 | rsp), (Rule::Saved, 0, SAME));
            assert_eq!(of(form, 8, 0, 0x0c00 | rsp), (Rule::Pushed, 8, SAME));
            assert_eq!(of(form, 0, 0, 0x0100).0, Rule::Uncalled);
            assert_eq!(of(form, 0, 0, 0).0, Rule::Nothing);
            assert_eq!(of(form, 0, 0, 0x0206).0, Rule::Unknown);
            assert!(!FORMS[form].knows(&[0, 0, 0, 0, 5, 5]));
        }
    }

    #[test]
    fn other_files_have_none() {
        assert_eq!(rows(b"ffffffff81000000 T startup_64").unwrap(), None);
        assert_eq!(rows(&std::fs::read(std::env::current_exe().unwrap()).unwrap()).unwrap(), None);
    }
}
