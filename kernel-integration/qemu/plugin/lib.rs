//! The plugin that `kprof-qemu` loads into QEMU: samples each vCPU, or counts every instruction. Stage: capture.
//!
//! In: `socket=PATH`, and what [`sample`] or, with `count=flat` or `count=calls`, [`count`] needs. Out: messages on the
//! socket, see [`output::message`]. Runs in: QEMU's process. Nothing is written to the guest. Never ends QEMU.
#![allow(missing_docs)]

mod beside;
mod block;
mod callbacks;
mod calls;
mod clock;
mod context;
mod count;
mod decode;
mod describe;
mod entries;
mod functions;
mod guest;
mod halts;
mod histogram;
mod interface;
#[cfg(not(interface = "1"))]
mod official;
#[cfg(interface = "1")]
mod old;
mod output;
mod outside;
mod pages;
mod place;
mod probes;
mod processor;
mod qemu;
mod records;
mod reset;
mod sample;
mod seen;
mod send;
mod shadow;
mod stops;
mod surprise;
mod symbol;
mod tasks;
mod totals;
mod translate;
mod walk;
mod window;

use qemu::{Id, Info};
use std::ffi::{CStr, c_char, c_int};
use std::os::unix::net::UnixStream;

/// The version of the interface.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = qemu::VERSION;

/// What the tool has given, as `key=value`.
struct Arguments(Vec<String>);

impl Arguments {
    fn word(&self, key: &str) -> Option<&str> {
        self.0.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.word(key).and_then(|text| text.parse::<u64>().ok()).filter(|number| *number > 0)
    }
}

/// What QEMU calls first. Its result is 0, or anything else to end QEMU.
///
/// # Safety
/// QEMU calls it, with `count` strings in `arguments`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU gives a description with the name of the emulated processor, and `count` strings.
    let (target, max_vcpus, arguments) = unsafe {
        let words = (0..count as usize).map(|at| CStr::from_ptr(*arguments.add(at)).to_string_lossy().into_owned());
        let target = CStr::from_ptr((*info).target).to_string_lossy().into_owned();
        (target, (*info).max_vcpus as usize, Arguments(words.collect()))
    };
    match install(id, &target, max_vcpus, &arguments) {
        Ok(()) => 0,
        Err(why) => {
            eprintln!("kprof-qemu: {why}");
            1
        }
    }
}

fn install(id: Id, target: &str, max_vcpus: usize, arguments: &Arguments) -> Result<(), String> {
    let processor = processor::Processor::of(target).ok_or_else(|| format!("guests of {target} are not known"))?;
    if let Some(expected) = arguments.word("arch").filter(|expected| *expected != target) {
        return Err(format!("the guest is {target}, and by the name of this QEMU it is {expected}"));
    }
    qemu::prepare(processor, max_vcpus)?;
    let path = arguments.word("socket").ok_or("the plugin was given no socket")?;
    let out = output::Output::new(UnixStream::connect(path).map_err(|error| format!("{path}: {error}"))?);
    match arguments.word("count") {
        Some(_) => count::install(id, processor, arguments, out),
        None => sample::install(id, (processor, max_vcpus), arguments, out),
    }
}
