//! What a write to the simulated kernel's ctl does, and what the end of a handle does.
//!
//! In: the lines that a process writes. Out: the changed state of the simulated kernel, or the error that the real
//! kernel gives. It accepts all commands that the daemon uses, and refuses what the real kernel refuses.

use super::super::ring::Ring;
use super::{Kernel, stream_of};
use kprof_daemon::source::Stream;
use kprof_format::record::Kind;
use std::io;

impl Kernel {
    /// A write to ctl through `handle`. Returns the milliseconds to wait if the write has a `wait` command.
    pub fn control(&mut self, handle: u64, bytes: &[u8]) -> io::Result<Option<u64>> {
        let text = std::str::from_utf8(bytes).expect("commands are text").to_owned();
        let refuse = |kernel: &mut Self, kind: io::ErrorKind, why: String| {
            kernel.error = why;
            Err(kind.into())
        };
        if self.reader_is_fast && self.claim != Some(handle) {
            self.meta.read = self.meta.head;
            self.meta.acknowledge(self.meta.head);
        }
        let mut acks = Vec::new();
        let mut wait = None;
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words.as_slice() {
                ["protocol", "1"] if self.claim.is_some_and(|holder| holder != handle) => {
                    let is_invalid = self.nasty.busy_is_invalid;
                    let kind = if is_invalid { io::ErrorKind::InvalidInput } else { io::ErrorKind::ResourceBusy };
                    return refuse(self, kind, "claimed".into());
                }
                ["protocol", "1"] => {
                    self.claim = Some(handle);
                    let rings = self.rings.values_mut().chain(self.events.values_mut());
                    rings.chain([&mut self.meta]).for_each(Ring::rewind);
                    if !self.events.is_empty() {
                        self.tell_of_point();
                    }
                    self.tell_of_crowd();
                }
                ["copy", "1"] if !self.gives_copies => {
                    return refuse(self, io::ErrorKind::InvalidInput, "no such command".into());
                }
                ["copy", "1"] if self.copier.is_some_and(|holder| holder != handle) => {
                    return refuse(self, io::ErrorKind::ResourceBusy, "copied".into());
                }
                ["copy", "1"] => {
                    self.copier = Some(handle);
                    self.rings.values_mut().for_each(|ring| ring.begin_copies(false));
                    self.meta.begin_copies(true);
                    // The kernel names the living tasks again.
                    self.names.clone().into_iter().for_each(|(id, name)| self.name(id, name));
                }
                ["lease"] if self.lease.is_some_and(|(holder, ..)| holder != handle) => {
                    return refuse(self, io::ErrorKind::ResourceBusy, "leased".into());
                }
                ["lease"] => self.lease = Some((handle, self.running, self.hz)),
                ["start"] => {
                    // What was counted while nothing was sampled is forgotten.
                    self.page_faults = if self.running { self.page_faults } else { 0 };
                    self.running = true;
                }
                ["stop"] => {
                    self.running = false;
                    self.write_events();
                    if self.nasty.pending > 0 {
                        let why = format!("line 1: cpu 1 has not taken {} ticks", self.nasty.pending);
                        return refuse(self, io::ErrorKind::InvalidInput, why);
                    }
                }
                ["hz", hz] => self.hz = hz.parse().expect("a rate"),
                ["mark", _] => {}
                ["flush"] => self.write_events(),
                ["event", _, state] => {
                    self.write_events();
                    self.counts_hits = *state == "count";
                    self.tell_of_crowd();
                }
                ["probe", ..] | ["unprobe", ..] => {
                    let has_lease = self.lease.is_some_and(|(holder, ..)| holder == handle);
                    if let Err(why) = self.probes.control(&words, has_lease) {
                        return refuse(self, io::ErrorKind::InvalidInput, why);
                    }
                    // The real kernel overwrites the oldest record.
                    assert!(self.put_meta(Kind::Setting, [0; 3], line.as_bytes()), "the meta ring is full");
                }
                ["freeze"] if self.frozen || (self.running && self.overwrites) => {
                    (self.frozen, self.running) = (true, false);
                }
                ["freeze"] => {
                    return refuse(self, io::ErrorKind::InvalidInput, "`freeze` is for a running recorder".into());
                }
                ["thaw"] if self.frozen => (self.frozen, self.running) = (false, true),
                ["wait", ms] if !self.nasty.cannot_wait => {
                    wait = ms.parse().ok();
                    self.waits.extend(wait);
                    wait = wait.map(|ms: u64| ms.min(self.nasty.wakes_after.unwrap_or(ms)));
                }
                ["ack", ..] if self.nasty.refuses_acks => {
                    self.nasty.refused_acks += 1;
                    return refuse(self, io::ErrorKind::InvalidInput, "nothing is acknowledged today".into());
                }
                // What it gives is not in its rings.
                ["ack", ..] if self.nasty.same_record.is_some() => {}
                ["ack", stream, position] => {
                    let stream = stream_of(stream);
                    let position = position.parse().expect("a position");
                    let held = self.claim == Some(handle);
                    if acks.is_empty() && self.random.once_in(self.nasty.overwrites_before_ack) {
                        (self.overwrites, self.nasty.reads_until_drop) = (true, 3);
                    }
                    if self.overwrites && matches!(stream, Stream::Cpu(_)) {
                        let why = "nothing is acknowledged in mode overwrite".to_owned();
                        return refuse(self, io::ErrorKind::InvalidInput, why);
                    }
                    let ring = self.ring(stream).expect("an ack for a stream that exists");
                    if !held || !ring.may_acknowledge(position) {
                        let why = format!("`{line}`: the end of a record that was read is expected");
                        return refuse(self, io::ErrorKind::InvalidInput, why);
                    }
                    acks.push((stream, position));
                }
                _ => return refuse(self, io::ErrorKind::InvalidInput, format!("`{line}` is no command")),
            }
            if !line.starts_with("wait") {
                self.commands.push(line.into());
            }
        }
        for (stream, position) in acks {
            self.ring(stream).expect("checked").acknowledge(position);
        }
        Ok(wait)
    }

    pub fn close(&mut self, handle: u64) {
        if self.claim == Some(handle) {
            self.claim = None;
        }
        if self.copier == Some(handle) {
            self.copier = None;
            self.rings.values_mut().chain([&mut self.meta]).for_each(|ring| ring.copies = None);
        }
        if let Some((_, running, hz)) = self.lease.take_if(|(holder, ..)| *holder == handle) {
            self.running &= running;
            self.hz = hz;
            self.probes.end_lease();
        }
    }
}
