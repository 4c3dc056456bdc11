//! The wire language: what ring, device stream and files are made of. Used by kernel, daemon and host.
//!
//! In: words or bytes. Out: typed views of them. Runs in: any, NMI included. Never allocates, never panics on
//! foreign input, contains no `unsafe`. The byte tables are in `docs/format.md`.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod chunk;
pub mod marker;
pub mod record;
pub mod samples;
pub mod serial;
pub mod text;
