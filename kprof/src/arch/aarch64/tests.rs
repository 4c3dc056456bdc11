//! The rules at each instruction of functions with a frame, without one, and with one that is built late.

use super::*;
use crate::arch::tests::{CODE, Code};
use crate::arch::view;

const NOP: u32 = 0xd503_201f;
/// The function that was called, and the return address in its caller.
const F: u64 = 0x100;
const RETURN: u64 = CODE + 0x304;

/// What is found at the instruction `index` of `function`, which was called by `call`; the link register is `link`.
fn found(function: &[u32], index: u64, call: u32, link: u64) -> Innermost {
    let mut code = Code::new(NOP);
    code.set(0x300, &[call]);
    // The last call that the function itself has made.
    code.set(0x200, &[0xd63f_0100]);
    code.set(F, function);
    let at = Registers { pc: CODE + F + 4 * index, link, ..Registers::default() };
    let word = first_word(&at, |_| None).expect("the link register");
    assert!(!is_saved_frame_pointer(&at, word));
    find(&mut code, &at, word)
}

/// `bl` from `CODE + 0x300` to the function.
const BL: u32 = 0x9400_0000 | ((F as i32 - 0x300) / 4) as u32 & 0x03ff_ffff;
const BLR: u32 = 0xd63f_0100;
const CALLER: Innermost = Innermost::Caller(RETURN);

#[test]
fn the_caller_is_there_at_every_instruction_of_a_framed_function() {
    // sub sp, #48; stp x20, x19; stp x29, x30; add x29, sp, #32; nop; ldp x29, x30; ldp x20, x19; add sp, #48; ret
    let framed = [
        0xd100_c3ff, 0xa901_4ff4, 0xa902_7bfd, 0x9100_83fd, NOP, NOP, 0xa942_7bfd, 0xa941_4ff4, 0x9100_c3ff,
        0xd65f_03c0,
    ];
    for call in [BL, BLR] {
        for index in [0, 1, 2, 3, 7, 8, 9] {
            assert_eq!(found(&framed, index, call, RETURN), CALLER, "instruction {index}");
        }
        assert_eq!(found(&framed, 6, call, RETURN), Innermost::None, "x29 is the function's own");
    }
    // In the body, x29 is right, and the link register is what the last call has left. Only the host knows.
    for index in [4, 5] {
        let own = CODE + 0x204;
        assert_eq!(found(&framed, index, BL, own), Innermost::Candidate(own));
        assert_eq!(found(&framed, index, BL, RETURN), Innermost::Candidate(RETURN), "no call has been made");
    }
}

#[test]
fn with_write_back_and_signatures_it_is_the_same() {
    // paciasp; stp x29, x30, [sp, #-32]!; str x19, [sp, #16]; mov x29, sp; ldr x19; ldp x29, x30, [sp], #32; autiasp;
    // ret
    let signed = [
        0xd503_233f, 0xa9be_7bfd, 0xf900_0bf3, 0x9100_03fd, 0xf940_0bf3, 0xa8c2_7bfd, 0xd503_23bf, 0xd65f_03c0,
    ];
    for index in [0, 1, 2, 3, 6, 7] {
        assert_eq!(found(&signed, index, BL, RETURN), CALLER, "instruction {index}");
    }
    for index in [4, 5] {
        assert_eq!(found(&signed, index, BL, RETURN), Innermost::None, "instruction {index}");
    }
    assert_eq!(found(&signed, 0, BL, RETURN ^ 0x55 << 48), CALLER, "a signed link register");
}

#[test]
fn a_tail_call_is_an_epilogue_only_after_the_record_was_loaded() {
    // ldp x29, x30, [sp], #16; b; and a jump in the middle of a body.
    let (jump, body) = ([0xa8c1_7bfd, 0x1400_0100], [NOP, 0x1400_0100]);
    assert_eq!(found(&jump, 1, BLR, RETURN), CALLER);
    assert_eq!(found(&body, 1, BLR, RETURN), Innermost::Candidate(RETURN));
}

#[test]
fn a_function_without_a_frame_is_told_by_the_call_that_went_to_it() {
    let leaf = [NOP, 0xb400_0040, NOP, NOP];
    for index in 0..4 {
        assert_eq!(found(&leaf, index, BL, RETURN), CALLER, "instruction {index}");
        assert_eq!(found(&leaf, index, BLR, RETURN), Innermost::Candidate(RETURN), "instruction {index}");
    }
    // A frame was built, or another function was called or has ended, between the target and PC.
    for between in [0xa9bf_7bfd, 0x9100_03fd, 0x9400_0100, BLR, 0xd65f_03c0, 0] {
        assert_eq!(found(&[NOP, between, NOP], 2, BL, RETURN), Innermost::Candidate(RETURN), "{between:x}");
    }
}

#[test]
fn a_link_register_without_a_call_before_it_is_no_caller() {
    // No call ends there; misaligned; no code; 0.
    for link in [CODE + 0x400, RETURN + 2, CODE + 0x10_0000, 0] {
        assert_eq!(found(&[0xd65f_03c0], 0, BL, link), Innermost::None, "{link:x}");
    }
}

#[test]
fn a_search_is_bounded() {
    let mut code = Code::new(NOP);
    code.set(0x300, &[BL]);
    let at = |distance| Registers { pc: CODE + F + distance, link: RETURN, ..Registers::default() };
    assert_eq!(find(&mut code, &at(view::SEARCH_BYTES), RETURN), CALLER);
    assert_eq!(find(&mut code, &at(view::SEARCH_BYTES + 4), RETURN), Innermost::Candidate(RETURN));
    code.left = 0;
    assert_eq!(find(&mut code, &at(4), RETURN), Innermost::Candidate(RETURN));
}
