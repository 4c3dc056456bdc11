//! The client side of GDB's remote serial protocol, over TCP or a unix socket. Stage: capture.
//!
//! In: requests. Out: replies. A machine stops when a client connects, and QEMU leaves it stopped when the client goes
//! without a word: so [`Gdb`] detaches when it is dropped, whatever the reason. QEMU takes any byte as "stop" while the
//! machine runs, so only [`Gdb::stop_and_ask`] and [`Gdb::detach`] send then. The registry has no maintained crate for
//! this side of the protocol.

use crate::packet::{Ended, from_digits, is_stop, packet, sum, to_digits, unpacked};
use anyhow::{Context, Result, bail, ensure};
use std::fmt::Debug;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// How long a stub may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// The byte that stops the machine.
const STOP: u8 = 3;
/// The only description of an x86_64 machine.
const X86_64: &str = "i386:x86-64";
/// No packet is larger; a server that sends more is no stub.
const MAX_BYTES: usize = 1 << 20;

/// Before the path of a unix socket, as in QEMU's option.
const UNIX: &str = "unix:";

/// A socket of either kind.
trait Socket: Read + Write + Debug {}
impl Socket for TcpStream {}
impl Socket for UnixStream {}

/// A connection to a gdb stub.
#[derive(Debug)]
pub struct Gdb {
    stream: Box<dyn Socket>,
    name: String,
    input: Vec<u8>,
    /// Each packet of the stub is acknowledged.
    acknowledges: bool,
    /// The stub takes several requests at once.
    takes_several: bool,
    has_answered: bool,
    is_running: bool,
    is_over: bool,
    /// The most bytes of memory in one reply.
    pub max_bytes: u64,
}

fn by_path(path: &str) -> Result<UnixStream> {
    let option = || format!("{path}: no connection; QEMU's option is -gdb unix:{path},server=on,wait=off");
    let stream = UnixStream::connect(path).with_context(option)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

fn by_address(name: &str) -> Result<TcpStream> {
    let expected = || format!("{name}: no address; HOST:PORT is expected, or {UNIX}PATH");
    let addresses = name.to_socket_addrs().with_context(expected)?;
    let mut failure = None;
    let mut connect = |address| TcpStream::connect_timeout(&address, ANSWER).map_err(|error| failure = Some(error));
    let Some(stream) = addresses.into_iter().find_map(|address| connect(address).ok()) else {
        let error = failure.map_or_else(String::new, |error| format!(" ({error})"));
        bail!("{name}: no connection{error}; QEMU's option is -gdb tcp:{name}")
    };
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ANSWER))?;
    stream.set_write_timeout(Some(ANSWER))?;
    Ok(stream)
}

impl Gdb {
    /// Connects to an x86_64 machine, which stops.
    ///
    /// # Errors
    /// If nobody listens, or what listens is no gdb stub of an x86_64 machine that is free.
    pub fn connect(name: &str) -> Result<Self> {
        let stream: Box<dyn Socket> = match name.strip_prefix(UNIX) {
            Some(path) => Box::new(by_path(path)?),
            None => Box::new(by_address(name)?),
        };
        let (input, name) = (Vec::new(), name.to_owned());
        let mut gdb = Self {
            stream,
            name,
            input,
            acknowledges: true,
            takes_several: false,
            has_answered: false,
            is_running: false,
            is_over: false,
            max_bytes: 0,
        };
        gdb.greet()?;
        Ok(gdb)
    }

    fn greet(&mut self) -> Result<()> {
        let name = self.name.clone();
        let supported = self.ask(&["qSupported:xmlRegisters=i386"]).with_context(|| {
            format!("{name}: does not answer as a gdb stub; a stub answers one client only: is there another debugger?")
        })?;
        self.has_answered = true;
        let packet = supported[0].split(';').find_map(|word| word.strip_prefix("PacketSize="));
        let packet = packet.and_then(|size| u64::from_str_radix(size, 16).ok()).unwrap_or(1024);
        // Two digits for each byte, and the packet's frame.
        self.max_bytes = ((packet.clamp(512, 0x1000) - 8) / 2) & !7;
        self.acknowledges = self.ask(&["QStartNoAckMode"])?[0] != "OK";
        // QEMU does not wait for acknowledgements: a new request is one.
        self.takes_several = !self.acknowledges || self.ask(&["qqemu.sstepbits"])?[0].contains("ENABLE");
        self.acknowledges &= !self.takes_several;
        let description = self.ask(&["qXfer:features:read:target.xml:0,ffb"])?.remove(0);
        let machine = description.split("<architecture>").nth(1).and_then(|rest| rest.split('<').next());
        match machine {
            Some(X86_64) => Ok(()),
            Some(other) => bail!("{name}: is a stub of another machine ({other}); only x86_64 guests are sampled yet"),
            None => {
                eprintln!("kprof-qemu: {name}: does not describe its machine; it is taken for x86_64");
                Ok(())
            }
        }
    }

    /// Asks a machine that is stopped, and gives a reply to each request.
    ///
    /// # Errors
    /// [`Ended`], or if there is no reply.
    pub fn ask<T: AsRef<str>>(&mut self, requests: &[T]) -> Result<Vec<String>> {
        let mut replies = Vec::with_capacity(requests.len());
        for together in requests.chunks(if self.takes_several { requests.len().max(1) } else { 1 }) {
            let bytes: Vec<u8> = together.iter().flat_map(|request| packet(request.as_ref())).collect();
            self.send(&bytes)?;
            for _ in together {
                replies.push(self.reply()?);
            }
        }
        Ok(replies)
    }

    /// Stops the machine, and asks it.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn stop_and_ask(&mut self, requests: &[String]) -> Result<Vec<String>> {
        let now = if self.takes_several { requests } else { &[] };
        let bytes = now.iter().flat_map(|request| packet(request));
        self.send(&[STOP].into_iter().chain(bytes).collect::<Vec<u8>>())?;
        self.wait_for_stop()?;
        self.is_running = false;
        if now.is_empty() { self.ask(requests) } else { now.iter().map(|_| self.reply()).collect() }
    }

    /// Lets the machine run.
    ///
    /// # Errors
    /// [`Ended`].
    pub fn go_on(&mut self) -> Result<()> {
        self.is_running = true;
        self.send(&packet("c"))
    }

    /// What a command of the machine's monitor prints; `None` if there is no monitor.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn monitor(&mut self, command: &str) -> Result<Option<String>> {
        self.send(&packet(&format!("qRcmd,{}", to_digits(command.as_bytes()))))?;
        let mut text = String::new();
        loop {
            let reply = self.receive()?;
            match reply.strip_prefix('O').and_then(from_digits) {
                Some(printed) => text.push_str(&String::from_utf8_lossy(&printed)),
                None => return Ok((reply == "OK").then_some(text)),
            }
        }
    }

    /// Lets the machine run on without this program. Also done when the value is dropped.
    ///
    /// # Errors
    /// If the stub does not confirm it.
    pub fn detach(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        if self.is_running {
            self.send(&[STOP])?;
            if !self.takes_several {
                self.wait_for_stop()?;
            }
        }
        self.send(&packet("D"))?;
        // A stub that is busy with another client reads this later. Then it lets the machine run, too.
        while self.has_answered && self.receive()? != "OK" {}
        Ok(())
    }

    fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.write_all(bytes).map_err(|error| self.failure(error))
    }

    /// Waits until the machine says that it has stopped.
    fn wait_for_stop(&mut self) -> Result<()> {
        loop {
            let reply = self.receive()?;
            if is_stop(&reply) {
                return Ok(());
            }
        }
    }

    /// The next reply. What the stub says by itself at the beginning is left out.
    fn reply(&mut self) -> Result<String> {
        loop {
            let reply = self.receive()?;
            if !is_stop(&reply) {
                return Ok(reply);
            }
        }
    }

    /// The next packet.
    fn receive(&mut self) -> Result<String> {
        let mut bytes = [0; 16 * 1024];
        loop {
            let begin = self.input.iter().position(|byte| *byte == b'$').unwrap_or(self.input.len());
            let strange = self.input[..begin].iter().find(|byte| !b"+-".contains(byte));
            ensure!(
                strange.is_none() && self.input.len() < MAX_BYTES,
                "{} sends something else than packets",
                self.name
            );
            let end = self.input[begin..].iter().position(|byte| *byte == b'#').map(|length| begin + length);
            if let Some(end) = end.filter(|end| self.input.len() >= end + 3) {
                let rest = self.input.split_off(end + 3);
                let input = std::mem::replace(&mut self.input, rest);
                let (body, check) = (&input[begin + 1..end], from_digits(&String::from_utf8_lossy(&input[end + 1..])));
                ensure!(check == Some(vec![sum(body)]), "{} has sent a damaged packet", self.name);
                if self.acknowledges {
                    self.send(b"+")?;
                }
                let text = unpacked(body);
                return if text.starts_with(['W', 'X']) { Err(Ended.into()) } else { Ok(text) };
            }
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(Ended.into()),
                Ok(count) => self.input.extend(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failure(error)),
            }
        }
    }

    fn failure(&self, error: std::io::Error) -> anyhow::Error {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                anyhow::anyhow!("{}: no answer for {} s", self.name, ANSWER.as_secs())
            }
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted => Ended.into(),
            _ => error.into(),
        }
    }
}

impl Drop for Gdb {
    fn drop(&mut self) {
        if !self.is_over
            && let Err(error) = self.detach()
            && !error.is::<Ended>()
        {
            // Not `eprintln`: it panics if nobody reads, and this may run because of that.
            let _ = writeln!(std::io::stderr(), "kprof-qemu: the machine may still be stopped: {error:#}");
        }
    }
}
