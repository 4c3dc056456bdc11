//! What a package above the profiler uses of its insides: `kprof-events`, which is released together with it. Kernels
//! use none of it.
//!
//! In: the stages. Out: the same items under one path. Runs in: as each item says. Nothing in this package imports it.

pub use crate::arch::{interrupts, own_frame, timestamp};
pub use crate::clock::ticks_to_ns;
pub use crate::export::{export_header, lines};
#[cfg(feature = "testing")]
pub use crate::handler::with_tick;
pub use crate::hit::Hit;
pub use crate::intervals::Intervals;
pub use crate::parts::EXPORT;
pub use crate::patience::Patience;
pub use crate::ring::Ring;
pub use crate::setup::init;
pub use crate::state::meta::{MAX_TEXT, Meta};
pub use crate::state::more_stream::MoreStream;
pub use crate::state::settings::State;
pub use crate::state::stream::OWNER_WAIT_US;
pub use crate::state::{Instance, Shared};
pub use crate::unwind::{Direct, Memory};
