//! A scripted gdb stub: a thread that answers one client, and knows whether the machine was left running.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

pub const TEXT: u64 = 0xffff_ffff_8010_0000;
const STACK: u64 = 0xffff_8000_0001_0000;

/// What a stub is like.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// QEMU's: acknowledgements, but it does not wait for them; any byte stops a running machine.
    Qemu,
    /// Without acknowledgements.
    NoAck,
    /// Waits for the acknowledgement of each packet.
    Strict,
}

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// The connection ends at the stop with this number.
    CloseAt(u32),
    /// The machine powers off.
    PowerOffAt(u32),
    /// There are no registers.
    NoRegistersAt(u32),
    /// Does not answer any more.
    SilentAt(u32),
    /// The kernel runs elsewhere from this stop on.
    MovedAt(u32),
}

/// How far the kernel moves.
pub const MOVED: u64 = 0x20_0000;

pub struct Script {
    pub kind: Kind,
    pub fault: Fault,
    /// The machine; empty if the stub does not describe it.
    pub machine: &'static str,
    /// What the stub says of its vCPU.
    pub state: &'static str,
}

impl Default for Script {
    fn default() -> Self {
        Self { kind: Kind::Qemu, fault: Fault::None, machine: "i386:x86-64", state: "CPU#0 [running]" }
    }
}

/// How a client has left.
#[derive(Debug, PartialEq, Eq)]
pub struct Left {
    pub has_detached: bool,
    pub is_running: bool,
}

/// Serves one client.
pub fn serve(script: Script) -> (SocketAddr, JoinHandle<Left>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = std::thread::spawn(move || {
        let stream = listener.accept().unwrap().0;
        stream.set_nodelay(true).unwrap();
        let left = Left { has_detached: false, is_running: false };
        let mut stub = Stub { script, stream, left, stops: 0, acknowledges: true };
        // When the client closes the connection, `run` returns an error from whichever call notices it. This is
        // expected.
        let _ = stub.run();
        stub.left
    });
    (address, thread)
}

struct Stub {
    script: Script,
    stream: TcpStream,
    left: Left,
    stops: u32,
    acknowledges: bool,
}

impl Stub {
    fn run(&mut self) -> std::io::Result<()> {
        if self.script.kind == Kind::Qemu {
            self.send("T02thread:01;")?;
        }
        loop {
            let byte = self.byte()?;
            if self.left.is_running {
                assert_eq!(byte, 3, "a byte that is sent while the machine runs must be meant to stop it");
                self.left.is_running = false;
                self.stops += 1;
                match self.script.fault {
                    Fault::CloseAt(stop) if stop == self.stops => return Ok(()),
                    Fault::PowerOffAt(stop) if stop == self.stops => return self.send("W00"),
                    _ => self.send("T02thread:01;")?,
                }
            } else if byte == b'$' {
                let mut body = Vec::new();
                while body.last() != Some(&b'#') {
                    body.push(self.byte()?);
                }
                let (_, _) = (self.byte()?, self.byte()?);
                body.pop();
                if self.acknowledges {
                    self.stream.write_all(b"+")?;
                }
                self.take(&String::from_utf8(body).unwrap())?;
            }
        }
    }

    fn take(&mut self, request: &str) -> std::io::Result<()> {
        match self.script.fault {
            Fault::NoRegistersAt(stop) if stop <= self.stops && request == "g" => return self.send("E01"),
            Fault::SilentAt(stop) if stop <= self.stops && request != "D" => return Ok(()),
            _ => {}
        }
        let digits = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let machine = self.script.machine;
        let reply = match request {
            "QStartNoAckMode" if self.script.kind == Kind::NoAck => "OK".to_owned(),
            "qqemu.sstepbits" if self.script.kind == Kind::Qemu => "ENABLE=1,NOIRQ=2,NOTIMER=4".to_owned(),
            "g" => registers(self.text()),
            "qfThreadInfo" => "m01".to_owned(),
            "qsThreadInfo" => "l".to_owned(),
            "Hg01" | "D" => "OK".to_owned(),
            "c" => String::new(),
            _ if request.starts_with("qSupported") => "PacketSize=1000;qXfer:features:read+".to_owned(),
            _ if request.starts_with("qXfer") && !machine.is_empty() => {
                format!("l<target><architecture>{machine}</architecture></target>")
            }
            _ if request.starts_with("qThreadExtraInfo") => digits(self.script.state.as_bytes()),
            _ if request.starts_with('m') => {
                let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
                let (from, bytes) = request[1..].split_once(',').unwrap();
                let bytes: Vec<u8> =
                    (number(from)..).take(number(bytes) as usize).map(|at| memory(at, self.text())).collect();
                digits(&bytes)
            }
            _ => String::new(),
        };
        self.left.is_running = request == "c";
        if request == "c" {
            return Ok(());
        }
        let sent = self.send(&reply);
        if request == "QStartNoAckMode" && reply == "OK" {
            self.acknowledges = false;
        }
        if request == "D" {
            self.left = Left { has_detached: true, is_running: true };
            return Err(std::io::ErrorKind::ConnectionAborted.into());
        }
        sent
    }

    /// Where the kernel's code is.
    fn text(&self) -> u64 {
        match self.script.fault {
            Fault::MovedAt(stop) if stop <= self.stops => TEXT + MOVED,
            _ => TEXT,
        }
    }

    fn byte(&mut self) -> std::io::Result<u8> {
        let mut byte = [0];
        self.stream.read_exact(&mut byte)?;
        Ok(byte[0])
    }

    fn send(&mut self, text: &str) -> std::io::Result<()> {
        let sum = text.bytes().fold(0_u8, |sum, byte| sum.wrapping_add(byte));
        self.stream.write_all(format!("${text}#{sum:02x}").as_bytes())?;
        if self.script.kind == Kind::Strict {
            assert_eq!(self.byte()?, b'+', "the packet must be acknowledged first: {text}");
        }
        Ok(())
    }
}

/// RIP in the kernel, with one frame.
fn registers(text: u64) -> String {
    let mut words = [0_u64; 17];
    (words[6], words[7], words[16]) = (STACK + 64, STACK, text + 32);
    let bytes =
        words.iter().flat_map(|word| word.to_le_bytes()).chain([0x202_u32, 8].iter().flat_map(|it| it.to_le_bytes()));
    bytes.map(|byte| format!("{byte:02x}")).chain(["00".repeat(464)]).collect()
}

/// The code: calls, and in between the number of each, so that it is the same nowhere else.
pub fn code(offset: u64) -> u8 {
    match offset % 8 {
        0 => (offset >> 3) as u8,
        1 => (offset >> 11) as u8,
        _ => 0xe8,
    }
}

/// The frame has no caller, and a return address.
fn memory(at: u64, text: u64) -> u8 {
    let word = |value: u64| value.to_le_bytes()[(at % 8) as usize];
    let address = at;
    match at & !7 {
        at if at == STACK + 72 => word(text + 0x1000),
        at if at >= text => code(address - text),
        _ => 0,
    }
}
