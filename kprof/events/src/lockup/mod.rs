//! The witness: the sampler CPU, which still runs when other CPUs are stuck, reports them.
//!
//! In: a lockup that the sampler has found. Out: [`Lockup`], which a kernel prints or exports in
//! [`crate::EventKernel::locked_up`]. Runs in: the sampler CPU, ordinary code. `check` finds lockups; with the feature
//! `profiling` off there is none, and the type has no value.

#[cfg(feature = "profiling")]
pub(crate) mod check;
#[cfg(feature = "profiling")]
mod export;
#[cfg(feature = "profiling")]
mod places;
#[cfg(feature = "profiling")]
pub(crate) mod report;
#[cfg(feature = "profiling")]
pub(crate) mod watch;

#[cfg(feature = "profiling")]
use crate::lockup::report::Report;
use core::fmt;
use kprof::format::lockup::Kind;
#[cfg(feature = "profiling")]
use kprof::format::lockup::Reason;

/// A CPU that is locked up, for [`crate::EventKernel::locked_up`]. It prints itself as one sentence.
pub struct Lockup<'a> {
    #[cfg(feature = "profiling")]
    report: &'a Report<'a>,
    #[cfg(not(feature = "profiling"))]
    never: &'a core::convert::Infallible,
}

impl Lockup<'_> {
    /// The CPU.
    pub fn cpu(&self) -> usize {
        feature!(self.report.cpu; else match *self.never {})
    }

    /// Soft: the CPU answers ticks, but shows no progress. Hard: it does not answer.
    pub fn kind(&self) -> Kind {
        feature!(self.report.found.reason.kind(); else match *self.never {})
    }

    /// For how many milliseconds the CPU has been locked up.
    pub fn ms(&self) -> u64 {
        feature!(self.report.ms(); else match *self.never {})
    }

    /// Writes the report in the serial form: since when, the task, where the CPU was, and the newest stack of every
    /// CPU. `kprof-fold lockups` reads it in a serial log. `out` must not wait for a lock that another CPU may hold.
    /// Needs 4 KiB of stack. With the feature `export` off, it writes one line that says so.
    ///
    /// # Errors
    /// Those of the sink.
    pub fn export(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        feature!(export::export(self.report, out); else {
            let _ = out;
            match *self.never {}
        })
    }
}

impl fmt::Display for Lockup<'_> {
    #[cfg(feature = "profiling")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.report.found.reason {
            Reason::InterruptsOff => "has had interrupts off",
            Reason::OneTask => "has run nothing but kernel code of one task",
            Reason::NoAnswer => "has not answered",
        };
        write!(f, "{} lockup: CPU {} {what} for {} ms", self.kind(), self.cpu(), self.ms())?;
        match self.report.found.holder {
            Some((_, cpu)) => write!(f, ", waiting for a lock that was taken on CPU {cpu}"),
            None => Ok(()),
        }
    }

    #[cfg(not(feature = "profiling"))]
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self.never {}
    }
}
