//! CRC-32/ISO-HDLC, the checksum of batches, of chunks and of the serial form.
//!
//! In: bytes, in any number of pieces. Out: 32 bits. Runs in: any, a panic hook too. A kernel computes it with a table
//! of 1 KiB, a byte at a time. With the feature `fast`, for daemon and host, it is computed with instructions of the
//! CPU.

/// A checksum that is being computed.
#[derive(Clone)]
pub struct Crc32(Digest);

#[cfg(not(feature = "fast"))]
type Digest = crc::Digest<'static, u32, crc::Table<1>>;
#[cfg(feature = "fast")]
type Digest = crc32fast::Hasher;

impl Default for Crc32 {
    #[cfg(not(feature = "fast"))]
    fn default() -> Self {
        static CRC: crc::Crc<u32, crc::Table<1>> = crc::Crc::<u32, crc::Table<1>>::new(&crc::CRC_32_ISO_HDLC);
        Self(CRC.digest())
    }

    #[cfg(feature = "fast")]
    fn default() -> Self {
        Self(crc32fast::Hasher::new())
    }
}

impl Crc32 {
    /// The beginning of the checksum of a batch: the id of its boot (empty if the header has none) and a line feed. The
    /// bytes of the batch follow. So a batch does not match under the header of another boot.
    #[must_use]
    pub fn of_batch(boot: &str) -> Self {
        Self::default().with(boot.trim().as_bytes()).with(b"\n")
    }

    /// The checksum with `bytes` added.
    ///
    /// ```
    /// use kprof_format::checksum::Crc32;
    /// assert_eq!(Crc32::default().with(b"12345").with(b"6789").end(), 0xcbf4_3926);
    /// ```
    #[must_use]
    pub fn with(mut self, bytes: &[u8]) -> Self {
        self.add(bytes);
        self
    }

    /// Adds `bytes`.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of the bytes so far.
    pub fn end(&self) -> u32 {
        self.0.clone().finalize()
    }
}

impl core::fmt::Debug for Crc32 {
    /// The checksum of the bytes so far.
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Crc32({:08x})", self.end())
    }
}
