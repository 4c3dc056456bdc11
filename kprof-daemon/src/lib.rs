//! kprof's user space: drains the kernel's rings into a file, nothing lost, nothing double.
//!
//! Contents, in the order of the path (`profiled`; [`record`] puts a command around it): a [`source`] gives bytes,
//! [`read`] takes them apart, [`names`] and [`ctl`] say what they mean, [`drain_loop`] makes the rounds, [`mod@write`]
//! brings them to the disk. All of it stands on [`system`], the one seam to the operating system.
#![doc = "\n---\n"]
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod by_task;
pub mod ctl;
pub mod drain_loop;
pub mod error;
pub mod names;
pub mod options;
pub mod pace;
pub mod read;
pub mod record;
pub mod signals;
pub mod source;
pub mod system;
pub mod write;
