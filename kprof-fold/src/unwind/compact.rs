//! Makes the compact unwind table that goes into a kernel. Stage: unwind tables.
//!
//! In: the kernel's ELF file for x86_64. Out: the bytes of `kprof_format::unwind`, and what to say of them. Each table
//! is read back and compared at every instruction of every described function. What the table cannot say becomes a row
//! at which a stack is truncated; nothing is guessed.

use super::assembly::{keeps_stack_pointer, popped_at_once};
use super::described::{Cfa, Described, Place, Row};
use crate::error::Error;
use iced_x86::{Decoder, DecoderOptions};
use kprof_format::unwind::{
    BLOCK, Base, GROUP, MAX_BUILD_ID, PUSHFQ, Rule, SECTION, STAIR, Saved, Table, header, seal, step,
};
use object::{Architecture, Object, ObjectSection, SectionKind};
use std::collections::BTreeMap;
use std::ops::Range;

/// Executable sections that are further apart than this do not share a table: code of the boot is left out.
const MAX_GAP: u64 = 1 << 20;
/// The most padding between two functions.
const MAX_PADDING: u64 = 15;
/// The rule of a stair that has ended is looked up without counting pushes from here on.
const LONG: u64 = 16;

/// A table.
#[derive(Clone, Debug)]
pub struct Compact {
    /// Its bytes; as many as the kernel's reserved section has, if it has one.
    pub bytes: Vec<u8>,
    /// How many of them are the table.
    pub used: usize,
    /// The bytes of code that it is for.
    pub text: u64,
    /// How many rows it has.
    pub rows: usize,
    /// How many functions it describes.
    pub functions: usize,
    /// How many functions move the stack pointer without saying so, and are left out.
    pub left_out: usize,
}

/// The rule from an address on.
type Step = (u64, Rule);

/// Makes the table of a kernel; `file` is its name for errors.
///
/// # Errors
/// If the file has no unwind information or no build id, or its reserved section is too small.
pub fn compact(file: &str, data: &[u8]) -> Result<Compact, Error> {
    let unusable = |why: String| Error::unusable(file, why);
    let image = object::File::parse(data).map_err(|error| unusable(format!("is no ELF file: {error}")))?;
    if image.architecture() != Architecture::X86_64 {
        return Err(unusable(format!("is for {:?}; unwind tables are made for x86_64 only", image.architecture())));
    }
    let id = image.build_id().ok().flatten().filter(|id| (1..=MAX_BUILD_ID).contains(&id.len())).ok_or_else(|| {
        unusable("has no build id, by which the kernel recognizes its table; link with --build-id=sha1".to_owned())
    })?;
    let described = Described::read(data).map_err(|error| unusable(error.to_string()))?;
    let code = Code::of(&image);
    let (steps, functions, left_out) = steps(described, &code);
    if functions == 0 {
        return Err(unusable(
            "has neither .eh_frame nor .debug_frame with functions of its code; build it with \
             -C force-unwind-tables=yes, and keep .eh_frame in the linker script"
                .to_owned(),
        ));
    }
    let make = |told: &[Step]| {
        let rows = rows(told, &code);
        let bytes = bytes(&rows, id, &code).ok_or_else(|| unusable("has too many different frames".to_owned()))?;
        let wrong = wrong(&bytes, id, &steps, &code);
        Ok::<_, Error>((rows.len(), bytes, wrong))
    };
    let mut told = told(&steps, &code);
    let (_, _, explicit) = make(&told)?;
    told.extend(explicit);
    told.sort_by_key(|(at, _)| *at);
    let (rows, mut bytes, wrong) = make(&told)?;
    if let Some((at, _)) = wrong.first() {
        return Err(unusable(format!("its table would be wrong at {at:#x}")));
    }
    let used = bytes.len();
    if let Some(section) = image.section_by_name(SECTION) {
        let room = section.size() as usize;
        if used > room {
            return Err(unusable(format!(
                "its section {SECTION} has {room} bytes, and the table needs {used}: reserve some more and link again"
            )));
        }
        bytes.resize(room, 0);
    }
    Ok(Compact { bytes, used, text: code.bytes(), rows, functions, left_out })
}

/// The executable sections around the largest one, by address.
struct Code<'a> {
    sections: Vec<(Range<u64>, &'a [u8])>,
}

impl<'a> Code<'a> {
    fn of(image: &object::File<'a>) -> Self {
        let executable = image.sections().filter(|section| section.kind() == SectionKind::Text && section.size() > 0);
        let piece = |section: object::Section<'a, '_>| {
            Some((section.address()..section.address().checked_add(section.size())?, section.data().ok()?))
        };
        let mut sections: Vec<_> = executable.filter_map(piece).collect();
        sections.sort_by_key(|(range, _)| range.start);
        let apart = |pair: &[(Range<u64>, &[u8])]| pair[1].0.start.saturating_sub(pair[0].0.end) > MAX_GAP;
        let runs = sections.chunk_by(|a, b| !apart(&[a.clone(), b.clone()]));
        let size = |run: &&[(Range<u64>, &[u8])]| run.iter().map(|(range, _)| range.end - range.start).sum::<u64>();
        let sections = runs.max_by_key(size).unwrap_or_default().to_vec();
        Self { sections }
    }

    fn bytes(&self) -> u64 {
        self.sections.iter().map(|(range, _)| range.end - range.start).sum()
    }

    /// The code of a range, if one section has it.
    fn get(&self, range: Range<u64>) -> Option<&'a [u8]> {
        let (section, bytes) = self.sections.iter().find(|(section, _)| section.contains(&range.start))?;
        bytes.get((range.start - section.start) as usize..(range.end.checked_sub(section.start)?) as usize)
    }

    /// Two bytes, for [`step`]; zeros where there is no code.
    fn two(&self, address: u64) -> [u8; 2] {
        let byte = |at: u64| self.get(at..at.saturating_add(1)).map_or(0, |code| code[0]);
        [byte(address), byte(address.saturating_add(1))]
    }

    /// Whether nothing but padding is in a range.
    fn is_padding(&self, range: Range<u64>) -> bool {
        let is_padding = |code: &[u8]| {
            let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
            decoder.iter().all(|it| matches!(it.mnemonic(), iced_x86::Mnemonic::Nop | iced_x86::Mnemonic::Int3))
        };
        range.end - range.start <= MAX_PADDING && self.get(range).is_some_and(is_padding)
    }
}

/// The rules by address, and how many functions they are of, and how many are left out.
fn steps(described: Described, code: &Code<'_>) -> (Vec<Step>, usize, usize) {
    let mut steps: Vec<Step> = Vec::new();
    let (mut functions, mut left_out, mut end_before, mut popped) = (0, 0, 0, Vec::new());
    for (start, (end, rows)) in described.functions {
        let Some(body) = code.get(start..end) else { continue };
        // Functions that overlap: nobody knows.
        steps.truncate(steps.partition_point(|(at, _)| *at < start));
        if start > end_before && end_before > 0 && !code.is_padding(end_before..start) {
            steps.push((end_before, Rule::NONE));
        }
        end_before = end;
        let is_wrong = matches!(rows[..], [Row { cfa: Cfa::Stack(_), .. }]) && !keeps_stack_pointer(body, start);
        match is_wrong {
            true => steps.push((start, Rule::NONE)),
            false => steps.extend(rows.iter().map(|row| (row.start, rule(row)))),
        }
        popped.extend(popped_at_once(body, start));
        let counted = if is_wrong { &mut left_out } else { &mut functions };
        *counted += 1;
    }
    steps.push((end_before, Rule::NONE));
    // Of several rows at one address the last counts; a row that says what the one before says is none.
    steps.reverse();
    steps.dedup_by_key(|(at, _)| *at);
    steps.reverse();
    steps.dedup_by_key(|(_, rule)| *rule);
    let more: Vec<Step> = popped.into_iter().filter_map(|pair| pushed(&steps, pair)).flatten().collect();
    steps.extend(more);
    steps.sort_by_key(|(at, _)| *at);
    (steps, functions, left_out)
}

/// The steps of inline assembly that pushes a word and pops it, if they are not described.
fn pushed(steps: &[Step], (after_push, after_pop): (u64, u64)) -> Option<[Step; 2]> {
    let next = steps.partition_point(|(at, _)| *at < after_push);
    let (_, rule) = *steps.get(next.checked_sub(1)?)?;
    let is_described = steps.get(next).is_some_and(|(at, _)| *at <= after_pop);
    let more = more(rule)?;
    (!is_described).then_some([(after_push, more), (after_pop, rule)])
}

/// The rule of a row, if a table can say it.
fn rule(row: &Row) -> Rule {
    let bytes = |offset: i64| u32::try_from(offset).ok();
    let base = match row.cfa {
        Cfa::Stack(offset) => bytes(offset).map(Base::Stack),
        Cfa::Frame(offset) => bytes(offset).map(Base::Frame),
        Cfa::Outermost => Some(Base::Outermost),
        Cfa::Unknown => None,
    };
    let frame = match row.frame {
        Place::Same => Saved::Same,
        Place::At(offset) => offset.checked_neg().and_then(bytes).map_or(Saved::Lost, Saved::Below),
        Place::Lost => Saved::Lost,
    };
    base.map(|base| Rule { base, frame }).filter(|rule| rule.encode().is_some()).unwrap_or(Rule::NONE)
}

/// The steps that a table must say: those of `pushfq; pop` it need not.
fn told(steps: &[Step], code: &Code<'_>) -> Vec<Step> {
    let mut told: Vec<Step> = Vec::new();
    let mut steps = steps.iter().copied().peekable();
    while let Some((at, rule)) = steps.next() {
        let before = told.last().map(|(_, before)| *before);
        let pop = step(code.two(at)).filter(|(_, moved)| *moved == -8 && code.two(at - 1)[0] == PUSHFQ);
        let is_seen = pop.zip(before).is_some_and(|((length, _), before)| {
            more(before) == Some(rule) && steps.peek() == Some(&(at + length, before))
        });
        match is_seen {
            true => _ = steps.next(),
            false => told.push((at, rule)),
        }
    }
    told
}

/// The rule after a word was pushed.
fn more(rule: Rule) -> Option<Rule> {
    let Base::Stack(distance) = rule.base else { return None };
    Some(Rule { base: Base::Stack(distance + 8), ..rule })
}

/// The rows: an address, its rule, and whether it is a stair. A stair takes the place of the rows that follow from the
/// pushes and pops in the code, up to the end of the block.
fn rows(steps: &[Step], code: &Code<'_>) -> Vec<(u64, Rule, bool)> {
    let mut rows = Vec::new();
    let block = |at: u64| at / BLOCK;
    let mut first = 0;
    while let Some((start, rule)) = steps.get(first).copied() {
        let (mut next, mut at, mut here) = (first + 1, start, rule);
        while let (Base::Stack(distance), Some((length, moved))) = (here.base, step(code.two(at))) {
            at += length;
            here.base = Base::Stack(distance.saturating_add_signed(moved));
            if steps.get(next) != Some(&(at, here)) || block(at) != block(start) {
                break;
            }
            next += 1;
        }
        let is_stair = next > first + 1;
        rows.push((start, rule, is_stair));
        let last = steps[next - 1];
        let after = steps.get(next).map_or(last.0, |(at, _)| *at);
        if is_stair && (after - last.0 > LONG || block(after) != block(start)) {
            rows.push((last.0, last.1, false));
        }
        first = next;
    }
    rows
}

/// The bytes of the table; `None` if there are too many rules.
fn bytes(rows: &[(u64, Rule, bool)], id: &[u8], code: &Code<'_>) -> Option<Vec<u8>> {
    let start = code.sections.first().map_or(0, |(range, _)| range.start) / BLOCK * BLOCK;
    let end = code.sections.last().map_or(0, |(range, _)| range.end);
    let blocks = (end - start).div_ceil(BLOCK) as usize;
    let mut numbers = BTreeMap::new();
    for (_, rule, _) in rows {
        let next = numbers.len();
        numbers.entry(rule.encode()?).or_insert(next);
    }
    if numbers.len() >= usize::from(STAIR) {
        return None;
    }
    let mut rules = vec![0; numbers.len()];
    numbers.iter().for_each(|(word, number)| rules[*number] = *word);
    let first_rows: Vec<usize> =
        (0..=blocks as u64).map(|block| rows.partition_point(|(at, ..)| *at < start + block * BLOCK)).collect();
    let groups: Vec<usize> = (0..=blocks / GROUP).map(|group| first_rows[group * GROUP]).collect();
    let mut table = header(start, blocks as u32, rows.len() as u32, rules.len() as u16, id).to_vec();
    table.extend(rules.iter().flat_map(|word| word.to_le_bytes()));
    table.extend(groups.iter().flat_map(|row| (*row as u32).to_le_bytes()));
    let within = |(block, row): (usize, &usize)| ((row - groups[block / GROUP]) as u16).to_le_bytes();
    table.extend(first_rows.iter().enumerate().flat_map(within));
    for (at, rule, is_stair) in rows {
        let number = *numbers.get(&rule.encode()?)? as u16 | if *is_stair { STAIR } else { 0 };
        let [low, high] = number.to_le_bytes();
        table.extend([(at % BLOCK) as u8, low, high]);
    }
    seal(&mut table);
    Some(table)
}

/// Reads the table back: at each instruction it must say what the steps say. Returns where it does not, and what it
/// should say.
fn wrong(bytes: &[u8], id: &[u8], steps: &[Step], code: &Code<'_>) -> Vec<Step> {
    let Ok(table) = Table::new(bytes, id, 0) else { return vec![(0, Rule::NONE)] };
    let mut wrong = Vec::new();
    for pair in steps.windows(2) {
        let [(start, expected), (end, _)] = [pair[0], pair[1]];
        let Some(body) = code.get(start..end) else { continue };
        let instructions = Decoder::with_ip(64, body, start, DecoderOptions::NONE).into_iter();
        let instructions = instructions.map(|instruction| (instruction.ip(), expected));
        wrong.extend(instructions.filter(|(at, _)| table.rule_at(*at, |at| code.two(at)) != expected));
    }
    wrong
}
