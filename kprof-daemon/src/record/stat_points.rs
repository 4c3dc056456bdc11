//! The points of `kprof-record stat -e`: how often each was hit, and the sum of the weights.
//!
//! In: the exact sums of each run. Out: rows of the table, or lines of fields; for several runs their means. Runs in:
//! user process. A point that was named and not hit has the number 0; what is not known is said.

use super::Run;
use super::options::Counting;
use super::stat::Mean;
use crate::by_point::{ByPoint, PointSum};
use kprof_format::point::{Points, is_name};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// What is printed instead of the numbers if nobody told them to this program.
const NOT_COUNTED: &str = "<not counted>";

/// The means of a point.
struct Row {
    name: String,
    /// Empty if the point was not hit.
    unit: String,
    hits: Mean,
    weight: Mean,
}

/// The rows of all points.
pub(super) struct PointRows<'a> {
    /// What the command line asks for.
    asked: &'a [String],
    /// `None` if a run does not know them.
    rows: Option<Vec<Row>>,
    seconds: f64,
    is_repeated: bool,
}

impl<'a> PointRows<'a> {
    /// The points that were asked for: those that were hit in any run, and those that were named and were not.
    pub fn new(runs: &[Run], counting: &'a Counting, seconds: f64) -> Self {
        let asked = &counting.points[..];
        let known: Option<Vec<&ByPoint>> = runs.iter().map(|run| run.points.as_ref()).collect();
        let rows = known.map(|known| {
            let is_asked = |name: &str| asked.iter().filter_map(|text| Points::of(text)).any(|it| it.contains(name));
            let hit = known.iter().flat_map(|points| points.iter()).filter(|(name, _)| is_asked(name));
            let is_hit = |name: &str| known.iter().any(|points| points.get(name).is_some());
            let mut units: BTreeMap<&str, &str> = hit.map(|(name, sum)| (name, &sum.unit[..])).collect();
            units.extend(asked.iter().filter(|name| is_name(name) && !is_hit(name)).map(|name| (&name[..], "")));
            let row = |(name, unit): (&str, &str)| {
                let none = PointSum::default();
                let sums = known.iter().map(|points| points.get(name).unwrap_or(&none));
                let hits = Mean::of(sums.clone().map(|sum| sum.hits as f64));
                let weight = Mean::of(sums.map(|sum| sum.weight as f64));
                Row { name: name.to_owned(), unit: unit.to_owned(), hits, weight }
            };
            units.into_iter().map(row).collect()
        });
        Self { asked, rows, seconds: seconds.max(1e-9), is_repeated: counting.repeat.is_some() }
    }

    /// Writes a line for each point, after an empty one; nothing if none was asked for.
    pub fn write_table(&self, out: &mut impl Write) -> io::Result<()> {
        if self.asked.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let Some(rows) = &self.rows else {
            let names = self.asked.join(", ");
            let why = "other programs read what the kernel counts, so it was not read whole here";
            return writeln!(out, "{NOT_COUNTED:>14}  {names}: {why}");
        };
        if rows.is_empty() {
            writeln!(out, "{:>14}  hits of {}", 0, self.asked.join(", "))?;
        }
        for Row { name, unit, hits, weight } in rows {
            let (rate, spread) = (hits.value / self.seconds, hits.spread_text(self.is_repeated));
            write!(out, "{:>14.0}  {name:<18} {rate:>12.1} /s{spread}", hits.value)?;
            if hits.value > 0.0 {
                let (sum, spread) = (weight.value, weight.spread_text(self.is_repeated));
                write!(out, "  {sum:>14.0} {unit}{spread}, mean {:.1} {unit}", sum / hits.value)?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// Writes two lines for each point, of its hits and of their weights, in the order of `perf stat -x`.
    pub fn write_fields(&self, out: &mut impl Write, separator: &str) -> io::Result<()> {
        let time = format!("{:.0}", self.seconds * 1e9);
        let mut line = |value: &str, unit: &str, name: &str, share: &str, mean: Option<Mean>, metric: [&str; 2]| {
            let spread = mean.filter(|_| self.is_repeated).map(|mean| format!("{:.2}%", mean.spread));
            let spread = spread.as_deref();
            let fields = [value, unit, name, &time, share].into_iter().chain(spread).chain(metric);
            writeln!(out, "{}", fields.collect::<Vec<_>>().join(separator))
        };
        let Some(rows) = &self.rows else {
            return self.asked.iter().try_for_each(|name| line(NOT_COUNTED, "", name, "0.00", None, ["", ""]));
        };
        for Row { name, unit, hits, weight } in rows {
            let rate = format!("{:.1}", hits.value / self.seconds);
            line(&format!("{:.0}", hits.value), "", name, "100.00", Some(*hits), [&rate, "/sec"])?;
            let (mean, per_hit) = (weight.value / hits.value.max(1.0), format!("{unit}/hit"));
            let name = format!("{name}:weight");
            let metric = [&format!("{mean:.1}"), &per_hit[..]];
            line(&format!("{:.0}", weight.value), unit, &name, "100.00", Some(*weight), metric)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(records: Option<&[(u64, &str)]>) -> Run {
        let points = records.map(|records| {
            let mut points = ByPoint::default();
            records.iter().for_each(|(weight, text)| points.add(*weight, text.as_bytes()));
            points
        });
        Run { points, ..Run::default() }
    }

    /// The table, and the fields.
    fn printed(asked: &[&str], repeat: Option<u32>, runs: &[Run]) -> [String; 2] {
        let points = asked.iter().map(|name| (*name).to_owned()).collect();
        let counting = Counting { points, repeat, ..Counting::default() };
        let rows = PointRows::new(runs, &counting, 2.0);
        let (mut table, mut fields) = (Vec::new(), Vec::new());
        rows.write_table(&mut table).unwrap();
        rows.write_fields(&mut fields, ",").unwrap();
        [table, fields].map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn only_the_points_that_were_asked_for_are_printed_and_a_named_one_without_hits_is_0() {
        let records = [(900, "ns block.read filtered=3"), (7, "count page.fault filtered=7"), (1, "ns b filtered=1")];
        let [table, fields] = printed(&["block.*", "null.write"], None, &[run(Some(&records))]);
        assert_eq!(
            table,
            "\n             3  block.read                  1.5 /s             900 ns, mean 300.0 ns\n             \
             0  null.write                  0.0 /s\n"
        );
        assert_eq!(
            fields,
            "3,,block.read,2000000000,100.00,1.5,/sec\n900,ns,block.read:weight,2000000000,100.00,300.0,ns/hit\n\
             0,,null.write,2000000000,100.00,0.0,/sec\n0,,null.write:weight,2000000000,100.00,0.0,/hit\n"
        );
        assert_eq!(printed(&[], None, &[run(Some(&records))]), ["", ""]);
        assert!(printed(&["lock.*"], None, &[run(Some(&records))])[0].contains("0  hits of lock.*\n"));
    }

    #[test]
    fn several_runs_have_means_with_their_spread() {
        let runs = [2, 4].map(|hits| run(Some(&[(100 * hits, &format!("ns a filtered={hits}"))])));
        let [table, fields] = printed(&["a"], Some(2), &runs);
        // The standard error of 2 and 4 is 1, a third of their mean.
        let expected = "  1.5 /s  ( +- 33.33% )             300 ns  ( +- 33.33% ), mean 100.0 ns\n";
        assert!(table.ends_with(expected), "{table}");
        assert!(fields.starts_with("3,,a,2000000000,100.00,33.33%,1.5,/sec\n"), "{fields}");
    }

    #[test]
    fn what_is_not_known_is_not_0() {
        let [table, fields] = printed(&["a", "b.*"], None, &[run(Some(&[])), run(None)]);
        assert!(table.contains("<not counted>  a, b.*: other programs read"), "{table}");
        assert_eq!(fields, "<not counted>,,a,2000000000,0.00,,\n<not counted>,,b.*,2000000000,0.00,,\n");
    }
}
