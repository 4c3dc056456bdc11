//! The process of the account's model that reads copies: it gets each record once, or the record is counted as lost for
//! it.

use super::array_kernel::{Record, records, text};
use super::{Counters, Model, STATUS_BYTES};
use kprof::format::account::IDENTITIES;
use kprof::format::counter::Counter;
use kprof::format::record::Kind;
use kprof::{ControlFile, Profiler, StreamFile};
use proptest::prelude::*;

/// The process, and what the test knows of it.
pub struct Recorder {
    ctl: ControlFile,
    streams: [StreamFile; 2],
    /// For each CPU: the value of `delivered` at the beginning, and the number of records copied since then.
    copied: [(u64, u64); 2],
    /// For each CPU: the position where the last copied record ends.
    ends: [u64; 2],
}

impl Recorder {
    pub fn begin(profiler: &'static Profiler<Model>) -> Self {
        let ctl = profiler.open_control(40);
        assert!(ctl.write(b"copy 1").unwrap().wants_names);
        let streams = [1, 2].map(|cpu| profiler.open_stream(cpu, 40).unwrap());
        let mut recorder = Self { ctl, streams, copied: [(0, 0); 2], ends: [0; 2] };
        let status = recorder.status();
        let status = Counters::of(&status);
        recorder.copied = [1, 2].map(|cpu| (status.get(cpu, "delivered"), 0));
        recorder.ends = [1, 2].map(|cpu| status.get(cpu, "position-in"));
        recorder
    }

    fn status(&self) -> String {
        let mut text = String::with_capacity(STATUS_BYTES);
        self.ctl.read(&mut text).unwrap();
        text
    }

    /// One read, of the CPU and with the size of the buffer that `variant` chooses.
    pub fn read(&mut self, variant: u8) -> Result<(), TestCaseError> {
        let cpu = usize::from(variant & 1);
        let mut buffer = vec![0; 128 * (1 + usize::from(variant >> 1))];
        let bytes = self.streams[cpu].read(&mut buffer).expect("a record fits");
        let read = records(&buffer[..bytes]);
        let Some(first) = read.first().map(Record::position) else { return Ok(()) };
        prop_assert!(first >= self.ends[cpu], "copied again: position {first}");
        self.ends[cpu] = first;
        for record in read {
            prop_assert_eq!(record.kind, Kind::Sample);
            prop_assert_eq!(record.position(), self.ends[cpu], "no gap within a read");
            prop_assert!([text(30), 0x40_0000].contains(&record.sample().address), "a torn copy");
            self.ends[cpu] = record.end();
            self.copied[cpu].1 += 1;
        }
        Ok(())
    }

    /// Checks the account that it is given. `kernel` is what everybody else is given at the same time.
    pub fn check(&self, kernel: &Counters<'_>) -> Result<(), TestCaseError> {
        let status = self.status();
        let status = Counters::of(&status);
        let kinds = Counter::RECORDED_KINDS.map(Counter::name);
        for cpu in [1, 2] {
            let counters = || status.0[cpu].iter().copied();
            let fault = IDENTITIES.iter().find_map(|identity| identity.fault(counters()));
            prop_assert!(fault.is_none(), "{}", fault.expect("there is one"));
            let count = |name| status.get(cpu, name);
            let (before, since) = self.copied[cpu - 1];
            prop_assert_eq!(count("delivered"), before + since);
            prop_assert_eq!(count("recorded") + count("lost-overtaken"), kernel.get(cpu, "recorded"));
            // The kinds of the overtaken samples are not known, so their counters are left out.
            let kinds = counters().filter(|(name, _)| kinds.contains(name));
            let kinds: Vec<u64> = kinds.map(|(_, value)| value).collect();
            match count("lost-overtaken") {
                0 => prop_assert_eq!(kinds.iter().sum::<u64>(), count("recorded")),
                _ => prop_assert!(kinds.is_empty()),
            }
            prop_assert!(count("position-out") >= self.ends[cpu - 1]);
            // The next record has at most 1024 words.
            prop_assert!(count("lost-overtaken") == 0 || count("position-in") + 1024 > count("ring-words"));
        }
        Ok(())
    }
}
