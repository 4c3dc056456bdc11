//! What kprof is told at its set-up: memory, addresses, settings.
//!
//! In: constants and the kernel's environment. Out: a `kprof::Setup`. Runs in: the
//! sampler CPU, or the only CPU, once.

use alloc::{boxed::Box, vec::Vec};
use core::ops::RangeInclusive;

use kprof::{Config, CpuSlot, Setup};

use crate::{
    arch::profiling::{anchor, timestamp},
    cpu_set::LogicalCpuId,
    kernel_executable_offsets::{__text_end, __text_start, KERNEL_OFFSET},
    sync::CleanLockToken,
};

/// Maximum number of frames: as many as a raw record can have, so that no stack is truncated there
/// without a mark.
const DEPTH: u16 = 240;
const META_WORDS: usize = 4096;
/// Ticks per second, unless `KPROF_HZ` says otherwise.
pub(super) const HZ: u32 = 1000;
/// The values of `KPROF_HZ` that are accepted.
const HZ_RANGE: RangeInclusive<u32> = 1..=20_000;

pub(super) fn setup(sampler: Option<LogicalCpuId>, tsc_hz: u64, hz: u32) -> Setup {
    let slots = (0..=sampler.map_or(0, LogicalCpuId::get))
        .map(|_| CpuSlot::new())
        .collect::<Vec<_>>();
    // SAFETY: this CPU holds no lock.
    let mut token = unsafe { CleanLockToken::new() };
    let time = crate::time::realtime(&mut token) as u64;
    let tsc = timestamp();
    Setup {
        slots: Box::leak(slots.into_boxed_slice()),
        meta: Box::leak(Box::<[u64]>::new_uninit_slice(META_WORDS)),
        config: Config {
            sampler_cpu: sampler.map(|cpu| cpu.get() as usize),
            hz,
            seed: tsc,
            // Differs at each boot, so that a file with several boots distinguishes them.
            boot: (time.rotate_left(32) ^ tsc) | 1,
            include_user: true,
            can_wait: true,
            depth: DEPTH,
            tsc_hz,
            load: KERNEL_OFFSET() as u64,
            text: (__text_start() as u64, __text_end() as u64),
            anchors: Box::leak(Box::new([anchor()])),
            ..Config::new()
        },
    }
}

/// Ticks per second by `KPROF_HZ`. A value that cannot be used is reported in the log.
pub(super) fn hz() -> u32 {
    let Some(text) = env("KPROF_HZ") else {
        return HZ;
    };
    match text.parse() {
        Ok(hz) if HZ_RANGE.contains(&hz) => hz,
        _ => {
            let (least, most) = (HZ_RANGE.start(), HZ_RANGE.end());
            error!(
                "kprof: KPROF_HZ={text}: it must be a number from {least} to {most}; {HZ} is used"
            );
            HZ
        }
    }
}

/// The value of the variable `name` in the kernel's environment, whose lines are `NAME=VALUE`.
pub(super) fn env(name: &str) -> Option<&'static str> {
    let text = core::str::from_utf8(crate::startup::init_env()).ok()?;
    let value = |line: &'static str| line.strip_prefix(name)?.strip_prefix('=');
    text.lines().find_map(value).map(str::trim)
}
