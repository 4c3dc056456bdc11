//! Inputs for the bench of the fold: symbols and profiles of any size, the same in every run.
//!
//! In: a shape. Out: a file under target/, which is made once. Lines have the size of those from a Redox kernel: a
//! context of six bytes, 5 to 9 addresses of 16 digits. Stacks are drawn uniformly, which is the worst case for caches,
//! or with skew (the n-th stack with a weight of 1/n), which is typical of profiles.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::run;

/// Bytes between two functions.
const FUNCTION_BYTES: u64 = 512;
const TEXT: u64 = 0xffff_ffff_8000_0000;

/// SplitMix64 (Steele, Lea, Flood 2014), which is good enough for uniform draws.
pub struct Random(pub u64);

impl Random {
    /// The next number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(z ^ z >> 31) * u128::from(end)) >> 64) as u64
    }

    /// A number below `end`; the number n has a weight of about 1 / (n + 1).
    pub fn skewed(&mut self, end: u64) -> u64 {
        let even = self.below(1 << 53) as f64 / (1u64 << 53) as f64;
        (((end + 1) as f64).powf(even) as u64 - 1).min(end - 1)
    }
}

/// `nm -CS` of a kernel with this many functions.
///
/// # Errors
/// If it cannot be written.
pub fn symbols(folder: &Path, functions: u64) -> Result<PathBuf> {
    let path = folder.join(format!("syms-{functions}.txt"));
    if !path.exists() {
        let mut text = String::new();
        for number in 0..functions {
            let (start, module) = (TEXT + number * FUNCTION_BYTES, number % 37);
            writeln!(
                text,
                "{start:016x} {FUNCTION_BYTES:016x} t <kernel::part_{module}::Type{number} as kernel::traits::Act>::act_on_{number}"
            )?;
        }
        std::fs::write(&path, text)?;
    }
    Ok(path)
}

/// The real profile of the Redox kernel from the tests, repeated up to a size, and its symbols.
///
/// # Errors
/// If it cannot be written.
pub fn real(folder: &Path, megabytes: u64) -> Result<(PathBuf, PathBuf)> {
    let data = run::root().join("kprof-fold/tests/data/redox");
    let path = folder.join(format!("real-{megabytes}.txt"));
    if !path.exists() {
        let once = std::fs::read(data.join("profiling.txt"))?;
        let mut out = BufWriter::new(File::create(&path)?);
        for _ in 0..(megabytes * 1_000_000).div_ceil(once.len() as u64) {
            out.write_all(&once)?;
        }
        out.flush()?;
    }
    Ok((path, data.join("syms.txt")))
}

/// The shape of a profile.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Its size; 0: one line.
    pub megabytes: u64,
    /// Distinct stacks.
    pub stacks: u64,
    /// Number of functions in it.
    pub functions: u64,
    /// Whether stacks are drawn with skew.
    pub skewed: bool,
}

impl Shape {
    /// Makes the file, once.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn make(self, folder: &Path) -> Result<PathBuf> {
        let path =
            folder.join(format!("profile-{}-{}-{}-{}.txt", self.megabytes, self.stacks, self.functions, self.skewed));
        if path.exists() {
            return Ok(path);
        }
        let mut random = Random(1);
        let stacks: Vec<String> = (0..self.stacks).map(|_| stack(&mut random, self.functions)).collect();
        let part = path.with_extension("part");
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&part)?);
        let (mut bytes, mut tsc, mut line) = (0, 0x1_8d32_50e4_u64, String::new());
        while bytes == 0 || bytes < self.megabytes * 1_000_000 {
            line.clear();
            tsc += 1_000_000 + random.below(1_000_000);
            let (context, cpu) = (random.below(40), random.below(4));
            let drawn = if self.skewed { random.skewed(self.stacks) } else { random.below(self.stacks) };
            let stack = &stacks[drawn as usize];
            writeln!(line, "ctx-{context:02} {cpu} {tsc:x} {stack}")?;
            out.write_all(line.as_bytes())?;
            bytes += line.len() as u64;
        }
        out.flush()?;
        std::fs::rename(&part, &path)?;
        Ok(path)
    }
}

/// A stack of 5 to 9 addresses whose outer frames are shared by many, as in a kernel.
fn stack(random: &mut Random, functions: u64) -> String {
    let depth = 5 + random.below(5);
    let mut stack = String::new();
    for level in 0..depth {
        // The outermost frame is one of a few entries; the innermost frame can be any function.
        let width = (functions >> (2 * level).min(9)).max(4);
        let address = TEXT + random.below(width) * FUNCTION_BYTES + 5 + random.below(4) * 16;
        write!(stack, "{}{address:x}", if level > 0 { " " } else { "" }).expect("a string takes everything");
    }
    stack
}
