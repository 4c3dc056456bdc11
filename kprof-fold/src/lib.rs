//! Placeholder of the host tool crate.
