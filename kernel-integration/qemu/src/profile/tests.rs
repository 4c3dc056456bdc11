//! The same ticks, recorded as kernel code, user code, or both: each tick is recorded or counted, never both.

use super::*;
use kprof_format::account::{SENT, TAKEN};
use kprof_format::precision::Precision;

/// Ticks of CPU 1: user code if the flag is set.
const TICKS: [(bool, u64); 6] = [
    (false, 0xffff_ffff_8000_1000),
    (true, 0x40_1000),
    (true, 0x40_1004),
    (false, 0xffff_ffff_8000_2000),
    (false, 0xf_ffd0),
    (true, 0x40_1008),
];

fn sample(time: u64, is_user: bool, rip: u64) -> Sample {
    let cs = if is_user { 0x2b } else { 0x8 };
    Sample { cpu: 1, time, rip, rflags: 0x202, cs, candidate: 0, end: 0, callers: Vec::new() }
}

/// The profile, and the counters of CPU 1.
fn recorded(code: Code) -> (String, Counts) {
    let mut out = Vec::new();
    let about = About { arch: "x86_64", hz: Some(1000), seed: 1, precision: Precision::Block, code, boot: 7 };
    let mut profile = Profile::new(&mut out, &about).unwrap();
    for (at, (is_user, rip)) in TICKS.into_iter().enumerate() {
        profile.take(&Message::Sample(sample(at as u64, is_user, rip))).unwrap();
    }
    for message in [Message::Idle { cpu: 1 }, Message::Coalesced { cpu: 1 }, Message::Pending { cpu: 1 }] {
        profile.take(&message).unwrap();
    }
    let counts = profile.finish().unwrap()[&1];
    (String::from_utf8(out).unwrap(), counts)
}

/// The first address of each sample in a profile.
fn addresses(text: &str) -> Vec<u64> {
    let lines = text.lines().filter(|line| line.starts_with("guest "));
    lines.map(|line| u64::from_str_radix(line.split(' ').nth(3).unwrap(), 16).unwrap()).collect()
}

#[test]
fn every_tick_is_either_recorded_or_counted_as_filtered() {
    let [kernel, user, all] = [Code::Kernel, Code::User, Code::All].map(recorded);
    for ((text, counts), [in_user, in_kernel, samples]) in
        [&kernel, &user, &all].into_iter().zip([[3, 0, 3], [0, 3, 3], [0, 0, 6]])
    {
        assert_eq!([counts.user, counts.kernel, counts.recorded], [in_user, in_kernel, samples], "{text}");
        assert_eq!(addresses(text).len() as u64, samples);
        assert_eq!((counts.sent, counts.idle, counts.coalesced, counts.pending), (9, 1, 1, 1));
        let named = || counts.list().into_iter().map(|(counter, value)| (counter.name(), value));
        assert_eq!((SENT.fault(named()), TAKEN.fault(named())), (None, None));
    }
    let of_user: Vec<u64> = TICKS.into_iter().filter(|tick| tick.0).map(|tick| tick.1).collect();
    assert_eq!(addresses(&user.0), of_user);
    assert!(user.0.contains("\n# include user\n# exclude kernel\n"), "{}", user.0);
    assert!(user.0.contains(" kernel=3 "), "{}", user.0);
    assert!(!kernel.0.contains("exclude") && kernel.0.contains("\n# include -\n"), "{}", kernel.0);
}

#[test]
fn the_account_has_the_kinds_of_what_was_recorded() {
    let of =
        |is_user, rflags, callers: Vec<u64>| Sample { rflags, callers, ..sample(1, is_user, 0xffff_ffff_8000_1000) };
    let interrupt = Marker::Interrupt(0).encode();
    let samples = [
        of(false, 0x202, vec![0xffff_ffff_8000_2000]),
        of(false, 0x2, vec![]),
        of(false, 0x2, vec![0xffff_ffff_8000_2000, interrupt, 0xffff_ffff_8000_3000]),
        of(false, 0x202, vec![Marker::Syscall.encode()]),
        of(true, 0x2, vec![]),
    ];
    let mut out = Vec::new();
    let (code, precision) = (Code::All, Precision::Block);
    let about = About { arch: "x86_64", hz: Some(1000), seed: 1, precision, code, boot: 7 };
    let mut profile = Profile::new(&mut out, &about).unwrap();
    samples.into_iter().for_each(|sample| profile.take(&Message::Sample(sample)).unwrap());
    profile.finish().unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.contains(" delivered=5 irq-on=2 irq-off=1 interrupt=1 recorded-user=1\n"), "{text}");
}

#[test]
fn a_reset_begins_another_boot_only_after_code_that_is_not_firmware() {
    for code in [Code::Kernel, Code::User, Code::All] {
        let about = About { arch: "x86_64", hz: Some(1000), seed: 1, precision: Precision::Block, code, boot: 7 };
        let mut profile = Profile::new(Vec::new(), &about).unwrap();
        profile.take(&Message::Sample(sample(1, false, 0xf_ffd0))).unwrap();
        assert!(!profile.reset().unwrap(), "{code:?}");
        profile.take(&Message::Sample(sample(2, false, 0xffff_ffff_8000_1000))).unwrap();
        assert!(profile.reset().unwrap(), "{code:?}");
        // Code of 64 bits in the lower half may be firmware, unless the kernel's file says that it is the kernel.
        profile.take(&Message::Sample(sample(3, false, UPPER | 0x20_1000))).unwrap();
        assert!(!profile.reset().unwrap(), "{code:?}");
        profile.found_kernel();
        assert!(profile.reset().unwrap(), "{code:?}");
        assert!(!profile.reset().unwrap(), "{code:?}");
    }
}
