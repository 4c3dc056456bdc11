//! kprof-fold: from a profile file to an answer. The host end of the path.
//!
//! Contents, in the order of the path: bytes come in through [`read`], addresses get names in [`symbols`], stacks are
//! chosen and folded in [`select`] and [`fold`], the account is checked in [`account`], and [`output`] writes the
//! answer. Nothing here runs in a kernel; nothing here is `unsafe`; every error has a place.
#![doc = "\n---\n"]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod error;
pub mod problems;

pub mod profile;
pub mod read;
pub mod relocations;
pub mod stacks;
pub mod symbols;

pub mod select;
pub mod tally;
pub mod timeline;

pub mod account;
pub mod aliasing;
pub mod fold;

pub mod diff;
pub mod output;

pub mod cli;
