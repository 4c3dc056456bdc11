//! A kernel that reboots and runs elsewhere then: `record` and `attach` have the right names in both boots.
//!
//! Debian's Linux chooses another address at each boot (KASLR). Its init reads the kernel's list of symbols several
//! times; then it reboots, and powers off at the end of the second boot. It knows the second one by the clock, which
//! the first one has set to another year. The tool gets the list of symbols as of a kernel that was not moved.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::attached::{self, ends_with};
use super::{Context, LIMIT, Outcome, Outside};
use crate::initrd::Initrd;
use crate::linux;
use crate::run::{self, Finished};
use crate::yardstick::machines;

const CLOCK: &str = "2000-01-01T00:00:00";
/// The first boot sets the clock to this year.
const YEAR: u32 = 2010;
/// What the work is in: the function that formats each line of the list.
const WORK: &str = "vsnprintf";
/// Samples of the work in each boot at least.
const MIN_WORK: u64 = 10;

/// Runs the checks.
pub fn check(context: &mut Context, outside: &Outside, outcome: &mut Outcome) {
    let machine = Machine::new(context, outside);
    let machine = || machine.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"));
    outcome.check("a kernel that reboots to another address has its names", machine().and_then(Machine::record));
    outcome.check("attach notices such a reboot", machine().and_then(Machine::attach));
}

struct Machine<'a> {
    outside: &'a Outside,
    linux: PathBuf,
    symbols: PathBuf,
    initrd: PathBuf,
}

impl<'a> Machine<'a> {
    fn new(context: &mut Context, outside: &'a Outside) -> Result<Self> {
        let install = context.install;
        let parts = context.parts()?;
        let folder = outside.file("rebooted");
        fs::create_dir_all(&folder)?;
        let linux = linux::kernel(install)?;
        let symbols = machines::symbols(parts, &linux, &folder)?;
        let mut initrd = Initrd::empty();
        initrd.folder(Path::new("bin"));
        initrd.file("bin/busybox", &parts.busybox)?;
        initrd.first_text("init", &SCRIPT.replace("YEAR", &YEAR.to_string()));
        initrd.write(&folder.join("initrd"))?;
        Ok(Self { outside, linux, symbols, initrd: folder.join("initrd") })
    }

    fn words(&self, serial: &str) -> Vec<String> {
        let words = ["-M", "q35", "-m", "512M", "-smp", "2", "-cpu", "max", "-nodefaults", "-display", "none"];
        let clock = format!("base={CLOCK},clock=host");
        let more = ["-rtc", &clock, "-append", "console=ttyS0 quiet mitigations=off"];
        let mut words: Vec<String> = words.into_iter().chain(more).map(str::to_owned).collect();
        let log = format!("file:{}", self.outside.file(serial).display());
        for (key, value) in [("-kernel", &self.linux), ("-initrd", &self.initrd)] {
            words.extend([key.to_owned(), value.display().to_string()]);
        }
        words.extend(["-serial".to_owned(), log]);
        words
    }

    fn tool(&self, verb: &str, profile: &str) -> Command {
        let mut command = run::bound(&self.outside.tool);
        command.args([verb, "--kernel"]).arg(&self.symbols).arg("-o").arg(self.outside.file(profile));
        command
    }

    fn record(&self) -> Result<()> {
        let mut command = self.tool("record", "rebooted.txt");
        command.args(["--hz", "200", "--"]).arg(&self.outside.qemu).args(self.words("rebooted.log"));
        let done = run::caught(&mut command, LIMIT)?;
        self.has_both("rebooted.txt", &done)
    }

    fn attach(&self) -> Result<()> {
        let mut command = run::bound(&self.outside.qemu);
        command.args(self.words("rebooted-attach.log")).arg("-S");
        let mut machine = attached::Machine::of(command)?;
        let done = machine.attach_by(self.tool("attach", "rebooted-attach.txt").args(["--hz", "100"]))?;
        ends_with(&done, 0, "has ended the connection")?;
        self.has_both("rebooted-attach.txt", &done)
    }

    /// There are two boots at different addresses, and the work has its names in each of them.
    fn has_both(&self, profile: &str, done: &Finished) -> Result<()> {
        let text = fs::read_to_string(self.outside.file(profile))?;
        let begin = text.lines().next().context("the profile has a first line")?;
        let boots: Vec<String> =
            text.split(&format!("{begin}\n")).skip(1).map(|boot| format!("{begin}\n{boot}")).collect();
        ensure!(boots.len() == 2, "{} boots, 2 are expected: {}", boots.len(), done.text);
        let anchors = boots.iter().map(|boot| boot.lines().filter(|line| line.starts_with("# anchor ")).collect());
        let anchors: BTreeSet<Vec<&str>> = anchors.collect();
        ensure!(anchors.len() == 2, "both boots are at the same address: {anchors:?}\n{}", done.text);
        for (number, boot) in boots.iter().enumerate() {
            let file = format!("{number}-{profile}");
            fs::write(self.outside.file(&file), boot)?;
            let folded = self.outside.folded_with(&[], &file, &self.symbols)?;
            let sum = |is: &dyn Fn(&str) -> bool| -> u64 {
                folded.iter().filter(|(stack, _)| is(stack)).map(|(_, count)| count).sum()
            };
            let (all, work) = (sum(&|_| true), sum(&|stack| stack.split(';').any(|frame| frame == WORK)));
            let unknown = sum(&|stack| stack.rsplit(';').next() == Some("[unknown]"));
            eprintln!("boot {}: {all} samples, {work} of the work, {unknown} unknown", number + 1);
            ensure!(work > MIN_WORK, "boot {}: {folded:?}", number + 1);
        }
        Ok(())
    }
}

/// Init of both boots.
const SCRIPT: &str = "#!/bin/busybox sh
b=/bin/busybox
$b mkdir -p /dev /proc
$b mount -t devtmpfs dev /dev
$b mount -t proc proc /proc
for round in 1 2 3 4 5 6 7 8 9 10; do $b cat /proc/kallsyms > /dev/null; done
if [ $($b date +%Y) -ge YEAR ]; then $b poweroff -f; fi
$b date -s YEAR-01-01
$b hwclock -w -u
$b reboot -f
";
