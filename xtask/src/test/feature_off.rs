//! With the feature `profiling` off, the kernel has no symbol of kprof, and its code has the same size as without the
//! calls.

use anyhow::{Result, bail};

use super::outcome::{Context, Outcome};
use crate::build::{self, Kernel};

/// The symbols at the ends of the test kernel's code.
pub const ENDS: [&str; 2] = ["__text_start", "__text_used_end"];

/// Runs the group.
pub fn run(context: &mut Context) -> Result<Outcome> {
    let toolchain = context.parts()?.toolchain;
    let mut outcome = Outcome::default();
    let on = build::kernel(toolchain, "profiling", &[])?;
    let has_symbols = if kprof_symbols(&on).is_empty() { bail_no_symbols() } else { Ok(()) };
    outcome.check("on: the kernel has symbols of kprof", has_symbols);
    let off = build::kernel(toolchain, "", &[])?;
    let off_text = text_bytes(&off.symbols, ENDS)?;
    outcome.check(
        "off: the kernel has no symbol of kprof",
        match kprof_symbols(&off) {
            none if none.is_empty() => Ok(()),
            some => Err(anyhow::anyhow!("{}", some.join("\n"))),
        },
    );
    let without = build::kernel(toolchain, "no-calls", &[])?;
    let without_text = text_bytes(&without.symbols, ENDS)?;
    outcome.check(
        "off: the code is as large as without the calls",
        match off_text == without_text {
            true => Ok(()),
            false => Err(anyhow::anyhow!("{off_text} bytes, without the calls {without_text}")),
        },
    );
    Ok(outcome)
}

fn bail_no_symbols() -> Result<()> {
    bail!("none found: then the check for none proves nothing")
}

/// The lines of the symbol table that contain `kprof`. The constants of `kprof-format` have no symbols.
fn kprof_symbols(kernel: &Kernel) -> Vec<String> {
    kernel.symbols.lines().filter(|line| line.contains("kprof")).map(str::to_owned).collect()
}

/// The size of a kernel's code, from the symbols at its ends.
///
/// # Errors
/// If the kernel lacks them.
pub fn text_bytes(symbols: &str, ends: [&str; 2]) -> Result<u64> {
    let address = |name: &str| -> Result<u64> {
        let line = symbols.lines().find(|line| line.split(' ').next_back() == Some(name));
        let Some(line) = line else { bail!("no symbol {name}") };
        Ok(u64::from_str_radix(&line[..16], 16)?)
    };
    let [start, end] = ends;
    Ok(address(end)? - address(start)?)
}
