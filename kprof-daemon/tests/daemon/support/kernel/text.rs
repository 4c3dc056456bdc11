//! What a read of the simulated kernel's ctl gives.
//!
//! In: the state of the simulated kernel, and which handle reads. Out: the lines of ctl as kprof writes them; who reads
//! copies gets the counters of the copies.

use super::Kernel;
use std::fmt::Write as _;

impl Kernel {
    /// The text that a read of ctl gives through `handle`.
    pub fn text(&mut self, handle: u64) -> String {
        if self.nasty.reads_until_drop > 0 {
            self.nasty.reads_until_drop -= 1;
            self.overwrites &= self.nasty.reads_until_drop > 0;
        }
        let state = match (self.frozen, self.running) {
            (true, _) => "frozen",
            (_, true) => "running",
            _ => "stopped",
        };
        let mode = if self.overwrites { "overwrite" } else { "drop" };
        let mut text = format!(
            "protocol {}\nreader {}\nstate {state}\nboot {:x}\ntsc-hz 2200000000\nclock tsc\ncpus 4\nsampler 0\n\
             trigger nmi\nhz {}\ninterval random 25\nseed 42\ninclude -\nbackoff off\ndepth 64\nmode {mode}\n\
             build-id 1234abcd\nload ffffffff80200000\ntext ffffffff80201000-ffffffff80280000\n\
             anchor kmain=ffffffff80201000\n",
            u8::from(self.claim.is_some() && !self.nasty.is_unframed),
            self.claim.map_or("-".into(), |_| "77".to_owned()),
            self.boot,
            self.hz
        );
        self.probes.call();
        text += &self.probes.text();
        let is_copier = self.copier == Some(handle);
        for (cpu, ring) in &self.rings {
            let copies = ring.copies.as_ref().filter(|_| is_copier);
            let counters = [
                ("sent", ring.taken + self.nasty.pending),
                ("taken", ring.taken),
                ("coalesced", 0),
                ("user", 0),
                ("idle", 0),
                ("lost-full", ring.lost_full),
                ("recorded", ring.recorded - copies.map_or(0, |copies| copies.overtaken)),
                ("overwritten", 0),
                ("delivered", copies.map_or(ring.delivered, |copies| copies.copied)),
                ("in-ring", copies.map_or(ring.in_ring(), |copies| copies.in_ring()) as u64),
                ("ring-words", ring.capacity),
                ("position-in", ring.head),
                ("position-out", copies.map_or(ring.tail, |copies| copies.position)),
            ];
            // The stored files in tests/data were made without these counters.
            let newer = [("spurious", 0), ("foreign", 0), ("pending", self.nasty.pending)];
            let newer = newer.into_iter().filter(|_| self.nasty.pending > 0);
            let overtaken = copies.map(|copies| ("lost-overtaken", copies.overtaken));
            for (name, value) in counters.into_iter().chain(overtaken).chain(newer) {
                let _ = writeln!(text, "cpu.{cpu}.{name} {value}");
            }
        }
        let copies = self.meta.copies.as_ref().filter(|_| is_copier);
        let (head, tail) = (self.meta.head, copies.map_or(self.meta.tail, |copies| copies.position));
        let _ = writeln!(text, "meta.position-in {head}\nmeta.position-out {tail}\nmeta.lost 0\nmeta.overwritten 0");
        if self.kept > 0 {
            let _ = writeln!(text, "meta.kept {}", self.kept);
        }
        for (cpu, ring) in &self.events {
            let (head, tail, words) = (ring.head, ring.tail, ring.capacity);
            let _ = writeln!(text, "event.{cpu}.position-in {head}\nevent.{cpu}.position-out {tail}");
            let _ = writeln!(text, "event.{cpu}.ring-words {words}\nevent.{cpu}.delivered {}", ring.delivered);
        }
        if self.nasty.hides_oldest {
            let kept = text.lines().filter(|line| !line.contains(".position-out "));
            text = kept.flat_map(|line| [line, "\n"]).collect();
        }
        if !self.error.is_empty() {
            let _ = writeln!(text, "error {}", self.error);
        }
        text
    }
}
