//! An image of 20 MB with DWARF for the bench of the fold, and a profile of it.
//!
//! In: nothing. Out: an ELF file, compiled by rustc with full debug information from generated functions, each with
//! several levels of inlined functions, as in kernels; and a profile with 100 000 samples anywhere in its code.
//! According to the profile's header the image is in the address range of kernels.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kprof_format::checksum::Crc32;

use super::input::Random;
use crate::run;

/// The address of the image according to the profile.
const LOAD: u64 = 0xffff_ffff_8000_0000;
/// Minimum size of the image.
pub const MIN_BYTES: u64 = 20_000_000;
/// Samples in the profile.
pub const SAMPLES: u64 = 100_000;
/// Generated functions.
const FUNCTIONS: usize = 9_000;
/// Number of files with these functions.
const MODULES: usize = 30;

/// Makes the image and its profile, once.
///
/// # Errors
/// If rustc fails, or the image is smaller than it must be.
pub fn make(folder: &Path) -> Result<(PathBuf, PathBuf)> {
    let (image, profile) = (folder.join("image"), folder.join("image-batches.txt"));
    if !profile.exists() {
        let sources = folder.join("image-sources");
        std::fs::create_dir_all(&sources)?;
        let mut main = String::new();
        for module in 0..MODULES {
            writeln!(main, "mod part_{module};")?;
            std::fs::write(sources.join(format!("part_{module}.rs")), source(module)?)?;
        }
        main.push_str("fn main() {\n    let mut sum = std::env::args().count() as u64;\n");
        (0..MODULES).try_for_each(|module| writeln!(main, "    sum += part_{module}::all(sum);"))?;
        main.push_str("    println!(\"{sum}\");\n}\n");
        std::fs::write(sources.join("main.rs"), main)?;
        let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
        rustc.args(["--edition=2024", "-g", "-Copt-level=2", "-Ccodegen-units=8", "main.rs", "-o"]).arg(&image);
        run::output(rustc.current_dir(&sources))?;
        std::fs::write(&profile, samples(&image)?)?;
    }
    let bytes = std::fs::metadata(&image)?.len();
    ensure!(bytes >= MIN_BYTES, "{} has {bytes} bytes only", image.display());
    Ok((image, profile))
}

/// Functions that are not inlined, each with three levels of inlined ones and generic instances.
fn source(module: usize) -> Result<String> {
    let mut text = String::from(
        "use std::hint::black_box;\n\
         #[inline(always)]\nfn bit(value: u64, at: u64) -> u64 {\n    black_box(value) >> (at & 63) & 1\n}\n\
         #[inline(always)]\nfn mix<const N: u64>(value: u64) -> u64 {\n    (value ^ bit(value, N)).rotate_left(N as u32) + bit(value, N + 1)\n}\n",
    );
    let numbers = (module..FUNCTIONS).step_by(MODULES);
    for number in numbers.clone() {
        let (a, b) = (number % 61, number * 7 % 59);
        writeln!(
            text,
            "#[inline(always)]\nfn step_{number}(value: u64) -> u64 {{\n    mix::<{a}>(value)\n        + mix::<{b}>(value / 3)\n}}\n\
             #[inline(never)]\npub fn act_{number}(value: u64) -> u64 {{\n    let first = step_{number}(value);\n    \
             let second = if first & 1 == 0 {{\n        step_{number}(first)\n    }} else {{\n        bit(first, {a})\n    }};\n    \
             first ^ second\n}}"
        )?;
    }
    text.push_str("pub fn all(value: u64) -> u64 {\n    let mut sum = value;\n");
    numbers.into_iter().try_for_each(|number| writeln!(text, "    sum = sum.wrapping_add(act_{number}(sum));"))?;
    text.push_str("    sum\n}\n");
    Ok(text)
}

/// The generated functions of an image (`act_` in their names), ascending: start and size. `load` is where the image is
/// according to the profile.
///
/// # Errors
/// If the image is no ELF file with symbols.
pub fn functions(image: &Path, load: u64) -> Result<Vec<(u64, u64)>> {
    let bytes = std::fs::read(image)?;
    let file = elf::ElfBytes::<elf::endian::LittleEndian>::minimal_parse(&bytes)?;
    let (table, names) = file.symbol_table()?.context("the image has no symbols")?;
    let segments = file.segments().context("the image has no segments")?;
    let loaded = segments.iter().filter(|one| one.p_type == elf::abi::PT_LOAD).map(|one| one.p_vaddr).min();
    let base = loaded.context("the image loads nothing")?;
    let is_act = |symbol: &elf::symbol::Symbol| {
        symbol.st_size > 8 && names.get(symbol.st_name as usize).is_ok_and(|name| name.contains("act_"))
    };
    let place = |symbol: elf::symbol::Symbol| (load - base + symbol.st_value, symbol.st_size);
    let mut found: Vec<(u64, u64)> = table.iter().filter(is_act).map(place).collect();
    found.sort_unstable();
    Ok(found)
}

/// Samples in the code of the generated functions. Leaves are at any byte, callers at one of four places in each
/// function.
fn samples(image: &Path) -> Result<String> {
    let functions = functions(image, LOAD)?;
    ensure!(functions.len() > FUNCTIONS / 2, "only {} functions are in the image", functions.len());
    let mut random = Random(3);
    let mut text = format!("# kprof-profile 1\n# tsc-hz 2200000000\n# load {LOAD:x}\n");
    let start = text.len();
    writeln!(text, "# batch cpu=0 from=0 to={SAMPLES}")?;
    for sample in 0..SAMPLES {
        write!(text, "work 0 {:x}", 1_000_000 * (sample + 1))?;
        for level in 0..6 + random.below(3) {
            let (start, size) = functions[random.skewed(functions.len() as u64) as usize];
            let offset = if level == 0 { random.below(size) } else { 1 + random.below(4) * (size - 1) / 4 };
            write!(text, " {:x}", start + offset)?;
        }
        text.push('\n');
    }
    let crc = Crc32::of_batch("").with(&text.as_bytes()[start..]).end();
    writeln!(text, "# end cpu=0 to={SAMPLES} samples={SAMPLES} crc={crc:08x}")?;
    Ok(text)
}
