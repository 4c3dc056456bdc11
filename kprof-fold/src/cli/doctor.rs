//! `doctor`: finds what is wrong with a kernel and its profile. Stage: command line.
//!
//! In: a profile and the kernel's ELF file or symbols. Out: a line per finding, each with what to do. The exit code is
//! 1 if there is a finding.

use super::args::{Doctor, Input, TableFormat};
use super::causes;
use super::clocks;
use super::compat::Output;
use super::event::refuse_verb;
use super::load::{self, Opened};
use super::out::{with_output, write_failed};
use super::placing;
use super::prologue::sets_frame_pointer;
use crate::error::Error;
use crate::fold::Folder;
use crate::fold::frames::UNKNOWN;
use crate::output::{lockups, self_cost};
use crate::problems::Problems;
use crate::profile::{Boot, Counters, counted};
use crate::symbols::Symbols;
use crate::symbols::name::visible_lines;
use crate::tally::{By, Tally};
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use serde_json::json;

/// Exit code: something is wrong.
const ILL: u8 = 1;
/// Only functions of at least this many bytes are checked, because small ones need no frame.
const LARGE_BYTES: u64 = 64;

/// `doctor`.
pub fn run(args: &Doctor) -> Result<u8, Error> {
    let Doctor { input, choice, .. } = args;
    let why = "it checks a kernel and a whole profile. latency shows whether the account of a point is balanced";
    refuse_verb(choice, "doctor", why)?;
    let format = TableFormat::of(args.format, input.output.as_deref())?;
    let forced = Input { force: true, quiet: true, ..input.clone() };
    let opened = load::open(&forced, choice, Output::Other, |select| Tally::new(select.clone(), By::None));
    let (found, limited) = match opened {
        Ok((opened, tally)) => {
            let samples = tally.counts().iter().map(|count| count.samples as usize).sum();
            (findings(&opened, &tally), opened.exit_code(input.limits(), samples))
        }
        // An unusable profile is a finding here, not an error. The kernel image is checked nevertheless.
        Err(Error::Unusable { file, why }) => {
            let mut found = vec![format!("{file}: {why}")];
            if let (true, Ok(symbols)) = (file != input.syms, Symbols::open(&input.syms, &mut Problems::default())) {
                frame_pointers(&symbols, &mut found);
            }
            (found, 0)
        }
        Err(error) => return Err(error),
    };
    let text = match format {
        TableFormat::Text if found.is_empty() => "nothing is wrong\n".to_owned(),
        TableFormat::Text => visible_lines(&found.iter().map(|line| format!("- {line}\n")).collect::<String>()).into(),
        TableFormat::Json => format!("{:#}\n", json!({ "findings": found })),
        TableFormat::Csv => csv(&found).map_err(|error| Error::io("memory", "write", error))?,
    };
    with_output(input, |out| out.write_all(text.as_bytes()).map_err(|error| write_failed(input, error)))?;
    // If a limit that the user gave is exceeded, its exit code takes precedence over that of a finding.
    Ok(if limited == 0 && !found.is_empty() { ILL } else { limited })
}

fn csv(found: &[String]) -> std::io::Result<String> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(["finding"])?;
    found.iter().try_for_each(|line| csv.write_record([line]))?;
    let bytes = csv.into_inner().map_err(csv::IntoInnerError::into_error)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn findings(opened: &Opened, tally: &Tally) -> Vec<String> {
    let mut found = Vec::new();
    for boot in &opened.profile.boots {
        if let Some(why) = causes::anchor_outside_text(boot).filter(|_| !causes::is_outside(boot)) {
            found.push(why);
        } else if let Err(why) = placing::fits(&opened.profile, boot, &opened.symbols) {
            found.push(format!("wrong kernel image: {why}. Give the image that ran"));
        }
        cpus(boot, &mut found);
        found.extend(clocks::faults(boot));
        clock(boot, boot.tsc_hz().map(|hz| hz as f64).or(opened.tsc_hz), &mut found);
        found.extend(boot.lockups.iter().map(|lockup| {
            let sentence = lockups::sentence_with_function(lockup, &opened.symbols, opened.tsc_hz);
            format!("{sentence}; `kprof-fold lockups` has the stacks of all CPUs")
        }));
    }
    causes::stacks(opened, tally, &mut found);
    if let Some(why) =
        opened.doubt.as_ref().filter(|_| !found.iter().any(|line| line.contains("outside of the kernel")))
    {
        found.push(format!("wrong kernel image? {why}. Give the image that ran"));
    } else {
        found.extend(opened.profile.doubts.iter().cloned());
    }
    for cpu in &opened.account.cpus {
        // If the handler is never reached, all ticks stay pending. That finding has already been reported.
        if cpu.find(Counter::Taken) != Some(0) {
            found.extend(cpu.faults.iter().map(|fault| format!("the account does not balance: {fault}")));
        }
    }
    // Of samples from outside the stacks themselves show it: the kernel may have unwind tables.
    if !opened.profile.boots.iter().all(causes::is_outside) {
        frame_pointers(&opened.symbols, &mut found);
    }
    unknown(opened, tally, &mut found);
    losses(opened, &mut found);
    if opened.problems.skipped() > 0 {
        found.push(format!(
            "the file is damaged: {} pieces were skipped; `kprof-fold info` names them",
            opened.problems.skipped()
        ));
    }
    found
}

fn cpus(boot: &Boot, found: &mut Vec<String>) {
    let sampler = boot.number(Fact::Sampler);
    for cpu in 0..boot.number(Fact::Cpus).unwrap_or(0).min(4096) {
        let counters = boot.cpus.get(&(cpu as u32));
        let get = |counter| counters.and_then(|cpu| counted(cpu.account.as_ref().unwrap_or(&cpu.batch), counter));
        match (get(Counter::Sent), get(Counter::Taken)) {
            _ if Some(cpu) == sampler => {}
            (None, _) if counters.is_none_or(|cpu| cpu.seen.samples() == 0) => {
                found.push(format!(
                    "no samples from CPU {cpu}: is it registered with the profiler after its IDT is loaded?"
                ));
            }
            (Some(sent), Some(0)) if sent > 0 => {
                found.push(format!("CPU {cpu} was sent {sent} ticks and took none: {}", causes::not_reached(boot)));
            }
            _ => {}
        }
    }
    // Profiles from Redox's raw words have no such header keys, so nothing is missing there.
    if boot.fact(Fact::Trigger).is_some()
        && boot.anchors.is_empty()
        && boot.fact(Fact::BuildId).is_none_or(|id| id == "-")
    {
        let what_to_do = if causes::is_outside(boot) { ". Record with --kernel" } else { "" };
        found.push(format!(
            "the header has neither anchors nor a build id: symbols of another build would go unnoticed{what_to_do}"
        ));
    }
}

fn clock(boot: &Boot, tsc_hz: Option<f64>, found: &mut Vec<String>) {
    let Some(hz) = tsc_hz else {
        return found.push("no TSC clock in the header: times cannot be shown without giving GHZ".to_owned());
    };
    // The clocks of other processors than x86_64 are counters of their timers.
    let slowest = if boot.fact(Fact::Arch).is_none_or(|arch| arch == "x86_64") { 1e8 } else { 5e5 };
    if !(slowest..1e10).contains(&hz) {
        found.push(format!("a TSC clock of {hz} Hz is odd: was it calibrated?"));
    }
    let reached = boot.cpus.values().filter_map(|cpu| cpu.ticks.rate(hz, &boot.settings)).max_by(f64::total_cmp);
    // With several rates there is none that could be reached all the time.
    let mut rates = boot.rates((0, u64::MAX)).into_iter();
    let (Some(rate), None, Some(reached)) = (rates.next(), rates.next(), reached) else { return };
    if reached < 0.8 * rate as f64 {
        let why = causes::slow(boot);
        found.push(format!("the rate was not reached: {reached:.0} instead of {rate} ticks a second; {why}"));
    }
}

fn frame_pointers(symbols: &Symbols, found: &mut Vec<String>) {
    let Some(elf) = &symbols.elf else { return };
    let large =
        (0..symbols.table.len()).map(|number| symbols.table.get(number)).filter(|symbol| symbol.size >= LARGE_BYTES);
    let code = large.filter_map(|symbol| elf.code(symbol.start));
    let (mut all, mut with) = (0usize, 0usize);
    for code in code {
        all += 1;
        with += usize::from(sets_frame_pointer(elf.arch, code));
    }
    if all > 0 && with * 2 < all {
        found.push(format!(
            "frame pointers are missing: {with} of {all} functions set one. Build with -C force-frame-pointers=yes, core and alloc too"
        ));
    }
}

fn unknown(opened: &Opened, tally: &Tally, found: &mut Vec<String>) {
    let Opened { symbols, stacks, select, .. } = opened;
    let folded = Folder { symbols, stacks, select, by: By::None, groups: &[] }.fold(&tally.counts());
    let all = folded.samples();
    let is_unknown = |frames: &[u32]| frames.last().is_some_and(|frame| folded.frames.name(*frame) == UNKNOWN);
    let unknown: u64 =
        folded.stacks.iter().filter(|stack| is_unknown(folded.frames_of(stack))).map(|stack| stack.samples).sum();
    if all == 0 && opened.profile.is_user_only() {
        found.push(format!("all {} samples are of user code: --user shows them", opened.profile.samples()));
    } else if all == 0 {
        found.push("no kernel sample at all: did the recording run, and was there work in the kernel?".to_owned());
    } else if unknown * 5 > all {
        let why = match opened.profile.boots.iter().all(causes::is_outside) {
            true => "firmware and a boot loader, or the kernel of another file?",
            false => "wrong image, or wrong load address?",
        };
        found.push(format!("{unknown} of {all} samples are in no known function: {why}"));
    }
}

fn losses(opened: &Opened, found: &mut Vec<String>) {
    let (missing, (samples, lost)) = (opened.profile.missing(), opened.profile.kept_and_lost());
    let lost = lost.saturating_sub(missing);
    if missing > 0 {
        found.push(format!(
            "the file is damaged: {missing} samples that were delivered cannot be read, beside {samples} that can; record again, or \
             copy the file again"
        ));
    }
    if lost > samples.saturating_add(lost) / 100 {
        let why = match opened.account.losses_in_words() {
            reasons if reasons.is_empty() => String::new(),
            reasons => format!(" ({reasons})"),
        };
        found.push(format!("{lost} samples were lost and {samples} kept{why}: the ring is too small, the rate too high or the daemon too slow"));
    }
    // The number of sent ticks is in the final account, which an interrupted recording does not have.
    let sum = |counter| opened.account.sum(counter);
    let (coalesced, sent) =
        (sum(Counter::Coalesced), sum(Counter::Sent).max(sum(Counter::Taken).saturating_add(sum(Counter::Coalesced))));
    if coalesced > sent / 5 {
        let mut counters = Counters::new();
        for counter in [Counter::SelfTsc, Counter::Taken] {
            counters.insert(counter.name().to_owned(), sum(counter));
        }
        let cost = self_cost::of(&opened.profile, &opened.account);
        let why = causes::coalesced(opened.profile.boots.last(), &counters, &cost);
        found.push(format!("{coalesced} of {sent} ticks coalesced: {why}"));
    }
}
