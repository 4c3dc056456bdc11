//! The cargo features that leave parts out: what is compiled in works, and what is not is refused with its name.
//!
//! The tests hold in every combination of features; `cargo xtask test` runs them with none of the parts and with all.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::{CommandError, Config, CpuSlot, ExportError, InitError, Mode, Profiler, ReadError, Setup, Trigger};

fn unset() -> (&'static Profiler<ArrayKernel>, &'static [CpuSlot; 2]) {
    machine()
}

fn running() -> &'static Profiler<ArrayKernel> {
    let (profiler, slots) = unset();
    set_up(profiler, slots, Config { trigger: Trigger::Timer, sampler_cpu: None, running: true, ..Config::new() });
    profiler
}

/// What `init` says to these choices.
fn init(config: Config) -> Result<(), InitError> {
    let (profiler, slots) = unset();
    let config = Config { tsc_hz: 1_000_000_000, text: (text(0), text(256)), ..config };
    profiler.init(|| Setup { slots, meta: memory(1024), config })
}

fn sample(profiler: &Profiler<ArrayKernel>) {
    profiler.raise_tick(1);
    assert_eq!(profiler.on_nmi(&token(), &registers()), kprof::Outcome::Sampled);
}

#[test]
fn the_trigger_published_needs_its_feature() {
    let result = init(Config { trigger: Trigger::Published, ..Config::new() });
    match cfg!(feature = "published") {
        true => assert_eq!(result, Ok(())),
        false => assert_eq!(result, Err(InitError::NotCompiledIn("published"))),
    }
    assert_eq!(running().publisher(1).is_some(), cfg!(feature = "published"));
}

#[test]
fn the_flight_recorder_needs_its_feature() {
    let (at_boot, later) = (init(Config { mode: Mode::Overwrite, ..Config::new() }), running());
    let later = later.open_control(1).write(b"hz 77\nmode overwrite");
    match cfg!(feature = "recorder") {
        true => assert_eq!((at_boot, later.map(drop)), (Ok(()), Ok(()))),
        false => {
            assert_eq!(at_boot, Err(InitError::NotCompiledIn("recorder")));
            let error = later.unwrap_err();
            assert_eq!((error.line, error.reason), (2, CommandError::NotCompiledIn("recorder")));
            for command in ["freeze", "thaw"] {
                let refused = running().open_control(1).write(command.as_bytes()).unwrap_err();
                assert_eq!(refused.reason, CommandError::NotCompiledIn("recorder"), "{command}");
            }
            let said = "line 2: this kernel was built without kprof's cargo feature `recorder`";
            assert_eq!(error.to_string(), said);
        }
    }
}

#[test]
fn the_serial_form_needs_its_feature() {
    let (profiler, mut text, mut last) = (running(), String::new(), String::new());
    sample(profiler);
    let result = profiler.export(&mut text);
    profiler.export_last(&mut last, 8).unwrap();
    match cfg!(feature = "export") {
        true => {
            assert_eq!(result, Ok(()));
            assert!(text.contains("# batch cpu=1") && last.contains("# kprof-profile 1"), "{text}\n{last}");
        }
        false => {
            assert_eq!((result, text.as_str()), (Err(ExportError::NotCompiledIn("export")), ""));
            let said = "kprof: no samples: this kernel was built without kprof's cargo feature `export`\n";
            assert_eq!(last, said);
        }
    }
}

#[test]
fn raw_words_need_their_feature_and_a_claim_does_not() {
    let profiler = running();
    sample(profiler);
    let read = profiler.open_stream(1, 1).unwrap().read(&mut [0; 4096]);
    match cfg!(feature = "raw-words") {
        true => assert!(read.is_ok_and(|bytes| bytes > 0)),
        false => assert_eq!(read, Err(ReadError::NotClaimed)),
    }
    sample(profiler);
    let daemon = Daemon::claim(profiler, 2);
    assert!(daemon.stream.read(&mut [0; 4096]).unwrap() > 0);
}
