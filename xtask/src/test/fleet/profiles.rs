//! Generated profiles of a fleet of machines, the same in every run.
//!
//! In: a number. Out: a profile in the text form and its symbols. Machines, builds and seconds differ in what they
//! spend their time on; all have ticks that were only counted; some CPUs lose samples; the builds have their functions
//! at other addresses. Each profile also has hits of a point.

use std::fmt::Write as _;

use kprof_format::checksum::Crc32;

use super::hits;
use crate::bench::fold::Random;

/// CPUs of each machine.
pub const CPUS: u64 = 2;
/// Seconds that a recording takes.
pub const SECONDS: u64 = 4;
/// Samples of a CPU in a second.
const HZ: u64 = 50;
const MACHINES: u64 = 10;

const FUNCTIONS: [&str; 10] =
    ["kmain", "schedule", "sys_read", "sys_write", "vfs_read", "vfs_write", "alloc", "compact", "timer", "idle_loop"];
/// Stacks, outermost first, and the facts of the innermost frame: 1 interrupts off, 2 idle.
const STACKS: [(&[&str], u64); 10] = [
    (&["kmain", "schedule"], 0),
    (&["syscall", "sys_read", "vfs_read", "alloc"], 0),
    (&["syscall", "sys_read", "vfs_read"], 0),
    (&["syscall", "sys_write", "vfs_write", "alloc"], 0),
    (&["syscall", "sys_write", "vfs_write"], 1),
    (&["syscall", "sys_read", "vfs_read", "interrupt", "timer"], 1),
    (&["kmain", "compact"], 0),
    (&["kmain", "compact", "compact"], 1),
    (&["kmain", "idle_loop"], 2),
    (&["kmain", "idle_loop", "interrupt", "timer"], 3),
];
const MARKER: u64 = 0xffff_ffff_ffff_f000;

/// A profile.
pub struct Profile {
    number: u64,
}

impl Profile {
    /// The profile with this number.
    pub fn new(number: u64) -> Self {
        Self { number }
    }

    /// The name of its machine.
    pub fn machine(&self) -> String {
        format!("m{}", self.number % MACHINES)
    }

    /// The name of its build.
    pub fn build(&self) -> String {
        format!("b{}", 1 + self.number / MACHINES % 2)
    }

    fn address(&self, function: &str) -> u64 {
        let at = FUNCTIONS.iter().position(|name| *name == function).unwrap_or_default() as u64;
        let shift = 3 * (self.number / MACHINES % 2);
        0xffff_ffff_8000_1000 + (at + shift) % FUNCTIONS.len() as u64 * 0x100
    }

    /// What `nm` prints of the build.
    pub fn symbols(&self) -> String {
        FUNCTIONS.iter().map(|name| format!("{:x} 0000000000000100 t {name}\n", self.address(name))).collect()
    }

    /// The profile in the text form.
    pub fn text(&self) -> String {
        let mut random = Random(self.number);
        let boot = format!("{:x}", 0x1000 + self.number);
        let mut text = format!("# kprof-profile 1\n# tsc-hz 1000000\n# boot {boot}\n# hz {HZ}\n# trigger nmi\n");
        for cpu in 0..CPUS {
            let samples: String = (0..SECONDS * HZ).map(|tick| self.sample(&mut random, cpu, tick)).collect();
            let lost = if random.below(3) == 0 { random.below(40) } else { 0 };
            let [user, idle, coalesced] = [300, 900, 5].map(|most| random.below(most));
            let (count, words) = (SECONDS * HZ, 20 * SECONDS * HZ);
            let taken = count + lost + user + idle;
            let batch = format!(
                "# batch cpu={cpu} from=0 to={words} sent={} taken={taken} coalesced={coalesced} user={user} \
                 idle={idle} lost-full={lost} recorded={count} delivered={count}\n{samples}",
                taken + coalesced
            );
            text += &sealed(&boot, &batch, &format!("cpu={cpu} to={words} samples={count}"));
        }
        let stack = |number: u64| self.frames(number as usize);
        let (account, cpus) = hits::lines(&mut random, self.number / 5 % 2 == 1, &stack);
        text += &sealed(&boot, &format!("# batch cpu=meta from=0 to=60\n{account}"), "cpu=meta to=60");
        for ((lines, count), cpu) in cpus.iter().zip(0..) {
            let batch = format!("# batch cpu=event-{cpu} from=0 to=60\n{lines}");
            text += &sealed(&boot, &batch, &format!("cpu=event-{cpu} to=60 samples={count}"));
        }
        text
    }

    fn sample(&self, random: &mut Random, cpu: u64, tick: u64) -> String {
        let second = tick / HZ;
        // What a machine, a build and a second do most.
        let usual = [self.number % MACHINES, 2 * (self.number / MACHINES % 2) + 1, 6 + second % 2];
        let drawn = random.below(STACKS.len() as u64 + 3);
        let stack = usual.get((drawn as usize).wrapping_sub(STACKS.len())).copied().unwrap_or(drawn);
        let task = ["init", "sh", "a%20b"][random.below(3) as usize];
        // The first sample of both CPUs is at time 0.
        let tsc = tick * 1_000_000 / HZ + if tick > 0 { random.below(5_000) } else { 0 };
        format!("{task} {cpu} {tsc:x}{}\n", self.frames(stack as usize))
    }

    /// The words of a stack, innermost first, each after a space.
    fn frames(&self, stack: usize) -> String {
        let ((frames, facts), mut words) = (STACKS[stack], String::new());
        for (at, frame) in frames.iter().rev().enumerate() {
            let word = match *frame {
                "interrupt" => MARKER | 0x121,
                "syscall" => MARKER | 0x300,
                function => self.address(function) + 0x10,
            };
            let _ = write!(words, " {word:x}");
            if at == 0 && facts > 0 {
                let _ = write!(words, " {:x}", MARKER | facts);
            }
        }
        words
    }
}

/// A batch with its end and its checksum.
fn sealed(boot: &str, batch: &str, end: &str) -> String {
    format!("{batch}# end {end} crc={:08x}\n", Crc32::of_batch(boot).with(batch.as_bytes()).end())
}
