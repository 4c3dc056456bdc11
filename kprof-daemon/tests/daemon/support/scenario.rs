//! Ready-made sessions on the simulated system.
//!
//! In: a simulated system. Out: how the daemon ended, and whether the file has every sample of the ledger once.

use super::kernel::Kernel;
use super::reader::{Reading, read, read_damaged, text_of_binary};
use super::system::{SCHEME, Simulated};
use kprof_daemon::drain_loop::{Options, Session, Totals};
use kprof_daemon::error::Error;
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_format::chunk::MAGIC;
use std::path::Path;

/// The sample file of all simulated sessions.
pub const OUTPUT: &str = "/root/profiling.txt";

pub fn options() -> Options {
    Options::new(OUTPUT)
}

/// A simulated system that calls `each` in each of `pauses` pauses. The next pause ends the session.
pub fn simulated(
    kernel: Kernel,
    pauses: u64,
    signals: &Signals,
    mut each: impl FnMut(&mut Kernel, u64) + 'static,
) -> Simulated {
    let signals = signals.clone();
    let on_pause = move |kernel: &mut Kernel, pause: u64| {
        if pause > pauses { signals.stop() } else { each(kernel, pause) }
    };
    Simulated::new(kernel, Box::new(on_pause))
}

/// A simulated system with a tick in each of `pauses` pauses.
pub fn ticking(kernel: Kernel, pauses: u64, signals: &Signals) -> Simulated {
    simulated(kernel, pauses, signals, |kernel, _| kernel.tick())
}

/// A simulated system with some ticks in each of `pauses` pauses.
pub fn world(pauses: u64, signals: &Signals) -> Simulated {
    let some_ticks = |kernel: &mut Kernel, _| (0..kernel.random.below(6)).for_each(|_| kernel.tick());
    simulated(Kernel::new(&[1, 2], 1 << 14, 12), pauses, signals, some_ticks)
}

/// Runs one session until `signals` ends it, or until the first error.
pub fn session(system: &Simulated, options: Options, signals: &Signals) -> Result<Totals, Error> {
    let mut system = system.clone();
    let source = KprofDevice::open(&mut system, Path::new(SCHEME))?;
    let mut session = Session::open(&mut system, source, options, signals.clone())?;
    session.run(|_, _| Some(Pace::LONGEST))
}

/// The contents of the sample file and of the rotated older files, in either form.
pub fn reading(system: &Simulated) -> Reading {
    read(&files(system))
}

/// As [`reading`], for files that a crash may have damaged.
pub fn reading_damaged(system: &Simulated) -> Reading {
    read_damaged(&files(system))
}

/// The rotated files, oldest first, and the sample file, in the text form.
fn files(system: &Simulated) -> Vec<Vec<u8>> {
    let number = |path: &Path| path.to_str()?.strip_prefix(OUTPUT)?.strip_prefix('.')?.parse().ok();
    let mut numbers: Vec<u32> = system.0.borrow().disk.names.keys().filter_map(|path| number(path)).collect();
    numbers.sort_unstable_by(|left, right| right.cmp(left));
    let older = numbers.iter().map(|number| system.file(&format!("{OUTPUT}.{number}")));
    let mut files: Vec<Vec<u8>> = older.chain([system.file(OUTPUT)]).collect();
    for file in &mut files {
        if file.starts_with(&MAGIC) {
            *file = text_of_binary(file);
        }
    }
    files
}

/// Checks that every sample that was in a ring counts once, with the right words and the right name.
///
/// # Errors
/// A text that says what is missing, duplicated or wrong.
pub fn exactly_once(system: &Simulated, reading: &Reading) -> Result<(), String> {
    exactly_once_in(&system.0.borrow().kernel, reading)
}

/// As [`exactly_once`], for a kernel without a simulated system.
pub fn exactly_once_in(kernel: &Kernel, reading: &Reading) -> Result<(), String> {
    let mut ledger = kernel.ledger.clone();
    for (key, line, name) in &reading.samples {
        let expected = ledger.remove(key);
        if expected.as_deref() != Some(line.as_str()) {
            return Err(format!("{key:?} is twice there, or wrong, or was never recorded: {line}"));
        }
        if !(name.starts_with("task%20") && name.ends_with("%20#%25")) {
            return Err(format!("{key:?} has the name {name}"));
        }
    }
    match ledger.first_key_value() {
        Some(first) => Err(format!("{} samples are missing, the first is {first:?}", ledger.len())),
        None => Ok(()),
    }
}
