//! Task names by id and time.
//!
//! In: meta records, and on resume the `# task` lines of the file. Out: the escaped name of a task at a given TSC, for
//! the first field of a sample line. Runs in: user process. Bounded: at most [`Names::LIMIT`] tasks, in at most about
//! 11 MB and their different names. Beyond that, the names of the tasks that had no sample for the longest time are
//! forgotten and counted. From then on these tasks are written as `id<hex>`.

use kprof_format::text::{Hex, UNNAMED_TASK, escaped};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::rc::Rc;

/// Names of tasks, in their escaped form.
#[derive(Debug, Default)]
pub struct Names {
    known: HashMap<u64, Known, BuildHasherDefault<IdHasher>>,
    /// The earlier names of the tasks that were renamed in this round, oldest first: samples from before the newest
    /// name may still come.
    earlier: HashMap<u64, Vec<Known>>,
    /// Each different name once: of many tasks most have the names of a few programs.
    texts: HashSet<Rc<[u8]>>,
    round: u64,
    forgotten: u64,
    /// Buffer in which the name of an unnamed task is built.
    made_up: Vec<u8>,
}

/// Ids are small numbers and each is used once, so a multiplication spreads them well enough. Attacks on the table's
/// hash are no concern: the ids come from the kernel.
#[derive(Debug, Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64(u64::from(*byte)));
    }

    fn write_u64(&mut self, id: u64) {
        self.0 = (self.0 ^ id).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(26);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// The name of a task at the time of a sample.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// The name in its escaped form.
    pub text: &'a [u8],
    /// Whether this name is valid for every sample of the round.
    pub is_the_only_one: bool,
}

/// A name of a task.
#[derive(Debug)]
struct Known {
    /// The TSC from which on it is valid.
    from: u64,
    name: Rc<[u8]>,
    /// The last round in which it was set or asked for.
    last_used: u64,
}

impl Names {
    /// The number of tasks whose names are kept: so many fit into a table of 2^18 places.
    pub const LIMIT: usize = (1 << 18) / 8 * 7;

    /// Task `id` is called `name` from `tsc` on.
    pub fn set(&mut self, id: u64, tsc: u64, name: &[u8]) {
        self.set_escaped(id, tsc, escaped(name).collect());
    }

    /// As [`Names::set`], with a name that is already escaped, as in a line of the file.
    pub fn set_escaped(&mut self, id: u64, tsc: u64, name: Box<[u8]>) {
        if self.known.len() >= Self::LIMIT && !self.known.contains_key(&id) {
            self.forget_the_oldest();
        }
        let name = match self.texts.get(&*name) {
            Some(name) => Rc::clone(name),
            None => {
                let name = Rc::from(name);
                self.texts.insert(Rc::clone(&name));
                name
            }
        };
        let newest = Known { from: tsc, name, last_used: self.round };
        if let Some(old) = self.known.insert(id, newest) {
            self.earlier.entry(id).or_default().push(old);
        }
    }

    /// The name of task `id` at `tsc`: the last name set by then, otherwise the first one. For an unknown task it is
    /// the name that `make` returns, which is then kept; if `make` has none, it is `id<hex>`.
    #[inline]
    pub fn get_or_make(&mut self, id: u64, tsc: u64, make: impl FnOnce() -> Option<Vec<u8>>) -> Name<'_> {
        if !self.known.contains_key(&id) {
            let Some(name) = make() else {
                self.made_up.clear();
                self.made_up.extend_from_slice(UNNAMED_TASK.as_bytes());
                self.made_up.extend_from_slice(Hex::new(id).as_bytes());
                return Name { text: &self.made_up, is_the_only_one: false };
            };
            self.set(id, 0, &name);
        }
        let Some(known) = self.known.get_mut(&id) else { return Name { text: &[], is_the_only_one: false } };
        known.last_used = self.round;
        match self.earlier.get(&id) {
            Some(earlier) if tsc < known.from => {
                let valid = earlier.iter().rfind(|old| old.from <= tsc).or(earlier.first());
                Name { text: &valid.unwrap_or(known).name, is_the_only_one: false }
            }
            earlier => Name { text: &known.name, is_the_only_one: earlier.is_none() },
        }
    }

    /// Called when all samples up to now have been written. Older names of renamed tasks are then dropped.
    pub fn end_round(&mut self) {
        self.round += 1;
        self.earlier.clear();
    }

    /// Id, TSC and escaped name of every task, sorted by id. A new file begins with them.
    pub fn all(&self) -> Vec<(u64, u64, &[u8])> {
        let mut all: Vec<_> = self.known.iter().map(|(id, known)| (*id, known.from, &*known.name)).collect();
        all.sort_unstable();
        all
    }

    /// How many tasks' names have been forgotten, because of [`Names::LIMIT`].
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn forget_the_oldest(&mut self) {
        let mut ages: Vec<(u64, u64)> = self.known.iter().map(|(id, known)| (known.last_used, *id)).collect();
        // Removes a sixteenth at a time, so that not every one of many new tasks causes a selection.
        let few = Self::LIMIT / 16;
        ages.select_nth_unstable(few);
        for (_, id) in &ages[..few] {
            self.known.remove(id);
            self.earlier.remove(id);
            self.forgotten += 1;
        }
        self.texts.retain(|name| Rc::strong_count(name) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(names: &mut Names, id: u64, tsc: u64) -> String {
        String::from_utf8(names.get_or_make(id, tsc, || None).text.to_vec()).unwrap()
    }

    #[test]
    fn a_renamed_task_keeps_its_old_name_for_older_samples_of_the_round() {
        let mut names = Names::default();
        names.set(7, 100, b"sh");
        names.set(7, 200, b"cat x");
        assert_eq!(name(&mut names, 7, 50), "sh");
        assert_eq!(name(&mut names, 7, 199), "sh");
        assert_eq!(name(&mut names, 7, 200), "cat%20x");
        names.end_round();
        assert_eq!(name(&mut names, 7, 150), "cat%20x");
        assert_eq!(name(&mut names, 0xff, 0), "idff");
    }

    #[test]
    fn a_name_is_the_only_one_until_the_task_is_renamed_and_again_from_the_next_round_on() {
        let mut names = Names::default();
        let is_the_only_one = |names: &mut Names| names.get_or_make(7, 300, || None).is_the_only_one;
        assert!(!is_the_only_one(&mut names), "it has none yet");
        names.set(7, 100, b"sh");
        assert!(is_the_only_one(&mut names));
        names.set(7, 200, b"cat");
        assert!(!is_the_only_one(&mut names));
        names.end_round();
        assert!(is_the_only_one(&mut names));
    }

    #[test]
    fn a_flood_of_tasks_stays_bounded_and_the_ones_in_use_stay() {
        let mut names = Names::default();
        names.set(1, 0, b"init");
        let all = 2 * Names::LIMIT as u64;
        for id in 2..all {
            names.set(id, 0, format!("short-lived {}", id / 100).as_bytes());
            if id % 10_000 == 0 {
                assert_eq!(name(&mut names, 1, 0), "init");
                names.end_round();
            }
        }
        assert!(names.known.len() <= Names::LIMIT);
        assert_eq!(name(&mut names, 1, 0), "init");
        assert_eq!(names.forgotten(), all - 1 - names.known.len() as u64);
        assert_eq!(name(&mut names, all - 1, 0), format!("short-lived%20{}", (all - 1) / 100));
        assert!(names.texts.len() < Names::LIMIT / 100 + 4, "no text is kept without a task: {}", names.texts.len());
    }

    #[test]
    fn a_task_that_lives_long_has_its_name_after_many_others_that_came_later() {
        let mut names = Names::default();
        names.set(7, 0, b"daemon");
        for id in 1000..150_000 {
            names.set(id, 0, b"worker");
            names.end_round();
        }
        assert_eq!(name(&mut names, 7, 0), "daemon");
        assert_eq!((names.forgotten(), names.texts.len()), (0, 2));
    }
}
