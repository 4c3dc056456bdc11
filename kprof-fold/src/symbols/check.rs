//! Checks whether the symbols belong to the profile. Stage: symbolize.
//!
//! In: the anchors of a profile's header (symbols whose addresses the kernel itself has reported), and the symbols.
//! Out: nothing, or what does not match. The names of another build look plausible but are wrong, so they are refused.

use super::elf::Elf;
use super::table::Table;
use super::users::plain;
use crate::profile::Boot;
use kprof_format::fact::Fact;

/// A kernel that is loaded at another address than its file says is moved by whole pages, of this many bytes.
const PAGE: u64 = 4096;

/// Compares the build ids if both sides have one.
///
/// # Errors
/// A sentence that says how they differ.
pub fn build_id(boot: &Boot, elf: &Elf) -> Result<(), String> {
    same_build(boot.fact(Fact::BuildId).unwrap_or("-"), elf)
}

/// Compares the build id of a profile (`-` for none) with that of a file, if the file has one.
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

/// Compares the processor that a boot names with that of a file.
///
/// # Errors
/// A sentence that says how they differ.
pub fn arch(boot: &Boot, elf: &Elf) -> Result<(), String> {
    let (told, has) = (boot.fact(Fact::Arch), elf.arch_name().unwrap_or("another processor"));
    match told {
        Some(told) if told != has => Err(format!("it is for {has}, and the profile is of {told}")),
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
        let starts_there = || table.has_start(*address);
        match places.first() {
            Some(_) if places.contains(address) => {}
            None if starts_there() => {}
            Some(place) => {
                return Err(format!(
                    "{name} is at {:x} in the symbols and at {:x} in the profile",
                    plain(*place),
                    plain(*address)
                ));
            }
            None => {
                return Err(format!(
                    "the symbols have no {name}, and nothing begins at {:x} where the profile has it",
                    plain(*address)
                ));
            }
        }
    }
    Ok(())
}

/// The distance by which a kernel was moved (KASLR), if its symbols tell no load address: the one distance at which all
/// anchors match. One anchor alone would match symbols of any build, so it takes two at different addresses.
pub fn solve_slide(boot: &Boot, table: &Table) -> Option<u64> {
    let (name, address) = boot.anchors.first()?;
    boot.anchors.iter().find(|(_, other)| other != address)?;
    let fits = |slide: &u64| {
        let is_at =
            |(name, address): &(String, u64)| table.named(name).any(|place| place == address.wrapping_sub(*slide));
        slide.is_multiple_of(PAGE) && boot.anchors.iter().all(is_at)
    };
    let mut slides = table.named(name).map(|place| address.wrapping_sub(place)).filter(fits);
    let slide = slides.next()?;
    slides.next().is_none().then_some(slide)
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

    #[test]
    fn the_slide_is_solved_from_two_anchors_and_never_from_one() {
        let mut table = Table::default();
        table.add(0x1000, 0, true, b"kmain");
        table.add(0x2000, 0, true, b"kernel::idle");
        table.add(0x2500, 0, true, b"other::idle");
        table.finish();
        for (anchors, slide) in [
            (&[("kmain", 0x7000), ("kernel::idle", 0x8000)][..], Some(0x6000)),
            (&[("kmain", 0x7000), ("idle", 0x8000)], Some(0x6000)),
            (&[("kmain", 0), ("kernel::idle", 0x1000)], Some(0u64.wrapping_sub(0x1000))),
            (&[("kmain", 0x1000), ("kernel::idle", 0x2000)], Some(0)),
            // Another build, half a page, one anchor, the same anchor twice, a name that is not there.
            (&[("kmain", 0x7000), ("kernel::idle", 0x8100)], None),
            (&[("kmain", 0x7800), ("kernel::idle", 0x8800)], None),
            (&[("kmain", 0x7000)], None),
            (&[("kmain", 0x7000), ("kmain", 0x7000)], None),
            (&[("kmain", 0x7000), ("gone", 0x8000)], None),
            (&[], None),
        ] {
            let anchors = anchors.iter().map(|(name, address)| ((*name).to_owned(), *address)).collect();
            let boot = Boot { anchors, ..Boot::default() };
            assert_eq!(solve_slide(&boot, &table), slide, "{:?}", boot.anchors);
        }
    }
}
