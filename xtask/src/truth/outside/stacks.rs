//! The stack of each sample beside the exact one at the same instruction.
//!
//! In: what `kprof-fold script` prints of the profile, and the lines that `kprof-qemu count --visits` has written, one
//! for each NMI. Sample and NMI with the same number on the same CPU belong together; their addresses must be the same.
//! Out: the samples of the counted interval, and the stacks that differ.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use elf::ElfBytes;
use elf::endian::LittleEndian;

use super::rows::Exact;
use super::{CPU, IDLE, NMI, SAME, START, SWITCH, TO_USER};
use crate::parts::Parts;
use crate::run;

/// What stands for all user code.
pub const USER: &str = "[user]";

/// Why stacks differ.
const SWITCHES: &str =
    "in the switch of stacks, after the new one is in use: the exact stack is the old one until it returns";
const NO_FRAME: &str = "a caller is missing: the function was compiled without a frame of its own";
const NEW_TASK: &str = "a task goes to user code for the first time, with an empty stack: the exact stack still has \
                        the functions that have started it and never go on";
const NEW_THREAD: &str = "a thread was switched to for the first time, and an interrupt came before its first \
                          instruction: it has an exact stack once it executes one";
const NMI_IS_OVER: &str = "the exact stack still has the handler of an earlier NMI, which came before the first \
                           instruction of another handler: it has returned, because a sample is an NMI";
const NOT_BEGUN: &str = "an interrupt came before the first instruction of a function that had been called: it is in \
                         the exact stack once it executes an instruction";
const NO_REASON: &str = "no reason is known";

/// A stack and the address it was taken at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    address: u64,
    /// Whether it is in the counted interval. A sample does not know.
    is_inside: bool,
    /// From the outermost function.
    pub frames: Vec<String>,
    /// Which of them were interrupted before their first instruction. An exact stack does not know.
    not_begun: Vec<usize>,
    /// Whether the address is the first of a function. An exact stack does not know.
    is_at_start: bool,
    /// Whether the kernel has emptied the stack here, to go to user code. An exact stack does not know.
    is_emptied: bool,
    /// The task's name. An exact stack does not know.
    pub task: String,
}

/// A stack without what only one side has: user code below the kernel's, and frames that are no functions.
pub fn normal<'a>(frames: &[&'a str]) -> Vec<&'a str> {
    let kernel: Vec<&str> = frames.iter().copied().filter(|frame| !is_marker(frame)).collect();
    if kernel.is_empty() { vec![USER] } else { kernel }
}

/// Whether this is a marker of an entry, or `[user]`.
fn is_marker(frame: &str) -> bool {
    is_interrupt(frame) || [USER, "[syscall"].iter().any(|begin| frame.starts_with(begin))
}

/// Whether this is the marker of an interrupt or an exception.
fn is_interrupt(frame: &str) -> bool {
    ["[interrupt ", "[exception "].iter().any(|begin| frame.starts_with(begin))
}

/// The samples of the CPU, in order.
pub fn samples(parts: &Parts, folder: &Path) -> Result<Vec<Stack>> {
    let mut fold = Command::new(&parts.fold);
    fold.args(["script", "--user", "--no-inline", "--quiet", "--cpu", CPU]);
    let text = run::output(fold.arg(folder.join("profiling.txt")).arg(folder.join("kernel")))?;
    let symbols = std::fs::read_to_string(folder.join("syms.txt"))?;
    let address = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
    let starts = symbols.lines().filter_map(address).collect();
    let to_user = symbols.lines().find(|line| line.split(' ').next_back() == Some(TO_USER)).and_then(address);
    let to_user = to_user.with_context(|| format!("no symbol {TO_USER}"))?;
    let kernel = std::fs::read(folder.join("kernel"))?;
    let kernel = ElfBytes::<LittleEndian>::minimal_parse(&kernel)?;
    let texts = text.split("\n\n").filter(|text| !text.trim().is_empty());
    let with_code = |sample: Stack| Stack {
        is_emptied: code(&kernel, sample.address).is_some_and(|code| is_way_to(code, sample.address, to_user)),
        ..sample
    };
    texts.map(|text| sample(text, &starts).map(with_code)).collect()
}

/// The bytes of the kernel from an address on.
fn code<'a>(kernel: &ElfBytes<'a, LittleEndian>, address: u64) -> Option<&'a [u8]> {
    let part =
        kernel.segments()?.iter().find(|part| (part.p_vaddr..part.p_vaddr + part.p_filesz).contains(&address))?;
    kernel.segment_data(&part).ok()?.get((address - part.p_vaddr) as usize..)
}

/// Whether the code at an address is the end of `enter_user`: `jmp TARGET`, or `mov rsp, REGISTER` and then this jump.
/// RBP is already that of the new stack.
fn is_way_to(code: &[u8], address: u64, target: u64) -> bool {
    let (code, address) = match code {
        // REX.W (with or without REX.R), mov r/m64, r64, to RSP.
        [0x48 | 0x4c, 0x89, mode, rest @ ..] if mode & 0xc7 == 0xc4 => (rest, address + 3),
        _ => (code, address),
    };
    let [0xe9, a, b, c, d, ..] = *code else { return false };
    (address + 5).wrapping_add_signed(i32::from_le_bytes([a, b, c, d]).into()) == target
}

/// A sample as it is printed. `starts`: where functions begin.
fn sample(text: &str, starts: &BTreeSet<u64>) -> Result<Stack> {
    let (mut address, mut frames, mut not_begun) = (None, Vec::new(), Vec::new());
    let head = text.lines().find(|line| !line.is_empty()).unwrap_or_default();
    let task = head.rsplitn(3, ' ').nth(2).unwrap_or_default().to_owned();
    for line in text.lines().filter_map(|line| line.strip_prefix('\t')) {
        let (at, rest) = line.split_once(' ').with_context(|| format!("{line}: no frame"))?;
        let at = u64::from_str_radix(at, 16)?;
        address.get_or_insert(at);
        if let Some(name) = rest.strip_suffix(" ([kernel])") {
            let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
            let name = name.with_context(|| format!("{line}: no name"))?;
            let is_interrupted = frames.last().is_some_and(|frame: &String| is_interrupt(frame));
            if is_interrupted && starts.contains(&at) {
                not_begun.push(frames.iter().filter(|frame| !is_marker(frame)).count());
            }
            // A marker's address is in the last page.
            frames.push(if at >> 12 == u64::MAX >> 12 { format!("[{name} ") } else { name.to_owned() });
        }
    }
    let names: Vec<&str> = frames.iter().rev().map(String::as_str).collect();
    let frames: Vec<String> = normal(&names).into_iter().map(str::to_owned).collect();
    // They were counted from the innermost one.
    not_begun.iter_mut().for_each(|number| *number = frames.len() - 1 - *number);
    let address = address.with_context(|| format!("{text}: no address"))?;
    let is_at_start = starts.contains(&address);
    Ok(Stack { address, is_inside: true, frames, not_begun, is_at_start, is_emptied: false, task })
}

/// The names of tasks by their numbers, as the profile has them.
pub fn tasks(folder: &Path) -> Result<BTreeMap<u64, String>> {
    let file = folder.join("profiling.txt");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let task = |line: &str| {
        let (id, name) = line.strip_prefix("# task id=")?.split_once(" name=")?;
        Some((u64::from_str_radix(id, 16).ok()?, name.to_owned()))
    };
    Ok(text.lines().filter_map(task).collect())
}

/// The exact stacks of the CPU's NMIs, in order.
pub fn visits(folder: &Path) -> Result<Vec<Stack>> {
    let file = folder.join("visits.txt");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut visits = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(5, ' ').collect();
        let [cpu, place, address, _, stack] = words[..] else { bail!("{}: {line}", file.display()) };
        if cpu == CPU {
            let frames: Vec<&str> = stack.split(';').collect();
            visits.push(Stack {
                address: u64::from_str_radix(address, 16)?,
                is_inside: place == "inside",
                frames: normal(&frames).into_iter().map(str::to_owned).collect(),
                not_begun: Vec::new(),
                is_at_start: false,
                is_emptied: false,
                task: String::new(),
            });
        }
    }
    Ok(visits)
}

/// How many instructions each sample stands for, outside of the idle task. The clock runs while the sampler works and
/// while the handler takes a sample, so what is left of an interval for the work is shorter after a sample that takes
/// longer: that of a deep stack, or of a function without a frame. In: the NMIs, with the exact counts; for a handler's
/// time, that of all NMIs with the same stack.
pub fn weights(visits: &[Stack], exact: &Exact) -> Vec<u64> {
    let mut visited: BTreeMap<&[String], u64> = BTreeMap::new();
    visits.iter().for_each(|visit| *visited.entry(&visit.frames).or_default() += 1);
    let is_idle = |frames: &[String]| frames.iter().any(|frame| frame == IDLE);
    // The sampler has less to do while this CPU is idle, so more of these intervals is left.
    let handlers: u64 = exact.handler.iter().filter(|(frames, _)| !is_idle(frames)).map(|(_, count)| count).sum();
    let at_work = visits.iter().filter(|visit| visit.is_inside && !is_idle(&visit.frames)).count() as u64;
    let left = (exact.shares.all + handlers) / at_work.max(1);
    let handler = |visit: &Stack| {
        exact.handler.get(&visit.frames).copied().unwrap_or(0) / visited.get(&visit.frames[..]).copied().unwrap_or(1)
    };
    let before = visits.first().into_iter().chain(visits);
    before.take(visits.len()).map(|visit| left.saturating_sub(handler(visit))).collect()
}

/// Samples beside exact stacks.
#[derive(Debug, Default)]
pub struct Compared {
    /// The samples of the interval outside of the idle task, as they were taken.
    pub inside: Vec<(Stack, u64)>,
    /// How many are of the idle task.
    pub idle: u64,
    /// After the end of the interval.
    after: u64,
    same: u64,
    /// How often they differ, by the reason, with an example.
    different: BTreeMap<&'static str, (u64, String)>,
}

/// Compares them one by one.
///
/// # Errors
/// If there are more or fewer samples than NMIs, or a sample has another address.
pub fn compare(samples: &[Stack], visits: &[Stack], weights: &[u64]) -> Result<Compared> {
    ensure!(samples.len() == visits.len(), "{} samples, and {} NMIs", samples.len(), visits.len());
    let mut compared = Compared::default();
    for (number, (sample, exact)) in samples.iter().zip(visits).enumerate() {
        let (at, expected) = (sample.address, exact.address);
        ensure!(at == expected, "sample {number} is at {at:x}, its NMI was at {expected:x}");
        if sample.frames == exact.frames {
            compared.same += 1;
        } else {
            let example = format!("{at:x} sampled {} | exact {}", sample.frames.join(";"), exact.frames.join(";"));
            compared.different.entry(reason(sample, &exact.frames)).or_insert((0, example)).0 += 1;
        }
        let weight = weights.get(number).copied().unwrap_or(0);
        match () {
            () if !exact.is_inside => compared.after += 1,
            () if sample.frames.iter().any(|frame| frame == IDLE) => compared.idle += 1,
            () => compared.inside.push((sample.clone(), weight)),
        }
    }
    Ok(compared)
}

/// Why a sample has another stack.
fn reason(sample: &Stack, exact: &[String]) -> &'static str {
    let sampled = &sample.frames[..];
    let is_without = |number: &usize| sampled[..*number].iter().chain(&sampled[*number + 1..]).eq(exact);
    let is_same_leaf = sampled.last() == exact.last();
    match (sampled, exact) {
        // The processor takes no NMI, and so no sample, until the one before has returned.
        _ if sampled.iter().eq(exact.iter().filter(|frame| *frame != NMI)) => NMI_IS_OVER,
        _ if sample.not_begun.iter().any(is_without) => NOT_BEGUN,
        ([.., leaf], _) if is_same_leaf && leaf == SWITCH => SWITCHES,
        ([leaf], [root, ..]) if is_same_leaf && (leaf == TO_USER || sample.is_emptied) && root == START => NEW_TASK,
        ([leaf], [exact]) if leaf == START && sample.is_at_start && exact.is_empty() => NEW_THREAD,
        ([callers @ .., _], [exact_callers @ .., _, _]) if is_same_leaf && callers == exact_callers => NO_FRAME,
        _ => NO_REASON,
    }
}

impl Compared {
    /// Prints what differs, and returns a message if that is too much.
    pub fn judge(&self, title: &str) -> Option<String> {
        let different: u64 = self.different.values().map(|(count, _)| count).sum();
        let all = self.same + different;
        let row = format!("{title}: {} of {all} samples have the exact stack, frame by frame", self.same);
        println!("{row}; {} in the idle task and {} after the end are not in the shares", self.idle, self.after);
        for (reason, (count, example)) in &self.different {
            println!("{count:>7}  {reason}; one of them is at {example}");
        }
        let is_unexplained = self.different.contains_key(NO_REASON);
        (is_unexplained || self.same as f64 / (all as f64) < SAME).then_some(row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(address: u64, frames: &[&str]) -> Stack {
        let frames = frames.iter().map(|&frame| frame.to_owned()).collect();
        let (not_begun, task) = (Vec::new(), String::new());
        Stack { address, is_inside: true, frames, not_begun, is_at_start: false, is_emptied: false, task }
    }

    #[test]
    fn a_sample_is_read_without_its_user_code_and_its_markers() {
        let text = "name 1 0.5:\n\tffffffff80000010 [core::f<[T]>] ([kernel])\n\tffffffff80000020 [trap] ([kernel])
\tfffffffffffff20e [exception 14] ([kernel])\n\t461856 [unknown] ([user])";
        let sample = |text: &str| sample(text, &BTreeSet::new());
        let of = |task: &str, stack: Stack| Stack { task: task.to_owned(), ..stack };
        assert_eq!(sample(text).unwrap(), of("name", stack(0xffff_ffff_8000_0010, &["trap", "core::f<[T]>"])));
        let user = sample("a b 1 0.5:\n\t461856 [unknown] ([user])");
        assert_eq!(user.unwrap(), of("a b", stack(0x46_1856, &[USER])));
        assert!(sample("name 1 0.5:").is_err());
    }

    #[test]
    fn a_function_that_had_not_begun_may_be_missing_in_the_exact_stack_and_no_other() {
        let text = "name 1 0.5:\n\tffffffff80000014 [handler] ([kernel])\n\tfffffffffffff120 [interrupt 32] ([kernel])
\tffffffff80000020 [f] ([kernel])\n\tffffffff80000035 [main] ([kernel])";
        let exact = [stack(0xffff_ffff_8000_0014, &["main", "handler"])];
        for (start, reason) in [(0xffff_ffff_8000_0020, NOT_BEGUN), (0xffff_ffff_8000_001f, NO_REASON)] {
            let sample = sample(text, &BTreeSet::from([start])).unwrap();
            assert_eq!(sample.frames, ["main", "f", "handler"]);
            let different = compare(&[sample], &exact, &[]).unwrap().different;
            assert_eq!(different.into_keys().collect::<Vec<_>>(), [reason]);
        }
    }

    #[test]
    fn only_the_end_of_the_way_to_user_code_has_an_empty_stack() {
        // mov rsp, rbx; jmp 0x1000, at 0x2000, and the same with r14.
        let jump = |from: u64| [&[0xe9][..], &(0x1000_i32 - from as i32 - 5).to_le_bytes()].concat();
        for moves in [[0x48, 0x89, 0xdc], [0x4c, 0x89, 0xf4]] {
            let code = [&moves[..], &jump(0x2003)].concat();
            assert!(is_way_to(&code, 0x2000, 0x1000) && is_way_to(&code[3..], 0x2003, 0x1000));
            assert!(!is_way_to(&code, 0x2000, 0x1001) && !is_way_to(&code[..6], 0x2000, 0x1000));
        }
        // mov rbp, r14 comes before it: there the stack is whole.
        let whole = [&[0x4c, 0x89, 0xf5, 0x48, 0x89, 0xdc][..], &jump(0x2006)].concat();
        assert!(!is_way_to(&whole, 0x2000, 0x1000));
    }

    #[test]
    fn a_sample_after_one_that_took_long_stands_for_less_work() {
        let visits = [stack(1, &["f"]), stack(2, &["g"]), stack(3, &["g"])];
        let mut exact = Exact::default();
        exact.shares.all = 2_700;
        exact.handler = BTreeMap::from([(vec!["f".to_owned()], 200), (vec!["g".to_owned()], 100)]);
        assert_eq!(weights(&visits, &exact), [800, 800, 950]);
        // A tick in the idle task takes nothing from the work.
        let idle = stack(4, &[IDLE]);
        exact.handler.insert(idle.frames.clone(), 70);
        assert_eq!(weights(&[&visits[..], &[idle]].concat(), &exact), [800, 800, 950, 950]);
    }

    #[test]
    fn a_frame_that_is_missing_is_found_and_another_address_is_an_error() {
        let exact = [stack(1, &["main", "f", "g"]), stack(2, &["main"])];
        let compared = compare(&[stack(1, &["main", "g"]), exact[1].clone()], &exact, &[]).unwrap();
        assert_eq!((compared.same, compared.inside.len()), (1, 2));
        assert!(compared.different.contains_key(NO_FRAME));
        assert!(compared.judge("").is_some());
        let reasons =
            compare(&[stack(1, &["g"]), stack(1, &["g", SWITCH])], &[exact[0].clone(), stack(1, &[SWITCH])], &[]);
        assert_eq!(reasons.unwrap().different.into_keys().collect::<Vec<_>>(), [SWITCHES, NO_REASON]);
        let new = compare(&[stack(1, &[TO_USER])], &[stack(1, &[START, "run", TO_USER])], &[]).unwrap();
        assert_eq!(new.different.into_keys().collect::<Vec<_>>(), [NEW_TASK]);
        let cut = compare(&[stack(1, &["run", TO_USER])], &[stack(1, &[START, "run", TO_USER])], &[]).unwrap();
        assert_eq!(cut.different.into_keys().collect::<Vec<_>>(), [NO_REASON]);
        let lost = compare(&[stack(1, &[TO_USER])], &[stack(1, &["syscall_entry", "f", TO_USER])], &[]).unwrap();
        assert_eq!(lost.different.into_keys().collect::<Vec<_>>(), [NO_REASON]);
        let emptied = Stack { is_emptied: true, ..stack(1, &["run_user"]) };
        let exact_of_emptied = [stack(1, &[START, "run", "run_user"])];
        let new = compare(std::slice::from_ref(&emptied), &exact_of_emptied, &[]).unwrap();
        assert_eq!(new.different.into_keys().collect::<Vec<_>>(), [NEW_TASK]);
        let cut = compare(&[Stack { is_emptied: false, ..emptied }], &exact_of_emptied, &[]).unwrap();
        assert_eq!(cut.different.into_keys().collect::<Vec<_>>(), [NO_REASON]);
        let first = |is_at_start| {
            let sample = Stack { is_at_start, ..stack(1, &[START]) };
            compare(&[sample], &[stack(1, &[""])], &[]).unwrap().different.into_keys().collect::<Vec<_>>()
        };
        assert_eq!([first(true), first(false)], [[NEW_THREAD], [NO_REASON]]);
        let over = compare(&[stack(1, &["main", "trap"])], &[stack(1, &["main", NMI, "trap"])], &[]).unwrap();
        assert_eq!(over.different.into_keys().collect::<Vec<_>>(), [NMI_IS_OVER]);
        assert!(compare(&[stack(3, &["main"])], &exact[1..], &[]).is_err());
        assert!(compare(&[], &exact, &[]).is_err());
    }
}
