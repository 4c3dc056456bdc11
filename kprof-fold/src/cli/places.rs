//! Compares where each boot had its code with where the first boot had it. Stage: command line, between read and
//! symbolize.
//!
//! In: headers and `# image` lines of all boots. Out: relocations for the stacks of later boots, so that all symbols
//! can stay at the addresses where the first boot had the kernel and each image.

use crate::profile::{Boot, Image, Profile};
use crate::relocations::Move;
use crate::stacks::Stacks;

/// Kernels are linked into the last two GiB. If the header does not give the kernel's length, it is assumed to be at
/// most half of that.
const MAX_KERNEL_BYTES: u64 = 1 << 30;

/// Sets, for the stacks of later boots, the distance of their code from its address in the first boot.
pub fn settle(profile: &Profile, stacks: &mut Stacks) {
    let first = profile.boots.iter().find_map(Boot::load);
    for (number, boot) in profile.boots.iter().enumerate() {
        if let (Some(first), Some(here)) = (first, boot.load()) {
            let range = boot.text().unwrap_or((here, here.saturating_add(MAX_KERNEL_BYTES)));
            moved(stacks, number, range, first, here);
        }
        for image in &boot.images {
            if let Some(known) = earlier(profile, number, image) {
                moved(stacks, number, image.text, known.load, image.load);
            }
        }
    }
}

fn moved(stacks: &mut Stacks, boot: usize, range: (u64, u64), first: u64, here: u64) {
    if first != here {
        stacks.moved(boot, Move { range, by: first.wrapping_sub(here) });
    }
}

/// The same image in the first boot that had it, if that boot was before this one.
pub fn earlier<'a>(profile: &'a Profile, boot: usize, image: &Image) -> Option<&'a Image> {
    let length = |image: &Image| image.text.1.wrapping_sub(image.text.0);
    let key = |image: &Image| (length(image), image.text.0.wrapping_sub(image.load));
    let same = |one: &&Image| one.name == image.name && one.build_id == image.build_id && key(one) == key(image);
    profile.boots[..boot].iter().flat_map(|boot| &boot.images).find(same)
}
