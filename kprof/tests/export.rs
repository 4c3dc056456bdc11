//! The serial form: whole lines with checksums, names and the account. `export` frees the samples that it has written;
//! `export_last`, which panic handlers call, leaves them in the ring.
#![cfg(feature = "profiling")]

mod array_kernel;

use array_kernel::*;
use kprof::format::serial;
use kprof::{Config, CpuSlot, Outcome, Profiler};

fn lines(log: &str) -> Vec<String> {
    let lines = log.lines().map(|line| serial::read(line.as_bytes()).expect("a line of ours").expect("undamaged"));
    lines.map(|line| String::from_utf8(line.line.to_vec()).unwrap()).collect()
}

#[test]
fn what_is_exported_is_whole_named_and_freed_and_a_panic_frees_nothing() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    set_up(&PROFILER, &SLOTS, Config { running: true, ..Config::new() });
    PROFILER.task_name(7, "old name");
    PROFILER.task_name(7, "disk 0");
    PROFILER.task_name(8, "another task");
    PROFILER.mark("here");
    let (token, at) = (token(), registers());
    for _ in 0..5 {
        SLOTS[1].raise_tick();
        assert_eq!(PROFILER.on_nmi(&token, &at), Outcome::Sampled);
    }
    PROFILER.stop().unwrap();

    let mut log = String::new();
    PROFILER.export_last(&mut log, 2).unwrap();
    let panic = lines(&log);
    let stack = format!("{:x} {:x} {:x}", text(30), text(20), text(40));
    let samples = |lines: &[String]| lines.iter().filter(|line| line.starts_with("disk%200 1 ")).count();
    assert_eq!(samples(&panic), 2, "{panic:#?}");
    assert!(panic.iter().filter(|line| line.starts_with("disk")).all(|line| line.ends_with(&stack)), "{panic:#?}");
    assert!(panic.contains(&"# task id=7 name=disk%200".to_owned()));
    assert!(panic.iter().any(|line| line.starts_with("# batch cpu=1 from=24 to=40 first-tick=4 last-tick=5 taken=5 ")));
    assert_eq!(counter(&PROFILER, "in-ring"), 5);

    let mut log = String::new();
    PROFILER.export(&mut log).unwrap();
    let all = lines(&log);
    assert_eq!(samples(&all), 5, "{all:#?}");
    assert!(all.contains(&"# end cpu=1 to=40 samples=5".to_owned()));
    assert_eq!(counters(&PROFILER, ["in-ring", "delivered"]), [0, 5]);
    let mut log = String::new();
    PROFILER.export(&mut log).unwrap();
    assert_eq!(samples(&lines(&log)), 0);
    let sequences: Vec<u64> =
        log.lines().map(|line| serial::read(line.as_bytes()).unwrap().unwrap().sequence).collect();
    assert!(sequences.windows(2).all(|pair| pair[1] == pair[0] + 1) && sequences[0] > 15, "{sequences:?}");
}

#[test]
fn the_header_and_each_meta_record_are_exported_once() {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config::new());
    let export = || {
        let mut log = String::new();
        profiler.export(&mut log).unwrap();
        let lines = lines(&log);
        let count = |begins: &str| lines.iter().filter(|line| line.starts_with(begins)).count();
        let marks: Vec<String> = lines.iter().filter(|line| line.starts_with("# mark ")).cloned().collect();
        (count("# kprof-profile "), count("# batch cpu=meta "), marks)
    };
    profiler.mark("first");
    let (headers, batches, marks) = export();
    assert!((headers, batches, marks.len()) == (1, 1, 1) && marks[0].ends_with(" name=first"), "{marks:?}");
    profiler.mark("second");
    let (headers, batches, marks) = export();
    assert!((headers, batches, marks.len()) == (0, 1, 1) && marks[0].ends_with(" name=second"), "{marks:?}");
    assert_eq!(export(), (0, 0, Vec::new()));
}

/// A sink that calls its function once.
struct Once<F: FnMut()>(Option<F>);

impl<F: FnMut()> std::fmt::Write for Once<F> {
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        self.0.take().into_iter().for_each(|mut happens| happens());
        Ok(())
    }
}

#[test]
fn a_mark_does_not_wait_for_the_end_of_an_export_that_owns_a_full_stream() {
    let (profiler, slots) = machine();
    set_up(profiler, slots, Config::new());
    (0..200).for_each(|_| profiler.mark("mark"));
    assert_eq!(control(profiler)["meta.lost"], "0");
    profiler.export(&mut Once(Some(|| profiler.mark("late")))).unwrap();
    assert_eq!(control(profiler)["meta.lost"], "1");
}

/// A sink that knows how deep the stack is where it is called.
struct Depth {
    lowest: usize,
}

impl std::fmt::Write for Depth {
    #[inline(never)]
    fn write_str(&mut self, _: &str) -> std::fmt::Result {
        let here = 0_u8;
        self.lowest = self.lowest.min(std::hint::black_box(&raw const here).addr());
        Ok(())
    }
}

#[test]
fn export_last_needs_no_more_stack_than_its_page_says() {
    static PROFILER: Profiler<ArrayKernel> = Profiler::new(ArrayKernel);
    static SLOTS: [CpuSlot; 2] = [const { CpuSlot::new() }; 2];
    set_up(&PROFILER, &SLOTS, Config { running: true, ..Config::new() });
    PROFILER.task_name(7, &"a long name".repeat(8));
    PROFILER.mark("here");
    SLOTS[1].raise_tick();
    assert_eq!(PROFILER.on_nmi(&token(), &registers()), Outcome::Sampled);
    let here = 0_u8;
    let mut sink = Depth { lowest: usize::MAX };
    PROFILER.export_last(&mut sink, 8).unwrap();
    let bytes = std::hint::black_box(&raw const here).addr() - sink.lowest;
    println!("{bytes} bytes of stack");
    assert!(bytes > 100, "the sink was not called");
    // A build without optimisation needs more; kernels that dump from a small stack are optimised.
    assert!(bytes <= 6 * 1024 || cfg!(debug_assertions), "{bytes} bytes");
}
