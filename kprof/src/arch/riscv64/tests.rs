//! The rules at each instruction of functions with a frame, in both lengths of instructions, and without one.

use super::*;
use crate::arch::tests::{CODE, Code};

const NOP: u32 = 0x0000_0013;
/// The function that was called, and the return address in its caller.
const F: u64 = 0x100;
const RETURN: u64 = CODE + 0x304;
const CALLER: Innermost = Innermost::Caller(RETURN);

/// What is found at the instruction `index` of `function`; ra is `link`. Instructions below 0x10000 have two bytes.
fn found(function: &[u32], index: usize, link: u64) -> Innermost {
    called(JALR, function, index, link)
}

/// `jalr ra, 0(a5)`.
const JALR: u32 = 0x0007_80e7;
/// `jal` from `CODE + 0x300` to the function.
const JAL: u32 = 0xe01f_f0ef;

/// The same for a function that was called by this instruction.
fn called(call: u32, function: &[u32], index: usize, link: u64) -> Innermost {
    let mut code = Code::new(NOP);
    // In the caller, and the function's own last call.
    code.set(0x300, &[call]);
    code.set(0x200, &[JALR]);
    let bytes = |instruction: &u32| if instruction & 3 == 3 { 4 } else { 2 };
    let mut at = F as usize;
    for instruction in function {
        code.bytes[at..at + bytes(instruction)].copy_from_slice(&instruction.to_le_bytes()[..bytes(instruction)]);
        at += bytes(instruction);
    }
    let offset: usize = function[..index].iter().map(bytes).sum();
    let at = Registers { pc: CODE + F + offset as u64, link, ..Registers::default() };
    let word = first_word(&at, |_| None).expect("ra");
    assert!(!is_saved_frame_pointer(&at, word));
    find(&mut code, &at, word)
}

#[test]
fn the_caller_is_there_at_every_instruction_of_a_framed_function() {
    // addi sp, -32; sd ra, 24; sd s0, 16; sd s1, 8; addi s0, sp, 32; nop; ld ra; ld s0; ld s1; addi sp, 32; ret
    let long = [
        0xfe01_0113, 0x0011_3c23, 0x0081_3823, 0x0091_3423, 0x0201_0413, NOP, 0x0181_3083, 0x0101_3403, 0x0081_3483,
        0x0201_0113, 0x0000_8067,
    ];
    // The same in two bytes each.
    let short = [0x1101, 0xec06, 0xe822, 0xe426, 0x1000, 0x0001, 0x60e2, 0x6442, 0x64a2, 0x6105, 0x8082];
    for function in [long, short] {
        for index in [0, 1, 2, 3, 4, 8, 9, 10] {
            assert_eq!(found(&function, index, RETURN), CALLER, "instruction {index}");
        }
        for index in [6, 7] {
            assert_eq!(found(&function, index, RETURN), Innermost::None, "instruction {index}: s0 is its own");
        }
        for link in [RETURN, CODE + 0x204] {
            assert_eq!(found(&function, 5, link), Innermost::Candidate(link), "only the host knows");
        }
    }
}

#[test]
fn a_tail_call_after_the_epilogue_is_a_return_to_the_caller() {
    // ld ra; ld s0; ld s1; addi sp, 32; then auipc t1 and jr t1, or j, or jr a5.
    let epilogue = [0x60e2, 0x6442, 0x64a2, 0x6105];
    for tail in [[0xffff_a317, 0x2d43_0067], [0xa011, NOP], [0x8782, NOP], [0xe01f_f06f, NOP], [0x0007_8067, NOP]] {
        let function = [NOP, epilogue[0], epilogue[1], epilogue[2], epilogue[3], tail[0], tail[1]];
        let own = Innermost::None;
        let expected = [Innermost::Candidate(RETURN), own, own, CALLER, CALLER];
        assert_eq!([0, 1, 2, 3, 4].map(|index| found(&function, index, RETURN)), expected, "{tail:x?}");
    }
    // A large frame is freed in two steps: addi sp, 32; ld ra; ld s0; addi sp, 2032; ret.
    let function = [0x6105, 0x7e81_3083, 0x7e01_3403, 0x7f01_0113, 0x8082];
    let own = Innermost::None;
    assert_eq!([0, 1, 2, 3, 4].map(|index| found(&function, index, RETURN)), [own, own, own, CALLER, CALLER]);
    // The frame stays: ld s1; j. And something else comes before the end: addi sp, 32; fld fs0, 8(sp).
    for function in [[0x64a2, 0xa011], [0x6105, 0x2422]] {
        assert_eq!(found(&function, 0, RETURN), Innermost::Candidate(RETURN), "{function:x?}");
    }
}

#[test]
fn without_a_frame_ra_is_a_candidate_until_the_return() {
    // addi a0, a0, 1; jr a5; and: beqz a0; ret.
    assert_eq!(found(&[0x0015_0513, 0x8782], 0, RETURN), Innermost::Candidate(RETURN));
    assert_eq!(found(&[0xc119, 0x8082], 0, RETURN), Innermost::Candidate(RETURN));
    assert_eq!(found(&[0xc119, 0x8082], 1, RETURN), CALLER);
}

#[test]
fn a_function_without_a_frame_is_told_by_the_call_that_went_to_it() {
    for index in 0..3 {
        assert_eq!(called(JAL, &[NOP, 0x8391, NOP, 0x8782], index, RETURN), CALLER, "instruction {index}");
    }
    // A frame was built, or another function was called or has ended, between the target and PC.
    for between in [0x0201_0413, 0x1000, JALR, 0x9782, 0x0000_8067, 0x8082] {
        assert_eq!(called(JAL, &[NOP, between, NOP, 0x8782], 2, RETURN), Innermost::Candidate(RETURN), "{between:x}");
    }
}

#[test]
fn an_ra_without_a_call_before_it_is_no_caller() {
    for link in [CODE + 0x400, CODE + 0x10_0000, 0] {
        assert_eq!(found(&[0x8082], 0, link), Innermost::None, "{link:x}");
    }
}
