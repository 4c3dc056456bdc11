//! A small image with DWARF, and profiles of it, for the tests of the page.
//!
//! In: a seed and a function that is sampled most. Out: an ELF file, compiled by rustc, in whose functions code of the
//! standard library and own code are inlined; a profile with everything that a page shows: three CPUs, two tasks,
//! kernel code with interrupts on and off, interrupts, user code, filtered ticks, losses, coalesced ticks, marks, and
//! an account that balances. Out is also the time of each tick of user code, of each idle tick and of each lost one.
//! The profile does not have these times: its counters are those of a moment that may be long after the last sample of
//! a batch.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use kprof_format::checksum::Crc32;
use kprof_format::marker::{Facts, Marker};

use crate::bench::fold::{Random, functions};
use crate::run;

/// The address of the image according to the profile.
const LOAD: u64 = 0xffff_ffff_8000_0000;
const FUNCTIONS: u64 = 40;
const CPUS: u64 = 3;
const BATCHES: u64 = 30;
const TICKS_PER_BATCH: u64 = 400;
/// TSC ticks between two samples, on average. The clock has 1 GHz.
const PERIOD: u64 = 1_000_000;

/// What distinguishes two profiles.
#[derive(Clone, Copy)]
pub struct Shape {
    /// The seed of all choices.
    pub seed: u64,
    /// The number of the function that every fourth sample is in.
    pub favourite: u64,
}

/// Compiles the image.
///
/// # Errors
/// If rustc fails.
pub fn image(folder: &Path) -> Result<PathBuf> {
    let mut source = String::from("use std::hint::black_box;\n");
    for number in 0..FUNCTIONS {
        write!(
            source,
            "#[inline(always)]\nfn step_{number}(list: &[u64], value: u64) -> u64 {{\n    \
             list.iter().map(|one| one.rotate_left({number}) ^ value).sum()\n}}\n\
             #[inline(never)]\npub fn act_{number}(list: &mut Vec<u64>, value: u64) -> u64 {{\n    \
             list.push(value + {number});\n    let sum = step_{number}(list, value);\n    \
             black_box(sum) + {number}\n}}\n"
        )?;
    }
    source.push_str("fn main() {\n    let mut list = vec![std::env::args().count() as u64];\n    let mut sum = 0;\n");
    (0..FUNCTIONS).try_for_each(|number| writeln!(source, "    sum += act_{number}(&mut list, sum);"))?;
    source.push_str("    println!(\"{sum}\");\n}\n");
    std::fs::write(folder.join("image.rs"), source)?;
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    run::output(rustc.args(["--edition=2024", "-g", "-Copt-level=2", "image.rs", "-o", "image"]).current_dir(folder))?;
    Ok(folder.join("image"))
}

/// Counters of one CPU, cumulative.
#[derive(Clone, Copy, Default)]
struct Counts {
    tick: u64,
    coalesced: u64,
    user: u64,
    idle: u64,
    lost: u64,
    recorded: u64,
    on: u64,
    off: u64,
    interrupt: u64,
}

/// Ticks after the last sample of a batch and before its ring is read: none, many idle ones, or some lost ones.
fn late(batch: u64) -> (u64, What) {
    match batch / CPUS % 5 {
        1 => (120, What::Idle),
        3 => (60, What::Lost),
        _ => (0, What::Idle),
    }
}

/// What a CPU did at a tick, by its number on the page.
#[derive(Clone, Copy)]
enum What {
    User = 3,
    Idle = 4,
    Lost = 5,
}

/// When ticks of user code, idle and lost ones came.
#[derive(Default)]
pub struct Truth(Vec<(usize, u64, What)>);

impl Truth {
    /// A JSON list of `[CPU, microseconds since the first sample, kind]`.
    pub fn json(&self, first: u64) -> String {
        let micros = |tsc: u64| tsc.saturating_sub(first) / 1000;
        let ticks = self.0.iter().map(|(cpu, tsc, what)| format!("[{},{},{}]", cpu + 1, micros(*tsc), *what as u8));
        format!("[{}]\n", ticks.collect::<Vec<_>>().join(","))
    }
}

/// A profile, and the truth about it.
pub struct Made {
    /// The text of the profile.
    pub text: String,
    /// The time of its first sample.
    pub first: u64,
    /// The times of the ticks that its counters only count.
    pub truth: Truth,
}

/// Makes a profile.
///
/// # Errors
/// If the image has not the expected functions.
pub fn profile(image: &Path, shape: Shape) -> Result<Made> {
    let functions = functions(image, LOAD)?;
    ensure!(functions.len() as u64 == FUNCTIONS, "{} of {FUNCTIONS} functions are in the image", functions.len());
    let mut random = Random(shape.seed);
    let boot = format!("{:x}", 0x76 + shape.seed);
    let mut text = format!("# kprof-profile 1\n# tsc-hz 1000000000\n# boot {boot}\n# hz 1000\n# load {LOAD:x}\n");
    let sealed = |text: &mut String, batch: String, end: String| {
        let crc = Crc32::of_batch(&boot).with(batch.as_bytes()).end();
        writeln!(text, "{batch}# end {end} crc={crc:08x}")
    };
    let marks = [("start", 1_500_000_000), ("copying", 4_000_000_123), ("done", 9_000_000_000u64)];
    let mut meta = "# batch cpu=meta from=0 to=30\n".to_owned();
    marks.iter().try_for_each(|(name, tsc)| writeln!(meta, "# mark tsc={tsc:x} name={name}"))?;
    sealed(&mut text, meta, "cpu=meta to=30".to_owned())?;
    let mut counts = [Counts::default(); CPUS as usize];
    let mut tsc = [1_000_000_000u64; CPUS as usize];
    let (mut truth, mut began) = (Truth::default(), u64::MAX);
    for batch in 0..BATCHES * CPUS {
        let cpu = (batch % CPUS) as usize;
        let (now, tsc) = (&mut counts[cpu], &mut tsc[cpu]);
        let (mut lines, mut samples) = (String::new(), 0);
        let (mut first_tick, mut last_tick) = (0, 0);
        let (after, of_kind) = late(batch);
        for tick in 1..=TICKS_PER_BATCH + after {
            *tsc += PERIOD / 2 + random.below(PERIOD);
            now.tick += 1;
            let what = match tick {
                // The first and the last sample have the first and the last tick number of the batch.
                1 | TICKS_PER_BATCH => 99,
                ..TICKS_PER_BATCH => random.below(100),
                _ if matches!(of_kind, What::Idle) => 15,
                _ => 0,
            };
            let mut note = |what| truth.0.push((cpu, *tsc, what));
            match what {
                0..3 => {
                    now.lost += 1;
                    note(What::Lost);
                }
                3 => now.coalesced += 1,
                4..15 => {
                    now.user += 1;
                    note(What::User);
                }
                15..25 => {
                    now.idle += 1;
                    note(What::Idle);
                }
                _ => {
                    first_tick = if samples == 0 { now.tick } else { first_tick };
                    (last_tick, began) = (now.tick, began.min(*tsc));
                    if what < 30 {
                        note(What::User);
                    }
                    let words = stack(&mut random, &functions, shape, now, what);
                    let task = if random.below(3) == 0 { "copy" } else { "sh" };
                    let words: Vec<String> = words.iter().map(|word| format!("{word:x}")).collect();
                    writeln!(lines, "{task} {} {tsc:x} {}", cpu + 1, words.join(" "))?;
                    samples += 1;
                }
            }
        }
        now.recorded += samples;
        let (from, to) = (batch / CPUS * 1000, (batch / CPUS + 1) * 1000);
        let Counts { tick, coalesced, user, idle, lost, recorded, .. } = *now;
        let head = format!(
            "# batch cpu={} from={from} to={to} first-tick={first_tick} last-tick={last_tick} taken={} coalesced={coalesced} \
             user={user} idle={idle} lost-full={lost} recorded={recorded}\n",
            cpu + 1,
            tick - coalesced
        );
        sealed(&mut text, head + &lines, format!("cpu={} to={to} samples={samples}", cpu + 1))?;
    }
    for (cpu, now) in counts.iter().enumerate() {
        let Counts { tick, coalesced, user, idle, lost, recorded, on, off, interrupt } = now;
        writeln!(
            text,
            "# account cpu={} sent={tick} taken={} coalesced={coalesced} user={user} idle={idle} lost-full={lost} \
             recorded={recorded} delivered={recorded} in-ring=0 irq-on={on} irq-off={off} interrupt={interrupt}",
            cpu + 1,
            tick - coalesced
        )?;
    }
    Ok(Made { text, first: began, truth })
}

/// Makes a random stack as a kernel would record it, innermost word first. `what` selects the kind: user code, an
/// interrupt, interrupts off, or plain kernel code.
fn stack(random: &mut Random, functions: &[(u64, u64)], shape: Shape, counts: &mut Counts, what: u64) -> Vec<u64> {
    let any = |random: &mut Random, number: u64| {
        let (start, size) = functions[number as usize];
        start + random.below(size)
    };
    let favourite = random.below(4) == 0;
    let number = if favourite { shape.favourite } else { random.below(FUNCTIONS) };
    if what < 30 {
        return vec![0x40_1000 + 16 * random.below(20), 0x40_2000];
    }
    let mut words = vec![any(random, number)];
    if what < 45 {
        words.push(Marker::Facts(Facts(Facts::INTERRUPTS_OFF)).encode());
    }
    for _ in 0..1 + random.below(4) {
        let caller = random.below(12);
        words.push(any(random, caller));
    }
    if what < 40 {
        words.push(Marker::Interrupt(33).encode());
        words.push(any(random, number));
    }
    *(match what {
        ..40 => &mut counts.interrupt,
        40..45 => &mut counts.off,
        _ => &mut counts.on,
    }) += 1;
    if what.is_multiple_of(2) {
        words.extend([Marker::Syscall.encode(), Marker::User.encode(), 0x40_3000 + 16 * random.below(9), 0x40_4000]);
    }
    words
}
