//! A process that has claimed the streams: it reads the events of CPU 1, and the accounts of points.
#![allow(dead_code, reason = "each test uses its part")]

use super::array_kernel::{control, point_accounts, words};
use kprof::format::event::Event;
use kprof::format::record::{Header, Kind, NO_CPU};
use kprof::{ControlFile, Kernel, Profiler, StreamFile};
use std::collections::BTreeMap;

/// A reader with the claim, of CPU 1.
pub struct Reader {
    pub ctl: ControlFile,
    pub events: StreamFile,
    pub meta: StreamFile,
}

/// What was counted of a point, by the names of the counters; `weight` is among them.
pub type Account = BTreeMap<String, u64>;

impl Reader {
    pub fn claim<K: Kernel>(profiler: &'static Profiler<K>) -> Self {
        let ctl = profiler.open_control(1);
        ctl.write(b"protocol 1").unwrap();
        Self { ctl, events: profiler.open_events(1, 1).unwrap(), meta: profiler.open_meta(1) }
    }

    /// A reader with the claim, for which nothing is there from before, and with the points in this state.
    pub fn begin<K: Kernel>(profiler: &'static Profiler<K>, state: &str) -> Self {
        let reader = Self::claim(profiler);
        reader.ctl.write(b"event * off").unwrap();
        reader.accounts(profiler);
        reader.read();
        reader.acknowledge(profiler);
        reader.ctl.write(state.as_bytes()).unwrap();
        reader
    }

    /// All records of CPU 1 that are there. Nothing is acknowledged.
    pub fn read(&self) -> Vec<(Event, Vec<u64>)> {
        records(&self.events)
    }

    pub fn acknowledge<K: Kernel>(&self, profiler: &Profiler<K>) {
        let end = &control(profiler)["event.1.position-in"];
        self.ctl.write(format!("ack event-1 {end}").as_bytes()).unwrap();
    }

    /// The accounts since the last call, by point and CPU.
    pub fn accounts<K: Kernel>(&self, profiler: &Profiler<K>) -> BTreeMap<(String, u64), Account> {
        let mut all = BTreeMap::<_, Account>::new();
        point_accounts(profiler, &self.ctl, &self.meta, |line| {
            let account = all.entry((line.point.to_string(), line.cpu.unwrap_or(NO_CPU))).or_default();
            let counters = line.counters.in_text().filter(|(name, _)| !name.starts_with("log2-"));
            for (name, count) in counters.chain([("weight", line.weight)]) {
                *account.entry(name.to_owned()).or_default() += count;
            }
        });
        all
    }
}

/// All records that are there: what they say, and their stacks.
pub fn records(stream: &StreamFile) -> Vec<(Event, Vec<u64>)> {
    let (mut buffer, mut bytes) = (vec![0; 64 * 1024], Vec::new());
    loop {
        match stream.read(&mut buffer).unwrap() {
            0 => break,
            read => bytes.extend_from_slice(&buffer[..read]),
        }
    }
    let (words, mut at, mut all) = (words(&bytes), 0, Vec::new());
    while at < words.len() {
        let header = Header::decode(words[at]).unwrap();
        assert_eq!(header.kind, Kind::Event);
        let record = &words[at..at + header.words as usize];
        let (event, stack) = Event::of(|word| record.get(word).copied().unwrap_or(0), record.len()).unwrap();
        all.push((event, record[stack..].to_vec()));
        at += record.len();
    }
    all
}

/// An account with these counters.
pub fn account(counters: &[(&str, u64)]) -> Account {
    counters.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}
