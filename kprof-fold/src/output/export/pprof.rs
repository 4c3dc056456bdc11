//! pprof's protocol buffer, not compressed (pprof reads both). Stage: output.
//!
//! Source of the form: profile.proto of github.com/google/pprof. Only the messages and fields used here are written; field
//! numbers stand beside them.

use super::Input;
use std::collections::{BTreeMap, HashMap};

/// A message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value > 0x7f {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A number (wire type 0); 0 is the default and left out.
    fn number(&mut self, field: u64, value: u64) -> &mut Self {
        if value != 0 {
            self.varint(field << 3);
            self.varint(value);
        }
        self
    }

    /// Bytes, a text or a message (wire type 2).
    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }
}

/// Texts are kept once and named by their number; 0 is the empty one.
struct Texts(Vec<String>, HashMap<String, u64>);

impl Texts {
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.1.get(text) {
            return *number;
        }
        let number = self.0.len() as u64;
        self.0.push(text.to_owned());
        self.1.insert(text.to_owned(), number);
        number
    }
}

/// The encoded profile.
pub fn document(input: &Input<'_>) -> Vec<u8> {
    let mut texts = Texts(Vec::new(), HashMap::new());
    texts.number("");
    let mut profile = Message::default();
    let value_type = |texts: &mut Texts, kind: &str, unit: &str| {
        let mut message = Message::default();
        message.number(1, texts.number(kind)).number(2, texts.number(unit));
        message.0
    };
    profile.bytes(1, &value_type(&mut texts, "samples", "count"));
    // The same stack, CPU and context is one sample with its count.
    let mut counts: BTreeMap<(u32, u32, u32), u64> = BTreeMap::new();
    for event in &input.timeline.events {
        *counts.entry((event.stack, event.cpu, event.context)).or_default() += 1;
    }
    for ((stack, cpu, context), count) in counts {
        let mut sample = Message::default();
        let mut locations = Message::default();
        // Innermost first; a location's id is its frame's number plus one.
        input.stacks[&stack].iter().rev().for_each(|frame| locations.varint(u64::from(*frame) + 1));
        let mut values = Message::default();
        values.varint(count);
        sample.bytes(1, &locations.0).bytes(2, &values.0);
        let mut label = Message::default();
        label.number(1, texts.number("cpu")).number(3, u64::from(cpu));
        sample.bytes(3, &label.0);
        let mut label = Message::default();
        label.number(1, texts.number("context")).number(2, texts.number(&input.timeline.contexts[context as usize]));
        sample.bytes(3, &label.0);
        profile.bytes(2, &sample.0);
    }
    for frame in 0..input.frames.len() as u64 {
        let (mut line, mut location) = (Message::default(), Message::default());
        line.number(1, frame + 1);
        location.number(1, frame + 1).bytes(4, &line.0);
        profile.bytes(4, &location.0);
        let mut function = Message::default();
        let name = texts.number(input.frames.name(frame as u32));
        function.number(1, frame + 1).number(2, name).number(3, name);
        profile.bytes(5, &function.0);
    }
    let last = input.timeline.events.last().map_or(0.0, |event| input.clock.seconds(event));
    profile.number(10, (last * 1e9) as u64);
    if let Some(rate) = input.rate_hz.filter(|rate| *rate > 0) {
        let kind = value_type(&mut texts, "time", "nanoseconds");
        profile.bytes(11, &kind).number(12, 1_000_000_000 / rate);
    }
    for text in &texts.0 {
        profile.bytes(6, text.as_bytes());
    }
    profile.0
}
