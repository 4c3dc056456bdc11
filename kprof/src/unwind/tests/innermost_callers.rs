//! Callers in prologues, epilogues and frameless code, tested one instruction at a time; and stale words that only look
//! like callers.

use super::*;

/// The return address of the call from `main` to `f` (at 0x100).
const RETURN: u64 = TEXT + 0x305;
const F: u64 = 0x100;

/// `main` (frame at +200, called from 0x400) has called f; [rsp] = `top`, [rsp+8] = `second`.
fn called(code: &[u8], rip: u64, rbp: u64, top: u64, second: u64) -> Vec<u64> {
    let (machine, at) = machine(code, rip, rbp, top, second);
    machine.walk(&at).0
}

/// The machine of [`called`], and its registers.
fn machine(code: &[u8], rip: u64, rbp: u64, top: u64, second: u64) -> (Machine, Registers) {
    let mut machine = Machine::new(64);
    machine.code(0x300, &call(RETURN, TEXT + F));
    machine.code(F, code);
    machine.frame(STACK + 200, 0, TEXT + 0x400);
    machine.frame(STACK + 80, STACK + 200, RETURN);
    machine.set(STACK + 40, top);
    machine.set(STACK + 48, second);
    (machine, Registers { pc: TEXT + F + rip, ..registers(STACK + 40, rbp) })
}

fn call(after: u64, target: u64) -> [u8; 5] {
    let [a, b, c, d] = (target.wrapping_sub(after) as u32).to_le_bytes();
    [0xe8, a, b, c, d]
}

const MAIN: u64 = STACK + 200;
const OWN: u64 = STACK + 80;
const CANDIDATE: u64 = Marker::Candidate.encode();
const FRAMED: [u8; 8] = [0x55, 0x48, 0x89, 0xe5, 0x90, 0x90, 0x5d, 0xc3];

#[test]
fn the_caller_is_there_at_every_instruction_of_a_framed_function() {
    let whole = [RETURN, TEXT + 0x400];
    assert_eq!(called(&FRAMED, 0, MAIN, RETURN, 7), whole, "push rbp");
    assert_eq!(called(&FRAMED, 1, MAIN, MAIN, RETURN), whole, "mov rbp, rsp");
    assert_eq!(called(&FRAMED, 4, OWN, 7, 7), whole, "the body");
    assert_eq!(called(&FRAMED, 6, OWN, MAIN, RETURN), whole, "pop rbp");
    assert_eq!(called(&FRAMED, 7, MAIN, RETURN, 7), whole, "ret");
}

#[test]
fn the_caller_is_there_in_frameless_code_and_after_an_early_return() {
    // test rdi, rdi; je 1f; push rbp; mov rbp, rsp; nop; pop rbp; 1: ret
    let shrink_wrapped = [0x48, 0x85, 0xff, 0x74, 0x06, 0x55, 0x48, 0x89, 0xe5, 0x90, 0x5d, 0xc3];
    for rip in [0, 3, 5, 11] {
        assert_eq!(called(&shrink_wrapped, rip, MAIN, RETURN, 7), [RETURN, TEXT + 0x400], "at {rip}");
    }
    // lea rax, [rdi+1]; nop; ret
    let leaf = [0x48, 0x8d, 0x47, 0x01, 0x90, 0xc3];
    for rip in [0, 4, 5] {
        assert_eq!(called(&leaf, rip, MAIN, RETURN, 7), [RETURN, TEXT + 0x400], "at {rip}");
    }
}

#[test]
fn a_tail_call_and_a_plain_push_keep_their_caller() {
    let tail_call = [0x55, 0x48, 0x89, 0xe5, 0x5d, 0xe9, 0, 1, 0, 0];
    assert_eq!(called(&tail_call, 5, MAIN, RETURN, 7), [RETURN, TEXT + 0x400]);
    // nop; push rbp; nop; pop rbp; ret
    let stub = [0x90, 0x55, 0x90, 0x5d, 0xc3];
    assert_eq!(called(&stub, 0, MAIN, RETURN, 7), [RETURN, TEXT + 0x400]);
    assert_eq!(called(&stub, 1, MAIN, RETURN, 7), [RETURN, TEXT + 0x400]);
    assert_eq!(called(&stub, 2, MAIN, MAIN, RETURN), [RETURN, TEXT + 0x400]);
    assert_eq!(called(&stub, 3, MAIN, MAIN, RETURN), [RETURN, TEXT + 0x400]);
    assert_eq!(called(&stub, 4, MAIN, RETURN, 7), [RETURN, TEXT + 0x400]);
}

#[test]
fn a_stale_return_address_in_a_framed_body_is_a_candidate_and_not_a_caller() {
    let stack = called(&FRAMED, 4, OWN, RETURN, 7);
    assert_eq!(stack, [CANDIDATE, RETURN, RETURN, TEXT + 0x400]);
    let (mut machine, at) = machine(&FRAMED, 4, OWN, RETURN, 7);
    machine.depth = 1;
    assert_eq!(machine.walk(&at).0, [truncated(TruncationReason::Depth)], "no marker without its candidate");
}

#[test]
fn a_push_of_rbp_that_is_no_prologue_makes_no_caller_of_what_lies_below() {
    // sub rsp, 8; push rbp; pop rbp; add rsp, 8; ret: at the push, [rsp] is a local, here some text without a call.
    let naked = [0x48, 0x83, 0xec, 0x08, 0x55, 0x5d, 0x48, 0x83, 0xc4, 0x08, 0xc3];
    assert_eq!(called(&naked, 4, MAIN, TEXT + 0x600, RETURN), [TEXT + 0x400]);
}

#[test]
fn after_a_move_of_rsp_the_return_address_of_an_earlier_call_is_no_caller() {
    // sub rsp, 8; nop; add rsp, 8; ret. And the same by lea.
    let moved = [0x48, 0x83, 0xec, 0x08, 0x90, 0x48, 0x83, 0xc4, 0x08, 0xc3];
    let by_lea = [0x48, 0x8d, 0x64, 0x24, 0xf8, 0x90, 0x48, 0x8d, 0x64, 0x24, 0x08, 0xc3];
    for (code, rip) in [(&moved[..], 4), (&by_lea[..], 5)] {
        // The word at [rsp] is left over from an earlier call of the same function, from elsewhere (here: from the same
        // call instruction).
        let stack = called(code, rip, MAIN, RETURN, RETURN);
        assert_eq!(stack, [CANDIDATE, RETURN, TEXT + 0x400], "at {rip}");
        // Before the adjustment of rsp, and at the return, the word is the caller.
        assert_eq!(called(code, 0, MAIN, RETURN, 7), [RETURN, TEXT + 0x400]);
        assert_eq!(called(code, code.len() as u64 - 1, MAIN, RETURN, 7), [RETURN, TEXT + 0x400]);
    }
}

#[test]
fn a_word_without_a_call_before_it_is_never_a_caller() {
    for rip in 0..8 {
        assert_eq!(called(&FRAMED, rip, MAIN, TEXT + 0x600, 7), [TEXT + 0x400], "at {rip}");
    }
}

#[test]
fn a_word_after_a_call_of_what_is_no_code_is_never_a_caller() {
    for rip in 0..8 {
        let (mut machine, at) = machine(&FRAMED, rip, MAIN, RETURN, 7);
        machine.code(0x300, &call(RETURN, TEXT + TEXT_BYTES as u64));
        assert_eq!(machine.walk(&at).0, [TEXT + 0x400], "at {rip}");
    }
}

#[test]
fn code_at_the_very_ends_of_the_text_is_not_looked_at_beyond_them() {
    for rip in [TEXT, TEXT + 4, TEXT + TEXT_BYTES as u64 - 1] {
        let mut machine = Machine::new(64);
        machine.frame(STACK + 200, 0, TEXT + 0x400);
        machine.set(STACK + 40, TEXT);
        let at = Registers { pc: rip, ..registers(STACK + 40, STACK + 200) };
        assert_eq!(machine.walk(&at).0, [TEXT + 0x400]);
    }
    // Up to the ends it is: the last byte of the text is a return.
    let last = TEXT_BYTES as u64 - 1;
    let (mut machine, at) = machine(&[], last - F, MAIN, RETURN, 7);
    machine.code(last, &[0xc3]);
    assert_eq!(machine.walk(&at).0, [RETURN, TEXT + 0x400]);
}

#[test]
fn no_byte_outside_of_code_is_read_if_fewer_than_eight_bytes_of_code_are_there() {
    let mut machine = Machine::new(64);
    machine.frame(STACK + 200, 0, TEXT + 1);
    machine.set(STACK + 40, TEXT);
    let at = |pc| Registers { pc, ..registers(STACK + 40, STACK + 200) };
    machine.module = TEXT + 0x1_0000..TEXT + 0x1_0004;
    assert_eq!(machine.walk(&at(machine.module.start)).0, [TEXT + 1], "a module");
    machine.text.truncate(4);
    assert_eq!(machine.walk(&at(TEXT)).0, [TEXT + 1], "the text");
    assert_eq!(machine.decoded.into_inner(), 0);
}

#[test]
fn one_walk_looks_through_a_bounded_number_of_bytes_of_code() {
    // Nested interrupts, each in a function without a frame, 200 bytes after its beginning.
    const LEVELS: u64 = 60;
    let (caller, target) = (TEXT + 0x300, TEXT + 0x700);
    let mut machine = Machine::new(64 * LEVELS as usize);
    machine.depth = 250;
    machine.code(0x300 - 5, &[0xe8, 0x00, 0x04, 0x00, 0x00]);
    let base = |level| STACK + 400 * level;
    for level in 0..LEVELS {
        let frame = base(level) + 40;
        machine.set(base(level), caller);
        machine.frame(frame, base(level + 1) + 40, Marker::Interrupt(33).encode());
        machine.hardware_frame(frame + 16, target + 200, 8, base(level + 1));
    }
    let at = Registers { pc: target + 200, ..registers(base(0), base(0) + 40) };
    let (stack, _) = machine.walk(&at);
    let callers = stack.iter().filter(|word| **word == caller).count();
    let candidates = stack.iter().filter(|word| **word == Marker::Candidate.encode()).count();
    assert_eq!(
        (callers as u64, candidates as u64),
        (LEVELS, LEVELS - 2),
        "two were looked through, the rest is for the host"
    );
    // Eight reads at each entry frame: the instruction, the bytes before it, the call.
    let most = MAX_SCANNED as usize + 8 * LEVELS as usize;
    let walks = 1 + 3;
    assert!(machine.decoded.load(Ordering::Relaxed) <= walks * most, "{:?} for {most}", machine.decoded);
}
