//! Which checks need the host's time, and so may run a second time if they fail.
//!
//! In: the failures of a run. Out: what runs again by itself, after everything else. The time of a machine that counts
//! instructions does not go on while the host does something else, so its checks fail or pass on every host alike. The
//! time of the machines that are listed here does. More than [`MOST`] failures in one run are no accident: then nothing
//! runs again. What passes the second time is listed as unsteady until its cause is found.

use super::scenario;

/// The most checks of a run that may run a second time.
const MOST: usize = 2;

/// A group, how the check's name begins, and the filter with which the group runs it (and little else) alone. The
/// scenarios say it themselves: those that do not count instructions.
const IN_HOST_TIME: [(&str, &str, &str); 14] = [
    ("integration", "two CPUs", ""),
    ("path", "tcg", ""),
    ("outside", "by time, every tick is accounted for", "record"),
    ("outside", "of two vCPUs one is sampled if one is named", "record"),
    ("outside", "a machine that runs is sampled, and runs on", "attached"),
    ("outside", "a machine is sampled until it ends", "attached"),
    ("outside", "a QEMU without plugins is sampled by its gdb stub", "attached"),
    ("outside", "a QEMU that asks for KVM is sampled by its gdb stub", "attached"),
    ("outside", "a second client is refused, and the machine runs on", "attached"),
    ("outside long", "its stacks by the gdb stub are such, too", "low"),
    ("outside long", "attach notices such a reboot", "rebooted"),
    ("storm", "eight seconds", ""),
    ("storm", "eight seconds with probes", ""),
    ("storm", "the bare kernel for ", ""),
];

/// A run of a part of a group.
#[derive(Debug, PartialEq)]
pub struct Again {
    /// The group's place in the list of groups that ran.
    pub place: usize,
    pub filter: String,
    /// The first lines of the failures that it may take back.
    pub checks: Vec<String>,
}

/// What runs again. In: the place of each failure's group, and its first line, which begins with the check's name.
pub fn chosen<'a>(
    failures: impl Iterator<Item = (usize, &'a str)>,
    name_of: impl Fn(usize) -> &'static str,
) -> Vec<Again> {
    let mut all: Vec<Again> = Vec::new();
    for (place, what) in failures {
        let Some(filter) = filter_of(name_of(place), what) else { continue };
        match all.iter_mut().find(|again| (again.place, &again.filter) == (place, &filter)) {
            Some(again) => again.checks.push(what.to_owned()),
            None => all.push(Again { place, filter, checks: vec![what.to_owned()] }),
        }
    }
    let is_many = all.iter().map(|again| again.checks.len()).sum::<usize>() > MOST;
    if is_many { Vec::new() } else { all }
}

fn filter_of(group: &str, what: &str) -> Option<String> {
    if ["scenarios", "scenarios long"].contains(&group) {
        return scenario::in_host_time(what.split(": ").next()?);
    }
    // The name may be cut in the list before the part that differs: then the rest of the name follows.
    let is_it = |name: &str| what.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ") || name.ends_with(' '));
    let listed = IN_HOST_TIME.iter().find(|(of, name, _)| *of == group && is_it(name));
    listed.map(|(_, _, filter)| (*filter).to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::outcome::sources;
    use super::*;

    const GROUPS: [&str; 4] = ["scenarios", "outside", "storm", "lint"];

    fn again(failures: &[(usize, &str)]) -> Vec<Again> {
        chosen(failures.iter().copied(), |place| GROUPS[place])
    }

    #[test]
    fn what_needs_the_hosts_time_runs_again_and_everything_else_fails_at_once() {
        let failures =
            [(2, "eight seconds: killed"), (1, "a machine is sampled until it ends: no"), (3, "host crates: x")];
        let expected = [(2, "", "eight seconds: killed"), (1, "attached", "a machine is sampled until it ends: no")];
        let expected = expected.map(|(place, filter, what)| Again {
            place,
            filter: filter.to_owned(),
            checks: vec![what.to_owned()],
        });
        assert_eq!(again(&failures), expected);
        assert_eq!(
            again(&[(1, "every instruction is counted: no"), (2, "probes-all: no"), (3, "eight seconds: no")]),
            []
        );
    }

    #[test]
    fn a_scenario_runs_again_if_it_does_not_count_instructions() {
        let filters = |what| again(&[(0, what)]).into_iter().map(|again| again.filter).collect::<Vec<_>>();
        assert_eq!(filters("late-daemon: the serial log lacks x: y"), ["late-daemon"]);
        assert_eq!(filters("trigger-trigger=ipi: x"), ["trigger"], "a run of it");
        assert!(filters("boot-profile: x").is_empty() && filters("there is no such scenario: x").is_empty());
    }

    #[test]
    fn more_than_two_failures_are_no_accident() {
        let [one, two] = ["eight seconds: a", "eight seconds with probes: b"];
        assert_eq!(again(&[(2, one), (2, two)]).len(), 1, "both in one run of the group");
        assert_eq!(again(&[(2, one), (2, two), (1, "a machine is sampled until it ends: c")]), []);
    }

    #[test]
    fn every_check_that_is_listed_exists() {
        let texts = sources("unsteady.rs");
        for (group, name, _) in IN_HOST_TIME {
            let end = if name.ends_with(' ') { "" } else { "\"" };
            assert!(texts.contains(&format!("\"{name}{end}")), "{name}");
            assert!(texts.contains(&format!("(\"{group}\", ")), "{group}");
        }
    }
}
