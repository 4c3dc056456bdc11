//! The verbs of this repository.
fn main() {}
