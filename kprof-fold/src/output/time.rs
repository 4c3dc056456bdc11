//! How all the time was spent, in percent, computed from the account. Stage: output.
//!
//! In: the account and the samples of a profile; if only some CPUs or times were chosen, or samples have weights, what
//! was counted of these ([`crate::spent`]). Out: rows that add up to 100 %: what became of the ticks, by the table
//! `kprof_format::account::FATES`, and the profiler's self cost. The ticks share the time that the handler did not use
//! itself, each tick an equal part. The self cost is a row only if it was measured as a time (`self_cost`), and ticks
//! are not caused by an event; if they are, they share the events.

use crate::account::Account;
use crate::output::self_cost::{self, SelfCost};
use crate::profile::{Boot, Profile, Spent, Unsampled};
use crate::symbols::name::visible;
use kprof_format::account::FATES;
use kprof_format::counter::Counter;

/// One row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of what the time was spent on.
    pub what: &'static str,
    /// The ticks counted for this row; 0 for the self cost, which is measured as a time.
    pub ticks: u64,
    /// Its share in thousandths.
    pub per_mille: u64,
}

/// The rows; empty without an account. Their shares add up to exactly 1 000.
pub fn rows(profile: &Profile, account: &Account) -> Vec<Row> {
    let fates = FATES.iter().zip(fates(profile, account)).filter(|(fate, ticks)| fate.is_shown(*ticks));
    let ticks: Vec<(&str, u64)> = fates.map(|(fate, ticks)| (fate.words, ticks)).collect();
    let whole = sum_of(ticks.iter().map(|(_, ticks)| *ticks));
    if whole == 0 {
        return Vec::new();
    }
    let row = self_cost(profile, account).and_then(|cost| cost.share_of_time()).filter(|_| event(profile).is_none());
    let own = row.unwrap_or(0.0);
    let share = |ticks: u64| ticks as f64 / whole as f64 * (1.0 - own);
    let mut shares: Vec<(&str, u64, f64)> = ticks.iter().map(|(what, ticks)| (*what, *ticks, share(*ticks))).collect();
    if row.is_some() {
        shares.push(("self cost of the profiler", 0, own));
    }
    let per_mille = apportion(&shares.iter().map(|(.., share)| *share).collect::<Vec<_>>());
    shares.iter().zip(per_mille).map(|((what, ticks, _), per_mille)| Row { what, ticks: *ticks, per_mille }).collect()
}

/// All ticks. Counters of a damaged file can be so large that their sum does not fit into 64 bits.
fn sum_of(ticks: impl IntoIterator<Item = u64>) -> u64 {
    ticks.into_iter().fold(0, u64::saturating_add)
}

/// How many ticks have had each of the [`FATES`]: of the chosen CPUs and times, if some were chosen.
fn fates(profile: &Profile, account: &Account) -> [u64; FATES.len()] {
    let Some(spent) = &profile.spent else {
        return if account.sum(Counter::Sent) == 0 { [0; FATES.len()] } else { account.fates() };
    };
    // Without this counter nobody knows of the ticks without a sample.
    if account.cpus.iter().all(|cpu| cpu.find(Counter::Idle).is_none()) {
        return [0; FATES.len()];
    }
    let Spent { states: [on, off, interrupt, user, idle], unsampled: without, .. } = spent;
    // An older kernel writes no facts after the sampled instruction.
    let kinds = [Counter::IrqOn, Counter::IrqOff, Counter::Interrupt].map(|kind| account.sum(kind));
    let is_told = kinds.into_iter().chain([*off, *interrupt]).any(|count| count > 0);
    let (on, other) = if is_told { (*on, 0) } else { (0, *on) };
    let (user, idle) = (user.saturating_add(without.user), idle.saturating_add(without.idle));
    let Unsampled { kernel, lost, coalesced, .. } = *without;
    [user, on, *off, *interrupt, idle, coalesced, 0, lost, kernel, other]
}

/// The self cost, where it is known: it is only measured for a whole boot.
fn self_cost(profile: &Profile, account: &Account) -> Option<SelfCost> {
    profile.spent.is_none().then(|| self_cost::of(profile, account))
}

/// The event that causes the ticks, if all boots have the same one.
fn event(profile: &Profile) -> Option<(&str, u64)> {
    let mut events = profile.boots.iter().map(Boot::event);
    let first = events.next()??;
    events.all(|event| event == Some(first)).then_some(first)
}

/// The sentence below the rows: the self cost, if it is no row of theirs.
pub fn below(profile: &Profile, account: &Account) -> Option<String> {
    if account.sum(Counter::Sent) == 0 || event(profile).is_some() {
        return None;
    }
    self_cost(profile, account)?.sentence()
}

/// The heading of the rows: what was spent, and further words that say what a tick is.
pub fn heading(profile: &Profile, account: &Account) -> String {
    let chosen = || sum_of(fates(profile, account));
    let ticks = if profile.spent.is_some() { chosen() } else { account.sum(Counter::Sent) };
    let of = of(profile);
    match event(profile) {
        Some((name, period)) => {
            format!("Where all {} went ({of}, {ticks} ticks, one after {period} of them)", visible(name))
        }
        None => format!("Where all the time went ({of}, {ticks} ticks)"),
    }
}

/// Of which CPUs and time the rows are.
pub fn of(profile: &Profile) -> &str {
    profile.spent.as_ref().map_or("all CPUs", |spent| &spent.of)
}

/// Each share in thousandths, so that they add up to 1 000: the shares are rounded down, and the rest goes to those
/// with the largest remainders.
fn apportion(shares: &[f64]) -> Vec<u64> {
    let exact = |share: &f64| share * 1000.0;
    let mut parts: Vec<u64> = shares.iter().map(|share| exact(share).floor() as u64).collect();
    let missing = 1000u64.saturating_sub(parts.iter().sum());
    let mut order: Vec<usize> = (0..shares.len()).collect();
    order.sort_by(|a, b| exact(&shares[*b]).fract().total_cmp(&exact(&shares[*a]).fract()).then(a.cmp(b)));
    for at in order.into_iter().cycle().take(missing as usize) {
        parts[at] += 1;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_add_up_to_the_whole() {
        for count in 1..20u32 {
            let shares = vec![1.0 / f64::from(count); count as usize];
            assert_eq!(apportion(&shares).iter().sum::<u64>(), 1000, "{count}");
        }
        assert_eq!(apportion(&[0.5, 0.2504, 0.2496]), [500, 250, 250]);
        assert_eq!(apportion(&[1.0]), [1000]);
    }
}
