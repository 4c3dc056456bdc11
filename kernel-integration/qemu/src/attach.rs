//! `attach`: samples a machine that already runs, through its gdb stub. Stage: capture.
//!
//! In: the address of a stub. Out: the profile. The machine is stopped for each sample, and runs in between for at
//! least as long, so it keeps half of its speed. It runs on at the end, whatever the reason of the end is: the
//! connection detaches when it is dropped. What was sampled until then is in the file.

use crate::arguments::Attach;
use crate::gdb::Gdb;
use crate::guest::Guest;
use crate::guest::held::Held;
use crate::message::Message;
use crate::packet::Ended;
use crate::place::Place;
use crate::profile::{About, Profile};
use crate::recording;
use anyhow::Result;
use kprof_format::precision::Precision;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::fs::File;
use std::io::BufWriter;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How soon a signal is seen, at a low rate.
const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// What a machine loses after it was told to go on: a guest took longer to its end than its stops explain, by 70 to
/// 100 us for each sample (QEMU 7.2).
const RESUME: Duration = Duration::from_micros(100);

/// So much of the kernel's code is compared at most, while the machine is stopped.
const MOST_PAGES: u64 = 128;
/// At the end the kernel is looked for so often, at this interval.
const LAST_LOOKS: u32 = 20;
const LAST_LOOK: Duration = Duration::from_millis(5);

/// What sampling has cost the machine.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    ticks: u64,
    wall: Duration,
    /// From the byte that stops the machine until it was told to go on, and [`RESUME`].
    stopped: Duration,
}

/// Samples the machine and writes the profile.
///
/// # Errors
/// If there is no such machine, if its stub stops answering, or if the profile cannot be written.
pub fn run(arguments: &Attach) -> Result<ExitCode> {
    let is_told_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, is_told_to_end.clone())?;
    }
    let gdb = Gdb::connect(&full_address(&arguments.gdb))?;
    with(gdb, arguments, &is_told_to_end)?;
    recording::draw(&arguments.profiling)?;
    Ok(ExitCode::SUCCESS)
}

/// Samples a machine that is stopped.
///
/// # Errors
/// As [`run`].
pub fn with(mut gdb: Gdb, arguments: &Attach, is_told_to_end: &AtomicBool) -> Result<()> {
    let common = &arguments.profiling;
    let kvm = gdb.monitor("info kvm")?.unwrap_or_default();
    let precision = match () {
        () if kvm.contains("enabled") => Precision::Instruction,
        () if kvm.contains("disabled") => Precision::Block,
        () => Precision::Unknown,
    };
    let place = recording::place(common)?;
    let finder = place.as_ref().map(|place| place.finder(MOST_PAGES));
    let mut guest =
        Guest::new(gdb, precision != Precision::Unknown, &arguments.cpu, finder, recording::tables(common)?)?;
    let (hz, boot) = (Some(arguments.hz), recording::boot());
    let about = About { arch: "x86_64", hz, seed: common.seed, precision, code: common.code(), boot };
    let profile = recording::create(&common.output, &about)?;
    let mut cost = Cost::default();
    let mut out = Output { profile, place, held: Held::default() };
    let sampled = sample(arguments, &mut guest, &mut out, is_told_to_end, &mut cost);
    // The guest comes first, then the file.
    let (vcpus, detached) = (guest.vcpus(), guest.gdb().detach());
    let (profile, mut place) = out.finish()?;
    if let (Some(place), Some(outcome)) = (&mut place, guest.outcome()) {
        place.take(outcome);
    }
    let counts = profile.finish()?;
    recording::summary(&common.output, &counts);
    cost.show(vcpus);
    match sampled.and_then(|why| detached.map(|()| why)) {
        Ok(why) => eprintln!("kprof-qemu: {why}; the machine runs on"),
        Err(error) if error.is::<Ended>() => eprintln!("kprof-qemu: {error}"),
        Err(error) => return Err(error),
    }
    recording::placed(place.as_ref(), &common.output)
}

/// The profile, where its kernel runs, and what is not in the profile yet.
struct Output {
    profile: Profile<BufWriter<File>>,
    place: Option<Place>,
    held: Held,
}

impl Output {
    fn write(&mut self, messages: &[Message]) -> Result<()> {
        messages.iter().try_for_each(|message| recording::take(message, &mut self.profile, self.place.as_mut()))
    }

    /// Writes what was held until now if it is known whether the kernel is where it was found.
    fn compared(&mut self, is_unmoved: Option<bool>, guest: &mut Guest, time: u64) -> Result<()> {
        match is_unmoved {
            None => self.held.put_off(time),
            Some(true) => {
                let messages = self.held.release(time);
                self.write(&messages)?;
            }
            Some(false) => {
                let (samples, messages) = (self.held.samples(), self.held.forget(time));
                eprintln!("kprof-qemu: the kernel runs elsewhere: where {samples} samples were is not known");
                self.write(&messages)?;
                self.write(&[Message::Reset])?;
                guest.restart();
            }
        }
        Ok(())
    }

    /// Writes what is held, if possible after a last look at the kernel.
    fn end(&mut self, guest: &mut Guest, time: u64) -> Result<()> {
        for _ in 0..LAST_LOOKS {
            if self.held.samples() == 0 {
                break;
            }
            let is_unmoved = guest.is_unmoved()?;
            self.compared(is_unmoved, guest, time)?;
            std::thread::sleep(LAST_LOOK);
        }
        Ok(())
    }

    /// The file and its kernel, with what is held.
    fn finish(mut self) -> Result<(Profile<BufWriter<File>>, Option<Place>)> {
        let samples = self.held.samples();
        if samples > 0 && self.place.is_some() {
            eprintln!(
                "kprof-qemu: the last {samples} samples are of a kernel that could not be compared again: if the \
                 machine has rebooted meanwhile, their names may be wrong"
            );
        }
        let messages = self.held.release(0);
        self.write(&messages)?;
        Ok((self.profile, self.place))
    }
}

/// Takes samples until something ends it, and says what.
fn sample(
    arguments: &Attach,
    guest: &mut Guest,
    out: &mut Output,
    is_told_to_end: &AtomicBool,
    cost: &mut Cost,
) -> Result<&'static str> {
    let period = 1_000_000_000 / arguments.hz;
    let end = arguments.duration.map_or(Duration::MAX, Duration::from_secs_f64);
    let most = arguments.samples.unwrap_or(u64::MAX);
    let mut random = arguments.profiling.seed.wrapping_mul(0x2545_f491_4f6c_dd1d);
    guest.gdb().go_on()?;
    let start = Instant::now();
    let mut next = Duration::from_nanos(interval(&mut random, period));
    let why = loop {
        let now = start.elapsed();
        let recorded = out.profile.recorded() + out.held.samples() as u64;
        cost.wall = now;
        match () {
            () if is_told_to_end.load(Relaxed) => break "ended by a signal",
            () if now >= end => break "the time is over",
            () if recorded >= most => break "there are as many samples as were asked for",
            () if now < next => {
                std::thread::sleep((next - now).min(end - now).min(LONGEST_SLEEP));
                continue;
            }
            () => {}
        }
        let time = now.as_nanos() as u64;
        // The last sample needs no other stop.
        let is_due = out.held.is_due(time) || recorded + guest.vcpus() as u64 >= most;
        let (messages, is_unmoved) = guest.sample(time, is_due)?;
        out.held.hold(messages);
        if is_due || is_unmoved == Some(true) {
            out.compared(is_unmoved, guest, time)?;
        }
        let stopped = start.elapsed() - now + RESUME;
        cost.stopped += stopped;
        cost.ticks += 1;
        // Ticks are not made up for, and the machine runs for at least as long as it was stopped.
        next = (next + Duration::from_nanos(interval(&mut random, period))).max(now + 2 * stopped);
    };
    out.end(guest, start.elapsed().as_nanos() as u64)?;
    Ok(why)
}

/// The next interval: uniform between half and one and a half of the average.
fn interval(random: &mut u64, period: u64) -> u64 {
    *random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = (*random ^ *random >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    period / 2 + (mixed ^ mixed >> 31) % period.max(1)
}

/// `PORT` and `:PORT` are of this host; `unix:PATH` is complete.
fn full_address(address: &str) -> String {
    match address.rsplit_once(':') {
        None => format!("127.0.0.1:{address}"),
        Some(("", port)) => format!("127.0.0.1:{port}"),
        Some(_) => address.to_owned(),
    }
}

impl Cost {
    fn show(&self, vcpus: usize) {
        let (wall, stopped) = (self.wall.as_secs_f64(), self.stopped.as_secs_f64());
        if self.ticks > 0 && wall > 0.0 {
            let share = 100.0 * stopped / wall;
            eprintln!(
                "kprof-qemu: {:.0} samples a second of each of {vcpus} vCPUs, for {wall:.2} s; the machine was stopped \
                 for {share:.1} % of the time ({:.0} us for a sample), so it ran at {:.1} % of its speed",
                self.ticks as f64 / wall,
                1e6 * stopped / self.ticks as f64,
                100.0 - share
            );
        }
    }
}
