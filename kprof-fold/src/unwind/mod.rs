//! Unwind tables of kernels without frame pointers. Stage: beside the path of a sample, for kernel and capture.
//!
//! In: the kernel's ELF file. Out: what it says of each function (`described`), and from that the compact table that
//! goes into the kernel (`compact`). Runs on the host.

pub mod assembly;
pub mod compact;
pub mod described;
