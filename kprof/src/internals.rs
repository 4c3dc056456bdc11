//! What a package above the profiler uses of its insides: `kprof-events`, which is released together with it. Kernels
//! use none of it.
//!
//! In: the stages. Out: the same items under one path. Runs in: as each item says. Nothing in this package imports it.

pub use crate::arch::{interrupts, own_frame, timestamp};
pub use crate::clock::ticks_to_ns;
pub use crate::export::lines::{Addresses, Lines, Record};
pub use crate::export::{each_record, export_header, lines};
#[cfg(feature = "testing")]
pub use crate::handler::with_tick;
pub use crate::hit::Hit;
pub use crate::intervals::Intervals;
pub use crate::live::State;
pub use crate::patience::Patience;
pub use crate::ring::Ring;
pub use crate::setup::init;
pub use crate::shared::{Instance, Shared};
pub use crate::stream::OWNER_WAIT_US;
pub use crate::stream::Stream;
pub use crate::stream::meta::Meta;
pub use crate::stream::meta_record::{MAX_TEXT, MetaRecord};
pub use crate::unwind::{Direct, Memory};
