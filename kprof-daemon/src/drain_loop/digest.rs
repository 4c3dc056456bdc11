//! What the records of a session become: lines or chunks of the file, names, sums.
//!
//! In: the records of one round, in the order of their streams. Out: batches in the composer, the names of tasks and
//! points, sums of events by task and of hits by point. Runs in: user process. Never reads, writes or acknowledges.

use crate::by_point::ByPoint;
use crate::by_task::ByTask;
use crate::names::Names;
use crate::read::{Item, Meta, Skipped};
use crate::source::Stream;
use crate::write::compose::Composer;
use crate::write::event_lines::PointNames;
use kprof_format::record::{Kind, NO_TASK, OTHER_TASKS, OTHER_TASKS_NAME};

/// What was made of the records so far.
pub(super) struct Digest {
    pub composer: Composer,
    pub names: Names,
    points: PointNames,
    pub by_task: ByTask,
    pub by_point: ByPoint,
    /// Whether records of the meta stream are missing: overwritten before they could be copied, or damaged.
    pub has_missed_meta: bool,
    /// Samples of this round that are not in the file yet.
    pub samples: u64,
    /// The same of recorded hits of points.
    pub events: u64,
}

/// What is counted of an item that is no record of its stream.
pub(super) enum Other {
    /// Words that are no record.
    Skipped(Skipped),
    /// A record of a kind that does not belong in this stream.
    Misplaced,
}

impl Digest {
    /// Nothing yet.
    pub fn new(composer: Composer) -> Self {
        Self {
            composer,
            names: Names::default(),
            points: PointNames::default(),
            by_task: ByTask::default(),
            by_point: ByPoint::default(),
            has_missed_meta: false,
            samples: 0,
            events: 0,
        }
    }

    /// Adds an item to the open batch. Of a meta record that `is_older` than the recording, only names and settings
    /// count. `make_name` is asked for a name that the table does not have.
    pub fn add(
        &mut self,
        stream: Stream,
        item: &Item<'_>,
        is_older: bool,
        mut make_name: impl FnMut(u64) -> Option<Vec<u8>>,
    ) -> Option<Other> {
        match (item, stream) {
            (Item::Sample(sample), Stream::Cpu(cpu)) => {
                self.composer.sample(&mut self.names, cpu, sample, || make_name(sample.task));
                self.samples += 1;
            }
            (Item::Event(record), Stream::Event(cpu)) => {
                let event = record.event;
                let task = self.names.get_or_make(event.task, event.tsc, || make_name(event.task)).text;
                self.composer.event(&self.points, cpu, record, task);
                self.events += 1;
            }
            (Item::Meta(meta), Stream::Meta) => self.add_meta(meta, is_older, make_name),
            (Item::Skipped(skipped), _) => {
                self.has_missed_meta |= stream == Stream::Meta;
                self.composer.corrupt(stream, skipped);
                return Some(Other::Skipped(*skipped));
            }
            (Item::Sample(_) | Item::Event(_) | Item::Meta(_), _) => return Some(Other::Misplaced),
        }
        None
    }

    fn add_meta(&mut self, meta: &Meta<'_>, is_older: bool, mut make_name: impl FnMut(u64) -> Option<Vec<u8>>) {
        let [id, _, weight] = meta.values;
        match meta.kind {
            // Counted or found before this recording began.
            Kind::Events | Kind::PointAccount | Kind::TaskTimes | Kind::Lockup | Kind::LockupStack if is_older => {}
            Kind::Events => {
                let name = match id {
                    OTHER_TASKS => OTHER_TASKS_NAME,
                    id => self.names.get_or_make(id, meta.tsc, || make_name(id)).text,
                };
                self.composer.events(meta, name);
                self.by_task.add(name, meta.text);
            }
            Kind::PointAccount => {
                self.by_point.add(weight, meta.text);
                self.composer.meta(meta);
            }
            Kind::TaskTimes => {
                let name = self.names.get_or_make(id, meta.tsc, || make_name(id)).text;
                self.composer.task_times(meta, name);
            }
            Kind::Lockup | Kind::LockupStack => {
                let name = match id {
                    NO_TASK => None,
                    id => Some(self.names.get_or_make(id, meta.tsc, || make_name(id)).text),
                };
                self.composer.lockup(meta, name);
            }
            Kind::TaskName => {
                self.names.set(id, meta.tsc, meta.text);
                self.composer.meta(meta);
            }
            Kind::Point => {
                self.points.set(id, meta.text);
                self.composer.meta(meta);
            }
            Kind::Image | Kind::Mark | Kind::Setting | Kind::PointValues => self.composer.meta(meta),
            // A sample and a hit are items of their own, so no meta record has these kinds.
            Kind::Sample | Kind::SnapshotSample | Kind::Event => {}
        }
    }
}
