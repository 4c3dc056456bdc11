//! Placeholder of the daemon crate.
