//! What several unit tests use.
//!
//! In and out: nothing. Runs in: tests.

pub(crate) mod quiet;
