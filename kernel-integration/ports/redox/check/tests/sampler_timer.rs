//! The sampler's sleeps: counts of its timer, and slices where instructions are counted.
#![cfg(target_arch = "x86_64")]

use redox_check::arch::profiling::sampler_timer::{count, is_even, slice_ns};

#[test]
fn a_slice_is_a_part_of_the_sleep_and_never_shorter_than_the_timers_handler() {
    assert_eq!(slice_ns(400_000), 50_000);
    assert_eq!(slice_ns(20_000_000), 100_000);
    assert_eq!([slice_ns(16_000), slice_ns(1)], [2_500; 2]);
}

#[test]
fn a_count_is_never_0_and_never_more_than_the_register_holds() {
    assert_eq!(count(1_000_000, 62_500_000), 62_500);
    assert_eq!([count(0, 1_000_000_000), count(1, 1000)], [1, 1]);
    assert_eq!(count(u64::MAX, u64::MAX), u32::MAX);
}

#[test]
fn only_reads_at_equal_distances_mean_counted_instructions() {
    assert!(is_even(&[u32::MAX - 9, u32::MAX - 4, 0, 5]));
    assert!(!is_even(&[0, 5, 10, 16]));
    assert!(!is_even(&[7, 7, 7]), "a clock that stands still");
    assert!(!is_even(&[7]));
}
