//! Where the kernel runs that the file of `--kernel` describes. Stage: capture.
//!
//! In: the kernel's ELF file, or what nm prints of it; what the plugin has found in the guest's memory. Out: what the
//! plugin needs for that; lines of the profile's header, from which kprof-fold knows how far the kernel was moved; what
//! was compared, in words. A file whose code is not in the guest's memory is an error.

use crate::finder::{File, Finder, Outcome, State};
use crate::run::Run;
use crate::walk::half::{Half, UPPER};
use anyhow::{Context, Result, bail};
use clap::Args;
use kprof_fold::problems::Problems;
use kprof_fold::symbols::Symbols;
use kprof_format::fact::Fact;
use kprof_format::line::{Anchor, Header, Range};
use object::{Object, ObjectSection, SectionFlags, SectionKind};
use std::fs;
use std::path::Path;

/// Kinds of entries for the plugin.
const CODE: u64 = 1;
const STARTS: u64 = 2;
const ID: u64 = 3;

/// The kernel of `count`, `syscalls` and `probe`, and what else has symbols.
#[derive(Args, Clone, Debug)]
pub struct Given {
    /// The kernel: its ELF file, or what nm prints of it
    #[arg(long, value_name = "ELF")]
    pub kernel: String,
    /// How much higher the kernel runs than its file says (KASLR, PIE); without it, this is found in the guest's memory
    #[arg(long, value_name = "0xBYTES", value_parser = slide, allow_hyphen_values = true)]
    pub slide: Option<u64>,
    /// A module or a program: its ELF file, and where it begins if that is not where it was linked; may be repeated
    #[arg(long, value_name = "FILE[@0xADDRESS]")]
    pub image: Vec<String>,
}

/// A slide: hex with `0x`, or decimal; a negative one is of a kernel that runs lower.
///
/// # Errors
/// If it is neither.
pub fn slide(text: &str) -> Result<u64, String> {
    let (is_lower, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let number = match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    match number {
        Ok(number) if number % 4096 == 0 => Ok(if is_lower { number.wrapping_neg() } else { number }),
        _ => Err("a multiple of 0x1000 is expected, such as 0x1e000000".to_owned()),
    }
}

/// The kernel's file, and where it was found.
pub struct Place {
    file: String,
    entries: Vec<u8>,
    given: Option<u64>,
    /// The lowest address that is loaded; `None` for a list of symbols.
    base: Option<u64>,
    /// The range of its code.
    text: (u64, u64),
    id: Option<String>,
    /// By which kprof-fold knows the file again if it has no build id.
    anchors: Vec<(String, u64)>,
    /// What was found in each boot, the present one last.
    boots: Vec<Outcome>,
}

impl Place {
    /// Reads the file.
    ///
    /// # Errors
    /// If it cannot be read or has no code symbols.
    pub fn open(file: &str, given: Option<u64>) -> Result<Self> {
        let symbols = Symbols::open(file, &mut Problems::default())?;
        let mut entries = match &symbols.elf {
            Some(_) => code(&fs::read(file).with_context(|| format!("{file}: cannot read"))?)?,
            None => Vec::new(),
        };
        let table = &symbols.table;
        let all = || (0..table.len()).map(|number| table.get(number).start);
        let is_upper = all().any(|start| start >= UPPER);
        let starts: Vec<u64> = all().filter(|start| !is_upper || *start >= UPPER).collect();
        let mut anchors = Vec::new();
        if entries.is_empty() {
            entries = entry(STARTS, 0, &starts.iter().flat_map(|start| start.to_le_bytes()).collect::<Vec<_>>());
        }
        if symbols.elf.as_ref().is_none_or(|elf| elf.build_id.is_none()) {
            anchors = anchors_of(&symbols, &starts);
        }
        let text = File::read(&entries).range();
        let (base, id) = symbols.elf.map_or((None, None), |elf| (Some(elf.base), elf.build_id));
        Ok(Self { file: file.to_owned(), entries, given, base, text, id, anchors, boots: vec![Outcome::default()] })
    }

    /// A finder of the kernel, which compares at most this many pages of code.
    pub fn finder(&self, max_pages: u64) -> Finder {
        Finder::new(File::read(&self.entries), self.given, max_pages)
    }

    /// The plugin's options.
    ///
    /// # Errors
    /// If its file cannot be written.
    pub fn options(&self, run: &Run<'_>) -> Result<String> {
        let given = self.given.map_or(String::new(), |given| format!(",slide={given}"));
        Ok(format!(",place={}{given}", run.file("place", &self.entries)?))
    }

    /// Takes what was found.
    pub fn take(&mut self, outcome: &Outcome) {
        if let Some(last) = self.boots.last_mut() {
            *last = outcome.clone();
        }
    }

    /// The machine was reset: the kernel may run elsewhere now. It is another boot if the kernel had run.
    pub fn reset(&mut self, is_reboot: bool) {
        if is_reboot {
            self.boots.push(Outcome::default());
        } else {
            self.take(&Outcome::default());
        }
    }

    /// The range of the file's addresses that is moved, and by how much, if that is known.
    pub fn moved(&self) -> Option<((u64, u64), u64)> {
        self.boots.last().and_then(|boot| self.moved_in(boot))
    }

    fn moved_in(&self, boot: &Outcome) -> Option<((u64, u64), u64)> {
        (boot.state == State::Placed).then_some((self.text, boot.slide))
    }

    /// Says where the kernel runs and what was compared, for each boot.
    ///
    /// # Errors
    /// If the guest has executed another kernel than that of the file.
    pub fn say(&self) -> Result<()> {
        let boots = self.boots.len();
        let say = |(number, boot)| match self.say_of(boot) {
            Err(error) if boots > 1 => Err(error.context(format!("boot {} of {boots}", number + 1))),
            done => done,
        };
        self.boots.iter().enumerate().try_for_each(say)
    }

    fn say_of(&self, boot: &Outcome) -> Result<()> {
        let (file, Outcome { same, compared, slide, .. }) = (&self.file, boot);
        let place = match (*slide as i64).cmp(&0) {
            std::cmp::Ordering::Equal => format!("where {file} says"),
            std::cmp::Ordering::Greater => format!("{slide:#x} higher than {file} says"),
            std::cmp::Ordering::Less => format!("{:#x} lower than {file} says", slide.wrapping_neg()),
        };
        let what = if self.base.is_some() {
            format!("{same} of {compared} bytes of its code are the same in the guest's memory")
        } else {
            format!(
                "{same} of {compared} targets of calls in the guest's memory are the first instruction of a function"
            )
        };
        let given = self.given.map_or(String::new(), |_| ", or leave --slide out".to_owned());
        match boot.state {
            State::Placed => {
                let id = if boot.id.is_empty() { "" } else { ", and its build id is there" };
                eprintln!("kprof-qemu: the kernel runs {place}: {what}{id}");
            }
            State::Nothing => {
                eprintln!("kprof-qemu: the guest has executed no code of a kernel: {file} was not checked");
            }
            State::Nowhere => bail!(
                "{file}: is not the kernel that ran: its code is nowhere where the guest has executed kernel code. \
                 Give the file of the kernel that ran{given}"
            ),
            State::Differs => {
                bail!("{file}: is not the kernel that ran: {place}, only {what}. Give the file of that build{given}")
            }
            State::OtherBuild => bail!(
                "{file}: is not the kernel that ran: its build id is {}, and in the guest's memory it is {}. Give the \
                 file of that build",
                self.id.as_deref().unwrap_or("-"),
                boot.id.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
            ),
            State::Ambiguous => bail!("{file}: may run at several places; give the right one with --slide"),
        }
        Ok(())
    }

    /// Writes into the profile where the kernel ran, if that is known.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&self, profile: &Path) -> Result<()> {
        let text = fs::read_to_string(profile)?;
        let text = self.with_places(&text).with_context(|| format!("{}: has no header", profile.display()))?;
        let folder = profile.parent().filter(|it| *it != Path::new("")).unwrap_or(Path::new("."));
        let mut new = tempfile::NamedTempFile::new_in(folder)?;
        std::io::Write::write_all(&mut new, text.as_bytes())?;
        new.persist(profile)?;
        Ok(())
    }

    /// The profile with the lines for each boot at the end of its header; `None` if it has fewer headers.
    fn with_places(&self, text: &str) -> Option<String> {
        let last = format!("\n# {} ", Fact::Mode.name());
        let (mut new, mut rest) = (String::new(), text);
        for boot in &self.boots {
            let begin = rest.find(&last)? + 1;
            let (header, others) = rest.split_at(begin + rest[begin..].find('\n')? + 1);
            new.push_str(header);
            self.lines(boot).into_iter().for_each(|line| new.extend([&line, "\n"]));
            rest = others;
        }
        Some(new + rest)
    }

    fn lines(&self, boot: &Outcome) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(((from, to), slide)) = self.moved_in(boot) else { return lines };
        let here = |address: u64| address.wrapping_add(slide);
        // In the lower half all addresses are moved, as those of samples are.
        let half = Half::of(here(from), (0, UPPER)).unwrap_or(Half::Upper);
        let here = |address| half.written(here(address));
        if let Some(base) = self.base {
            let id = self.id.clone().map(|value| Header { fact: Fact::BuildId, value }.to_string());
            let load = Header { fact: Fact::Load, value: format!("{:x}", here(base)) };
            let text = Header { fact: Fact::Text, value: Range(here(from), here(to)) };
            lines.extend(id.into_iter().chain([load.to_string(), text.to_string()]));
        }
        for (name, address) in &self.anchors {
            let value = Anchor { name, address: here(*address) };
            lines.push(Header { fact: Fact::Anchor, value }.to_string());
        }
        lines
    }
}

/// An entry for the plugin.
fn entry(kind: u64, address: u64, bytes: &[u8]) -> Vec<u8> {
    let head = [kind, address, bytes.len() as u64].into_iter().flat_map(u64::to_le_bytes);
    let mut all: Vec<u8> = head.chain(bytes.iter().copied()).collect();
    all.resize(all.len().next_multiple_of(8), 0);
    all
}

/// The code of an ELF file and its build id; of a kernel that is linked into the upper half, only what is there.
fn code(data: &[u8]) -> Result<Vec<u8>> {
    let image = object::File::parse(data)?;
    let flags = |section: &object::Section<'_, '_>| match section.flags() {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.0,
        _ => 0,
    };
    let is_code = |section: &object::Section<'_, '_>| flags(section) & object::elf::SHF_EXECINSTR.0 != 0;
    let all = || image.sections().filter(|section| is_code(section) && section.data().is_ok_and(|it| !it.is_empty()));
    let is_upper = all().any(|section| section.address() >= UPPER);
    let mut entries = Vec::new();
    for section in all().filter(|section| !is_upper || section.address() >= UPPER) {
        entries.extend(entry(CODE, section.address(), section.data()?));
    }
    let id = image.build_id().ok().flatten().unwrap_or_default();
    let is_loaded = |section: &object::Section<'_, '_>| flags(section) & object::elf::SHF_ALLOC.0 != 0;
    for section in image.sections().filter(|it| it.kind() == SectionKind::Note && is_loaded(it) && !id.is_empty()) {
        let at = section.data()?.windows(id.len()).position(|bytes| bytes == id);
        if let (Some(at), false) = (at, entries.is_empty()) {
            entries.extend(entry(ID, section.address() + at as u64, id));
        }
    }
    Ok(entries)
}

/// Two symbols far from each other, of names that are there once.
fn anchors_of(symbols: &Symbols, starts: &[u64]) -> Vec<(String, u64)> {
    let table = &symbols.table;
    let named = |start: &u64| {
        let name = symbols.function(table.find(*start)?).into_owned();
        let is_alone = table.named(&name).count() == 1 && !name.contains(['=', ' ']);
        is_alone.then_some((name, *start))
    };
    let half = starts.len() / 2;
    let first = starts[..half].iter().find_map(named);
    first.into_iter().chain(starts[half..].iter().find_map(named)).collect()
}
