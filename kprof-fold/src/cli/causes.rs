//! Causes that `doctor` names: which part of the port causes truncated stacks, a low rate, coalesced ticks or wrong
//! addresses. Stage: command line.
//!
//! In: the header, the counters and the stacks of a profile. Out: a line per cause, each with what to do. A cause is
//! only named if the numbers show it.

use super::load::Opened;
use crate::output::self_cost::SelfCost;
use crate::profile::{Boot, Counters, counted};
use crate::symbols::users::plain;
use crate::tally::Tally;
use kprof_format::counter::Counter;
use kprof_format::fact::Fact;
use kprof_format::marker::{Marker, TruncationReason};

/// Truncated stacks are reported from this share of all stacks on, in percent.
const TRUNCATED_PERCENT: u64 = 20;
/// Stacks that end in an entry stub are reported from this share of all stacks on, in percent. The share is low because
/// few samples are taken in a stub or in an interrupt.
const ENTRY_PERCENT: u64 = 2;
/// Fewer samples than this prove nothing.
const MIN: u64 = 10;
/// A handler that takes less than this share of the interval, in percent, is not the cause of coalesced ticks.
const HANDLER_PERCENT: u64 = 25;

/// How many stacks of kernel samples are truncated, by reason.
#[derive(Default)]
struct Truncated {
    all: u64,
    by_reason: [u64; TruncationReason::ALL.len()],
    /// Of those with [`TruncationReason::Range`]: stacks that have only the interrupted instruction.
    at_once: u64,
    /// The number of first addresses outside the kernel's text; `example` is one of them.
    outside: u64,
    example: u64,
}

/// Whether the samples were taken from outside: then the kernel has no port, of which a part could be the cause.
pub fn is_outside(boot: &Boot) -> bool {
    boot.trigger() == Some("outside")
}

/// Adds the causes that stacks show.
pub fn stacks(opened: &Opened, tally: &Tally, found: &mut Vec<String>) {
    let mut seen = Truncated::default();
    let mut words = Vec::new();
    let text = text_of(&opened.profile.boots);
    for count in tally.counts() {
        opened.stacks.words(count.stack, &mut words);
        if words.first().is_some_and(|first| first >> 63 == 1) {
            seen.add(&words, count.samples, text);
        }
    }
    if opened.profile.boots.iter().all(is_outside) { seen.say_outside(found) } else { seen.say(found) }
}

/// Why no tick arrives, by processor and trigger, and what the trigger that is left does not see.
pub fn not_reached(boot: &Boot) -> String {
    const LEFT: &str =
        "The trigger ipi needs none of this, and has no samples of code that runs with interrupts masked";
    match (boot.trigger().unwrap_or("nmi"), boot.fact(Fact::Arch).unwrap_or("x86_64")) {
        ("nmi", "aarch64") => format!(
            "its FIQ entry is not reached. Does the core mask FIQs, or does the GIC give the kernel no group 0? {LEFT}"
        ),
        ("nmi", "riscv64") => format!(
            "machine-mode software interrupts do not reach the kernel. Is there code in machine mode that hands them \
             over? {LEFT}"
        ),
        ("nmi", _) => "its NMI entry is not reached".to_owned(),
        (trigger, _) => format!("no interrupt of the trigger {trigger} arrives. Are interrupts ever unmasked there?"),
    }
}

/// The range of the kernel's code, if that is the only code: it is the same in all boots, and there are no modules.
fn text_of(boots: &[Boot]) -> Option<(u64, u64)> {
    let texts: Vec<_> = boots.iter().map(Boot::text).collect();
    let is_all = boots.iter().all(|boot| boot.images.iter().all(|image| image.name == b"kernel"));
    texts.first().copied().flatten().filter(|first| is_all && texts.iter().all(|text| *text == Some(*first)))
}

impl Truncated {
    fn add(&mut self, words: &[u64], samples: u64, text: Option<(u64, u64)>) {
        self.all += samples;
        let first = words[0];
        if Marker::decode(first).is_none() && text.is_some_and(|(from, to)| !(from..to).contains(&first)) {
            self.outside += samples;
            self.example = first;
        }
        let Some(Marker::Truncated(Ok(reason))) = words.last().and_then(|word| Marker::decode(*word)) else { return };
        self.by_reason[reason as usize - 1] += samples;
        let frames = words.iter().filter(|word| Marker::decode(**word).is_none()).count();
        if reason == TruncationReason::Range && frames == 1 {
            self.at_once += samples;
        }
    }

    fn of(&self, reason: TruncationReason) -> u64 {
        self.by_reason[reason as usize - 1]
    }

    /// The same from outside, where firmware and boot loaders run outside of the kernel's text.
    fn say_outside(&self, found: &mut Vec<String>) {
        let (all, truncated) = (self.all - self.outside, self.by_reason.iter().sum());
        if is_much(truncated, TRUNCATED_PERCENT, all) {
            found.push(format!(
                "{truncated} of {all} stacks end early: from outside, callers are found by frame pointers, by unwind \
                 tables, and by code that can be followed. Build with -C force-frame-pointers=yes, core and alloc too, \
                 or give --kernel an ELF file with .debug_frame or .eh_frame"
            ));
        }
    }

    fn say(&self, found: &mut Vec<String>) {
        let all = self.all;
        let is_much = |part: u64, percent: u64| is_much(part, percent, all);
        if is_much(self.at_once, TRUNCATED_PERCENT) {
            found.push(format!(
                "{} of {all} stacks have one frame: stack_range does not know the stack in use (a boot \
                 stack, or that of an interrupt?)",
                self.at_once
            ));
        } else if is_much(self.of(TruncationReason::Range), TRUNCATED_PERCENT) {
            found.push(format!(
                "{} of {all} stacks end where a frame pointer leaves the stack: does stack_range declare stacks whole?",
                self.of(TruncationReason::Range)
            ));
        }
        if is_much(self.of(TruncationReason::Entry), ENTRY_PERCENT) {
            found.push(format!(
                "{} of {all} stacks end in an entry stub: its frame is not described. Let the stubs leave a \
                 marker word, or answer Kernel::caller_entry_frame and Kernel::entry_frame (kprof_port::trap_frame)",
                self.of(TruncationReason::Entry)
            ));
        }
        let chain = [TruncationReason::Alignment, TruncationReason::Loop, TruncationReason::NotText]
            .map(|reason| self.of(reason));
        let chain: u64 = chain.iter().sum();
        if is_much(chain, TRUNCATED_PERCENT) {
            found.push(format!(
                "{chain} of {all} stacks end where the chain of frame pointers is broken: is core built with \
                 -C force-frame-pointers=yes too, and does is_entry_code know every stub?"
            ));
        }
        if is_much(self.of(TruncationReason::Depth), TRUNCATED_PERCENT) {
            found.push(format!(
                "{} of {all} stacks are deeper than `depth`: raise it",
                self.of(TruncationReason::Depth)
            ));
        }
        if self.outside > 0 {
            found.push(format!(
                "{} of {all} samples were taken outside of the kernel's text, as at {:x}: did an entry stub land in \
                 another section? Give its assembly the directive `.section .text`",
                self.outside,
                plain(self.example)
            ));
        }
    }
}

/// Whether a part of all stacks is large enough to be a finding.
fn is_much(part: u64, percent: u64, all: u64) -> bool {
    part >= MIN && part * 100 > all * percent
}

/// An anchor that is not in the kernel's own text range.
pub fn anchor_outside_text(boot: &Boot) -> Option<String> {
    let (from, to) = boot.text()?;
    let (name, address) = boot.anchors.iter().find(|(_, address)| !(from..to).contains(address))?;
    Some(format!(
        "{name} is at {:x}, outside of the kernel's text ({:x}-{:x}): an entry stub that landed in another section? \
         Give its assembly the directive `.section .text`",
        plain(*address),
        plain(from),
        plain(to)
    ))
}

/// Names the cause of a rate that is not reached.
pub fn slow(boot: &Boot) -> String {
    if is_outside(boot) {
        return "the host was busy, or the machine was stopped for too long for each sample (attach): ask for fewer \
                ticks a second"
            .to_owned();
    }
    if boot.trigger() == Some("timer") {
        return "the timer has to come several times as often, or to be set to when the next tick is due".to_owned();
    }
    // These counters are the sampler's, so they are the same in every CPU's account.
    let get = |counter| boot.cpus.values().filter_map(|cpu| counted(cpu.account.as_ref()?, counter)).max();
    let (asked, late) = (get(Counter::SleepAsked).unwrap_or(0), get(Counter::SleepLate).unwrap_or(0));
    let seconds = |ticks: u64| boot.tsc_hz().map(|hz| ticks as f64 / hz as f64);
    match (seconds(asked), seconds(asked.saturating_add(late))) {
        (Some(asked_s), Some(slept_s)) if late > asked / 5 => format!(
            "the sampler sleeps too long: {slept_s:.3} s where it asked for {asked_s:.3} s. Is its timer \
             calibrated? Under \
             QEMU -icount the sampler must be CPU 0, and sleep in slices (kprof_port::timer)"
        ),
        _ => "is the sampler CPU alone?".to_owned(),
    }
}

/// Names the cause of the coalesced ticks. `cost`: the self cost, which counts here if it was measured in cycles.
pub fn coalesced(boot: Option<&Boot>, counters: &Counters, cost: &SelfCost) -> String {
    let get = |counter| counted(counters, counter).filter(|value| *value > 0);
    let period = boot.and_then(|boot| Some(boot.tsc_hz()? / boot.number(Fact::Hz)?.max(1)));
    let of_time = get(Counter::SelfTsc).zip(get(Counter::Taken)).zip(period);
    let of_time = of_time.map(|((own, taken), period)| own.saturating_mul(100) / taken / period.max(1));
    let of_cycles = cost.share_of_cycles().map(|share| (share * 100.0) as u64);
    match of_cycles.or(of_time) {
        Some(percent) if percent >= HANDLER_PERCENT => {
            format!(
                "the rate is too high for this machine: the handler takes {percent} % of the time between two ticks"
            )
        }
        Some(percent) => format!(
            "the CPUs did not run when their ticks came (the handler takes {percent} % of the time between two): \
             are there \
             more virtual CPUs than the host has cores? Fewer of them, or QEMU's -icount shift=0,sleep=off"
        ),
        None => {
            "the rate is too high for this machine, or there are more virtual CPUs than the host has cores".to_owned()
        }
    }
}
