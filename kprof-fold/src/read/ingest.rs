//! Lines in, samples out: the part that all text forms share. Stage: read, the inner loop.
//!
//! In: lines of a text form, one at a time. Out: a [`Sample`] per well-formed line to a [`Consumer`], and the
//! [`Profile`]. A malformed line costs only itself. Per line the loop finds three spaces, reads two numbers and looks up
//! one stack; addresses are parsed only for a stack never seen before.

use super::batch::Open;
use super::hex::{BadNumber, hex32, hex64};
use crate::problems::{Kind, Problems, shown};
use crate::profile::{Boot, Profile, Seen};
use crate::stacks::{self, Encoding, StackId, Stacks, Traits};

/// CPUs below this number are counted in a plain table.
const FEW_CPUS: usize = 1024;

/// One sample.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Index of its boot in the profile.
    pub boot: usize,
    /// Context as it stands in the file (escaped).
    pub context: &'a [u8],
    /// CPU number.
    pub cpu: u32,
    /// Time stamp counter.
    pub tsc: u64,
    /// The distinct stack.
    pub stack: StackId,
    /// What is known of the stack without symbols.
    pub traits: Traits,
}

/// Whatever counts or collects samples.
///
/// Samples are provisional: those since the last `commit` or `discard` are dropped by `discard`.
pub trait Consumer {
    /// Takes one sample.
    fn sample(&mut self, sample: &Sample<'_>);
    /// The samples since the last call of either kind count.
    fn commit(&mut self);
    /// The samples since the last call of either kind do not count.
    fn discard(&mut self);
}

/// Which fields a sample line has, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fields {
    /// `<context> <cpu> <tsc> <rip> <caller>...`: kprof, and Redox since 0.2.
    ContextFirst,
    /// `<cpu> <rip> <tsc> <caller>...`: Redox 0.1.0.
    CpuFirst,
}

/// What the present line stands in.
#[derive(Debug)]
pub(super) enum Region {
    /// Outside any batch.
    Free,
    /// In a batch that counts once its end has come.
    Batch(Box<Open>),
    /// In a batch that was seen before.
    Repeated,
    /// Behind a batch line that could not be read or overlaps: nothing counts up to the next end.
    Damaged,
}

/// The state between two lines.
pub struct Ingest<C> {
    pub(super) file: String,
    pub(super) consumer: C,
    pub(super) profile: Profile,
    pub(super) problems: Problems,
    pub(super) stacks: Stacks,
    pub(super) boot: usize,
    pub(super) region: Region,
    pub(super) line: u64,
    /// Samples outside any batch, by CPU, not yet in the profile.
    free: Vec<Seen>,
    fields: Fields,
    words: Vec<u64>,
    joined: Vec<u8>,
}

impl<C: Consumer> Ingest<C> {
    /// Starts on the file named `file`.
    pub fn new(file: &str, fields: Fields, consumer: C) -> Self {
        Self {
            file: file.to_owned(),
            consumer,
            profile: Profile::default(),
            problems: Problems::default(),
            stacks: Stacks::new(Encoding::Hex),
            boot: 0,
            region: Region::Free,
            line: 0,
            free: Vec::new(),
            fields,
            words: Vec::new(),
            joined: Vec::new(),
        }
    }

    /// Takes one line without its LF.
    #[inline]
    pub fn line(&mut self, line: &[u8]) {
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.first() == Some(&b'#') && self.is_metadata(line) {
            self.metadata(line);
            return;
        }
        if matches!(self.region, Region::Repeated | Region::Damaged) {
            return;
        }
        let result = match self.fields {
            Fields::ContextFirst => self.sample(line),
            Fields::CpuFirst => self.cpu_first(line),
        };
        if let Err((field, bad)) = result {
            self.malformed(line, field, bad);
        }
    }

    /// A line that was too long to be handed over.
    pub fn too_long(&mut self, bytes: u64) {
        self.line += 1;
        if let Region::Batch(open) = &mut self.region {
            open.lines += 1;
        }
        let (file, line) = (&self.file, self.line);
        self.problems
            .add(Kind::LongLine, || format!("{file}:{line}: line of {bytes} bytes skipped (at most 4 MiB count)"));
    }

    /// In Redox's old texts, a context may begin with `#`: such a line is a sample if it is well-formed.
    fn is_metadata(&self, line: &[u8]) -> bool {
        if self.fields == Fields::CpuFirst
            || self.profile.boots.get(self.boot).is_some_and(|boot| boot.version.is_some())
        {
            return true;
        }
        let mut fields = line.split(|byte| *byte == b' ').skip(1);
        let cpu = fields.next().map(hex32);
        let rest_is_hex = fields.clone().count() >= 2 && fields.all(|field| hex64(field).is_ok());
        !(matches!(cpu, Some(Ok(_))) && rest_is_hex)
    }

    #[inline]
    fn sample(&mut self, line: &[u8]) -> Result<(), (&'static str, BadNumber)> {
        let missing = |field| (field, BadNumber::Empty);
        let space = find_space(line).ok_or(missing("cpu"))?;
        let (context, rest) = (&line[..space], &line[space + 1..]);
        if context.is_empty() {
            return Err(missing("context"));
        }
        let space = find_space(rest).ok_or(missing("tsc"))?;
        let cpu = hex32(&rest[..space]).map_err(|bad| ("cpu", bad))?;
        let rest = &rest[space + 1..];
        let space = find_space(rest).ok_or(missing("first address"))?;
        let tsc = hex64(&rest[..space]).map_err(|bad| ("tsc", bad))?;
        self.stack(context, cpu, tsc, &rest[space + 1..])
    }

    fn cpu_first(&mut self, line: &[u8]) -> Result<(), (&'static str, BadNumber)> {
        let mut fields = line.splitn(4, |byte| *byte == b' ');
        let mut next = |name| fields.next().ok_or((name, BadNumber::Empty));
        let cpu = hex32(next("cpu")?).map_err(|bad| ("cpu", bad))?;
        let address = next("first address")?;
        let tsc = hex64(next("tsc")?).map_err(|bad| ("tsc", bad))?;
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.extend_from_slice(address);
        if let Some(callers) = fields.next() {
            joined.push(b' ');
            joined.extend_from_slice(callers);
        }
        let result = self.stack(b"-", cpu, tsc, &joined);
        self.joined = joined;
        result
    }

    #[inline]
    fn stack(&mut self, context: &[u8], cpu: u32, tsc: u64, stack: &[u8]) -> Result<(), (&'static str, BadNumber)> {
        let hash = stacks::hash(stack);
        let id = match self.stacks.find(stack, hash) {
            Some(id) => id,
            None => self.new_stack(stack, hash)?,
        };
        let traits = self.stacks.traits(id);
        self.book(context, cpu, tsc, id, traits);
        Ok(())
    }

    #[cold]
    fn new_stack(&mut self, stack: &[u8], hash: u64) -> Result<StackId, (&'static str, BadNumber)> {
        self.words.clear();
        for field in stack.split(|byte| *byte == b' ') {
            self.words.push(hex64(field).map_err(|bad| ("address", bad))?);
        }
        Ok(self.stacks.insert(stack, hash, Traits::of(&self.words)))
    }

    #[inline]
    fn book(&mut self, context: &[u8], cpu: u32, tsc: u64, stack: StackId, traits: Traits) {
        self.consumer.sample(&Sample { boot: self.boot, context, cpu, tsc, stack, traits });
        let (kernel, idle) = (traits.is_kernel(), traits.is_idle());
        match &mut self.region {
            Region::Batch(open) => {
                open.lines += 1;
                open.seen.add(tsc, kernel, idle);
                if open.cpu != Some(cpu) {
                    self.odd_cpu(cpu);
                }
            }
            _ => match self.free.get_mut(cpu as usize) {
                Some(seen) => seen.add(tsc, kernel, idle),
                None => self.first_on_cpu(cpu, tsc, kernel, idle),
            },
        }
    }

    #[cold]
    fn odd_cpu(&mut self, cpu: u32) {
        let (file, line) = (&self.file, self.line);
        self.problems
            .add(Kind::Note, || format!("{file}:{line}: sample of CPU {cpu} in the batch of another CPU; counted"));
    }

    #[cold]
    fn first_on_cpu(&mut self, cpu: u32, tsc: u64, kernel: bool, idle: bool) {
        if (cpu as usize) < FEW_CPUS {
            self.free.resize(cpu as usize + 1, Seen::default());
            self.free[cpu as usize].add(tsc, kernel, idle);
        } else {
            self.present_boot().cpus.entry(cpu).or_default().seen.add(tsc, kernel, idle);
        }
    }

    #[cold]
    fn malformed(&mut self, line: &[u8], field: &str, bad: BadNumber) {
        if let Region::Batch(open) = &mut self.region {
            open.lines += 1;
        }
        let (file, number) = (&self.file, self.line);
        self.problems.add(Kind::Sample, || format!("{file}:{number}: {field} {bad} in {}; line skipped", shown(line)));
    }

    /// The boot that the next line belongs to; makes the nameless one of Redox's old texts.
    pub(super) fn present_boot(&mut self) -> &mut Boot {
        if self.profile.boots.is_empty() {
            self.profile.boots.push(Boot::default());
        }
        &mut self.profile.boots[self.boot]
    }

    /// Books the samples outside any batch for the present boot.
    pub(super) fn flush_free(&mut self) {
        self.consumer.commit();
        for (cpu, seen) in std::mem::take(&mut self.free).into_iter().enumerate() {
            if seen.samples > 0 {
                self.present_boot().cpus.entry(cpu as u32).or_default().seen.merge(&seen);
            }
        }
    }
}

/// Place of the first space; fields are short, so eight bytes at a time without a call.
#[inline]
fn find_space(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut at = 0;
    while let Some(eight) = bytes[at..].first_chunk::<8>() {
        let differs = u64::from_le_bytes(*eight) ^ (ONES * b' ' as u64);
        let zero_byte = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if zero_byte != 0 {
            return Some(at + zero_byte.trailing_zeros() as usize / 8);
        }
        at += 8;
        if at >= 64 {
            return memchr::memchr(b' ', &bytes[at..]).map(|found| at + found);
        }
    }
    bytes[at..].iter().position(|byte| *byte == b' ').map(|found| at + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_space_is_found_at_every_place() {
        for len in 0..150 {
            for at in 0..=len {
                let mut bytes = vec![b'!'; len];
                bytes[at..].fill(b' ');
                assert_eq!(find_space(&bytes), (at < len).then_some(at), "{len} {at}");
            }
        }
        assert_eq!(find_space(b"\x1f\x21\xa0\x00\x20"), Some(4));
    }
}
