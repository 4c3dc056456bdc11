//! `--image NAME=FILE`: symbols of programs and modules. Stage: command line, before fold.
//!
//! In: the images that the profile names (`# image`), and a symbol file for some of them. Out: [`Symbols`] that have
//! these images too, each image with the address range of its symbols. A name that the profile does not have, a file of
//! another build, and overlapping images are refused.

use super::args::{ImageFile, Input};
use super::places;
use super::talk::Talk;
use crate::error::Error;
use crate::problems::Problems;
use crate::profile::{Image, Profile};
use crate::symbols::image::Placed;
use crate::symbols::{Symbols, check};

/// Opens the symbols of all given images. `between` are the TSCs of the chosen time.
///
/// # Errors
/// If the profile does not have a name, a file is unusable, or images overlap.
pub fn open(
    input: &Input,
    (profile, between): (&Profile, Option<(u64, u64)>),
    symbols: &mut Symbols,
    problems: &mut Problems,
    talk: Talk,
) -> Result<(), Error> {
    let time = between.unwrap_or((0, u64::MAX));
    for given in &input.image {
        reloaded(profile, time, &given.name, &input.file)?;
        let mut places: Vec<&Image> = Vec::new();
        for image in first_places(profile).filter(|image| image.name == given.name.as_bytes()) {
            if !places.iter().any(|place| (place.load, place.text) == (image.load, image.text)) {
                places.push(image);
            }
        }
        if places.is_empty() {
            return Err(Error::Usage(unknown(profile, &given.name, &input.file)));
        }
        for place in places {
            add(input, place, given, symbols, problems, talk)?;
        }
    }
    let has_file = |image: &Image| input.image.iter().any(|given| given.name.as_bytes() == image.name);
    let is_kernel =
        |image: &Image| symbols.kernel_text.is_some_and(|text| text.0 < image.text.1 && image.text.0 < text.1);
    let nameless: Vec<_> =
        first_places(profile).filter(|image| !has_file(image) && !is_kernel(image)).map(|image| image.text).collect();
    nameless.into_iter().for_each(|range| symbols.add_nameless(range));
    Ok(())
}

/// Each image at its address in the first boot that had it. The stacks of later boots are relocated to that address.
fn first_places(profile: &Profile) -> impl Iterator<Item = &Image> {
    let all = profile
        .boots
        .iter()
        .enumerate()
        .flat_map(|(number, boot)| boot.images.iter().map(move |image| (number, image)));
    all.filter(|(number, image)| places::earlier(profile, *number, image).is_none()).map(|(_, image)| image)
}

/// Refuses a module if another one had the same addresses before it or after it, both in the chosen time: an address
/// does not tell which of the two was there.
fn reloaded(profile: &Profile, time: (u64, u64), name: &str, file: &str) -> Result<(), Error> {
    let mut is_loaded = false;
    for boot in &profile.boots {
        let in_force = || boot.images.iter().filter(|image| boot.has_in_force(image, time));
        for image in in_force().filter(|image| image.name == name.as_bytes()) {
            is_loaded = true;
            let Some(other) = in_force().find(|one| one.overlaps(image) && !one.is(image)) else { continue };
            if !image.is_program() {
                return Err(Error::Usage(format!(
                    "--image {name}: the images {name} and {} of {file} were in the same place, one after the other; \
                     choose the time of one of them with --between",
                    String::from_utf8_lossy(&other.name)
                )));
            }
        }
    }
    if !is_loaded && all(profile).any(|image| image.name == name.as_bytes()) {
        return Err(Error::Usage(format!("--image {name}: it was not loaded in the chosen time")));
    }
    Ok(())
}

fn all(profile: &Profile) -> impl Iterator<Item = &Image> {
    profile.boots.iter().flat_map(|boot| &boot.images)
}

fn unknown(profile: &Profile, name: &str, file: &str) -> String {
    let mut names: Vec<_> = all(profile).map(|image| String::from_utf8_lossy(&image.name)).collect();
    names.sort();
    names.dedup();
    let has = if names.is_empty() { "no image at all".to_owned() } else { format!("the images {}", names.join(", ")) };
    format!("--image {name}: {file} has {has}")
}

fn add(
    input: &Input,
    place: &Image,
    given: &ImageFile,
    symbols: &mut Symbols,
    problems: &mut Problems,
    talk: Talk,
) -> Result<(), Error> {
    let mut own = Symbols::open(&given.file, problems)?;
    own.slide = match &own.elf {
        Some(elf) => place.load.wrapping_sub(elf.base),
        // The output of nm has no base address. If its symbols are in the image's range they are absolute, otherwise
        // they are relative to the load address.
        None if own.table.starts_within(place.text.0, place.text.1) => 0,
        None => place.load,
    };
    if let Some(Err(why)) = own.elf.as_ref().map(|elf| check::same_build(&place.build_id, elf)) {
        let text = format!("does not belong to the image {} of {}: {why}", given.name, input.file);
        if !input.force {
            return Err(Error::unusable(&given.file, format!("{text}. Give the file of that build, or --force")));
        }
        talk.say(format_args!("{}: {text}; used all the same (--force)", given.file));
    }
    let placed = Placed { name: given.name.clone(), text: place.text, symbols: own };
    symbols.add_image(placed).map_err(|other| {
        Error::Usage(format!(
            "--image {}: the images {other} and {} of {} stand in the same place and cannot be told apart; give one of \
             them, with --task or --between for when it ran",
            given.name, given.name, input.file
        ))
    })
}
