//! Spool: copies a live stream to a growing file. Stage: command line, before read.
//!
//! In: a stream, such as a serial port or a pipe. Out: a temporary file with all bytes so far, so that `top` can fold
//! it like any other growing file. Memory does not grow; the file is deleted at the end.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::NamedTempFile;

/// Bytes copied at a time.
const PIECE_BYTES: usize = 64 * 1024;

/// A stream that is being copied to a file.
pub struct Spool {
    file: NamedTempFile,
    ended: Arc<AtomicBool>,
    failure: Arc<Mutex<Option<io::Error>>>,
}

impl Spool {
    /// Starts a thread that copies `stream`; it ends with the stream, or with the process.
    ///
    /// # Errors
    /// If the temporary file cannot be created.
    pub fn start(mut stream: impl Read + Send + 'static) -> io::Result<Self> {
        let file = NamedTempFile::new()?;
        let mut into = file.reopen()?;
        let spool = Self { file, ended: Arc::default(), failure: Arc::default() };
        let (ended, failure) = (Arc::clone(&spool.ended), Arc::clone(&spool.failure));
        std::thread::spawn(move || {
            if let Err(error) = copy(&mut stream, &mut into) {
                *failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error);
            }
            ended.store(true, Ordering::Release);
        });
        Ok(spool)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Whether nothing more will come.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The error that ended the stream early; returned only once.
    pub fn failure(&self) -> Option<io::Error> {
        self.failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take()
    }
}

fn copy(stream: &mut impl Read, into: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match stream.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(got) => into.write_all(&piece[..got])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_has_come_is_in_the_file_before_the_stream_ends() {
        let (reader, mut writer) = io::pipe().expect("pipes exist");
        let spool = Spool::start(reader).expect("the test folder is writable");
        let mut come = String::new();
        for piece in ["# kprof-profile 1\n", "a 0 1 ffffffff", "80001000\n"] {
            writer.write_all(piece.as_bytes()).expect("the reader lives");
            come.push_str(piece);
            while std::fs::metadata(spool.path()).expect("exists").len() < come.len() as u64 {
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(std::fs::read_to_string(spool.path()).expect("is text"), come);
            assert!(!spool.has_ended());
        }
        drop(writer);
        while !spool.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let path = spool.path().to_owned();
        assert!(spool.failure().is_none());
        drop(spool);
        assert!(!path.exists());
    }

    #[test]
    fn a_stream_that_fails_says_why() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("unplugged"))
            }
        }
        let spool = Spool::start(Broken).expect("the test folder is writable");
        while !spool.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(spool.failure().expect("was told").to_string(), "unplugged");
    }
}
