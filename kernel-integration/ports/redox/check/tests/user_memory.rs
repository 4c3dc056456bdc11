//! User words are read inside their page, the tables are asked once per page, and devices are not read.
#![cfg(target_arch = "x86_64")]

use std::cell::Cell;

use redox_check::arch::profiling::user_memory::{read, read_frame, walk, LastPage};
use redox_check::machine::{map_frame, map_user, poke};

#[test]
fn a_page_is_translated_once_until_it_is_forgotten() {
    let (last, asked) = (LastPage::new(), Cell::new(0));
    let place = |address: u64| {
        let learn = || {
            asked.set(asked.get() + 1);
            last.keep(address, (address & !4095) + 0x10_0000)
        };
        last.known(address).or_else(learn).map_or(0, u64::from)
    };
    assert_eq!(
        [place(0x7000), place(0x7ff8), place(0x7120)],
        [0x10_7000, 0x10_7ff8, 0x10_7120]
    );
    assert_eq!(asked.get(), 1);
    assert_eq!((place(0x8000), place(0x7000)), (0x10_8000, 0x10_7000));
    assert_eq!(asked.get(), 3);
    assert_eq!(last.known(0x7004), None, "not aligned");
    last.forget();
    assert_eq!(
        (place(0x7000), asked.get()),
        (0x10_7000, 4),
        "the next NMI asks again"
    );
}

#[test]
fn only_mapped_memory_of_the_user_is_read() {
    let memory = map_user(0x7000);
    poke(memory + 0x128, 0x1304);
    map_frame(0x8000, 0xfee0_0000);
    let last = LastPage::new();
    assert_eq!(read(&last, 0x7128), Some(0x1304));
    assert_eq!(read(&last, 0x7124), None, "not aligned");
    assert_eq!(read(&last, 0x8000), None, "a device");
    assert_eq!(read(&last, 0x7128), Some(0x1304), "the page is still known");
    assert_eq!(read(&last, 0xa000), None, "not mapped");
    assert_eq!(
        read(&last, redox_check::USER_END_OFFSET as u64),
        None,
        "the kernel's"
    );
    assert_eq!(read(&last, 0x7130), Some(0));
}

#[test]
fn a_frame_is_read_in_one_page_or_in_two() {
    let (low, high) = (map_user(0x1_7000), map_user(0x1_8000));
    for (place, word) in [(low + 0xff0, 1), (low + 0xff8, 2), (high, 3)] {
        poke(place, word);
    }
    let last = LastPage::new();
    assert_eq!(read_frame(&last, 0x1_7ff0), Some([1, 2]));
    assert_eq!(read_frame(&last, 0x1_7ff8), Some([2, 3]), "in two pages");
    assert_eq!(read_frame(&last, 0x1_8ff8), None, "the second is not there");
    for address in [0x1_7ff1, 0x1_7ff4, u64::MAX, u64::MAX - 7, u64::MAX - 15] {
        assert_eq!(read_frame(&last, address), None, "{address:#x}");
    }
}

/// Where the tables of a walk are, and the page.
const FRAMES: [u64; 5] = [0x1000, 0x2000, 0x3000, 0x4000, 0xf_ffff_0000_5000];
const ADDRESS: u64 = 0x7edc_ba98_7654;
/// No execution, written, accessed, present, for the user.
const FLAGS: u64 = 1 << 63 | 0x67;

/// Walks tables whose entry of one level has other flags.
fn walk_with(level: usize, flags: u64) -> Option<u64> {
    let shifts = [39, 30, 21, 12];
    walk(FRAMES[0] | 0xfff, ADDRESS, |place| {
        let table = FRAMES
            .iter()
            .position(|frame| *frame == place & !4095)
            .unwrap();
        assert_eq!(
            place & 4095,
            (ADDRESS >> shifts[table] & 511) * 8,
            "level {table}"
        );
        FRAMES[table + 1] | if table == level { flags } else { FLAGS }
    })
}

#[test]
fn the_tables_are_walked_to_a_page_that_each_of_them_gives_to_the_user() {
    for level in 0..4 {
        assert_eq!(walk_with(level, FLAGS), Some(FRAMES[4]));
        assert_eq!(
            walk_with(level, FLAGS & !1),
            None,
            "not present, level {level}"
        );
        assert_eq!(
            walk_with(level, FLAGS & !4),
            None,
            "the kernel's, level {level}"
        );
        // In the last table this bit says how the page is cached.
        let large = (level == 3).then_some(FRAMES[4]);
        assert_eq!(walk_with(level, FLAGS | 0x80), large, "level {level}");
    }
}
