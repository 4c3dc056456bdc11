//! The Firefox Profiler's processed profile, a thread per CPU. Stage: output.

use super::Input;
use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile, ReferenceTimestamp, SamplingInterval, Timestamp,
};
use std::time::SystemTime;

/// The document.
pub fn document(input: &Input<'_>) -> Profile {
    let interval = SamplingInterval::from_hz(input.rate_hz.unwrap_or(1000) as f32);
    // The time of day of a boot is not known. The constant makes the same input give the same bytes.
    let reference = ReferenceTimestamp::from_system_time(SystemTime::UNIX_EPOCH);
    let mut profile = Profile::new(&input.name, reference, interval);
    let start = Timestamp::from_nanos_since_reference(0);
    let process = profile.add_process("kernel", 0, start);
    for cpu in input.cpus() {
        let thread = profile.add_thread(process, cpu, start, false);
        profile.set_thread_name(thread, &format!("CPU {cpu}"));
        for event in input.timeline.events.iter().filter(|event| event.cpu == cpu) {
            let frames: Vec<FrameInfo> = input.stacks[&event.stack]
                .iter()
                .map(|id| FrameInfo {
                    frame: Frame::Label(profile.intern_string(input.frames.name(*id))),
                    category_pair: CategoryHandle::OTHER.into(),
                    flags: FrameFlags::empty(),
                })
                .collect();
            let stack = profile.intern_stack_frames(thread, frames.into_iter());
            let at = Timestamp::from_nanos_since_reference((input.clock.seconds(event) * 1e9) as u64);
            profile.add_sample(thread, at, stack, CpuDelta::ZERO, 1);
        }
    }
    profile
}
