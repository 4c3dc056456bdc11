//! Finds the separate debug file of a stripped image. Stage: symbolize.
//!
//! In: an ELF image without DWARF. Out: the bytes of the file with its symbols and DWARF, if one is found: the file
//! that was given, else the one that `.gnu_debuglink` names (beside the image, in `.debug/` there, or below
//! `/usr/lib/debug`), else the one of its build id. A file of another build is never taken: it must agree in the build
//! id, if both have one, else in the checksum of the link, else in the places of the code.

use crate::error::Error;
use kprof_format::checksum::Crc32;
use object::{Object, ObjectSection};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Where distributions install debug files.
const SYSTEM: &str = "/usr/lib/debug";

/// What was found for an image.
#[derive(Default)]
pub struct Found {
    /// The debug file: its name and its bytes.
    pub file: Option<(String, Vec<u8>)>,
    /// The file that `.gnu_debuglink` names, if no file was found for it.
    pub missing: Option<Missing>,
}

/// A debug file that was not found.
pub struct Missing {
    /// Its name.
    pub name: String,
    /// A file of this name that is of another build.
    pub other: Option<String>,
}

impl Missing {
    /// What became of it, in words.
    pub fn in_words(&self) -> String {
        let name = &self.name;
        match &self.other {
            None => format!("its debug file {name} is not found"),
            Some(other) => format!("its debug file {name} is not found: {other} is of another build"),
        }
    }
}

/// Finds the debug file of the image in `file`.
///
/// # Errors
/// If the file that was given cannot be read, or is of another build.
pub fn find(file: &str, image: &object::File<'_>, given: Option<&str>) -> Result<Found, Error> {
    if let Some(given) = given {
        let bytes = std::fs::read(given).map_err(|error| Error::io(given, "open", error))?;
        let parsed = object::File::parse(&*bytes);
        let debug =
            parsed.map_err(|error| Error::unusable(given, format!("is no ELF file that can be read: {error}")))?;
        if let Err(why) = belongs(image, &debug, &bytes) {
            return Err(Error::unusable(given, format!("is not the debug file of {file}: {why}")));
        }
        return Ok(Found { file: Some((given.to_owned(), bytes)), missing: None });
    }
    let link = image.gnu_debuglink().ok().flatten();
    let link = link.map(|(name, crc)| (String::from_utf8_lossy(name).into_owned(), crc));
    let mut other = None;
    if let Some((name, crc)) = &link {
        let is_right = |bytes: &Vec<u8>| Crc32::default().with(bytes).end() == *crc;
        if let Some(found) = first(beside(file, name), is_right) {
            return Ok(Found { file: Some(found), missing: None });
        }
        other = beside(file, name).into_iter().find(|path| path.is_file()).map(|path| path.display().to_string());
    }
    let id = build_id(image).filter(|id| id.len() > 2);
    let by_id = id.as_ref().map(|id| Path::new(SYSTEM).join(format!(".build-id/{}/{}.debug", &id[..2], &id[2..])));
    let is_right = |bytes: &Vec<u8>| {
        object::File::parse(&**bytes).is_ok_and(|debug| build_id(&debug).is_some_and(|has| Some(has) == id))
    };
    let found = first(by_id, is_right);
    let missing = if found.is_none() { link.map(|(name, _)| Missing { name, other }) } else { None };
    Ok(Found { file: found, missing })
}

/// Whether a debug file is that of an image, by the strongest evidence that both have: build ids, the checksum in
/// `.gnu_debuglink`, the places of the sections with code.
fn belongs(image: &object::File<'_>, debug: &object::File<'_>, bytes: &[u8]) -> Result<(), String> {
    if let (Some(needs), Some(has)) = (build_id(image), build_id(debug)) {
        return if has == needs { Ok(()) } else { Err(format!("its build id is {has}, not {needs}")) };
    }
    if let Ok(Some((_, needs))) = image.gnu_debuglink() {
        let has = Crc32::default().with(bytes).end();
        let why = || format!("its checksum is {has:08x}, and .gnu_debuglink says {needs:08x}");
        return if has == needs { Ok(()) } else { Err(why()) };
    }
    for section in image.sections().filter(|section| super::elf::is_executable(section.flags())) {
        let Ok(name) = section.name() else { continue };
        let place = (section.address(), section.size());
        match debug.section_by_name(name).map(|other| (other.address(), other.size())) {
            Some(other) if other == place => {}
            Some((at, size)) => {
                let (start, length) = place;
                return Err(format!("its {name} is {size} bytes at {at:x}, not {length} bytes at {start:x}"));
            }
            None => return Err(format!("it has no section {name}")),
        }
    }
    Ok(())
}

/// The first of these files that exists and belongs to the image.
fn first(paths: impl IntoIterator<Item = PathBuf>, is_right: impl Fn(&Vec<u8>) -> bool) -> Option<(String, Vec<u8>)> {
    let read = |path: PathBuf| std::fs::read(&path).ok().map(|bytes| (path.display().to_string(), bytes));
    paths.into_iter().filter_map(read).find(|(_, bytes)| is_right(bytes))
}

/// The places where a debugger looks for a linked debug file. The name in the link must not have a path to another
/// folder.
fn beside(file: &str, name: &str) -> Vec<PathBuf> {
    if name.contains('/') || name.is_empty() {
        return Vec::new();
    }
    let folder = Path::new(file).parent().unwrap_or(Path::new("")).to_owned();
    let whole = std::fs::canonicalize(&folder).unwrap_or_default();
    let system = Path::new(SYSTEM).join(whole.strip_prefix("/").unwrap_or(&whole));
    vec![folder.join(name), folder.join(".debug").join(name), system.join(name)]
}

/// The build id of an image as hexadecimal digits.
pub fn build_id(image: &object::File<'_>) -> Option<String> {
    let id = image.build_id().ok().flatten()?;
    Some(id.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}
