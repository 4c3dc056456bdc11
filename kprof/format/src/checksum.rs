//! CRC-32/ISO-HDLC, the checksum of chunks and of the serial form.
//!
//! In: bytes, in any number of pieces. Out: 32 bits. Runs in: any, a panic hook too.

use crc::{CRC_32_ISO_HDLC, Crc, Digest, Table};

static CRC: Crc<u32, Table<1>> = Crc::<u32, Table<1>>::new(&CRC_32_ISO_HDLC);

/// A checksum that is being computed.
#[derive(Clone)]
pub struct Crc32(Digest<'static, u32, Table<1>>);

impl Default for Crc32 {
    fn default() -> Self {
        Self(CRC.digest())
    }
}

impl Crc32 {
    /// The checksum with `bytes` added.
    ///
    /// ```
    /// use kprof_format::checksum::Crc32;
    /// assert_eq!(Crc32::default().with(b"12345").with(b"6789").end(), 0xcbf4_3926);
    /// ```
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        self.0.update(bytes);
        self
    }

    /// The finished checksum.
    pub fn end(self) -> u32 {
        self.0.finalize()
    }
}
