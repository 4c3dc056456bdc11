//! How many rounds a session takes, because each has costs that do not depend on the number of samples.
//!
//! In: a simulated kernel that counts waits and copies less than it is asked for. Out: the batches of the file, and the
//! limits of the waits.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::signals::Signals;
use std::path::PathBuf;
use support::kernel::Kernel;
use support::scenario::{OUTPUT, exactly_once, options, reading, session};
use support::system::Simulated;

/// A session with one pause, in which every CPU gets `ticks` samples.
fn after_one_pause(mut kernel: Kernel, ticks: u32, options: Options) -> Simulated {
    let signals = Signals::default();
    let stops = signals.clone();
    kernel.name(1, b"task 1 #%".to_vec());
    let system = Simulated::new(
        kernel,
        Box::new(move |kernel, pause| match pause {
            1 => (0..ticks).for_each(|_| kernel.tick_without_names()),
            _ => stops.stop(),
        }),
    );
    session(&system, options, &signals).unwrap();
    exactly_once(&system, &reading(&system)).unwrap();
    system
}

/// The batches of samples of CPU 1 in the file.
fn batches(system: &Simulated) -> usize {
    let file = system.file(OUTPUT);
    file.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"# batch cpu=1 ")).count()
}

#[test]
fn a_kernel_that_copies_less_than_a_ring_at_once_is_read_to_the_end_in_one_round() {
    for max_bytes in [0, 32 * 1024, 64 * 1024, 100_000] {
        let mut kernel = Kernel::new(&[1, 2, 3], 32 * 1024, 7);
        kernel.nasty.max_bytes = max_bytes;
        let system = after_one_pause(kernel, 1500, options());
        let bytes = system.0.borrow().kernel.rings[&1].head * 8;
        assert!(bytes > 100_000, "more than one such read: {bytes} bytes");
        assert_eq!(batches(&system), 1, "reads of at most {max_bytes} bytes");
    }
}

#[test]
fn a_session_waits_a_second_and_half_of_it_if_somebody_watches() {
    let waited = |options| {
        let system = after_one_pause(Kernel::new(&[1], 1 << 13, 7), 3, options);
        let mut waits = system.0.borrow().kernel.waits.clone();
        waits.dedup();
        waits
    };
    assert_eq!(waited(options()), [1000]);
    assert_eq!(waited(Options { live: Some(PathBuf::from("/dev/live")), ..options() }), [500]);
    assert_eq!(waited(Options { is_recording: true, ..options() }), [100]);
}
