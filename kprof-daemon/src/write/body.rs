//! The buffer that a batch is written into.
//!
//! ```text
//! │ bytes of the batch │ other bytes, which are overwritten │
//!                      └ end
//! ```
//!
//! In: pieces of text. Out: the bytes of the batch. Runs in: user process, the hot path of the daemon: a piece is
//! copied in blocks of a fixed size, which takes a few instructions, and the end is moved by the true length of the
//! piece. The next piece overwrites the rest of the last block. The buffer grows to the largest batch and no further.

/// The buffer.
#[derive(Debug, Default)]
pub struct Body {
    bytes: Vec<u8>,
    end: usize,
    /// The memory of [`Body::append`].
    appended: Vec<u8>,
}

impl Body {
    /// The bytes of the batch.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.end]
    }

    /// Begins a new batch.
    pub fn clear(&mut self) {
        self.end = 0;
    }

    #[cold]
    fn new_room<const BYTES: usize>(&mut self) -> &mut [u8; BYTES] {
        self.grow(BYTES);
        self.bytes[self.end..].first_chunk_mut().expect("room has just been made")
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        self.bytes.resize((self.end + bytes).next_power_of_two(), 0);
    }

    /// Room after the end. What is written there belongs to the batch after [`Body::advance`].
    #[inline(always)]
    pub fn room<const BYTES: usize>(&mut self) -> &mut [u8; BYTES] {
        let to = self.end + BYTES;
        if to > self.bytes.len() {
            return self.new_room();
        }
        (&mut self.bytes[self.end..to]).try_into().expect("it has this many bytes")
    }

    /// Adds the first `length` bytes of the room.
    #[inline(always)]
    pub fn advance(&mut self, length: usize) {
        self.end += length;
    }

    /// Adds bytes of any number.
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.bytes.len() - self.end < bytes.len() {
            self.grow(bytes.len());
        }
        self.bytes[self.end..][..bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Adds what `write` appends to an empty buffer. It is a buffer of its own: appending to this one would shorten it
    /// first, and the bytes after the end would have to be cleared again.
    pub fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut appended = std::mem::take(&mut self.appended);
        write(&mut appended);
        self.extend(&appended);
        appended.clear();
        self.appended = appended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_whatever_their_blocks_hold() {
        let mut body = Body::default();
        for round in 0..3 {
            body.clear();
            for _ in 0..round {
                *body.room() = *b"ab......";
                body.advance(2);
                body.append(|out| out.extend_from_slice(b"line\n"));
                body.extend(b"cd");
                *body.room() = *b"e...";
                body.advance(1);
            }
            assert_eq!(body.bytes(), b"abline\ncde".repeat(round));
        }
    }
}
