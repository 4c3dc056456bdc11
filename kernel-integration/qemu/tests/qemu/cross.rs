//! Walks across interrupts on stacks that a test has made: stubs that keep the interrupted frame pointer, stubs that
//! build a frame of their own, entries from user code, and words that no processor pushes.

use crate::plugin::walk::{self, CANDIDATE, End, Exits, INTERRUPT, Registers, SYSCALL, Stack, USER, walk};
use std::collections::BTreeMap;

const TEXT: u64 = 0xffff_ffff_8010_0000;
const STUB: u64 = TEXT + 0x10_0000;
const STACK: u64 = 0xffff_8000_0001_0000;
/// Where the stub pushes to first: the lowest of the processor's words.
const PUSHED: u64 = STACK + 0x400;
const CALLER: u64 = TEXT + 0x2000;

/// Guest memory, byte by byte.
#[derive(Default)]
struct Memory(BTreeMap<u64, u8>);

impl Memory {
    fn bytes(&mut self, at: u64, bytes: &[u8]) {
        self.0.extend((at..).zip(bytes.iter().copied()));
    }

    fn words(&mut self, at: u64, words: &[u64]) {
        words.iter().zip((at..).step_by(8)).for_each(|(word, at)| self.bytes(at, &word.to_le_bytes()));
    }

    fn walk(&self, at: &Registers) -> Stack {
        let read = |address, to: &mut [u8]| {
            to.iter_mut().zip(address..).all(|(byte, at)| self.0.get(&at).map(|known| *byte = *known).is_some())
        };
        walk(at, at.half((0x1000, walk::half::UPPER)).unwrap(), &read, &read, &mut Exits::default(), None)
    }
}

/// `push rax; push rcx; call; pop rcx; pop rax; iretq`: the return address is `STUB + 7`.
const KEEPS_RBP: &[u8] = &[0x50, 0x51, 0xe8, 0, 0, 0, 0, 0x59, 0x58, 0x48, 0xcf];
/// `push rbp; mov rbp, rsp; call; pop rbp; iretq`: the return address is `STUB + 9`.
const HAS_FRAME: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0xe8, 0, 0, 0, 0, 0x5d, 0x48, 0xcf];

/// A function that was interrupted in its body, called at `CALLER` by the outermost one, and a handler that the stub
/// has called. `pushed` is what the processor has pushed. The handler's frame is below `saved`, the stub's words.
fn interrupted(stub: &[u8], returns: u64, saved: &[u64], rbp: u64, pushed: &[u64]) -> (Memory, Registers) {
    let mut memory = Memory::default();
    memory.bytes(TEXT, &[0x90; 0x3000]);
    memory.bytes(STUB, &[0x90; 0x100]);
    memory.bytes(STUB, stub);
    for at in [CALLER, CALLER + 0x100] {
        memory.bytes(at - 5, &[0xe8, 0, 0, 0, 0]);
    }
    memory.words(STACK, &[0; 0x200]);
    memory.words(PUSHED, pushed);
    memory.words(PUSHED - 8 * saved.len() as u64, saved);
    let frame = PUSHED - 8 * saved.len() as u64 - 16;
    memory.words(frame, &[rbp, returns]);
    // The interrupted function's frame and its caller's.
    memory.words(PUSHED + 0x80, &[PUSHED + 0xc0, CALLER]);
    memory.words(PUSHED + 0xc0, &[0, 0]);
    (memory, Registers { rip: TEXT + 0x10, rsp: frame - 32, rbp: frame, rflags: 2, cs: 8, efer: walk::LONG_MODE })
}

fn pushed() -> [u64; 5] {
    [TEXT + 0x1000, 8, 0x246, PUSHED + 0x28, 0x10]
}

#[test]
fn a_stub_that_keeps_the_frame_pointer_is_crossed_to_the_interrupted_function() {
    let (memory, at) = interrupted(KEEPS_RBP, STUB + 7, &[1, 2], PUSHED + 0x80, &pushed());
    let stack = memory.walk(&at);
    assert_eq!(stack.callers, [STUB + 7, INTERRUPT, TEXT + 0x1000, CALLER]);
    assert_eq!(stack.end, End::Outermost);
}

#[test]
fn a_stub_with_a_frame_of_its_own_is_crossed_and_its_marker_is_kept() {
    // The stub's frame: the interrupted frame pointer, right below the processor's words.
    let (memory, at) = interrupted(HAS_FRAME, STUB + 9, &[PUSHED + 0x80], PUSHED - 8, &pushed());
    assert_eq!(memory.walk(&at).callers, [STUB + 9, INTERRUPT, TEXT + 0x1000, CALLER]);
    // `pop rbp; add rsp, 8; iretq`: a marker of kprof is in the place of an error code.
    let with_marker = [&HAS_FRAME[..10], &[0x48, 0x83, 0xc4, 8, 0x48, 0xcf]].concat();
    let (memory, at) = interrupted(&with_marker, STUB + 9, &[PUSHED + 0x80, INTERRUPT + 0xf0], PUSHED - 16, &pushed());
    assert_eq!(memory.walk(&at).callers, [STUB + 9, INTERRUPT + 0xf0, TEXT + 0x1000, CALLER]);
}

#[test]
fn a_sample_in_a_stub_has_the_interrupted_function_at_every_instruction() {
    let (memory, _) = interrupted(KEEPS_RBP, STUB + 7, &[1, 2], PUSHED + 0x80, &pushed());
    for (offset, words) in [(0, 0), (1, 1), (2, 2), (7, 2), (8, 1), (9, 0)] {
        let at = Registers {
            rip: STUB + offset,
            rsp: PUSHED - 8 * words,
            rbp: PUSHED + 0x80,
            rflags: 2,
            cs: 8,
            efer: walk::LONG_MODE,
        };
        let stack = memory.walk(&at);
        assert_eq!((stack.candidate, stack.callers), (0, vec![INTERRUPT, TEXT + 0x1000, CALLER]), "at {offset}");
    }
    // Before `push rbp`, before `mov rbp, rsp`, with the stub's own frame, before `pop rbp`, before `iretq`.
    let (memory, _) = interrupted(HAS_FRAME, STUB + 9, &[PUSHED + 0x80], PUSHED - 8, &pushed());
    let frame = PUSHED + 0x80;
    for (offset, words, rbp) in [(0, 0, frame), (1, 1, frame), (4, 1, PUSHED - 8), (9, 1, PUSHED - 8), (10, 0, frame)] {
        let at =
            Registers { rip: STUB + offset, rsp: PUSHED - 8 * words, rbp, rflags: 2, cs: 8, efer: walk::LONG_MODE };
        assert_eq!(memory.walk(&at).callers, [INTERRUPT, TEXT + 0x1000, CALLER], "at {offset}");
    }
}

#[test]
fn an_interrupted_prologue_has_its_caller_as_a_candidate() {
    let mut words = pushed();
    words[3] = PUSHED + 0x40;
    let (mut memory, at) = interrupted(KEEPS_RBP, STUB + 7, &[1, 2], PUSHED + 0x80, &words);
    memory.bytes(TEXT + 0x1000, &[0x55]);
    memory.words(PUSHED + 0x40, &[CALLER + 0x100]);
    let expected = [STUB + 7, INTERRUPT, TEXT + 0x1000, CANDIDATE, CALLER + 0x100, CALLER];
    assert_eq!(memory.walk(&at).callers, expected);
}

#[test]
fn an_entry_from_user_code_is_the_root_whatever_the_users_frame_pointer_is() {
    let words = [0x40_1000, 0x33, 0x246, 0x7fff_0000, 0x2b];
    for rbp in [0, 0x7fff_0000, PUSHED + 0x80] {
        let (memory, at) = interrupted(KEEPS_RBP, STUB + 7, &[1, 2], rbp, &words);
        let stack = memory.walk(&at);
        assert_eq!((stack.callers, stack.end), (vec![STUB + 7, INTERRUPT, USER, 0x40_1000], End::Outermost));
    }
}

#[test]
fn a_fast_system_call_ends_the_stack() {
    // `pop rcx; pop rax; mov rsp, gs:[0]; swapgs; sysretq`.
    let code = [&KEEPS_RBP[..9], &[0x65, 0x48, 0x8b, 0x24, 0x25, 0, 0, 0, 0, 0x0f, 0x01, 0xf8, 0x48, 0x0f, 0x07]];
    let (memory, at) = interrupted(&code.concat(), STUB + 7, &[1, 2], PUSHED + 0x80, &pushed());
    let stack = memory.walk(&at);
    assert_eq!((stack.callers, stack.end), (vec![STUB + 7, SYSCALL], End::Outermost));
}

#[test]
fn words_that_no_processor_pushes_end_the_walk() {
    // RIP that is no code, CS of no privilege level, reserved flags, RSP of user code, SS that is no selector.
    for (number, wrong) in [(0, TEXT - 0x1000), (1, 0), (1, 0x9), (2, 0x244), (2, 1 << 40 | 2), (3, 0x1000), (4, 0x12)]
    {
        let mut words = pushed();
        words[number] = wrong;
        let (memory, at) = interrupted(KEEPS_RBP, STUB + 7, &[1, 2], PUSHED + 0x80, &words);
        let stack = memory.walk(&at);
        assert_eq!((stack.callers, stack.end), (vec![STUB + 7], End::Entry), "word {number}");
    }
}

#[test]
fn a_stub_that_clears_or_changes_the_stack_is_not_crossed_with_a_guess() {
    // It has set rbp to 0 for the handler: the interrupted function is known, its callers are not.
    let (memory, at) = interrupted(KEEPS_RBP, STUB + 7, &[1, 2], 0, &pushed());
    let stack = memory.walk(&at);
    assert_eq!((stack.callers, stack.end), (vec![STUB + 7, INTERRUPT, TEXT + 0x1000], End::Entry));
    // `mov rsp, rax`: another task's stack may be next.
    let code = [&KEEPS_RBP[..7], &[0x48, 0x89, 0xc4, 0x59, 0x58, 0x48, 0xcf]].concat();
    let (memory, at) = interrupted(&code, STUB + 7, &[1, 2], PUSHED + 0x80, &pushed());
    let stack = memory.walk(&at);
    assert_eq!((stack.callers, stack.end), (vec![STUB + 7], End::Entry));
}

#[test]
fn an_old_frame_in_a_functions_locals_is_not_taken_for_an_entry() {
    let (mut memory, at) = interrupted(KEEPS_RBP, CALLER + 0x100, &[1, 2], PUSHED + 0x80, &pushed());
    // The function is no stub: `leave; ret`.
    memory.bytes(CALLER + 0x100, &[0xc9, 0xc3]);
    let stack = memory.walk(&at);
    assert_eq!((stack.callers, stack.end), (vec![CALLER + 0x100, CALLER], End::Outermost));
}

#[test]
fn an_old_frame_in_the_locals_of_a_function_that_never_returns_is_not_taken_for_an_entry_either() {
    let returns = CALLER + 0x100;
    let of = |begin: &[u8], call: [u8; 5], after: &[u8]| {
        let (mut memory, at) = interrupted(KEEPS_RBP, returns, &[1, 2], PUSHED + 0x80, &pushed());
        memory.bytes(returns - 5 - begin.len() as u64, begin);
        memory.bytes(returns, after);
        memory.bytes(CALLER - 5, &call);
        let stack = memory.walk(&at);
        (stack.callers, stack.end)
    };
    // `push rbp; mov rbp, rsp; call; mov eax, [rbp - 8]; jmp`, without end. The call at `CALLER` is of `push rbp`.
    let (frame, local, other): (&[u8], &[u8], &[u8]) =
        (&[0x55, 0x48, 0x89, 0xe5], &[0x8b, 0x45, 0xf8, 0xeb, 0xf6], &[0x8b, 0x45, 0x08, 0xeb, 0xf6]);
    let call = |to: u64| [&[0xe8][..], &((to.wrapping_sub(CALLER)) as u32).to_le_bytes()].concat().try_into().unwrap();
    assert_eq!(of(frame, call(returns - 9), local), (vec![returns, CALLER], End::Outermost));
    let entry = (vec![returns], End::Entry);
    assert_eq!(of(frame, call(returns - 9), other), entry, "it has no local: a stub may be so, too");
    assert_eq!(of(frame, call(returns - 8), local), entry, "what is called sets up no frame");
    assert_eq!(of(&[0x55, 0x90, 0x90, 0x90], call(returns - 9), local), entry, "it leaves RBP as it is");
    assert_eq!(of(frame, call(TEXT + 0x1000), local), entry, "the call is of another function");
    // `pop rbp; jmp`: code that has the caller's frame is not the function's own.
    let popped: &[u8] = &[0x5d, 0x8b, 0x45, 0xf8, 0xeb, 0xfb];
    assert_eq!(of(frame, call(returns - 9), popped), entry, "it has given the frame back");
}

#[test]
fn a_function_without_a_frame_has_its_caller_unless_the_call_before_that_is_of_another_function() {
    let frame = PUSHED + 0x80;
    // `push rbx; nop; pop rbx; ret`, sampled at the `nop`; and `jmp rax`.
    for (code, saved, is_certain) in [(&[0x90, 0x5b, 0xc3][..], 8, true), (&[0xff, 0xe0], 0, false)] {
        let (mut memory, _) = interrupted(KEEPS_RBP, STUB + 7, &[], frame, &pushed());
        memory.bytes(TEXT + 0x1000, code);
        let at = Registers { rip: TEXT + 0x1000, rsp: frame - 64, rbp: frame, rflags: 2, cs: 8, efer: walk::LONG_MODE };
        memory.words(at.rsp + saved, &[CALLER + 0x100]);
        // A call of another function.
        let stack = memory.walk(&at);
        assert_eq!((stack.candidate, stack.callers), (CALLER + 0x100, vec![CALLER]), "{code:x?}");
        let distance = (TEXT + 0xff8).wrapping_sub(CALLER + 0x100) as i32;
        memory.bytes(CALLER + 0xfc, &distance.to_le_bytes());
        let stack = memory.walk(&at);
        let expected = |is_certain| match is_certain {
            true => (0, vec![CALLER + 0x100, CALLER]),
            false => (CALLER + 0x100, vec![CALLER]),
        };
        assert_eq!((stack.candidate, stack.callers), expected(is_certain), "{code:x?}");
        // A call through a word that has the address of this function, or of another one.
        memory.bytes(CALLER + 0xfa, &[0xff, 0x15]);
        memory.bytes(CALLER + 0xfc, &0x100_i32.to_le_bytes());
        for (function, is_this) in [(TEXT + 0xff8, true), (STUB, false)] {
            memory.words(CALLER + 0x200, &[function]);
            let stack = memory.walk(&at);
            assert_eq!((stack.candidate, stack.callers), expected(is_certain && is_this), "{code:x?}");
        }
        // `call rax`: it may be of this function.
        memory.bytes(CALLER + 0xfa, &[0x90, 0x90, 0x90, 0x90, 0xff, 0xd0]);
        let stack = memory.walk(&at);
        assert_eq!((stack.candidate, stack.callers), expected(is_certain), "{code:x?}");
    }
}

/// The plugin is compiled without any package, so it repeats these numbers.
#[test]
fn markers_and_reasons_are_those_of_the_format() {
    use kprof_format::marker::{Marker, TruncationReason};
    let markers = [Marker::Interrupt(0), Marker::Syscall, Marker::User, Marker::Candidate].map(Marker::encode);
    assert_eq!(markers, [INTERRUPT, SYSCALL, USER, CANDIDATE]);
    let reasons = [
        (End::Depth, TruncationReason::Depth),
        (End::Range, TruncationReason::Range),
        (End::Alignment, TruncationReason::Alignment),
        (End::Loop, TruncationReason::Loop),
        (End::NotText, TruncationReason::NotText),
        (End::Entry, TruncationReason::Entry),
    ];
    assert!(reasons.iter().all(|(end, reason)| TruncationReason::from_low(*end as u8) == Some(*reason)));
    assert_eq!(TruncationReason::from_low(End::Outermost as u8), None);
}
