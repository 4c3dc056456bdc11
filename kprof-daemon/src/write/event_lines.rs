//! The event lines of the text form.
//!
//! In: events, and the names of points and tasks. Out: whole lines, appended to a buffer. Runs in: user process. Unlike
//! the lines of samples these are formatted by `fmt`, because events are rarer.

use crate::read::EventRecord;
use kprof_format::event::{EventLine, address};
use kprof_format::line::Name;
use std::collections::BTreeMap;
use std::io::Write as _;

/// The names of points by id, as far as the meta stream has told them.
#[derive(Debug, Default)]
pub struct PointNames(BTreeMap<u64, String>);

impl PointNames {
    /// The point with this id has this name, as the text `UNIT NAME STATE` of its record says.
    pub fn set(&mut self, id: u64, text: &[u8]) {
        let text = String::from_utf8_lossy(text);
        if let Some(name) = text.split(' ').nth(1) {
            self.0.insert(id, name.to_owned());
        }
    }

    /// The name of a point. One that the meta stream has not told, because its record was lost, is `id<hex>`.
    fn get(&self, id: u64) -> String {
        self.0.get(&id).cloned().unwrap_or_else(|| format!("id{id:x}"))
    }
}

/// Writes one event. `task` is the escaped name of its task.
pub fn put(out: &mut Vec<u8>, points: &PointNames, cpu: u32, record: &EventRecord<'_>, task: &[u8]) {
    let event = record.event;
    let point = points.get(event.point);
    let line = EventLine {
        point: Name::Raw(point.as_bytes()),
        task: Name::Escaped(task),
        cpu,
        tsc: event.tsc,
        weight: event.weight,
        state: event.state,
        arguments: event.arguments,
    };
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, "{line}");
    for word in record.stack.iter() {
        out.push(b' ');
        out.extend_from_slice(address(word).as_bytes());
    }
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Words;
    use kprof_format::event::{Arguments, Event};
    use kprof_format::point::PointState;

    #[test]
    fn an_event_is_a_line_with_the_name_of_its_point() {
        let mut names = PointNames::default();
        names.set(3, b"bytes null.write record");
        let words: Vec<u8> = [0xffff_ffff_8020_1000_u64, 0xa1].iter().flat_map(|word| word.to_le_bytes()).collect();
        for (point, name) in [(3, "null.write"), (4, "id4")] {
            let event = Event {
                point,
                tsc: 0x1f,
                task: 8,
                weight: 4096,
                state: PointState::Every(10),
                arguments: Arguments::of(&[7, 255]),
            };
            let mut out = Vec::new();
            put(&mut out, &names, 2, &EventRecord { event, stack: Words::new(&words) }, b"a%20b");
            let expected = format!("!{name} a%20b 2 1f 4096x10 7,ff ffffffff80201000 a1\n");
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }
}
