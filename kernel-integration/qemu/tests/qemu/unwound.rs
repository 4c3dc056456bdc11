//! Tests the walk by unwind tables on memory that the test has made: each rule, what the code says against it, entries,
//! and ends. A caller that the tables do not give for certain is never in a stack.

use crate::plugin::walk::tables::{LOST, Row, Rule, SAME};
use crate::plugin::walk::{self, End, Exits, INTERRUPT, Registers, Stack, Tables, walk};
use std::collections::BTreeMap;

const TEXT: u64 = 0xffff_ffff_8010_0000;
const STACK: u64 = 0xffff_8000_0001_0000;
const SLIDE: u64 = 0x120_0000;
/// Functions are so far apart.
const FUNCTION: u64 = 0x100;
const RET: u8 = 0xc3;

/// Guest memory, byte by byte, and the tables of functions of `FUNCTION` bytes.
#[derive(Default)]
struct Guest {
    memory: BTreeMap<u64, u8>,
    rows: Vec<Row>,
}

impl Guest {
    fn bytes(&mut self, at: u64, bytes: &[u8]) -> &mut Self {
        self.memory.extend((at..).zip(bytes.iter().copied()));
        self
    }

    fn words(&mut self, at: u64, words: &[u64]) -> &mut Self {
        for (word, at) in words.iter().zip((at..).step_by(8)) {
            self.bytes(at, &word.to_le_bytes());
        }
        self
    }

    /// A function with one row and a direct call of the next one in it, at offset 0x40; the address after that call.
    fn function(&mut self, number: u64, rule: Rule, offset: i64, rbp: i64) -> u64 {
        let start = TEXT + number * FUNCTION;
        self.bytes(start, &[0x90; FUNCTION as usize]).bytes(start + 0x40, &[0xe8, 0xbb, 0, 0, 0]);
        self.bytes(start + 0x80, &[RET]);
        self.rows.push(Row::new(start - SLIDE, rule, offset, rbp));
        self.rows.push(Row::new(start + 0x90 - SLIDE, Rule::Nothing, 0, LOST));
        start + 0x45
    }

    fn walk(&self, at: &Registers) -> Stack {
        let read = |address, to: &mut [u8]| {
            to.iter_mut().zip(address..).all(|(byte, at)| self.memory.get(&at).map(|known| *byte = *known).is_some())
        };
        let mut tables = Tables::new(self.rows.clone());
        tables.slide = Some(SLIDE);
        walk(at, at.half((0x1000, walk::half::UPPER)).unwrap(), &read, &read, &mut Exits::default(), Some(&tables))
    }
}

fn at(number: u64, rbp: u64) -> Registers {
    Registers { rip: TEXT + number * FUNCTION + 0x20, rsp: STACK, rbp, rflags: 0x202, cs: 8, efer: walk::LONG_MODE }
}

#[test]
fn frames_by_rsp_and_by_rbp_are_followed_to_the_outermost() {
    let mut guest = Guest::default();
    // Function 0 has called 1, which has called 2, which was sampled. Only 1 has a frame pointer.
    let (in_0, in_1) = (guest.function(0, Rule::Rsp, 24, SAME), guest.function(1, Rule::Rbp, 16, -16));
    guest.function(2, Rule::Rsp, 32, SAME);
    guest.words(STACK, &[1, 2, 3, in_1, 4, 5, 0x7777, in_0, 6, 7, 0]);
    let stack = guest.walk(&at(2, STACK + 48));
    assert_eq!((stack.callers, stack.end, stack.candidate), (vec![in_1, in_0], End::Outermost, 0));
    // A wrong frame pointer: its words are no frame.
    let stack = guest.walk(&at(2, STACK + 32));
    assert_eq!((stack.callers, stack.end), (vec![in_1], End::NotText));
}

#[test]
fn the_callers_frame_pointer_is_where_the_row_says() {
    let mut guest = Guest::default();
    let (in_0, in_1) = (guest.function(0, Rule::Rbp, 16, -16), guest.function(1, Rule::Rsp, 24, -24));
    guest.function(2, Rule::Rsp, 8, SAME);
    // 1 has pushed RBP at first, and uses it for something else.
    guest.words(STACK, &[in_1, STACK + 40, 2, in_0, 3, 0x7777, 0]);
    let stack = guest.walk(&at(2, 0x1234));
    assert_eq!((stack.callers, stack.end), (vec![in_1, in_0], End::Outermost));
    guest.rows[2].rbp = LOST;
    let stack = guest.walk(&at(2, 0x1234));
    assert_eq!((stack.callers, stack.end), (vec![in_1, in_0], End::Entry));
}

#[test]
fn after_pop_rbp_the_register_counts_and_not_the_word_below_the_stack() {
    let mut guest = Guest::default();
    let in_0 = guest.function(0, Rule::Rbp, 16, -16);
    guest.function(1, Rule::Rsp, 8, -16);
    // An interrupt has written over what was popped.
    guest.words(STACK - 8, &[0xdead, in_0, 1, 0x7777, 0]);
    let stack = guest.walk(&at(1, STACK + 16));
    assert_eq!((stack.callers, stack.end), (vec![in_0], End::Outermost));
}

#[test]
fn a_row_that_is_alone_counts_only_if_the_code_agrees() {
    let mut guest = Guest::default();
    let in_0 = guest.function(0, Rule::Outermost, 0, SAME);
    guest.function(1, Rule::Sole, 8, SAME);
    guest.words(STACK, &[in_0, in_0]);
    let stack = guest.walk(&at(1, 0));
    assert_eq!((stack.callers, stack.end), (vec![in_0], End::Outermost));
    // Assembly that pops a register before `ret`, and has not told the tables: the code is right.
    guest.bytes(TEXT + FUNCTION + 0x30, &[0x58]).words(STACK, &[TEXT + 0x46, in_0]);
    assert_eq!(guest.walk(&at(1, 0)).callers, [in_0]);
    // And one that never returns: nobody knows.
    guest.bytes(TEXT + FUNCTION + 0x30, &[0xf4, 0xeb, 0xfd]);
    let stack = guest.walk(&at(1, 0));
    assert_eq!((stack.callers, stack.end), (Vec::new(), End::Entry));
}

#[test]
fn what_the_tables_do_not_know_ends_the_stack() {
    let end = |rule, offset, words: &[u64]| {
        let mut guest = Guest::default();
        guest.function(0, rule, offset, SAME);
        guest.words(STACK, words);
        let stack = guest.walk(&at(0, 0));
        assert!(stack.callers.is_empty(), "{:x?}", stack.callers);
        stack.end
    };
    assert_eq!(end(Rule::Unknown, 8, &[TEXT + 0x45]), End::Entry);
    assert_eq!(end(Rule::Rsp, 8, &[TEXT + 0x46]), End::NotText);
    assert_eq!(end(Rule::Rsp, 8, &[0x40_0000]), End::NotText);
    assert_eq!(end(Rule::Rsp, 12, &[TEXT + 0x45; 3]), End::Alignment);
    assert_eq!(end(Rule::Rsp, 0, &[TEXT + 0x45]), End::Loop);
    assert_eq!(end(Rule::Rsp, 64, &[TEXT + 0x45]), End::Range);
    assert_eq!(end(Rule::Rsp, 1 << 20, &[TEXT + 0x45]), End::Range);
    assert_eq!(end(Rule::Rsp, 8, &[0]), End::Outermost);
    assert_eq!(end(Rule::Outermost, 0, &[TEXT + 0x45]), End::Outermost);
}

#[test]
fn a_call_that_never_returns_may_be_the_last_instruction_of_its_function() {
    let mut guest = Guest::default();
    guest.function(0, Rule::Rsp, 16, SAME);
    // The call ends where the next function begins, whose row is another one.
    guest.bytes(TEXT + 0x8b, &[0xe8, 0x70, 0, 0, 0]);
    guest.rows[1] = Row::new(TEXT + 0x90 - SLIDE, Rule::Rsp, 8, SAME);
    // It ends with `iretq`, so it is an entry stub.
    guest.bytes(TEXT + 0x90, &[0x48, 0xcf]);
    guest.function(1, Rule::Rsp, 8, SAME);
    guest.words(STACK, &[TEXT + 0x90, TEXT + 0x45, 0]);
    let stack = guest.walk(&at(1, 0));
    assert_eq!((&stack.callers[..], stack.end), (&[TEXT + 0x90][..], End::Outermost));
}

#[test]
fn code_without_a_table_is_left_by_its_ret_if_it_was_called_directly() {
    let mut guest = Guest::default();
    let in_0 = guest.function(0, Rule::Outermost, 0, SAME);
    guest.function(1, Rule::Rsp, 8, SAME);
    guest.rows.truncate(2);
    // Two pushed words are popped before `ret`.
    guest.bytes(TEXT + FUNCTION + 0x30, &[0x5b, 0x5d]).words(STACK, &[1, 2, in_0]);
    assert_eq!(guest.walk(&at(1, 0)).callers, [in_0]);
    guest.bytes(TEXT + 0x40, &[0xe8, 0xbb, 0, 1, 0]); // a call of something else
    let stack = guest.walk(&at(1, 0));
    assert_eq!((stack.callers, stack.end), (Vec::new(), End::Entry));
}

#[test]
fn an_entry_stub_is_crossed_and_the_interrupted_function_has_exact_rows() {
    let mut guest = Guest::default();
    let in_0 = guest.function(0, Rule::Outermost, 0, SAME);
    guest.function(1, Rule::Rsp, 16, SAME);
    // A stub that has pushed RBP and calls function 3; the tables say that it returns.
    let stub = guest.function(2, Rule::Sole, 8, SAME);
    guest.bytes(TEXT + 2 * FUNCTION + 0x50, &[0x5d, 0x48, 0xcf]);
    guest.function(3, Rule::Rsp, 16, SAME);
    let interrupted = TEXT + FUNCTION + 0x21;
    let words = [1, stub, 0x7777, interrupted, 8, 0x202, STACK + 64, 0, 2, in_0];
    guest.words(STACK, &words);
    let stack = guest.walk(&at(3, 0));
    assert_eq!((stack.callers, stack.end), (vec![stub, INTERRUPT, interrupted, in_0], End::Outermost));
    // The kernel's entry, still on the user's stack.
    let stack = guest.walk(&Registers { rsp: 0x7fff_0000, ..at(3, 0) });
    assert_eq!((stack.callers, stack.end), (Vec::new(), End::Outermost));
}

#[test]
fn what_an_entry_has_saved_is_where_the_tables_of_linux_say() {
    let mut guest = Guest::default();
    let in_0 = guest.function(0, Rule::Outermost, 0, SAME);
    guest.function(1, Rule::Rbp, 16, -16);
    let entry = guest.function(2, Rule::Saved, 16, SAME);
    guest.function(3, Rule::Rsp, 8, SAME);
    let interrupted = TEXT + FUNCTION + 0x21;
    // The entry's return address; two words; R15, R14, R13, R12, RBP, ten more and the number; what was pushed.
    let frame = STACK + 8 + 16 + 21 * 8;
    let mut words = vec![entry, 1, 2, 15, 14, 13, 12, frame];
    words.extend([0; 11]);
    words.extend([interrupted, 8, 0x202, frame - 8, 0, 3, 4, in_0]);
    guest.words(STACK, &words).words(frame, &[0, in_0]);
    let stack = guest.walk(&at(3, 0));
    assert_eq!((&stack.callers[..], stack.end), (&[entry, INTERRUPT, interrupted, in_0][..], End::Outermost));
    // The same, with only the words of the processor, and RBP as it is.
    guest.rows[4] = Row { rule: Rule::Pushed, offset: 16 + 16 * 8, ..guest.rows[4] };
    assert_eq!(guest.walk(&at(3, frame)).callers, stack.callers);
    // What is there is nothing that a processor pushes.
    guest.rows[4].offset += 8;
    let stack = guest.walk(&at(3, 0));
    assert_eq!((stack.callers, stack.end), (vec![entry], End::Entry));
}

#[test]
fn a_changed_stack_is_left_by_the_word_on_top_of_it() {
    let mut guest = Guest::default();
    let (in_0, in_1) = (guest.function(0, Rule::Outermost, 0, SAME), guest.function(1, Rule::Indirect, 8, SAME));
    guest.function(2, Rule::Rsp, 8, SAME);
    let other = STACK - (1 << 32); // far away, and lower
    guest.words(STACK, &[in_1, other]).words(other, &[in_0, 7]);
    let stack = guest.walk(&at(2, 0));
    assert_eq!((stack.callers, stack.end), (vec![in_1, in_0], End::Outermost));
}

#[test]
fn a_thunk_that_nobody_is_said_to_call_has_the_caller_that_calls_it() {
    let mut guest = Guest::default();
    let in_0 = guest.function(0, Rule::Outermost, 0, SAME);
    guest.function(1, Rule::Uncalled, 0, SAME);
    // jmp *%rax
    guest.bytes(TEXT + FUNCTION + 0x20, &[0xff, 0xe0]).words(STACK, &[in_0]);
    assert_eq!(guest.walk(&at(1, 0)).callers, [in_0]);
    guest.words(STACK, &[TEXT + 0x46]);
    let stack = guest.walk(&at(1, 0));
    assert_eq!((stack.callers, stack.end), (Vec::new(), End::Entry));
    // A function that the boot has jumped to, with an address that was pushed.
    guest.function(2, Rule::Rsp, 8, SAME);
    let stack = guest.walk(&at(2, 0));
    assert_eq!((stack.callers, stack.end), (Vec::new(), End::Outermost));
}

#[test]
fn until_it_is_known_where_the_kernel_runs_its_tables_describe_nothing() {
    let mut tables = Tables::new(vec![Row::new(TEXT, Rule::Rsp, 8, SAME)]);
    assert!(tables.row(TEXT + 1).is_none() && tables.ends_before(TEXT + 1));
    tables.slide = Some(SLIDE);
    assert_eq!([TEXT, TEXT + SLIDE].map(|at| tables.row(at).map(|row| row.start)), [None, Some(TEXT)]);
    assert_eq!([SLIDE, SLIDE + 1].map(|at| tables.ends_before(TEXT + at)), [true, false]);
}
