//! The wire language: the formats of rings, device streams, control files and sample files.
//!
//! In: words or bytes. Out: typed views of them. Runs in: any, NMI included. Never allocates, never panics on
//! foreign input, contains no `unsafe`. The byte tables are in `docs/format.md`.
//!
//! ```
//! use kprof_format::marker::Marker;
//! use kprof_format::record::{Header, Kind};
//!
//! // The first word of a sample that has nine words, as a reader of the device stream finds it.
//! let header = Header::decode(0x6b70_726f_0101_0009).unwrap();
//! assert_eq!((header.kind, header.words), (Kind::Sample, 9));
//! // Among its addresses: interrupt 33 entered here.
//! assert_eq!(Marker::decode(0xffff_ffff_ffff_f121), Some(Marker::Interrupt(33)));
//! ```
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod account;
pub mod block;
pub mod checksum;
pub mod chunk;
pub mod command;
pub mod counter;
pub mod event;
pub mod fact;
pub mod line;
pub mod locks;
pub mod lockup;
pub mod marker;
pub mod memory;
pub mod pattern;
pub mod point;
pub mod precision;
pub mod probe;
pub mod record;
pub mod samples;
pub mod serial;
pub mod settings;
mod table;
pub mod text;
pub mod unwind;
pub mod verb;
pub mod waiting;
