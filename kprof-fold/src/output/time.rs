//! How all the time was spent, in percent, computed from the account. Stage: output.
//!
//! In: the account and the samples of a profile; if only some CPUs or times were chosen, or samples have weights, what
//! was counted of these ([`crate::spent`]). Out: rows that add up to 100 %: kernel with interrupts on, with
//! interrupts off, in interrupts, user, idle, lost, coalesced, pending, and the profiler's self cost. The ticks share
//! the time that the handler did not use itself, each tick an equal part. The self cost is a row only if it was
//! measured as a time (`self_cost`), and ticks are not caused by an event; if they are, they share the events.

use crate::account::Account;
use crate::output::self_cost::{self, SelfCost};
use crate::profile::{Boot, Profile, Spent, Unsampled};
use crate::symbols::name::visible;
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
    let ticks = ticks(profile, account);
    let whole = sum_of(&ticks);
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
    let rare = ["kernel, kind not told", "kernel, not recorded", "pending"];
    shares.retain(|(what, ticks, _)| *ticks > 0 || !rare.contains(what));
    let per_mille = apportion(&shares.iter().map(|(.., share)| *share).collect::<Vec<_>>());
    shares.iter().zip(per_mille).map(|((what, ticks, _), per_mille)| Row { what, ticks: *ticks, per_mille }).collect()
}

/// All ticks. Counters of a damaged file can be so large that their sum does not fit into 64 bits.
fn sum_of(ticks: &[(&str, u64)]) -> u64 {
    ticks.iter().fold(0, |sum, (_, ticks)| sum.saturating_add(*ticks))
}

/// The ticks by what they hit.
fn ticks(profile: &Profile, account: &Account) -> [(&'static str, u64); 10] {
    let sum = |counter| account.sum(counter);
    let [on, off, interrupt] = [Counter::IrqOn, Counter::IrqOff, Counter::Interrupt].map(sum);
    let name = |counts: [u64; 10]| {
        let [on, off, interrupt, not_told, kernel, user, idle, lost, coalesced, pending] = counts;
        [
            ("kernel, interrupts on", on),
            ("kernel, interrupts off", off),
            ("interrupt or exception", interrupt),
            ("kernel, kind not told", not_told),
            ("kernel, not recorded", kernel),
            ("user", user),
            ("idle", idle),
            ("lost", lost),
            ("coalesced", coalesced),
            ("pending", pending),
        ]
    };
    // Without these counters nobody knows of the ticks without a sample.
    let is_counted = account.cpus.iter().any(|cpu| cpu.find(Counter::Idle).is_some());
    if let Some(Spent { states: [on_here, off_here, interrupt_here, user, idle], unsampled, .. }) =
        profile.spent.as_ref().filter(|_| is_counted)
    {
        // An older kernel writes no facts after the sampled instruction.
        let is_told = [on, off, interrupt, *off_here, *interrupt_here].iter().any(|count| *count > 0);
        let (on_here, not_told) = if is_told { (*on_here, 0) } else { (0, *on_here) };
        let (user, idle) = (user.saturating_add(unsampled.user), idle.saturating_add(unsampled.idle));
        let Unsampled { kernel, lost, coalesced, .. } = *unsampled;
        return name([on_here, *off_here, *interrupt_here, not_told, kernel, user, idle, lost, coalesced, 0]);
    }
    if profile.spent.is_some() || sum(Counter::Sent) == 0 {
        return name([0; 10]);
    }
    let seen = || profile.boots.iter().flat_map(|boot| boot.cpus.values()).map(|cpu| cpu.seen);
    // User and idle samples that are not filtered are recorded, but belong to none of the three kinds.
    let other = sum(Counter::Recorded).saturating_sub(on).saturating_sub(off).saturating_sub(interrupt);
    let recorded_user = other.min(seen().map(|seen| seen.samples() - seen.kernel()).sum());
    let recorded_idle = (other - recorded_user).min(seen().map(|seen| seen.idle()).sum());
    let not_told = other - recorded_user - recorded_idle;
    let with = |counter, recorded| sum(counter).saturating_add(recorded);
    let (user, idle) = (with(Counter::User, recorded_user), with(Counter::Idle, recorded_idle));
    let pending = sum(Counter::Sent).saturating_sub(sum(Counter::Taken)).saturating_sub(sum(Counter::Coalesced));
    let (kernel, lost, coalesced) = (sum(Counter::Kernel), account.lost(), sum(Counter::Coalesced));
    name([on, off, interrupt, not_told, kernel, user, idle, lost, coalesced, pending])
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
    let chosen = || sum_of(&ticks(profile, account));
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
