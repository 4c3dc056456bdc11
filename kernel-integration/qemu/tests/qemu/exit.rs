//! Compares what the walk knows of an instruction with a complete decoder: its length, and what it does to RSP and RBP.

use crate::plugin::walk::exit::{Frame, Place};
use crate::plugin::walk::length;
use crate::plugin::walk::step::{Next, State};
use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};

const AT: u64 = 0xffff_ffff_8020_0000;

/// Instructions of one, two and three opcode bytes, with these prefixes, and every byte after the opcode.
fn each_instruction(mut check: impl FnMut(&[u8], &Instruction)) -> usize {
    let prefixes: [&[u8]; 10] =
        [&[], &[0x48], &[0x41], &[0x4c], &[0x49], &[0x66], &[0xf3], &[0xf0], &[0x67], &[0x66, 0x48]];
    let maps: [&[u8]; 8] = [
        &[],
        &[0x0f],
        &[0x0f, 0x38],
        &[0x0f, 0x3a],
        &[0xc5, 0xf8],
        &[0xc4, 0xe1, 0x78],
        &[0xc4, 0xe2, 0x79],
        &[0xc4, 0xe3, 0x79],
    ];
    let mut count = 0;
    for (map, prefix) in maps.iter().flat_map(|map| prefixes.iter().map(move |prefix| (map, prefix))) {
        if map.first().is_some_and(|first| *first >= 0xc4) && !prefix.is_empty() {
            continue;
        }
        for (opcode, after) in (0..=255_u8).flat_map(|opcode| (0..=255_u8).map(move |after| (opcode, after))) {
            let rest = [after, 0x24, 2, 3, 4, 5, 6, 7, 8, 9];
            let bytes = [prefix, *map, &[opcode], &rest].concat();
            let instruction = Decoder::with_ip(64, &bytes, AT, DecoderOptions::NONE).decode();
            if !instruction.is_invalid() && bytes.len() <= length::MAX_BYTES + 2 {
                check(&bytes, &instruction);
                count += 1;
            }
        }
    }
    count
}

/// `66` before a near call or jump: processors disagree about its length.
fn is_odd(bytes: &[u8], instruction: &Instruction) -> bool {
    let is_jump = instruction.flow_control() != FlowControl::Next;
    is_jump && bytes[..2].contains(&0x66)
}

#[test]
fn lengths_are_those_of_a_complete_decoder() {
    let mut unknown = 0;
    let count = each_instruction(|bytes, instruction| {
        if is_odd(bytes, instruction) || bytes[0] == 0x62 || bytes[1] == 0x62 {
            return;
        }
        match length::instruction(bytes) {
            Some(one) => assert_eq!(one.length, instruction.len(), "{bytes:x?} {instruction:?}"),
            None => unknown += 1,
        }
    });
    // Instructions that only old processors have.
    assert!(count > 300_000 && unknown < count / 100, "{unknown} of {count}");
}

#[test]
fn whatever_writes_rsp_or_rbp_is_followed_or_makes_it_unknown() {
    let mut factory = InstructionInfoFactory::new();
    let (mut known, mut written) = (0, 0);
    each_instruction(|bytes, instruction| {
        let Some(one) = length::instruction(bytes).filter(|_| !is_odd(bytes, instruction)) else { return };
        let mut state = State { at: AT, rsp: Some(Place::Rsp(0)), rbp: Frame::Same, saved: None };
        let next = state.step(&one, &bytes[..one.length]);
        let is_lea_of_itself = instruction.mnemonic() == Mnemonic::Lea && state.rsp == Some(Place::Rsp(0));
        if is_lea_of_itself && instruction.op0_register() == Register::RSP {
            assert!(instruction.memory_base() == Register::RSP && instruction.memory_displacement64() == 0);
            return;
        }
        // It begins another program, or ends an interrupt in another way.
        if matches!(instruction.mnemonic(), Mnemonic::Skinit | Mnemonic::Eretu | Mnemonic::Erets) {
            return;
        }
        if instruction.is_call_near() || instruction.is_call_near_indirect() || !matches!(next, Next::Falls) {
            return;
        }
        let info = factory.info(instruction);
        let writes = |register: Register| {
            let used = info.used_registers().iter().filter(|used| used.register().full_register() == register);
            used.map(|used| used.access()).any(|access| {
                !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess)
            })
        };
        let is_stack = instruction.is_stack_instruction();
        if is_stack && matches!(state.rsp, Some(Place::Rsp(_))) {
            known += 1;
            let moved = i64::from(instruction.stack_pointer_increment());
            assert_eq!(state.rsp, Some(Place::Rsp(moved)), "{bytes:x?} {instruction:?}");
        } else if writes(Register::RSP) && !is_stack {
            written += 1;
            assert_ne!(state.rsp, Some(Place::Rsp(0)), "{bytes:x?} {instruction:?}");
        }
        if writes(Register::RBP) {
            written += 1;
            assert_ne!(state.rbp, Frame::Same, "{bytes:x?} {instruction:?}");
        }
    });
    assert!(known > 1000 && written > 1000, "{known} {written}");
}
