//! Tests where the walk takes a function for the outermost one, on memory that the test has made: the boot has called
//! it from below, or a thread began with it by a jump. A walk that has lost its way must say so.

use crate::plugin::walk::tables::{LOST, Row, Rule, SAME};
use crate::plugin::walk::{self, End, Exits, Registers, Stack, Tables, walk};
use std::collections::BTreeMap;

const TEXT: u64 = 0xffff_8000_0020_0000;
const STACK: u64 = 0xffff_8000_0040_0000;
/// Where the boot enters the kernel's first function by a far return.
const FAR_RETURN: u64 = TEXT + 0x1c0;
/// Where the boot runs, in code that is mapped at its physical address.
const BOOT: u64 = 0x20_00c9;
/// A call, and what comes after one that never returns.
const CALL: [u8; 5] = [0xe8, 0, 1, 0, 0];
const UD2: [u8; 2] = [0x0f, 0x0b];
const RET: [u8; 2] = [0xc3, 0x90];

/// A stack of one frame: the sampled function has been called by another one, whose return address is `word`. After
/// the call, that one goes on with `then`.
fn stack(then: [u8; 2], word: u64, has_tables: bool) -> Stack {
    let mut memory = BTreeMap::new();
    let mut put = |at: u64, bytes: &[u8]| memory.extend((at..).zip(bytes.iter().copied()));
    put(TEXT, &[0x90; 0x200]);
    put(TEXT + 0x40, &CALL);
    put(TEXT + 0x45, &then);
    put(TEXT + 0x180, &[0xc3]);
    // lretq
    put(FAR_RETURN, &[0x48, 0xcb]);
    put(BOOT - 8, &[0x90; 16]);
    // call rax
    put(BOOT - 2, &[0xff, 0xd0]);
    for (place, word) in [STACK + 0x20, TEXT + 0x45, 0, 0, STACK + 0x40, word].into_iter().enumerate() {
        put(STACK + 8 * place as u64, &word.to_le_bytes());
    }
    // The second frame: RBP and the return address.
    put(STACK + 0x20, &(STACK + 0x80).to_le_bytes());
    put(STACK + 0x28, &word.to_le_bytes());
    put(STACK + 0x80, &[0; 16]);
    let read = |address, to: &mut [u8]| {
        to.iter_mut().zip(address..).all(|(byte, at)| memory.get(&at).map(|known| *byte = *known).is_some())
    };
    let row = |start, rule, offset| Row::new(start, rule, offset, SAME);
    let mut tables = Tables::new(vec![
        row(TEXT, Rule::Rsp, 0x20),
        row(TEXT + 0x100, Rule::Rsp, 16),
        Row::new(TEXT + 0x200, Rule::Nothing, 0, LOST),
    ]);
    tables.slide = Some(0);
    let registers =
        Registers { rip: TEXT + 0x120, rsp: STACK, rbp: STACK, rflags: 0x202, cs: 8, efer: walk::LONG_MODE };
    walk(
        &registers,
        registers.half((0x1000, walk::half::UPPER)).unwrap(),
        &read,
        &read,
        &mut Exits::default(),
        has_tables.then_some(&tables),
    )
}

fn ends(then: [u8; 2], word: u64) -> [End; 2] {
    [false, true].map(|has_tables| {
        let stack = stack(then, word, has_tables);
        assert_eq!(stack.callers, [TEXT + 0x45], "tables: {has_tables}");
        stack.end
    })
}

#[test]
fn what_the_boot_has_called_from_below_is_a_root() {
    assert_eq!(ends(RET, BOOT), [End::Outermost; 2]);
    assert_eq!(ends(RET, BOOT + 1), [End::NotText; 2], "no call precedes it");
    assert_eq!(ends(RET, 0x1234), [End::NotText; 2], "it is not mapped");
}

#[test]
fn what_the_boot_has_entered_by_a_far_return_is_a_root() {
    assert_eq!(ends(RET, FAR_RETURN + 2), [End::Outermost; 2]);
    assert_eq!(ends(RET, FAR_RETURN + 1), [End::NotText; 2], "it is within the far return");
}

#[test]
fn a_function_that_never_returns_and_has_no_return_address_is_a_root() {
    let garbage = 0xffff_8000_1234_5678;
    assert_eq!(ends(UD2, garbage), [End::Outermost; 2]);
    // A loop: jmp to itself.
    assert_eq!(ends([0xeb, 0xfe], garbage), [End::Outermost; 2]);
    assert_eq!(ends(RET, garbage), [End::NotText; 2], "it would return to it");
    // Code that cannot be followed: the first byte of an instruction that does not exist.
    assert_eq!(ends([0x06, 0x06], garbage), [End::NotText; 2], "whether it returns is not known");
}
