//! Jump tables: where an indirect jump within a function leads. Stage: probes, for `exits`.
//!
//! In: a function, one of its indirect jumps, and the constant data of the file. Out: the targets, if the jump is by a
//! table all of whose entries lead into this function; otherwise nothing. Runs on the host. Never takes a call in the
//! place of a return for a table: that one's entries are the starts of functions.
//!
//! ```text
//! cmp rax, 5; ja default; jmp [rax*8 + TABLE]                                     addresses of 8 bytes
//! lea rcx, [rip + TABLE]; movsxd rax, dword [rcx + rax*4]; add rax, rcx; jmp rax  distances of 4 bytes from the table
//! ```
//!
//! The number of entries is not in the file. They are read up to the first one that leads elsewhere; more of them than
//! the comparison before the jump admits must be there. The next table may belong to the same function, and is then
//! read too. That adds no wrong exit: its entries are instructions of this function as well.

use super::body::Body;
use iced_x86::{FlowControl, Instruction, Mnemonic, OpKind, Register};

/// A table has two entries or more: the compiler makes none for less.
const MIN_ENTRIES: usize = 2;
/// Entries that are read at most.
const MAX_ENTRIES: usize = 1 << 16;
/// Instructions before the jump among which its index is compared and its distance is loaded.
const WINDOW: usize = 24;

/// The addresses in the function that the indirect jump with this number can lead to.
pub fn targets<'a>(body: &Body<'_>, number: usize, constant: &impl Fn(u64) -> Option<&'a [u8]>) -> Option<Vec<u64>> {
    let jump = &body.instructions[number];
    let before = &body.instructions[..number];
    let (table, index, is_relative) = match jump.op0_kind() {
        OpKind::Memory if jump.memory_base() == Register::None && jump.memory_index_scale() == 8 => {
            (jump.memory_displacement64(), jump.memory_index(), false)
        }
        OpKind::Register => {
            let (table, index) = relative(before, jump.op0_register())?;
            (table, index, true)
        }
        _ => return None,
    };
    let (bytes, size) = (constant(table)?, if is_relative { 4 } else { 8 });
    let address = |entry: &[u8]| {
        match is_relative {
            true => table.wrapping_add_signed(i32::from_le_bytes(entry.try_into().ok()?).into()),
            false => u64::from_le_bytes(entry.try_into().ok()?),
        }
        .into()
    };
    let is_code = |address: &u64| *address != body.start && body.at(*address).is_some();
    let entries = bytes.chunks_exact(size).take(MAX_ENTRIES).map(address);
    let found: Vec<u64> = entries.map_while(|entry: Option<u64>| entry.filter(is_code)).collect();
    let needed = compared(before, index).map_or(MIN_ENTRIES, |greatest| greatest.saturating_add(1));
    (found.len() >= needed.max(MIN_ENTRIES)).then_some(found)
}

/// The table of distances from which a register was loaded before a jump to it, and the register of the index.
fn relative(before: &[Instruction], to: Register) -> Option<(u64, Register)> {
    let mut near = before.iter().rev().take(WINDOW);
    let sum = near.find(|one| writes(one, to))?;
    let base = (sum.mnemonic() == Mnemonic::Add && sum.op1_kind() == OpKind::Register).then(|| sum.op1_register())?;
    let load = near.find(|one| writes(one, to))?;
    let is_load = load.mnemonic() == Mnemonic::Movsxd
        && load.op1_kind() == OpKind::Memory
        && (load.memory_base(), load.memory_index_scale(), load.memory_displacement64()) == (base, 4, 0);
    // The address of the table may have been taken long before, outside of a loop.
    let place = before.iter().rev().find(|one| writes(one, base)).filter(|_| is_load)?;
    let is_place = place.mnemonic() == Mnemonic::Lea && place.is_ip_rel_memory_operand();
    is_place.then(|| (place.memory_displacement64(), load.memory_index()))
}

/// Whether an instruction's first operand is this register, and it is written.
fn writes(instruction: &Instruction, register: Register) -> bool {
    let reads_only = matches!(instruction.mnemonic(), Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push);
    let is_first = instruction.op_count() > 0 && instruction.op0_kind() == OpKind::Register;
    is_first && !reads_only && instruction.op0_register().full_register() == register.full_register()
}

/// The greatest index that a comparison shortly before the jump lets through.
fn compared(before: &[Instruction], index: Register) -> Option<usize> {
    let pairs = before.windows(2).rev().take(WINDOW);
    let mut found = pairs.filter(|pair| {
        let [compare, jump] = pair else { return false };
        compare.mnemonic() == Mnemonic::Cmp
            && compare.op0_kind() == OpKind::Register
            && compare.op0_register().full_register() == index.full_register()
            && jump.flow_control() == FlowControl::ConditionalBranch
            && matches!(jump.mnemonic(), Mnemonic::Ja | Mnemonic::Jae)
    });
    let [compare, jump] = found.next()? else { return None };
    let value = usize::try_from(compare.try_immediate(1).ok()?).ok()?;
    if jump.mnemonic() == Mnemonic::Ja { Some(value) } else { value.checked_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0xffff_ffff_8000_1000;
    const TABLE: u64 = 0xffff_ffff_8000_2000;

    /// The targets of the indirect jump of `code`, with the table's bytes.
    fn found(code: &[u8], table: &[u8]) -> Option<Vec<u64>> {
        let body = Body::decode(code, START);
        let jump = body.instructions.iter().position(|one| one.flow_control() == FlowControl::IndirectBranch);
        targets(&body, jump.expect("it has one"), &|address| {
            table.get(usize::try_from(address.checked_sub(TABLE)?).ok()?..)
        })
    }

    fn addresses(entries: &[u64]) -> Vec<u8> {
        entries.iter().flat_map(|entry| (START + entry).to_le_bytes()).collect()
    }

    /// push rbp; cmp eax, 1; ja +7; jmp [rax*8 + TABLE]; nop; ret; ret
    const ABSOLUTE: [u8; 16] = [0x55, 0x83, 0xf8, 1, 0x77, 7, 0xff, 0x24, 0xc5, 0, 0x20, 0, 0x80, 0x90, 0xc3, 0xc3];

    #[test]
    fn a_table_of_addresses_ends_before_the_first_one_that_is_elsewhere() {
        assert_eq!(found(&ABSOLUTE, &addresses(&[13, 14, 0x500, 15])), Some(vec![START + 13, START + 14]));
        // The entries of the next table of this function are read too.
        assert_eq!(found(&ABSOLUTE, &addresses(&[13, 14, 15])).map(|all| all.len()), Some(3));
    }

    #[test]
    fn what_is_no_table_of_this_function_has_no_targets() {
        // Other functions; the start of this one; the middle of an instruction; one of the two entries only; no data.
        for entries in [&[0x500, 0x600][..], &[0, 0], &[13, 0], &[13, 8], &[13, 0x500, 14], &[13], &[]] {
            assert_eq!(found(&ABSOLUTE, &addresses(entries)), None, "{entries:x?}");
        }
        // The comparison lets through a third one.
        let mut wide = ABSOLUTE;
        wide[3] = 2;
        assert_eq!(found(&wide, &addresses(&[13, 14, 0x500])), None);
        assert!(found(&wide, &addresses(&[13, 14, 15])).is_some());
        // jmp rax; jmp [rax]; jmp [rip+0], after push rbp
        for code in [&[0x55, 0xff, 0xe0][..], &[0x55, 0xff, 0x20], &[0x55, 0xff, 0x25, 0, 0, 0, 0]] {
            assert_eq!(found(code, &addresses(&[1, 1])), None, "{code:x?}");
        }
    }

    #[test]
    fn a_table_of_distances_is_found_by_the_address_that_was_loaded() {
        // push rbp; lea rcx, [rip+TABLE]; movsxd rax, dword [rcx+rax*4]; add rax, rcx; jmp rax; nop; ret
        let mut code =
            [0x55, 0x48, 0x8d, 0x0d, 0, 0, 0, 0, 0x48, 0x63, 0x04, 0x81, 0x48, 0x01, 0xc8, 0xff, 0xe0, 0x90, 0xc3];
        code[4..8].copy_from_slice(&((TABLE - START - 8) as u32).to_le_bytes());
        let distance = |to: u64| ((START + to).wrapping_sub(TABLE) as u32).to_le_bytes();
        let table = [distance(17), distance(18), distance(0x500)].concat();
        assert_eq!(found(&code, &table), Some(vec![START + 17, START + 18]));
        assert_eq!(found(&code, &[distance(0x500), distance(17)].concat()), None);
        // The register was changed between the load and the sum: mov rax, [rax] in place of the load.
        code[8..12].copy_from_slice(&[0x48, 0x8b, 0x04, 0x81]);
        assert_eq!(found(&code, &table), None);
    }
}
