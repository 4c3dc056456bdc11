//! speedscope's file format, sampled, one profile per CPU. Stage: output.
//!
//! Source of the form: the schema at <https://www.speedscope.app/file-format-schema.json>.

use super::Input;
use serde_json::{Value, json};

/// The document.
pub fn document(input: &Input<'_>) -> Value {
    let frames: Vec<Value> =
        (0..input.frames.len()).map(|id| json!({ "name": input.frames.name(id as u32) })).collect();
    let profile = |cpu: u32| {
        let events: Vec<_> = input.timeline.events.iter().filter(|event| event.cpu == cpu).collect();
        let samples: Vec<Value> = events.iter().map(|event| json!(input.stacks[&event.stack])).collect();
        json!({
            "type": "sampled",
            "name": format!("CPU {cpu}"),
            "unit": "none",
            "startValue": 0,
            "endValue": events.len(),
            "samples": samples,
            "weights": vec![1; events.len()],
        })
    };
    json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "shared": { "frames": frames },
        "profiles": input.cpus().into_iter().map(profile).collect::<Vec<_>>(),
        "name": input.name,
        "exporter": concat!("kprof-fold ", env!("CARGO_PKG_VERSION")),
    })
}
