//! `cargo xtask sweep --arch aarch64|riscv64`: an NMI before every instruction of a call tree and of the entry stubs.
//!
//! In: the bare kernel, whose CPU 1 executes a round of its work one instruction at a time, by QEMU's gdb stub. At each
//! new place CPU 0 goes on alone until it has sent a tick, and CPU 1 takes it there. Out: each function with its
//! instructions. The command fails if a stack lacks a caller or has a wrong one, by the shadow of calls in [`path`]. In
//! an entry stub a stack may have no more than the stub. Where the hardware masks NMIs no tick can arrive: inside the
//! handler, and on aarch64 also in an entry stub until it unmasks FIQs.

mod judge;
mod machine;
#[path = "../../../../kernel-integration/qemu/src/packet.rs"]
#[allow(dead_code, reason = "the packets of kprof-qemu, which asks for more")]
mod packet;
mod path;

use std::collections::BTreeSet;
use std::path::Path as File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::profile::bare::{Boot, Processor, Variant};
use crate::run::{self, Guard};
use crate::toolchain::{self, Choice};
use crate::tools::Install;
use crate::{build, gdb, qemu};
use judge::{Names, Order};
use machine::Machine;
use path::{Flow, Path};

/// The time limit of the machine, of all its steps.
const LIMIT: Duration = Duration::from_secs(600);
/// Ticks per second.
const HZ: u32 = 5000;
/// The kernel's loop is left after this many steps without a new place.
const OLD_STEPS: usize = 40;
/// How often CPU 0 goes on for a moment until it has sent a tick.
const MOMENTS: usize = 2000;
const MARKERS: u64 = super::markers::MARKER_PAGE;
/// The markers of the kernel's entry stubs.
const INTERRUPT: u64 = MARKERS | 0x101;
const EXCEPTION: u64 = MARKERS | 0x200;

/// What only one processor has.
struct Facts {
    /// The numbers of the stack pointer and of the link register.
    sp: usize,
    link: usize,
    /// What an instruction does to the stack.
    flow: fn(u32) -> Flow,
    /// Whether the instruction interrupts this CPU.
    interrupts: fn(u32) -> bool,
    /// WFI, after which the sampler CPU is between two ticks.
    wait: u32,
    /// Where a tick of CPU 1 is seen before it is taken.
    pending: u64,
    /// The vectors of an exception and of an interrupt of the kernel, and of the system call, from `stubs` on.
    vectors: [u64; 3],
    /// The breakpoint's number.
    exception: u64,
    /// The register and its bit that masks NMIs, if any does.
    mask: Option<(usize, u64)>,
}

const AARCH64: Facts = Facts {
    sp: 31,
    link: 30,
    flow: path::on_aarch64,
    interrupts: |word| word & !0x1f == 0xd518_cba0,
    wait: 0xd503_207f,
    pending: 0xffff_ff80_080d_0200, // GICR_ISPENDR0
    vectors: [0x200, 0x280, 0x400],
    exception: 0,
    mask: Some((33, 1 << 6)),
};
const RISCV64: Facts = Facts {
    sp: 2,
    link: 1,
    flow: path::on_riscv64,
    interrupts: |word| word == 0x1441_6073,
    wait: 0x1050_0073,
    pending: 0xffff_ffc0_0200_0004, // MSIP
    vectors: [0; 3],
    exception: 3,
    mask: None,
};

/// Sweeps the kernel. Returns what is wrong.
///
/// # Errors
/// If the machine does not do what it must, or the profile cannot be read.
pub fn run(processor: Processor, choice: Choice, install: Install, output: &File) -> Result<Vec<String>> {
    let qemu = processor.find(install)?;
    let elf = processor.kernel(toolchain::find(processor.target, choice, install)?, Variant::Nmi)?;
    let fold = build::tool("kprof-fold")?;
    std::fs::create_dir_all(output)?;
    let serial = output.join(format!("{}.log", processor.name));
    let names = Names::of(&build::symbols_of(&elf)?)?;
    let stub = gdb::free_address()?;
    let boot = Boot { cpus: 2, is_counted: false, seed: 1, hz: HZ, storm: None, misses: None, offers_cycles: true };
    let mut command = processor.command(&qemu, &elf, boot, &serial);
    command.args(["-S", "-gdb", &format!("tcp:{stub}")]).stdin(Stdio::null());
    let mut running = Guard(command.spawn().context("QEMU cannot be started")?);
    let facts = if processor.name == "riscv64" { RISCV64 } else { AARCH64 };
    let mut sweep =
        Sweep { facts, machine: Machine::connect(&stub)?, names, orders: Vec::new(), masked: BTreeSet::new() };
    sweep.round()?;
    let Sweep { machine, names, orders, masked, .. } = sweep;
    machine.release()?;
    let end = Instant::now() + LIMIT;
    while running.0.try_wait()?.is_none() {
        ensure!(Instant::now() < end, "the kernel does not come to its end:\n{}", qemu::last_lines(&serial, 20));
        std::thread::sleep(Duration::from_millis(50));
    }
    let tail = qemu::last_lines(&serial, 3);
    ensure!(tail.ends_with("bare: the end"), "the kernel does not come to its end:\n{tail}");
    let mut script = std::process::Command::new(fold);
    script.args(["script", "--strict", "--no-inline"]).arg(&serial).arg(&elf);
    let stacks = super::tree::read_script(&run::output(&mut script)?)?;
    judge::judge(&names, &orders, &masked, &stacks)
}

/// The sweep of a machine.
struct Sweep {
    facts: Facts,
    machine: Machine,
    names: Names,
    orders: Vec<Order>,
    /// Instructions before which NMIs are masked.
    masked: BTreeSet<u64>,
}

impl Sweep {
    /// Lets CPU 1 execute one round of the kernel's work.
    fn round(&mut self) -> Result<()> {
        let limit = Instant::now() + LIMIT;
        let round = self.names.address("bare_virt::work::round")?;
        self.machine.run_to(round, true)?;
        let mut path = Path::new(self.machine.register(1, self.facts.link)?);
        let (mut pc, mut seen, mut old, mut interrupts) = (round, BTreeSet::new(), 0, false);
        while !path.is_over() {
            ensure!(Instant::now() < limit, "the round takes longer than {} s", LIMIT.as_secs());
            // An interrupt that is pending would be taken together with the tick.
            if !interrupts && seen.insert((pc, path.callers())) {
                old = 0;
                self.sample(pc, &path)?;
            }
            old += 1;
            if old > OLD_STEPS && self.names.at(pc).ends_with("::turns") {
                let back = path.caller().context("the loop has a caller")?;
                self.machine.run_to(back, false)?;
                path.back(back)?;
                pc = back;
                continue;
            }
            (pc, interrupts) = self.step(pc, interrupts, &mut path)?;
        }
        Ok(())
    }

    /// Executes the instruction at `pc`, or takes an interrupt that is pending if `is_interrupted`. Returns where the
    /// next one is, and whether this one interrupts the CPU.
    fn step(&mut self, pc: u64, is_interrupted: bool, path: &mut Path) -> Result<(u64, bool)> {
        let word = self.machine.instruction(pc)?;
        let flow = (self.facts.flow)(word);
        let next = self.machine.step()?;
        let stubs = self.names.address("stubs")?;
        let [exception, interrupt, call] = self.facts.vectors.map(|offset| stubs + offset);
        // A single step takes an interrupt before the instruction. riscv64 has one vector for all.
        if is_interrupted && next == interrupt {
            path.enter(INTERRUPT, Some(pc));
            return Ok((next, false));
        }
        let is_breakpoint = word == 0xd420_0000 || word == 0x0010_0073;
        if is_breakpoint && next == exception {
            path.enter(EXCEPTION + self.facts.exception, Some(pc));
        } else {
            match flow {
                Flow::Call(bytes) => path.call(pc + bytes),
                Flow::Return => path.back(next)?,
                Flow::Leave if path.is_entry() => path.leave()?,
                Flow::Leave | Flow::Next => {}
            }
        }
        if next >> 63 == 0 {
            ensure!(flow == Flow::Leave, "{pc:x} leads to {next:x}");
            self.machine.run_to(call, false)?;
            path.enter(super::markers::SYSCALL, None);
            return Ok((call, false));
        }
        Ok((next, (self.facts.interrupts)(word)))
    }

    /// Makes CPU 1 take a tick before the instruction at `pc`, if it can.
    fn sample(&mut self, pc: u64, path: &Path) -> Result<()> {
        if let Some((register, bit)) = self.facts.mask
            && self.machine.register(1, register)? & bit != 0
        {
            self.masked.insert(pc);
            return Ok(());
        }
        for _ in 0..MOMENTS {
            self.machine.run_sampler()?;
            let sampler = self.machine.pc(0)?;
            if self.is_pending()? && self.machine.instruction(sampler - 4)? == self.facts.wait {
                let sp = self.machine.register(1, self.facts.sp)?;
                self.machine.run_to(pc, false)?;
                // The handler executes the same function.
                while self.machine.register(1, self.facts.sp)? != sp {
                    self.machine.step()?;
                    self.machine.run_to(pc, false)?;
                }
                ensure!(!self.is_pending()?, "the tick before {pc:x} is not taken");
                self.orders.push(Order { pc, callers: path.callers() });
                return Ok(());
            }
        }
        bail!("CPU 0 sends no tick")
    }

    fn is_pending(&mut self) -> Result<bool> {
        Ok(self.machine.word(self.facts.pending)? & 1 == 1)
    }
}
