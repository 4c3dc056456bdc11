//! Places the kernel's symbols where the kernel ran, and refuses those of another build. Stage: command line, between
//! read and symbolize.
//!
//! In: headers of all boots, symbols. Out: the slide of the symbols; an error, or a doubt in words, if they are not
//! those of the profile. Symbols of another build would give plausible and wrong names.

use super::talk::Talk;
use crate::error::Error;
use crate::profile::{Boot, Profile};
use crate::relocations::NOWHERE;
use crate::stacks::Stacks;
use crate::symbols::{Symbols, check, elf::Elf, plausible, table::Table};
use kprof_format::fact::Fact;

/// Whether the symbols are those of the kernel that ran in this boot.
///
/// # Errors
/// A sentence about what does not match.
pub fn fits(profile: &Profile, boot: &Boot, symbols: &Symbols) -> Result<(), String> {
    symbols.elf.as_ref().map_or(Ok(()), |elf| check::arch(boot, elf).and_then(|()| check::build_id(boot, elf)))?;
    let first = profile.boots.iter().find_map(Boot::load);
    let moved = first.zip(boot.load()).map_or(0, |(first, here)| here.wrapping_sub(first));
    check::anchors(boot, &symbols.table, symbols.slide.wrapping_add(moved))
}

/// The reasons against the symbols, if the profile has neither anchors nor a build id to compare them with.
pub fn doubt(profile: &Profile, stacks: &Stacks, symbols: &Symbols) -> Option<String> {
    let has_build_id = symbols.elf.as_ref().is_some_and(|elf| elf.build_id.is_some());
    let tells = |boot: &Boot| boot.fact(Fact::BuildId).is_some_and(|id| id != "-");
    let is_vouched_for = |boot: &Boot| !boot.anchors.is_empty() || (has_build_id && tells(boot));
    // Anchors that were used to place the symbols say less about them.
    if !symbols.slide_is_solved && profile.boots.iter().any(is_vouched_for) {
        None
    } else {
        plausible::doubt(stacks, symbols)
    }
}

/// How much higher the kernel ran than its file says. `load` is where its lowest segment was, without those of its boot
/// code in the other half; a kernel that reports where its text begins may have segments before that. So the segment is
/// the first one with which the text that the header gives is code of the file, and the anchors match.
fn slide(profile: &Profile, elf: &Elf, table: &Table, load: u64) -> u64 {
    let is_right = |slide: &u64| {
        profile.boots.iter().find(|boot| boot.load() == Some(load)).is_none_or(|boot| {
            let is_code = |(from, _): (u64, u64)| elf.code(from.wrapping_sub(*slide)).is_some();
            boot.text().is_none_or(is_code) && check::anchors(boot, table, *slide).is_ok()
        })
    };
    let lowest = load.wrapping_sub(elf.base);
    let others = elf.segments().map(|start| load.wrapping_sub(start));
    std::iter::once(lowest).chain(others).find(is_right).unwrap_or(lowest)
}

/// Moves the symbols to the address where the first boot had the kernel. Refuses symbols of another build, unless
/// forced.
///
/// # Errors
/// If they are of another build; as [`fits`].
pub fn place_symbols(
    (file, syms, force): (&str, &str, bool),
    profile: &Profile,
    symbols: &mut Symbols,
    talk: Talk,
) -> Result<(), Error> {
    let first = profile.boots.iter().find_map(Boot::load);
    if let (Some(first), Some(elf)) = (first, &symbols.elf) {
        symbols.slide = slide(profile, elf, &symbols.table, first);
    }
    if let (true, Some(boot)) = (first.is_none() || symbols.elf.is_none(), profile.boots.first())
        && check::anchors(boot, &symbols.table, symbols.slide).is_err()
        && let Some(slide) = check::solve_slide(boot, &symbols.table)
    {
        symbols.slide = slide;
        symbols.slide_is_solved = true;
        talk.say(format_args!("{syms}: the kernel ran {slide:#x} higher than its symbols (from the anchors)"));
    }
    symbols.kernel_text = profile.boots.iter().find_map(Boot::text);
    let has_place = (first.is_some() && symbols.elf.is_some()) || symbols.slide_is_solved;
    if !has_place && !symbols.table.starts_within(NOWHERE, u64::MAX) {
        // Kernel code in the lower half: its addresses in a profile have bit 63 set.
        symbols.slide = NOWHERE;
    }
    symbols.user_is_foreign = true;
    for boot in &profile.boots {
        let Err(why) = fits(profile, boot, symbols) else { continue };
        let text = format!("does not belong to {file}: {why}");
        if !force {
            let other = if profile.boots.len() > 1 { ", choose another boot with --boot" } else { "" };
            let todo = format!("Give the symbols of that build{other}, or --force");
            return Err(Error::unusable(syms, format!("{text}. {todo}")));
        }
        talk.say(format_args!("{syms}: {text}; folded all the same (--force)"));
    }
    Ok(())
}
