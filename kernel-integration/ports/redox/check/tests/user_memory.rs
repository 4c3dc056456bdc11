//! User words are read inside their page, the tables are asked once per page, and devices are not read.

use std::cell::Cell;

use redox_check::arch::profiling::user_memory::{read, LastPage};
use redox_check::machine::{map_user, poke, user_pages};

#[test]
fn a_page_is_translated_once_until_it_is_forgotten() {
    let (last, asked) = (LastPage::new(), Cell::new(0));
    let place = |address: u64| {
        let learn = || {
            last.learn(address, |page| {
                asked.set(asked.get() + 1);
                assert_eq!(page % 4096, 0);
                (page != 0x9000).then_some(page + 0x10_0000)
            })
        };
        last.known(address).or_else(learn)
    };
    assert_eq!(
        [place(0x7000), place(0x7ff8), place(0x7120)],
        [0x10_7000, 0x10_7ff8, 0x10_7120].map(Some)
    );
    assert_eq!(asked.get(), 1);
    assert_eq!(
        (place(0x9000), place(0x7008)),
        (None, Some(0x10_7008)),
        "a page that is not mapped is not kept"
    );
    assert_eq!(asked.get(), 2);
    assert_eq!(
        (place(0x8000), place(0x7000)),
        (Some(0x10_8000), Some(0x10_7000))
    );
    assert_eq!(asked.get(), 4);
    last.forget();
    assert_eq!(
        (place(0x7000), asked.get()),
        (Some(0x10_7000), 5),
        "the next NMI asks again"
    );
}

#[test]
fn only_mapped_memory_of_the_user_is_read() {
    let memory = map_user(0x7000);
    poke(memory + 0x128, 0x1304);
    user_pages().lock().unwrap().insert(0x8000, 0xfee0_0000);
    let last = LastPage::new();
    assert_eq!(read(&last, 0x7128), Some(0x1304));
    assert_eq!(read(&last, 0x7124), None, "not aligned");
    assert_eq!(read(&last, 0x8000), None, "a device");
    assert_eq!(read(&last, 0xa000), None, "not mapped");
    assert_eq!(
        read(&last, redox_check::USER_END_OFFSET as u64),
        None,
        "the kernel's"
    );
    assert_eq!(read(&last, 0x7130), Some(0));
}
