//! What tasks did with their time: running, ready to run, blocked by reason. Stage: output.
//!
//! In: the times of tasks by name, with the number of tasks of that name. Out: text, or a JSON document. The shares of
//! a task add up to 100 %: each is rounded such that the sum up to it is right.

use crate::output::columns::{Columns, bar};
use crate::symbols::name::visible;
use crate::task_times::TaskTimes;
use kprof_format::waiting::TaskPart;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Formats the text. Without `tsc_hz` times are in ticks.
pub fn text(tasks: &BTreeMap<String, (u64, TaskTimes)>, tsc_hz: Option<f64>) -> String {
    let mut text = String::new();
    let mut order: Vec<_> = tasks.iter().collect();
    order.sort_by_key(|(_, (_, times))| std::cmp::Reverse(times.wall));
    for (name, (count, times)) in order {
        one(&visible(name), *count, times, tsc_hz, &mut text);
    }
    text
}

fn one(name: &str, count: u64, times: &TaskTimes, tsc_hz: Option<f64>, text: &mut String) {
    let several = if count == 1 { String::new() } else { format!(" in {count} tasks") };
    let _ = writeln!(text, "{name}: {}{several}", duration(times.wall, tsc_hz));
    let mut table = Columns::new(&[30, 16, 7]);
    for ((label, ticks), share) in rows(times).iter().zip(shares(times)) {
        let part = format!("{}.{:02}", share / 100, share % 100);
        table.row([format!("  {label:<28}"), duration(*ticks, tsc_hz), part], bar(share, 10_000));
    }
    text.push_str(&table.text());
    let sum = times.parts.values().fold(0_u64, |sum, ticks| sum.saturating_add(*ticks));
    let balance = if times.is_balanced() { "balanced" } else { "not balanced" };
    let _ = writeln!(text, "  {balance}: {} ticks = {sum} ticks of the parts", times.wall);
}

/// The parts of a task's time with their names for people, in the order of the task's life. Those that are 0 are left
/// out.
fn rows(times: &TaskTimes) -> Vec<(String, u64)> {
    let known = [
        (TaskPart::Running, "running"),
        (TaskPart::Idle, "idle"),
        (TaskPart::OtherTasks, "its CPU runs other tasks"),
        (TaskPart::Woken, "ready, after it was woken"),
        (TaskPart::Preempted, "ready, after preemption"),
        (TaskPart::Yielded, "ready, after it has yielded"),
    ];
    let mut rows: Vec<(String, u64)> =
        known.into_iter().map(|(part, label)| (label.to_owned(), times.part(part))).collect();
    let mut blocked: Vec<(&str, u64)> = times.blocked().collect();
    blocked.sort_by_key(|(_, ticks)| std::cmp::Reverse(*ticks));
    rows.extend(blocked.into_iter().map(|(reason, ticks)| (format!("blocked: {}", visible(reason)), ticks)));
    rows.retain(|(_, ticks)| *ticks > 0);
    rows
}

/// The shares of these rows in hundredths of a percent, which add up to 100 %.
fn shares(times: &TaskTimes) -> Vec<u64> {
    let rows = rows(times);
    let all = rows.iter().map(|(_, ticks)| u128::from(*ticks)).sum::<u128>().max(1);
    let (mut sum, mut end) = (0_u128, 0);
    let share = |(_, ticks): &(String, u64)| {
        sum += u128::from(*ticks);
        let from = end;
        end = ((sum * 10_000 + all / 2) / all) as u64;
        end - from
    };
    rows.iter().map(share).collect()
}

fn duration(ticks: u64, tsc_hz: Option<f64>) -> String {
    match tsc_hz.filter(|hz| *hz > 0.0) {
        Some(hz) => format!("{:.6} s", ticks as f64 / hz),
        None => format!("{ticks} ticks"),
    }
}

/// The JSON document: every task with its parts in ticks.
pub fn document(tasks: &BTreeMap<String, (u64, TaskTimes)>, tsc_hz: Option<f64>) -> Value {
    let task = |(name, (count, times)): (&String, &(u64, TaskTimes))| {
        json!({
            "name": name,
            "tasks": count,
            "ticks": times.wall,
            "parts": times.parts,
            "balanced": times.is_balanced(),
        })
    };
    json!({ "tsc_hz": tsc_hz, "tasks": tasks.iter().map(task).collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof_format::line::TaskTimes as Line;

    fn tasks(lines: &[&str]) -> BTreeMap<String, (u64, TaskTimes)> {
        let mut times = TaskTimes::default();
        lines.iter().for_each(|line| times.add(&Line::read(line).expect("a line")));
        BTreeMap::from([("dd".to_owned(), (1, times))])
    }

    #[test]
    fn the_parts_of_a_task_are_shown_with_shares_that_add_up() {
        let text = text(&tasks(&["tsc=3 from=0 id=8 running=1 woken=1 blocked.pipe=1 task=dd"]), Some(1e9));
        let shares: Vec<&str> = text.lines().filter_map(|line| line.split(" s ").nth(1)).collect();
        assert!(shares.iter().zip(["33.33", "33.34", "33.33"]).all(|(line, share)| line.contains(share)), "{text}");
        assert!(text.contains("blocked: pipe") && text.contains("balanced: 3 ticks = 3 ticks of the parts"), "{text}");
        assert!(!text.contains("not balanced"), "{text}");
    }

    #[test]
    fn a_tick_that_is_missing_is_said() {
        let text = text(&tasks(&["tsc=4 from=0 id=8 running=1 woken=1 blocked.pipe=1 task=dd"]), None);
        assert!(text.contains("not balanced: 4 ticks = 3 ticks"), "{text}");
    }
}
