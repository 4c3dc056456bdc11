//! The daemon with device files like those of an unmodified Redox kernel.
//!
//! In: the real words of `data/redox/`; a read gives any whole number of words, as in that kernel. Out: the same
//! samples as in the text that kprof-fold's tests have, in the order of each CPU; and the bytes that were written to
//! the ctl file. This test does not show that the daemon runs on Redox itself.

use crate::support;

use kprof_daemon::drain_loop::{Options, Session};
use kprof_daemon::error::Error;
use kprof_daemon::pace::Pace;
use kprof_daemon::signals::Signals;
use kprof_daemon::source::kprof_device::KprofDevice;
use kprof_daemon::source::redox_device::RedoxDevice;
use std::collections::BTreeMap;
use std::path::Path;
use support::kernel::Kernel;
use support::reader::read;
use support::scenario::OUTPUT;
use support::system::{SCHEME, Simulated};

fn data(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/redox").join(name)).unwrap()
}

#[test]
fn every_sample_of_the_real_dump_comes_out_in_the_order_of_its_cpu() {
    let signals = Signals::default();
    let stopper = signals.clone();
    let on_pause = move |_: &mut Kernel, pause| {
        if pause == 100 {
            stopper.stop();
        }
    };
    let mut system = Simulated::new(Kernel::new(&[], 1 << 10, 1), Box::new(on_pause));
    system.0.borrow_mut().redox = Some((0..3).map(|cpu| (cpu, data(&format!("profiling-{cpu}.bin")))).collect());
    // The kernel knows the names of only some tasks.
    let names = String::from_utf8(data("tasks.txt")).unwrap();
    let names = names.lines().filter_map(|line| {
        let (id, name) = line.split_once(' ')?;
        Some((u64::from_str_radix(id, 16).ok()?, name.as_bytes().to_vec()))
    });
    let names: BTreeMap<u64, Vec<u8>> = names.filter(|(id, _)| id % 2 == 0).collect();
    assert!(!names.is_empty());
    system.0.borrow_mut().redox_names.clone_from(&names);

    let refused = KprofDevice::open(&mut system, Path::new(SCHEME)).err().unwrap();
    assert!(matches!(refused, Error::NotKprof { .. }), "what makes profiled take the other source: {refused}");
    let source = RedoxDevice::open(&mut system, Path::new(SCHEME)).unwrap();
    let mut options = Options::new(OUTPUT);
    options.commands.push("start".into());
    let mut seen = system.clone();
    let mut session = Session::open(&mut seen, source, options, signals).unwrap();
    let totals = session.run(|_, _| Some(Pace::LONGEST)).unwrap();
    assert_eq!((totals.samples, totals.corrupt), (5083, 0));

    let file = String::from_utf8(system.file(OUTPUT)).unwrap();
    assert!(!file.contains("# account"), "this kernel counts nothing");

    let by_cpu = |lines: Vec<(u32, String)>| {
        let mut cpus: BTreeMap<u32, Vec<String>> = BTreeMap::new();
        lines.into_iter().for_each(|(cpu, line)| cpus.entry(cpu).or_default().push(line));
        cpus
    };
    let expected = String::from_utf8(data("../../../../kprof-fold/tests/data/redox/profiling.txt")).unwrap();
    let expected = expected.lines().map(|line| {
        let (_, rest) = line.split_once(' ').unwrap();
        (u32::from_str_radix(rest.split(' ').next().unwrap(), 16).unwrap(), rest.to_owned())
    });
    let reading = read(&[system.file(OUTPUT)]);
    let mut named = 0;
    let got = reading.samples.into_iter().map(|((cpu, _), line, name)| {
        named += usize::from(names.values().any(|known| known == name.as_bytes()));
        assert!(name.starts_with("id") || names.values().any(|known| known == name.as_bytes()), "{name}");
        (cpu, line)
    });
    assert_eq!(by_cpu(got.collect()), by_cpu(expected.collect()));
    assert!((1..5083).contains(&named), "{named}");
    assert_eq!(system.0.borrow().kernel.commands, ["protocol 1\n", "1", "0"]);
}
