//! Walks by an unwind table: frames without frame pointers, every way in which such a walk ends, and random tables.

use super::*;
use crate::format::unwind::{Base, Rule, Saved, header, seal};
use crate::kernel::UnwindTable;

const ID: [u8; 4] = [1, 2, 3, 4];

/// A table of the text whose row number `n` is at `TEXT + n * 0x10` and has this rule.
pub(super) fn table(rules: &[Rule]) -> UnwindTable {
    let blocks = TEXT_BYTES / 256;
    let mut bytes = header(TEXT, blocks as u32, rules.len() as u32, rules.len() as u16, &ID).to_vec();
    bytes.extend(rules.iter().flat_map(|rule| rule.encode().unwrap().to_le_bytes()));
    bytes.extend([0; 4]);
    bytes.extend((0..=blocks).flat_map(|block| (rules.len().min(16 * block) as u16).to_le_bytes()));
    bytes.extend((0..rules.len() as u16).flat_map(|n| [(n * 16) as u8, n.to_le_bytes()[0], n.to_le_bytes()[1]]));
    seal(&mut bytes);
    UnwindTable::new(bytes.leak(), &ID, 0).unwrap()
}

fn at_stack(bytes: u32, frame: Saved) -> Rule {
    Rule { base: Base::Stack(bytes), frame }
}

/// Instructions in the rows of the machine's table.
const PLAIN: u64 = TEXT + 0x10;
const SAVES: u64 = TEXT + 0x20;
const BY_FRAME: u64 = TEXT + 0x30;
const LOSES: u64 = TEXT + 0x40;
const ROOT: u64 = TEXT + 0x50;
const WIDE: u64 = TEXT + 0x60;
const NOTHING: u64 = TEXT + 0x70;

fn machine() -> Machine {
    let rules = [
        Rule::NONE,
        at_stack(32, Saved::Same),
        at_stack(48, Saved::Below(16)),
        Rule { base: Base::Frame(16), frame: Saved::Below(16) },
        at_stack(16, Saved::Lost),
        Rule { base: Base::Outermost, frame: Saved::Same },
        at_stack(0x1_0000, Saved::Same),
        Rule::NONE,
    ];
    Machine { table: Some(table(&rules)), ..Machine::new(64) }
}

fn at(pc: u64, sp: u64, fp: u64) -> Registers {
    Registers { pc, ..registers(sp, fp) }
}

#[test]
fn frames_are_found_by_the_rules_of_their_instructions() {
    let mut machine = machine();
    machine.set(STACK + 24, SAVES + 5); // PLAIN's caller; the next stack pointer is STACK + 32
    machine.set(STACK + 64, STACK + 200); // SAVES has saved the frame pointer
    machine.set(STACK + 72, BY_FRAME + 5); // and its caller; the next stack pointer is STACK + 80
    machine.set(STACK + 200, 7);
    machine.set(STACK + 208, ROOT + 1);
    let (stack, _) = machine.walk(&at(PLAIN, STACK, 0xdead));
    assert_eq!(stack, [SAVES + 5, BY_FRAME + 5, ROOT + 1]);
    // A return address of 0 is a root too.
    machine.set(STACK + 208, 0);
    assert_eq!(machine.walk(&at(PLAIN, STACK, 0xdead)).0, [SAVES + 5, BY_FRAME + 5]);
}

#[test]
fn a_call_that_ends_its_function_is_looked_up_there() {
    let mut machine = machine();
    // The return address is the first of the next row, of which nothing is known.
    machine.set(STACK + 24, NOTHING);
    assert_eq!(machine.walk(&at(PLAIN, STACK, 0)).0, [NOTHING, truncated(TruncationReason::Range)]);
}

#[test]
fn a_frame_pointer_that_was_popped_is_taken_from_its_register() {
    let mut machine = machine();
    // The rule still names the word at STACK - 8 + 48 - 16, below the stack pointer when only 8 bytes are left.
    let rules = [at_stack(8, Saved::Below(16)), Rule { base: Base::Frame(16), frame: Saved::Same }];
    machine.table = Some(table(&rules));
    machine.set(STACK + 72, TEXT + 0x11);
    machine.set(STACK + 64, 0xbad);
    machine.set(STACK + 208, 0);
    assert_eq!(machine.walk(&at(TEXT, STACK + 72, STACK + 200)).0, [TEXT + 0x11]);
}

#[test]
fn every_way_to_break_a_walk_by_table_is_told_apart() {
    let cases = [
        (NOTHING, STACK, 0, TruncationReason::NoRule),
        (WIDE, STACK, 0, TruncationReason::Range),
        (PLAIN, STACK + 496, 0, TruncationReason::Range),
        (PLAIN, STACK + 4, 0, TruncationReason::Alignment),
        (BY_FRAME, STACK + 80, STACK + 8, TruncationReason::Loop),
        (BY_FRAME, STACK + 80, 0x1000, TruncationReason::Range),
        (BY_FRAME, STACK + 80, u64::MAX - 7, TruncationReason::Range),
        (BY_FRAME, STACK + 80, STACK + 84, TruncationReason::Alignment),
        (PLAIN, STACK + 80, 0, TruncationReason::NotText),
    ];
    for (pc, sp, fp, reason) in cases {
        let mut machine = machine();
        machine.set(STACK + 104, 0xdead_beef);
        assert_eq!(machine.walk(&at(pc, sp, fp)).0, [truncated(reason)], "{pc:x} {sp:x} {fp:x}");
    }
    // Its frame pointer was lost on the way.
    let mut machine = machine();
    machine.set(STACK + 8, BY_FRAME + 1);
    let expected = [BY_FRAME + 1, truncated(TruncationReason::NoRule)];
    assert_eq!(machine.walk(&at(LOSES, STACK, STACK + 200)).0, expected);
}

#[test]
fn a_stack_may_be_changed_by_frame_pointer_but_not_round_and_round() {
    let mut machine = machine();
    let other = STACK + 0x10_0000;
    machine.stacks.push((other, vec![0; 64]));
    machine.frame(other + 80, STACK + 160, BY_FRAME + 1);
    machine.frame(STACK + 160, 0, ROOT + 1);
    let (stack, _) = machine.walk(&at(BY_FRAME, STACK + 16, other + 80));
    assert_eq!(stack, [BY_FRAME + 1, truncated(TruncationReason::Loop)]);
    machine.set(other + 88, ROOT + 1);
    assert_eq!(machine.walk(&at(BY_FRAME, STACK + 16, other + 80)).0, [ROOT + 1]);
}

#[test]
fn the_depth_limits_a_walk_by_table() {
    let mut machine = machine();
    (0..16).for_each(|frame| machine.set(STACK + 32 * frame + 24, PLAIN + 2));
    machine.depth = 5;
    let (stack, _) = machine.walk(&at(PLAIN, STACK, 0));
    assert_eq!(stack, [[PLAIN + 2; 4].as_slice(), &[truncated(TruncationReason::Depth)]].concat());
}

#[test]
fn an_entry_stub_without_a_marker_is_crossed_with_the_frame_pointer_that_the_rules_give() {
    let stub = STUBS.start + 0x20;
    for (fp_at, expected) in [(STACK + 16, ROOT + 1), (STACK + 200, PLAIN + 1)] {
        let mut machine = machine();
        let (marker, saved_at) = (Marker::Interrupt(33), STACK + 64);
        machine.entry_frame = Some((stub, CallerEntryFrame { marker, saved_at, fp_at }));
        machine.set(STACK + 24, stub); // PLAIN is the function that the stub has called
        machine.hardware_frame(saved_at, BY_FRAME, 8, STACK + 120);
        machine.frame(STACK + 320, 0, ROOT + 1); // by the frame pointer that PLAIN has left in its register
        machine.set(STACK + 200, STACK + 360); // by the one that the stub has pushed
        machine.frame(STACK + 360, 0, PLAIN + 1);
        machine.set(STACK + 400, 0);
        let (stack, in_interrupt) = machine.walk(&at(PLAIN, STACK, STACK + 320));
        assert_eq!(stack, [stub, marker.encode(), BY_FRAME, expected], "{fp_at:x}");
        assert!(in_interrupt);
    }
}

#[test]
fn interrupted_assembly_that_is_not_described_is_left_where_its_code_tells_how() {
    let mut machine = machine();
    machine.depth = 2;
    // A function at +0x800: push rbp; mov rbp, rsp; nop; pop rbp; ret. And a call of it that ends at PLAIN + 0x208.
    machine.code(0x800, &[0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3]);
    let (caller, distance) = (TEXT + 0x208, 0x800_i32 - 0x208);
    machine.code(0x203, &[[0xe8].as_slice(), &distance.to_le_bytes()].concat());
    machine.frame(STACK + 80, STACK + 200, caller);
    let found = |offset, sp, fp| machine.walk(&at(TEXT + 0x800 + offset, sp, fp)).0[0];
    assert_eq!(found(0, STACK + 88, STACK + 200), caller);
    assert_eq!(found(1, STACK + 80, STACK + 200), caller);
    assert_eq!(found(4, STACK + 80, STACK + 80), caller);
    assert_eq!(found(6, STACK + 88, STACK + 200), caller);
    // In its body, but with a frame pointer that is not its own.
    assert_eq!(found(4, STACK + 88, STACK + 200), truncated(TruncationReason::NoRule));
}

#[test]
#[cfg(target_arch = "x86_64")]
fn an_entry_that_the_compiler_has_made_is_recognized_by_what_the_processor_has_pushed() {
    // PLAIN is called by the entry, whose rule leads to the interrupted instruction, or to the error code below it.
    for (sp, error_code) in [(STACK, 0), (STACK + 8, 8)] {
        let mut machine = machine();
        machine.set(sp + 24, PLAIN + 5);
        machine.set(sp + 56, 0x1234);
        // The stack of the interrupted code begins where the processor's words end, which is a multiple of 16.
        let saved_at = sp + 56 + error_code;
        let interrupted = saved_at + 40;
        machine.hardware_frame(saved_at, PLAIN + 3, 8, interrupted);
        machine.set(interrupted + 24, ROOT + 1);
        let (stack, in_interrupt) = machine.walk(&at(PLAIN, sp, 0x1234));
        assert_eq!(stack, [PLAIN + 5, Marker::Interrupt(0).encode(), PLAIN + 3, ROOT + 1]);
        assert!(in_interrupt);
        // Without the selector it is no entry.
        machine.set(saved_at + 8, 0);
        assert!(!machine.walk(&at(PLAIN, sp, 0x1234)).1);
    }
}
