//! One gdb stub, two clients: the sampler, and gdb at the same stops.
//!
//! In: the address of a stub. Out: an address for each client. Bytes of the sampler pass through. When it lets the
//! machine run, the machine stays stopped, and gdb is told that it has stopped; what gdb asks passes through until it
//! lets the machine run. Then the machine runs for a while. So both have seen the same registers and the same memory.
//! gdb must only read.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The packet by which the sampler lets the machine run.
const GO_ON: &[u8] = b"$c#63";
/// What gdb is told at each stop but the first: the machine has stopped, in the first thread.
const HAS_STOPPED: &str = "T05thread:01;";
/// How long the stub, gdb and the sampler may take until they connect or listen.
const BEGIN: Duration = Duration::from_secs(120);

/// The addresses of both clients.
pub struct Shared {
    sampler: TcpListener,
    gdb: TcpListener,
}

/// Where the stub's answers go.
type Client = Arc<Mutex<TcpStream>>;

fn hold(client: &Client) -> MutexGuard<'_, TcpStream> {
    client.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Listens for both clients.
    ///
    /// # Errors
    /// If the host gives no ports.
    pub fn new() -> Result<Self> {
        Ok(Self { sampler: TcpListener::bind("127.0.0.1:0")?, gdb: TcpListener::bind("127.0.0.1:0")? })
    }

    /// The ports: the sampler's and gdb's.
    ///
    /// # Errors
    /// If the host does not tell them.
    pub fn ports(&self) -> Result<[u16; 2]> {
        Ok([self.sampler.local_addr()?.port(), self.gdb.local_addr()?.port()])
    }

    /// Serves both until one of the three ends its connection. `rest` is how long the machine runs after each stop.
    ///
    /// # Errors
    /// If one does not connect, or a connection fails.
    pub fn serve(self, stub: &str, mut rest: impl FnMut() -> Duration) -> Result<()> {
        let gdb = accept(&self.gdb, "gdb")?;
        let sampler = accept(&self.sampler, "the sampler")?;
        let stub = connect(stub)?;
        let client: Client = Arc::new(Mutex::new(sampler.try_clone()?));
        let (mut from_stub, to, all) = (stub.try_clone()?, client.clone(), [sampler.try_clone()?, gdb.try_clone()?]);
        let answers = thread::spawn(move || {
            let mut bytes = [0; 16 * 1024];
            while let Ok(count @ 1..) = from_stub.read(&mut bytes) {
                if hold(&to).write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            // The machine has ended.
            all.iter().for_each(close);
        });
        let served = requests(&sampler, &gdb, &stub, &client, &mut rest);
        [&sampler, &gdb, &stub].into_iter().for_each(close);
        if answers.join().is_err() {
            bail!("the stub's answers could not be passed on");
        }
        match served {
            Err(error) if is_end(&error) => Ok(()),
            served => Ok(served?),
        }
    }
}

fn close(stream: &TcpStream) {
    // It may have ended already.
    let _ = stream.shutdown(Shutdown::Both);
}

/// Passes requests to the stub, in turn.
fn requests(
    mut sampler: &TcpStream,
    mut gdb: &TcpStream,
    mut stub: &TcpStream,
    client: &Client,
    rest: &mut dyn FnMut() -> Duration,
) -> std::io::Result<()> {
    let (mut bytes, mut is_first) = ([0; 16 * 1024], true);
    loop {
        let count = sampler.read(&mut bytes)?;
        if count == 0 {
            return Ok(());
        }
        let Some(at) = bytes[..count].windows(GO_ON.len()).position(|word| word == GO_ON) else {
            stub.write_all(&bytes[..count])?;
            continue;
        };
        stub.write_all(&bytes[..at])?;
        // At its end, the sampler detaches at once.
        let after = bytes[at + GO_ON.len()..count].to_vec();
        *hold(client) = gdb.try_clone()?;
        if !std::mem::take(&mut is_first) {
            gdb.write_all(packet(HAS_STOPPED).as_bytes())?;
        }
        let mut asked = Vec::new();
        loop {
            let count = gdb.read(&mut bytes)?;
            if count == 0 {
                return Ok(());
            }
            asked.extend(&bytes[..count]);
            if lets_run(&asked) {
                break;
            }
            stub.write_all(&asked)?;
            asked.clear();
        }
        gdb.write_all(b"+")?;
        *hold(client) = sampler.try_clone()?;
        stub.write_all(GO_ON)?;
        thread::sleep(rest());
        stub.write_all(&after)?;
    }
}

/// Whether a request of gdb lets the machine run. gdb waits for each answer, so it is the last one.
fn lets_run(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let body = text.trim_start_matches(['+', '-']);
    body.starts_with("$vCont;") || body.starts_with("$c#")
}

/// A packet with its check sum.
fn packet(body: &str) -> String {
    let sum = body.bytes().fold(0_u8, u8::wrapping_add);
    format!("${body}#{sum:02x}")
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::UnexpectedEof
    )
}

fn accept(listener: &TcpListener, who: &str) -> Result<TcpStream> {
    listener.set_nonblocking(true)?;
    let start = Instant::now();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(error).context(who.to_owned()),
            Err(_) if start.elapsed() > BEGIN => bail!("{who} does not connect"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

fn connect(stub: &str) -> Result<TcpStream> {
    let start = Instant::now();
    loop {
        match TcpStream::connect(stub) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) if start.elapsed() > BEGIN => return Err(error).context("the machine's gdb stub"),
            Err(_) => thread::sleep(Duration::from_millis(10)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_request_to_run_ends_the_turn_of_gdb() {
        assert!(lets_run(b"+$vCont;c#a8") && lets_run(b"$c#63"));
        assert!(!lets_run(b"+$vCont?#49") && !lets_run(b"$m10,4#00") && !lets_run(b"+"));
        assert_eq!(packet("c").as_bytes(), GO_ON);
    }
}
