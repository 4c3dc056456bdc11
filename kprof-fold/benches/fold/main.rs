//! Bench: the fold loop against the reference pipeline and against `wc -l`, on inputs that it makes itself.
//!
//! In: nothing; the peers are installed under `target/peers` if they are not there. Out: CPU time, wall time, memory and
//! instructions, with the ratios that issue and README speak of. Runs are paired: ours, then the peer, then again.
//!
//! `cargo bench -p kprof-fold --bench fold -- [--pairs N] [--large] [--no-peer]`
#![forbid(unsafe_code)]

mod input;
mod measure;

use input::Shape;
use measure::{Run, instructions, run};
use std::path::{Path, PathBuf};
use std::process::Command;

struct Options {
    pairs: usize,
    large: bool,
    peer: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let after =
        |name: &str| arguments.iter().position(|a| a == name).and_then(|at| arguments.get(at + 1)?.parse().ok());
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let options = Options { pairs: after("--pairs").unwrap_or(5), large: has("--large"), peer: !has("--no-peer") };

    let ours = PathBuf::from(env!("CARGO_BIN_EXE_kprof-fold"));
    let target = ours.parent().and_then(Path::parent).expect("the binary is in target/release").to_owned();
    let peers = options.peer.then(|| install_peers(&target));
    let folder = target.join("bench-fold");
    std::fs::create_dir_all(&folder).expect("target is writable");
    let few = input::symbols(&folder, 3_000);
    let many = input::symbols(&folder, 50_000);
    let fold =
        |file: &Path, syms: &Path| format!("'{}' -q '{}' '{}' 2.2", ours.display(), file.display(), syms.display());

    // Memory first: what is measured is the largest child so far.
    let shape = |megabytes, stacks, functions, skewed| Shape { megabytes, stacks, functions, skewed }.make(&folder);
    let one = shape(0, 1, 3_000, false);
    let ten = shape(10, 20_000, 3_000, true);
    let ten_many = shape(10, 20_000, 50_000, true);
    let hundred = shape(100, 20_000, 3_000, true);
    let hundred_even = shape(100, 20_000, 3_000, false);
    let distinct = shape(100, 284_000, 3_000, false);
    if options.large {
        let thousand = shape(1000, 20_000, 3_000, false);
        let mut pairs = Vec::new();
        for _ in 0..options.pairs {
            pairs.push((run(&fold(&thousand, &few)), run(&format!("wc -l '{}'", thousand.display()))));
        }
        print_pairs("1 GB, 20 000 stacks drawn evenly", "wc -l", &pairs);
    }
    let (real_ten, real_syms) = input::real(&folder, 10);
    let (real_hundred, _) = input::real(&folder, 100);
    for (name, file, syms) in [
        ("10 MB of real Redox lines", &real_ten, &real_syms),
        ("100 MB of real Redox lines", &real_hundred, &real_syms),
        ("10 MB", &ten, &few),
        ("100 MB", &hundred, &few),
        ("100 MB, stacks drawn evenly", &hundred_even, &few),
        ("one line, 50 000 symbols", &one, &many),
    ] {
        let mut pairs = Vec::new();
        for _ in 0..options.pairs {
            let mine = run(&fold(file, syms));
            pairs.push((mine, peers.as_ref().map_or(mine, |peers| run(&peer_pipeline(peers, file, syms)))));
        }
        print_pairs(name, "redox-kprofiling | inferno-collapse-perf", &pairs);
    }
    let runs: Vec<(Run, Run)> = (0..options.pairs).map(|_| run(&fold(&distinct, &few))).map(|run| (run, run)).collect();
    print_pairs("100 MB, 284 000 distinct stacks", "itself", &runs);
    for (name, file, syms) in [
        ("10 MB of real Redox lines", &real_ten, &real_syms),
        ("10 MB", &ten, &few),
        ("10 MB, 50 000 symbols", &ten_many, &many),
    ] {
        match instructions(&ours, &[file, syms], &folder) {
            Some(count) => println!("{name}: {:.1} M instructions (callgrind)", count as f64 / 1e6),
            None => println!("{name}: instructions not counted (valgrind is not installed)"),
        }
    }
}

fn peer_pipeline(peers: &Path, file: &Path, syms: &Path) -> String {
    let bin = peers.join("bin");
    format!(
        "'{0}/redox-kprofiling' '{1}' '{2}' _ 2.2 2>/dev/null | '{0}/inferno-collapse-perf'",
        bin.display(),
        file.display(),
        syms.display()
    )
}

/// Installs the peers from crates.io, once.
fn install_peers(target: &Path) -> PathBuf {
    let root = target.join("peers");
    for (name, version, binary) in
        [("redox-kprofiling", "=0.2.2", "redox-kprofiling"), ("inferno", "=0.12.8", "inferno-collapse-perf")]
    {
        if root.join("bin").join(binary).exists() {
            continue;
        }
        let mut install = Command::new("cargo");
        install.args(["install", "--locked", "--version", version, name, "--root"]).arg(&root);
        let done = install.env("CARGO_TARGET_DIR", target.join("peers-build")).status().expect("cargo runs");
        assert!(done.success(), "cannot install {name} {version}; --no-peer leaves the comparison out");
    }
    root
}

fn print_pairs(name: &str, other: &str, pairs: &[(Run, Run)]) {
    let median = |value: &dyn Fn(&(Run, Run)) -> f64| {
        let mut values: Vec<f64> = pairs.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("{name}: CPU {:.3} s, wall {:.3} s, peak {:.1} MiB", median(&|p| p.0.cpu), median(&|p| p.0.wall), {
        pairs.iter().map(|p| p.0.peak_mib).fold(0.0, f64::max)
    });
    println!("    {other}: CPU {:.3} s, wall {:.3} s", median(&|p| p.1.cpu), median(&|p| p.1.wall));
    println!(
        "    median of {} pairs: CPU {:.1} times, wall {:.1} times less (below 1: more)",
        pairs.len(),
        median(&|p| p.1.cpu / p.0.cpu),
        median(&|p| p.1.wall / p.0.wall)
    );
}
