//! kprof's user space: drains the kernel's rings into a file. No record is lost, and none is written twice.
//!
//! The modules, in the order in which records pass them ([`profiled`] uses all of them until it is told to stop,
//! [`record`] while a command runs): a [`source`] gives bytes, [`read`] parses them, [`names`] and [`ctl`] give task
//! names and counters, [`drain_loop`] runs the rounds, [`mod@write`] writes the file. All of it calls the operating
//! system through [`system`] only.
#![doc = "\n---\n"]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

/// The names of facts and counters.
pub use kprof_format;

pub mod by_point;
pub mod by_task;
pub mod ctl;
pub mod drain_loop;
pub mod error;
pub mod names;
pub mod options;
pub mod pace;
pub mod profiled;
pub mod read;
pub mod record;
pub mod signals;
pub mod source;
pub mod stream;
pub mod system;
pub mod write;
