//! Which stub an address is in, and where that stub's hardware frame is.
#![cfg(target_arch = "x86_64")]

use std::cell::Cell;

use kprof::format::marker::Marker;
use redox_check::arch::profiling::entries::{
    contains, hardware_frame, is_rip_in_rcx, Entries, Entry,
};
use redox_check::kernel_executable_offsets::{__entry_end, __entry_start, __text_start};

const CS: u64 = 8;
/// The saved RSP of a frame that was pushed at `at`, from an RSP that was not aligned.
const STACK: std::ops::Range<u64> = 0x1000..0x2000;

fn entry(start: u64, vector: u8) -> Entry {
    Entry {
        start,
        marker: Marker::Interrupt(vector),
        rip_above: 72,
    }
}

#[test]
fn code_is_in_a_stub_below_the_end_of_their_section() {
    let (start, end) = (__text_start() as u64, __entry_end() as u64);
    assert_eq!(start, __entry_start() as u64, "as in the linker script");
    assert!(contains(start) && contains(end - 1));
    assert!(!contains(end) && !contains(start + 0x300));
}

#[test]
fn a_stub_reaches_to_the_next_one_and_its_first_gate_names_it() {
    let entries = Entries::new(vec![entry(0x300, 40), entry(0x100, 33), entry(0x100, 50)]);
    let marker = |address| entries.find(address).map(|stub| stub.marker);
    assert_eq!(marker(0xff), None);
    assert_eq!(
        [marker(0x100), marker(0x2ff)],
        [Some(Marker::Interrupt(33)); 2]
    );
    assert_eq!(
        [marker(0x300), marker(0x9999)],
        [Some(Marker::Interrupt(40)); 2]
    );
}

#[test]
fn the_search_takes_as_many_steps_as_the_number_of_stubs_has_bits() {
    let stubs = (0..64)
        .map(|number| entry(0x100 * (number + 1), number as u8))
        .collect();
    let entries = Entries::new(stubs);
    for number in 0..64_u64 {
        let marker = entries
            .find(0x100 * (number + 1) + 0xff)
            .map(|stub| stub.marker);
        assert_eq!(marker, Some(Marker::Interrupt(number as u8)));
    }
}

/// A stack whose words are 0, except for the frame of an entry from kernel code at `at`.
fn with_frame(at: u64, rsp: u64) -> impl Fn(u64) -> u64 {
    move |address| match address.wrapping_sub(at) {
        8 => CS,
        24 => rsp,
        _ => 0,
    }
}

#[test]
fn an_entry_from_user_code_has_its_frame_at_the_top() {
    let top = STACK.end;
    for saved in 0..=17 {
        let found = hardware_frame(top - 40 - 8 * saved, top, &STACK, CS, |_| {
            panic!("reads nothing")
        });
        assert_eq!(found, Some(top - 40), "{saved} words saved");
    }
    assert_eq!(
        hardware_frame(top - 40 - 8 * 18, top, &STACK, CS, |_| 0),
        None
    );
}

#[test]
fn an_entry_from_kernel_code_is_known_by_the_rsp_that_it_has_saved() {
    for saved in 0..=17 {
        for unaligned in [0, 8] {
            let at = 0x1400;
            let word = with_frame(at, at + 40 + unaligned);
            let found = hardware_frame(at - 8 * saved, STACK.end, &STACK, CS, word);
            assert_eq!(
                found,
                Some(at),
                "{saved} words saved, RSP {unaligned} above an aligned one"
            );
        }
    }
}

#[test]
fn other_words_are_no_frame() {
    let at = 0x1400;
    let find = |word: &dyn Fn(u64) -> u64| hardware_frame(at - 16, STACK.end, &STACK, CS, word);
    assert_eq!(
        find(&with_frame(at, at + 40 + 16)),
        None,
        "the processor does not leave 16 bytes"
    );
    assert_eq!(
        find(&with_frame(at, at + 32)),
        None,
        "the saved RSP is inside of the frame"
    );
    assert_eq!(
        find(&|address| if address == at + 24 { at + 40 } else { 0x2b }),
        None,
        "CS"
    );
}

#[test]
fn only_words_of_the_stack_are_read() {
    let lowest = Cell::new(u64::MAX);
    let highest = Cell::new(0);
    let word = |address: u64| {
        lowest.set(lowest.get().min(address));
        highest.set(highest.get().max(address));
        0
    };
    // The stack that a thread enters on is another one here.
    assert_eq!(
        hardware_frame(STACK.end - 96, 0x9000, &STACK, CS, word),
        None
    );
    assert!(lowest.get() >= STACK.start && highest.get() < STACK.end);
    for rsp in [
        STACK.start - 8,
        STACK.end,
        STACK.end + 8,
        STACK.end - 8,
        0x1804 + 1,
    ] {
        assert_eq!(
            hardware_frame(rsp, 0x9000, &STACK, CS, |_| panic!("reads nothing")),
            None,
            "{rsp:#x}"
        );
    }
}

#[test]
fn the_stub_of_system_calls_has_the_rip_in_rcx_until_it_has_pushed_all_of_the_frame() {
    let top = 0xffff_8000_0001_0000;
    assert!(is_rip_in_rcx(0x7100, top), "on the user's stack");
    for pushed in 0..5 {
        assert!(
            is_rip_in_rcx(top - 8 * pushed, top),
            "{pushed} of five words"
        );
    }
    for saved in 5..20 {
        assert!(!is_rip_in_rcx(top - 8 * saved, top), "{saved} words");
    }
    assert!(!is_rip_in_rcx(top + 8, top), "another stack");
}
