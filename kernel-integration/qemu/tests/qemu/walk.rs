//! Tests the plugin's walk on memory that the test has made: callers, ends, candidates. A walk must never cross the
//! frame of an interrupt.

use crate::plugin::walk::{self, End, Exits, MAX_CALLERS, Registers, Stack, walk};
use std::collections::BTreeMap;

const TEXT: u64 = 0xffff_ffff_8010_0000;
const STACK: u64 = 0xffff_8000_0001_0000;

/// Guest memory, byte by byte.
#[derive(Default)]
struct Memory(BTreeMap<u64, u8>);

impl Memory {
    fn bytes(&mut self, at: u64, bytes: &[u8]) {
        self.0.extend((at..).zip(bytes.iter().copied()));
    }

    fn word(&mut self, at: u64, word: u64) {
        self.bytes(at, &word.to_le_bytes());
    }

    /// Writes code that is neither a call nor the beginning of a function, and in it a call that ends at `to`.
    fn call(&mut self, to: u64, code: &[u8]) {
        self.bytes(to - 16, &[0x90; 32]);
        self.bytes(to - code.len() as u64, code);
    }

    fn walk(&self, at: &Registers) -> Stack {
        let read = |address, to: &mut [u8]| {
            to.iter_mut().zip(address..).all(|(byte, at)| self.0.get(&at).map(|known| *byte = *known).is_some())
        };
        walk(at, at.half((0x1000, walk::half::UPPER)).unwrap(), &read, &read, &mut Exits::default(), None)
    }
}

const DIRECT: [u8; 5] = [0xe8, 1, 2, 3, 4];

/// A stack of frames of 64 bytes, each with a return address after a call; the last has a frame pointer of 0.
fn frames(count: u64) -> (Memory, Registers) {
    let mut memory = Memory::default();
    memory.bytes(TEXT, &[0x90; 64]);
    for number in 0..count {
        let (frame, caller) = (STACK + 64 * number, TEXT + 0x1000 * (number + 1));
        memory.call(caller, &DIRECT);
        for at in (frame..frame + 64).step_by(8) {
            memory.word(at, 0x1234);
        }
        memory.word(frame, if number + 1 == count { 0 } else { frame + 64 });
        memory.word(frame + 8, caller);
    }
    (memory, Registers { rip: TEXT + 32, rsp: STACK, rbp: STACK, rflags: 0x202, cs: 8, efer: walk::LONG_MODE })
}

#[test]
fn callers_are_found_up_to_the_outermost_frame_and_up_to_the_limit() {
    let (memory, at) = frames(3);
    let stack = memory.walk(&at);
    assert_eq!(stack.callers, [TEXT + 0x1000, TEXT + 0x2000, TEXT + 0x3000]);
    assert_eq!((stack.end, stack.candidate), (End::Outermost, 0));
    let (memory, at) = frames(MAX_CALLERS as u64 + 5);
    let stack = memory.walk(&at);
    assert_eq!((stack.callers.len(), stack.end), (MAX_CALLERS, End::Depth));
}

#[test]
fn every_form_of_a_call_is_one_and_nothing_else_is() {
    let forms: [&[u8]; 8] = [
        &DIRECT,
        &[0xff, 0xd0],                   // call rax
        &[0xff, 0x10],                   // call [rax]
        &[0xff, 0x50, 0x18],             // call [rax + 0x18]
        &[0xff, 0x14, 0xc8],             // call [rax + rcx * 8]
        &[0xff, 0x54, 0xc8, 0x10],       // call [rax + rcx * 8 + 0x10]
        &[0xff, 0x15, 1, 2, 3, 4],       // call [rip + 0x4030201]
        &[0xff, 0x14, 0xc5, 1, 2, 3, 4], // call [rax * 8 + 0x4030201]
    ];
    for code in forms {
        let (mut memory, at) = frames(2);
        memory.call(TEXT + 0x1000, code);
        assert_eq!(memory.walk(&at).callers.len(), 2, "{code:x?}");
    }
    for code in [&[0xe9, 1, 2, 3, 4][..], &[0xff, 0xe0], &[0xff, 0x25, 1, 2, 3, 4], &[0xff, 0x14]] {
        let (mut memory, at) = frames(2);
        memory.call(TEXT + 0x1000, code);
        let stack = memory.walk(&at);
        assert_eq!((stack.callers.len(), stack.end), (0, End::NotText), "{code:x?}");
    }
}

#[test]
fn a_walk_ends_before_an_interrupts_frame() {
    for (cs, ss, rip, rsp) in [(8, 0x10, TEXT + 5, STACK + 0x80), (0x2b, 0x23, 0x40_1000, 0x7fff_0000)] {
        let (mut memory, at) = frames(3);
        // Between the first frame and the second.
        for (number, word) in [rip, cs, 0x246, rsp, ss].into_iter().enumerate() {
            memory.word(STACK + 16 + 8 * number as u64, word);
        }
        let stack = memory.walk(&at);
        assert_eq!((stack.callers, stack.end), (vec![TEXT + 0x1000], End::Entry));
    }
}

#[test]
fn crooked_frame_pointers_end_the_walk_with_their_reason() {
    let of = |next: u64| {
        let (mut memory, at) = frames(3);
        memory.word(STACK, next);
        let stack = memory.walk(&at);
        assert_eq!(stack.callers, [TEXT + 0x1000], "{next:x}");
        stack.end
    };
    assert_eq!(of(STACK + 65), End::Alignment);
    assert_eq!(of(STACK), End::Loop);
    assert_eq!(of(STACK + (1 << 20)), End::Range);
    assert_eq!(of(0x7fff_0000), End::Outermost);
}

#[test]
fn a_function_without_a_frame_of_its_own_has_its_caller_as_a_candidate() {
    for (code, slot) in [
        (&[0x90, 0x55][..], 0),
        (&[0x90, 0xf3, 0x0f, 0x1e, 0xfa], 0),
        (&[0x55, 0x48, 0x89, 0xe5], 8),
        (&[0x90, 0xc3], 0),
    ] {
        let (mut memory, mut at) = frames(2);
        memory.bytes(at.rip - 1, code);
        at.rsp = STACK - 32;
        memory.call(TEXT + 0x9000, &DIRECT);
        for word in (at.rsp..STACK).step_by(8) {
            memory.word(word, 0);
        }
        memory.word(at.rsp + slot, TEXT + 0x9000);
        assert_eq!(memory.walk(&at).candidate, TEXT + 0x9000, "{code:x?}");
        // What does not follow a call is no caller.
        memory.word(at.rsp + slot, TEXT + 0x20);
        assert_eq!(memory.walk(&at).candidate, 0, "{code:x?}");
    }
}
