//! A machine in QEMU with two CPUs that is stopped most of the time: each of them goes on alone, by QEMU's gdb stub.
//!
//! In: which CPU goes on, and until where. Out: registers, memory. CPU 0 is the sampler CPU, CPU 1 is sampled. Sources:
//! GDB's documentation, E.2 (packets); QEMU's documentation, "GDB usage" (single-stepping).

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::packet::{from_digits, packet, read_reply, read_request, unpacked};

/// How long the machine may take to stop again, and QEMU to listen.
const LIMIT: Duration = Duration::from_secs(60);
/// The byte that stops the machine.
const STOP: u8 = 3;
/// How long CPU 0 runs at a time: QEMU's CPU needs some of it to begin.
const WHILE: Duration = Duration::from_micros(600);
/// The program counter: the same number in the stub's lists of both processors.
const PC: usize = 32;

/// The machine.
pub struct Machine {
    stream: TcpStream,
    input: Vec<u8>,
    code: BTreeMap<u64, u32>,
    /// The CPU that register packets are about.
    selected: Option<u32>,
}

impl Machine {
    /// Connects to a machine that has been started with `-S -gdb tcp:ADDRESS`.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn connect(address: &str) -> Result<Self> {
        let start = Instant::now();
        let stream = loop {
            match TcpStream::connect(address) {
                Ok(stream) => break stream,
                Err(error) if start.elapsed() > LIMIT => bail!("QEMU's gdb stub does not listen: {error}"),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut machine = Self { stream, input: Vec::new(), code: BTreeMap::new(), selected: None };
        // The stub tells single registers only to a client that has read their list. It does not wait for
        // acknowledgements: a new request is one.
        machine.ask("qXfer:features:read:target.xml:0,ffb")?;
        // Single steps take interrupts, and time goes on.
        let reply = machine.ask("Qqemu.sstep=1")?;
        ensure!(reply == "OK", "QEMU's gdb stub does not set what a single step does: {reply:?}");
        Ok(machine)
    }

    /// A register of a CPU.
    ///
    /// # Errors
    /// If the stub does not tell.
    pub fn register(&mut self, cpu: u32, number: usize) -> Result<u64> {
        if self.selected != Some(cpu) {
            self.ask(&format!("Hg{}", cpu + 1))?;
            self.selected = Some(cpu);
        }
        let reply = self.ask(&format!("p{number:x}"))?;
        let bytes = from_digits(&reply).filter(|bytes| bytes.len() <= 8);
        let bytes = bytes.with_context(|| format!("register {number}: {reply}"))?;
        Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The program counter of a CPU.
    ///
    /// # Errors
    /// As [`register`](Self::register).
    pub fn pc(&mut self, cpu: u32) -> Result<u64> {
        self.register(cpu, PC)
    }

    /// Four bytes of memory, or of a device's register, as CPU 1 sees them.
    ///
    /// # Errors
    /// If they are not mapped.
    pub fn word(&mut self, address: u64) -> Result<u32> {
        // Addresses are those of the selected CPU.
        self.pc(1)?;
        let reply = self.ask(&read_request(address, 4))?;
        let bytes = read_reply(&reply, 4).with_context(|| format!("no memory at {address:x}: {reply}"))?;
        Ok(bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    /// The word at an address, which begins with the instruction there.
    ///
    /// # Errors
    /// As [`word`](Self::word).
    pub fn instruction(&mut self, address: u64) -> Result<u32> {
        if let Some(word) = self.code.get(&address) {
            return Ok(*word);
        }
        let word = self.word(address)?;
        self.code.insert(address, word);
        Ok(word)
    }

    /// One instruction of CPU 1, or the entry of what interrupts it. Returns its program counter.
    ///
    /// # Errors
    /// If it does not stop.
    pub fn step(&mut self) -> Result<u64> {
        self.go("vCont;s:2")?;
        self.pc(1)
    }

    /// Lets CPU 1, or all, go on until CPU 1 is about to execute the instruction at `address`.
    ///
    /// # Errors
    /// If it stops elsewhere.
    pub fn run_to(&mut self, address: u64, all: bool) -> Result<()> {
        ensure!(self.ask(&format!("Z0,{address:x},4"))? == "OK", "no breakpoint at {address:x}");
        self.go(if all { "vCont;c" } else { "vCont;c:2" })?;
        ensure!(self.ask(&format!("z0,{address:x},4"))? == "OK", "the breakpoint at {address:x} stays");
        let pc = self.pc(1)?;
        ensure!(pc == address, "CPU 1 stops at {pc:x}, and not at {address:x}");
        Ok(())
    }

    /// Lets CPU 0 go on alone for a moment.
    ///
    /// # Errors
    /// If it does not stop.
    pub fn run_sampler(&mut self) -> Result<()> {
        self.send(&packet("vCont;c:1"))?;
        std::thread::sleep(WHILE);
        self.send(&[STOP])?;
        self.stopped()
    }

    /// Lets the machine go on without this program.
    ///
    /// # Errors
    /// If the stub does not confirm it.
    pub fn release(mut self) -> Result<()> {
        let reply = self.ask("D")?;
        ensure!(reply == "OK", "QEMU's gdb stub answers {reply:?} to D");
        Ok(())
    }

    fn go(&mut self, request: &str) -> Result<()> {
        self.send(&packet(request))?;
        self.stopped()
    }

    fn stopped(&mut self) -> Result<()> {
        let reply = self.reply()?;
        // The stub selects the CPU that has stopped.
        self.selected = None;
        ensure!(reply.starts_with('T'), "the machine does not stop: {reply}");
        Ok(())
    }

    fn ask(&mut self, request: &str) -> Result<String> {
        self.send(&packet(request))?;
        self.reply()
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).context("QEMU's gdb stub has gone")
    }

    /// The next packet.
    fn reply(&mut self) -> Result<String> {
        let mut bytes = [0; 4096];
        loop {
            let begin = self.input.iter().position(|byte| *byte == b'$').unwrap_or(self.input.len());
            let end = self.input[begin..].iter().position(|byte| *byte == b'#').map(|length| begin + length);
            if let Some(end) = end.filter(|end| self.input.len() >= end + 3) {
                let rest = self.input.split_off(end + 3);
                let whole = std::mem::replace(&mut self.input, rest);
                return Ok(unpacked(&whole[begin + 1..end]));
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => bail!("QEMU has ended"),
                Ok(count) => self.input.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error).context("the machine does not stop"),
            }
        }
    }
}
