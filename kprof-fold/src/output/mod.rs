//! Output: writes the result in the requested form. The last stage of the host tool.
//!
//! In: folded stacks, the profile, the account. Out: text, SVG or HTML to any writer. The same input gives the same
//! bytes. Losses are shown, never hidden.

pub mod annotate;
pub mod columns;
pub mod export;
pub mod flamegraph;
pub mod folded;
pub mod groups;
pub mod info;
pub mod latency;
pub mod lockups;
pub mod page;
pub mod report;
pub mod requests;
pub mod script;
pub mod script_events;
pub mod self_cost;
pub mod table;
pub mod time;
pub mod tree;
pub mod waits;
