//! Checks whether the symbols belong to the profile. Stage: symbolize.
//!
//! In: the anchors of a profile's header (symbols whose addresses the kernel itself has reported), and the symbols.
//! Out: nothing, or what does not match. The names of another build look plausible but are wrong, so they are refused.

use super::elf::Elf;
use super::table::Table;
use crate::profile::Boot;
use kprof_format::fact::Fact;

/// Compares the build ids if both sides have one.
///
/// # Errors
/// A sentence that says how they differ.
pub fn build_id(boot: &Boot, elf: &Elf) -> Result<(), String> {
    same_build(boot.fact(Fact::BuildId).unwrap_or("-"), elf)
}

/// Compares the build id of a profile (`-` for none) with that of a file, if it has one.
///
/// # Errors
/// A sentence that says how they differ.
pub fn same_build(told: &str, elf: &Elf) -> Result<(), String> {
    match &elf.build_id {
        Some(has) if told != "-" && !has.eq_ignore_ascii_case(told) => {
            Err(format!("its build id is {has} and that of the profile {told}"))
        }
        _ => Ok(()),
    }
}

/// Compares every anchor of a boot; the addresses of the symbols are lower by `slide` than those of the running kernel.
///
/// # Errors
/// A sentence about the first anchor that does not match.
pub fn anchors(boot: &Boot, table: &Table, slide: u64) -> Result<(), String> {
    for (name, address) in &boot.anchors {
        let address = &address.wrapping_sub(slide);
        let places: Vec<u64> = table.named(name).collect();
        let starts_there = || table.find(*address).is_some_and(|number| table.get(number).start == *address);
        match places.first() {
            Some(_) if places.contains(address) => {}
            None if starts_there() => {}
            Some(place) => {
                return Err(format!("{name} is at {place:x} in the symbols and at {address:x} in the profile"));
            }
            None => {
                return Err(format!(
                    "the symbols have no {name}, and nothing begins at {address:x} where the profile has it"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_of_another_build_are_noticed() {
        let mut table = Table::default();
        table.add(0x1000, 0, true, b"kmain");
        table.add(0x2000, 0, true, b"_ZN6kernel4idle17h0123456789abcdefE");
        table.finish();
        for (name, address, fits) in [
            ("kmain", 0x1000, true),
            ("kmain", 0x1010, false),
            ("kernel::idle", 0x2000, true),
            ("idle", 0x2000, true),
            ("idle", 0x1000, false),
            ("renamed", 0x1000, true),
            ("renamed", 0x1001, false),
        ] {
            let boot = Boot { anchors: vec![(name.to_owned(), address)], ..Boot::default() };
            assert_eq!(anchors(&boot, &table, 0).is_ok(), fits, "{name} {address:x}");
        }
    }
}
