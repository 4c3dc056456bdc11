//! Tracks: keeps every single sample, CPU by CPU. Stage: fold; a consumer like the tally.
//!
//! In: samples, which are provisional until their batch ends. Out: the samples of each CPU in the order of time. A
//! sample takes about 8 bytes of memory, so that a gigabyte of profile takes 60 MB. For outputs that go through the
//! samples of one CPU after the other.

use crate::by_address::{AddressHasher, ByAddress};
use crate::packed::Packed;
use crate::read::consumer::{Consumer, Sample};
use crate::read::escape::unescape;
use crate::select::Select;
use crate::stacks::StackId;
use crate::symbols::name::visible;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;

/// The samples of one CPU in one boot.
#[derive(Debug, Default)]
pub struct Track {
    /// Index of the boot.
    pub boot: u32,
    /// CPU.
    pub cpu: u32,
    samples: Packed<2>,
    /// Whether it has provisional samples.
    is_open: bool,
}

/// One sample of a track.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time stamp counter.
    pub tsc: u64,
    /// The distinct stack.
    pub stack: StackId,
    /// Index into [`Tracks::tasks`].
    pub task: u32,
}

impl Track {
    /// The samples in the order of time.
    pub fn samples(&self) -> impl Iterator<Item = Moment> {
        self.samples.iter().map(|(tsc, [stack, task])| Moment { tsc, stack, task })
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The first and the last time stamp.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.samples.span()
    }
}

/// All samples.
#[derive(Debug, Default)]
pub struct Tracks {
    select: Select,
    /// The tracks. After [`finish`](Self::finish) they are in the order of boot and CPU, and each has samples.
    pub tracks: Vec<Track>,
    /// The names of the tasks, unescaped.
    pub tasks: Vec<String>,
    task_numbers: HashMap<Vec<u8>, u32, BuildHasherDefault<AddressHasher>>,
    /// The track of each boot (upper half of the key) and CPU.
    places: ByAddress<usize>,
    /// Tracks with provisional samples.
    open: Vec<usize>,
    /// The track of the last sample, which nearly always is that of the next one.
    last: usize,
}

impl Tracks {
    /// Tracks of the samples that `select` asks for. Its conditions on the names in a stack are left to the output.
    pub fn new(select: Select) -> Self {
        Self { select, ..Self::default() }
    }

    /// Puts everything in order, after the last sample.
    pub fn finish(&mut self) {
        self.tracks.retain(|track| !track.is_empty());
        self.tracks.sort_by_key(|track| (track.boot, track.cpu));
        self.tracks.iter_mut().for_each(|track| track.samples.sort());
        self.places.clear();
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.tracks.iter().map(Track::len).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn track(&mut self, boot: u32, cpu: u32) -> &mut Track {
        let is_same = |track: &Track| track.boot == boot && track.cpu == cpu;
        if !self.tracks.get(self.last).is_some_and(is_same) {
            let tracks = &mut self.tracks;
            self.last = *self.places.entry(u64::from(boot) << 32 | u64::from(cpu)).or_insert_with(|| {
                tracks.push(Track { boot, cpu, ..Track::default() });
                tracks.len() - 1
            });
        }
        let track = &mut self.tracks[self.last];
        if !track.is_open {
            track.is_open = true;
            self.open.push(self.last);
        }
        track
    }

    fn task(&mut self, task: &[u8]) -> u32 {
        if let Some(number) = self.task_numbers.get(task) {
            return *number;
        }
        let number = self.tasks.len() as u32;
        self.tasks.push(visible(&String::from_utf8_lossy(&unescape(task))).into_owned());
        self.task_numbers.insert(task.to_vec(), number);
        number
    }

    fn close(&mut self, end: impl Fn(&mut Packed<2>)) {
        for at in self.open.drain(..) {
            self.tracks[at].is_open = false;
            end(&mut self.tracks[at].samples);
        }
    }
}

impl Consumer for Tracks {
    fn sample(&mut self, sample: &Sample<'_>) {
        if !self.select.admits_sample(sample) || !self.select.admits_traits(sample.traits) {
            return;
        }
        let task = self.task(sample.task);
        let Sample { boot, cpu, tsc, stack, .. } = *sample;
        self.track(boot as u32, cpu).samples.push(tsc, [stack, task]);
    }

    fn commit(&mut self) {
        self.close(Packed::commit);
    }

    fn discard(&mut self) {
        self.close(Packed::discard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Traits;

    #[test]
    fn each_cpu_has_its_certain_samples_in_the_order_of_time() {
        let mut tracks = Tracks::new(Select { user: true, ..Select::default() });
        for (batch, cpu) in [2, 0, 2, 1, 0].into_iter().enumerate() {
            for tsc in [40, 20] {
                let tsc = tsc + (5 - batch as u64) * 100;
                let task = format!("t%20{cpu}");
                let (task, traits) = (task.as_bytes(), Traits::default());
                tracks.sample(&Sample { boot: 0, task, cpu, tsc, stack: batch as u32, traits });
            }
            if cpu == 1 { tracks.discard() } else { tracks.commit() }
        }
        tracks.finish();
        assert_eq!(tracks.tracks.iter().map(|track| track.cpu).collect::<Vec<_>>(), [0, 2]);
        assert_eq!((tracks.len(), &tracks.tasks[..2]), (8, &["t 2".to_owned(), "t 0".to_owned()][..]));
        let moments: Vec<_> = tracks.tracks[1].samples().map(|one| (one.tsc, one.stack, one.task)).collect();
        assert_eq!(moments, [(320, 2, 0), (340, 2, 0), (520, 0, 0), (540, 0, 0)]);
    }
}
