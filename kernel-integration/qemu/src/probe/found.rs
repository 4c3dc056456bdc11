//! What probes have found. In: messages. Out: data, by number of the probe.

use std::collections::BTreeMap;

/// What one probe has found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Probed {
    /// Its number.
    pub number: u64,
    /// Calls.
    pub calls: u64,
    /// Those that have returned and whose time was measured.
    pub returned: u64,
    /// The sum of their times, in nanoseconds.
    pub sum: u64,
    /// The shortest one.
    pub min: u64,
    /// The longest one.
    pub max: u64,
    /// By number of binary digits of their times.
    pub by_digits: Vec<u64>,
}

/// A call that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hit {
    /// The probe's number.
    pub probe: u64,
    /// The number of its context.
    pub context: u64,
    /// The guest's time in nanoseconds.
    pub time: u64,
    /// RDI, RSI, RDX, RCX, R8, R9.
    pub arguments: [u64; 6],
}

/// What all have found.
#[derive(Debug, Default)]
pub struct Found {
    /// By number.
    pub probes: BTreeMap<u64, Probed>,
    /// Calls by probe and key.
    pub keys: BTreeMap<u64, BTreeMap<u64, u64>>,
    /// Calls that were asked for, by probe.
    pub hits: BTreeMap<u64, Hit>,
}
