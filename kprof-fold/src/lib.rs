//! kprof-fold: makes flame graphs and tables from a profile file. The host end of a sample's path.
//!
//! The modules in the order of the path: [`read`] parses the bytes, [`symbols`] finds the names of addresses,
//! [`resolve`] the frames of stacks, [`select`] and [`fold`] choose and fold them, [`account`] checks the account, and
//! [`output`] writes the result. Nothing here runs in a kernel, nothing here is `unsafe`, and every error says where it
//! is.
#![doc = "\n---\n"]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod by_address;
pub mod error;
pub mod points;
pub mod problems;

pub mod profile;
pub mod read;
pub mod relocations;
pub mod stacks;
pub mod state;
pub mod symbols;
pub mod task_times;

pub mod events;
pub mod intervals;
pub mod overview;
pub mod packed;
pub mod requests;
pub mod select;
pub mod spent;
pub mod tally;
pub mod timeline;
pub mod tracks;
pub mod watch;
pub mod weighed;

pub mod account;
pub mod aliasing;
pub mod amount;
pub mod fold;
pub mod resolve;

pub mod diff;
pub mod heap;
pub mod lockups;
pub mod output;
pub mod probes;
pub mod unwind;

pub mod cli;
