//! Tests the plugin's walk of aarch64 and riscv64 stacks, on code and stacks that the test has made: at each
//! instruction of functions with and without frames, in entry stubs, and where the code cannot be followed.

mod code;
mod guest;
use self::code::{ARM, ARM_CALL, RISCV, RISCV_CALL, SHORT};
use self::guest::{BOTH, CALL, Guest, JUNK, LINK, NONE, OUTER, SP, Saved, TEXT};
use crate::plugin::records::{aarch64, riscv64};
use crate::plugin::walk::End;
use crate::plugin::walk::tables::{Row, Rule, SAME, Tables};

fn arm() -> Guest {
    Guest::new(&aarch64::PROCESSOR, &ARM, ARM_CALL)
}

#[test]
fn every_instruction_of_an_aarch64_function_has_its_caller() {
    let frame = SP - 48;
    let body = (48, frame, JUNK, BOTH);
    let at = |at, (used, fp, link, saved)| (at, used, fp, link, saved);
    let begins = [(0, 0, OUTER, CALL, NONE), (4, 48, OUTER, CALL, BOTH), (8, 48, frame, CALL, BOTH)];
    let bodies = [at(0xc, body), at(0x10, body), at(0x14, body), at(0x18, body), at(0x20, body)];
    let ends = [(0x1c, 0, OUTER, CALL, NONE)];
    arm().has_callers(frame, &[&begins[..], &bodies, &ends].concat(), &[CALL], End::Outermost);
    // A function that never returns, with its record above other words.
    let frame = SP - 16;
    let begins = [(0x24, 0, OUTER, CALL, NONE), (0x28, 64, OUTER, CALL, NONE), (0x2c, 64, OUTER, CALL, NONE)];
    let rest = [(0x30, 64, OUTER, CALL, BOTH)];
    arm().has_callers(frame, &[&begins[..], &rest].concat(), &[CALL], End::Outermost);
    let mut guest = arm();
    guest.word(frame, OUTER);
    guest.word(frame + 8, CALL);
    let stack = guest.walk(TEXT + 0x34, SP - 64, frame, JUNK);
    assert_eq!((&stack.callers[..], stack.end), (&[CALL][..], End::Outermost));
}

#[test]
fn tables_tell_the_caller_of_a_function_that_never_returns_and_has_no_frame_record() {
    // Its registers are saved above other words, and x29 is used for something else.
    let saved = Row { start: TEXT + 0x24, rule: Rule::Rsp, offset: 64, rbp: -16, link: -8 };
    let walk = |row: Row, link: u64| {
        let mut guest = arm();
        guest.word(SP - 16, OUTER);
        guest.word(SP - 8, link);
        let after = Row { start: TEXT + 0x38, rule: Rule::Nothing, offset: 0, rbp: SAME, link: SAME };
        guest.tables = Some(Tables { rows: vec![row, after], slide: Some(0) });
        let stack = guest.walk(TEXT + 0x34, SP - 64, JUNK, JUNK);
        (stack.callers, stack.end)
    };
    assert_eq!(walk(saved, CALL), (vec![CALL], End::Outermost));
    assert_eq!(walk(saved, 0), (vec![], End::Outermost), "nothing has called it");
    assert_eq!(walk(saved, JUNK), (vec![], End::NotText), "no call precedes it");
    assert_eq!(walk(Row { rule: Rule::Unknown, ..saved }, CALL), (vec![], End::Entry));
    assert_eq!(walk(Row { rule: Rule::Outermost, ..saved }, CALL), (vec![], End::Outermost));
    assert_eq!(walk(Row { offset: 1 << 20, ..saved }, CALL), (vec![], End::Range));
    // Without a row of its own the register is read, which points to no record.
    assert_ne!(walk(Row { start: TEXT, rule: Rule::Nothing, ..saved }, CALL).1, End::Outermost);
}

#[test]
fn a_signature_is_no_part_of_an_aarch64_return_address() {
    let signed = CALL ^ 0x1234 << 48 & 0xff7f << 48;
    let mut guest = arm();
    guest.word(SP - 8, 0);
    for (at, used, link) in [(0x50, 0, CALL), (0x54, 0, signed), (0x60, 0, signed)] {
        let stack = guest.walk(TEXT + at, SP - used, OUTER, link);
        assert_eq!((&stack.callers[..], stack.end), (&[CALL][..], End::Outermost), "{at:#x}");
    }
    // Saved without a frame record.
    guest.word(SP - 16, signed);
    let stack = guest.walk(TEXT + 0x5c, SP - 16, OUTER, JUNK);
    assert_eq!((&stack.callers[..], stack.end), (&[CALL][..], End::Outermost));
}

fn riscv() -> Guest {
    Guest::new(&riscv64::PROCESSOR, &RISCV, RISCV_CALL)
}

/// The states of the function at 0, whose instructions are at these places.
fn states(at: [u64; 12]) -> Vec<(u64, u64, u64, u64, Saved)> {
    let begins = [(0, OUTER, CALL, NONE), (48, OUTER, CALL, NONE), (48, OUTER, CALL, LINK), (48, OUTER, CALL, BOTH)];
    let (body, ends) = ((48, SP, JUNK, BOTH), [(48, SP, CALL, BOTH), (48, OUTER, CALL, BOTH), (48, OUTER, CALL, BOTH)]);
    let all = begins.into_iter().chain([body; 4]).chain(ends).chain([(0, OUTER, CALL, NONE)]);
    at.into_iter().zip(all).map(|(at, (used, fp, link, saved))| (at, used, fp, link, saved)).collect()
}

#[test]
fn every_instruction_of_a_riscv64_function_has_its_caller() {
    let at = [0, 4, 8, 0xc, 0x10, 0x14, 0x18, 0x1c, 0x20, 0x24, 0x28, 0x2c];
    riscv().has_callers(SP - 16, &states(at), &[CALL], End::Outermost);
    let short: Vec<u8> = SHORT.iter().flat_map(|code| code.to_le_bytes()).collect();
    let mut guest = riscv();
    guest.bytes(TEXT, &short);
    guest.has_callers(
        SP - 16,
        &states([0, 2, 4, 6, 8, 0xa, 0xc, 0xe, 0x10, 0x12, 0x14, 0x16]),
        &[CALL],
        End::Outermost,
    );
    // A function that never returns, with a large frame.
    let begins = [(0x34, 0, OUTER, CALL, NONE), (0x38, 0x400, OUTER, CALL, NONE), (0x3c, 0x400, OUTER, CALL, LINK)];
    let mut guest = riscv();
    guest.has_callers(SP - 16, &begins, &[CALL], End::Outermost);
    guest.has_callers(SP - 16, &[(0x44, 0x400, SP, JUNK, BOTH)], &[CALL], End::Outermost);
}

#[test]
fn an_entry_stub_ends_the_stack_and_code_that_jumps_is_followed() {
    for (mut guest, leaf, stub) in [(arm(), 0x44, 0x3c), (riscv(), 0x54, 0x4c)] {
        let stack = guest.walk(TEXT + leaf, SP, OUTER, TEXT + stub);
        assert_eq!((&stack.callers[..], stack.end), (&[TEXT + stub][..], End::Entry));
        let stack = guest.walk(TEXT + stub, SP, OUTER, JUNK);
        assert_eq!((stack.callers.len(), stack.end), (0, End::Entry));
        guest.has_callers(
            SP - 16,
            &[(leaf, 0, OUTER, CALL, NONE), (leaf + 4, 0, OUTER, CALL, NONE)],
            &[CALL],
            End::Outermost,
        );
    }
}

#[test]
fn what_follows_no_call_is_no_caller_and_records_out_of_place_end_the_walk() {
    let loops = |guest: &Guest| if guest.of.has_sp_in_fp { TEXT + 0x44 } else { TEXT + 0x34 };
    for mut guest in [arm(), riscv()] {
        let (pc, record) = (loops(&guest), OUTER.wrapping_add_signed(guest.of.record));
        let of = |guest: &Guest, fp| guest.walk(pc, SP, fp, JUNK).end;
        assert_eq!(of(&guest, OUTER), End::Outermost);
        assert_eq!(of(&guest, 0), End::Outermost);
        assert_eq!(of(&guest, 0x8000), End::Range, "a number in this register");
        assert_eq!(of(&guest, OUTER + 8), End::Alignment);
        assert_eq!(of(&guest, SP - 16), End::Loop);
        assert_eq!(of(&guest, OUTER + (1 << 20)), End::Range);
        guest.word(record + 8, TEXT + 4);
        assert_eq!(of(&guest, OUTER), End::NotText);
        guest.word(record + 8, 0x4000_1000);
        assert_eq!(of(&guest, OUTER), End::NotText);
        // A function without a record whose caller is not known: the record is that of another function.
        let leaf = if guest.of.has_sp_in_fp { 0x60 } else { 0x4c };
        guest.word(record + 8, CALL);
        let stack = guest.walk(TEXT + leaf, SP, OUTER, 0);
        assert_eq!((stack.callers.len(), stack.end), (0, End::NotText));
    }
}

#[test]
fn where_the_code_cannot_be_followed_the_link_register_is_a_candidate() {
    // br x16; jr t3
    for (mut guest, jump) in [(arm(), 0xd61f_0200_u32), (riscv(), 0x000e_0067)] {
        let record = OUTER.wrapping_add_signed(guest.of.record);
        guest.bytes(TEXT + 0x200, &jump.to_le_bytes());
        guest.word(record + 8, CALL);
        let other = TEXT + 0x10 + if guest.of.has_sp_in_fp { 8 } else { 0 };
        let stack = guest.walk(TEXT + 0x200, SP, OUTER, other);
        assert_eq!((&stack.callers[..], stack.candidate), (&[CALL][..], other));
        // After a call it may be an entry stub.
        guest.bytes(CALL, &jump.to_le_bytes());
        let stack = guest.walk(TEXT + 0x200, SP, OUTER, other);
        assert_eq!((&stack.callers[..], stack.end), (&[CALL][..], End::Entry));
        guest.bytes(CALL, &(if guest.of.has_sp_in_fp { RISCV_CALL } else { ARM_CALL })[1].to_le_bytes());
        // The caller of the record is no second one.
        assert_eq!(guest.walk(TEXT + 0x200, SP, OUTER, CALL).candidate, 0);
        assert_eq!(guest.walk(TEXT + 0x200, SP, OUTER, JUNK + 0x100).candidate, 0);
    }
}

#[test]
fn a_stub_that_ends_by_a_call_is_one() {
    // The handler's caller calls what restores the registers, and is followed by an endless loop.
    for (mut guest, [_, endless]) in [(arm(), ARM_CALL), (riscv(), RISCV_CALL)] {
        guest.bytes(CALL + 4, &endless.to_le_bytes());
        let stub = if guest.of.has_sp_in_fp { 0x4c } else { 0x3c };
        let code = match guest.of.has_sp_in_fp {
            true => jal(-0x1000 + stub),
            false => 0x9400_0000 | ((-0x1000 + stub) as u32 >> 2 & 0x3ff_ffff),
        };
        guest.bytes(CALL, &code.to_le_bytes());
        let leaf = if guest.of.has_sp_in_fp { 0x60 } else { 0x4c };
        let stack = guest.walk(TEXT + leaf, SP, OUTER, CALL);
        assert_eq!((&stack.callers[..], stack.end), (&[CALL][..], End::Entry));
    }
}

#[test]
fn a_breakpoint_that_is_executed_returns_and_others_end_the_code() {
    // brk, ret; ebreak, ret. Before a return to another place, the code after it is not the function's.
    for (mut guest, codes) in [(arm(), [0xd420_0000_u32, 0xd65f_03c0]), (riscv(), [0x0010_0073, 0x0000_8067])] {
        for (at, code) in (TEXT + 0x200..).step_by(4).zip(codes) {
            guest.bytes(at, &code.to_le_bytes());
        }
        let stack = guest.walk(TEXT + 0x200, SP, OUTER, CALL);
        assert_eq!((&stack.callers[..], stack.end, stack.candidate), (&[CALL][..], End::Outermost, 0));
        let nop = if guest.of.has_sp_in_fp { 0x0000_0013_u32 } else { 0xd503_201f };
        guest.bytes(TEXT + 0x1fc, &nop.to_le_bytes());
        let stack = guest.walk(TEXT + 0x1fc, SP, OUTER, CALL);
        assert_eq!((stack.callers.len(), stack.end, stack.candidate), (0, End::Outermost, CALL));
    }
}

/// `jal ra` to this many bytes further.
fn jal(distance: i32) -> u32 {
    let bits = |from: u32, count: u32| distance as u32 >> from & ((1 << count) - 1);
    bits(20, 1) << 31 | bits(1, 10) << 21 | bits(11, 1) << 20 | bits(12, 8) << 12 | 0xef
}
