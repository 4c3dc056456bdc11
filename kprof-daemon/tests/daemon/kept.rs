//! Stored example files of every version of the file forms. They must stay readable, and a session must still write the
//! same bytes.
//!
//! In: `data/v1.txt`, `data/v1.bin`, made by a simulated session. Out: the same bytes again, and the same samples from
//! both. `KPROF_BLESS=1` rewrites them; without it a missing file fails the test. A new version gets new files, and the
//! old ones stay.

use crate::support;

use kprof_daemon::drain_loop::Options;
use kprof_daemon::signals::Signals;
use kprof_daemon::write::compose::Form;
use std::path::{Path, PathBuf};
use support::kernel::Kernel;
use support::reader::{read, text_of_binary};
use support::scenario::{OUTPUT, options, session, simulated};

fn kept(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A short session, always the same.
fn written(form: Form) -> Vec<u8> {
    let signals = Signals::default();
    let some_ticks = |kernel: &mut Kernel, _| (0..kernel.random.below(5)).for_each(|_| kernel.tick());
    let system = simulated(Kernel::new(&[1, 2], 1 << 13, 77), 6, &signals, some_ticks);
    session(&system, Options { form, ..options() }, &signals).unwrap();
    system.file(OUTPUT)
}

#[test]
fn version_1_is_still_written_byte_for_byte() {
    for (form, name) in [(Form::Text, "v1.txt"), (Form::Binary, "v1.bin")] {
        let bytes = written(form);
        if std::env::var_os("KPROF_BLESS").is_some() {
            std::fs::write(kept(name), &bytes).unwrap();
        }
        let expected = std::fs::read(kept(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(bytes == expected, "{name}: the form has changed; that is a new version");
    }
}

#[test]
fn version_1_is_still_read_and_both_forms_say_the_same() {
    let text = read(&[std::fs::read(kept("v1.txt")).unwrap()]);
    let binary = read(&[text_of_binary(&std::fs::read(kept("v1.bin")).unwrap())]);
    assert!(text.samples.len() > 10);
    assert_eq!(text.samples, binary.samples);
    assert_eq!(text.accounts, binary.accounts);
    assert_eq!(text.ends, binary.ends);
}
