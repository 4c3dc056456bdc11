//! The table. In: the calls of both kernels. Out: a row for each call that both serve, the one with the largest surplus
//! of the test kernel first, and the names of the others.

use super::machines::{Calls, Row};

/// What the test kernel executes beyond Linux, over all its calls of this name.
fn surplus(theirs: &Row, ours: &Row) -> f64 {
    let per_call = |row: &Row| row.instructions / row.calls.max(1) as f64;
    (per_call(ours) - per_call(theirs)) * ours.calls as f64
}

/// Prints the table.
pub fn print(theirs: &Calls, ours: &Calls, functions: usize) {
    println!("instructions of each system call, not time: the same script and busybox on both kernels\n");
    println!(
        "{:<18} {:>7} {:>7} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}",
        "", "calls", "", "median", "", "", "mean", "", ""
    );
    println!(
        "{:<18} {:>7} {:>7} {:>10} {:>10} {:>7} {:>10} {:>10} {:>7}",
        "system call", "Linux", "ours", "Linux", "ours", "ratio", "Linux", "ours", "ratio"
    );
    let mut both: Vec<(&String, &Row, &Row)> =
        ours.iter().filter_map(|(name, ours)| Some((name, theirs.get(name)?, ours))).collect();
    both.sort_by(|a, b| surplus(b.1, b.2).total_cmp(&surplus(a.1, a.2)));
    for (name, theirs, ours) in both {
        print!("{name:<18} {:>7} {:>7}", theirs.calls, ours.calls);
        match (theirs.median, ours.median) {
            (Some(theirs), Some(ours)) => print!(" {theirs:>10} {ours:>10} {:>7.2}", ours / theirs),
            _ => print!(" {:>10} {:>10} {:>7}", "-", "-", "-"),
        }
        let [their_mean, our_mean] = [theirs, ours].map(|row| row.instructions / row.calls.max(1) as f64);
        println!(" {their_mean:>10.0} {our_mean:>10.0} {:>7.2}", our_mean / their_mean);
        if our_mean > their_mean {
            let mut all: Vec<(&String, &f64)> = ours.functions.iter().collect();
            all.sort_by(|a, b| b.1.total_cmp(a.1));
            for (function, instructions) in all.into_iter().take(functions) {
                println!("{:>20}{:>10.1} a call  {function}", "", instructions / ours.calls.max(1) as f64);
            }
        }
    }
    for (who, one, other) in [("Linux", theirs, ours), ("the test kernel", ours, theirs)] {
        let names: Vec<&str> = one.keys().filter(|name| !other.contains_key(*name)).map(String::as_str).collect();
        if !names.is_empty() {
            println!("\nonly on {who}: {}", names.join(", "));
        }
    }
}
