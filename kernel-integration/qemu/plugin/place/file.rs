//! What the tool tells the plugin of the kernel's file. Stage: capture.
//!
//! In: entries, each of three words (kind, address, number of bytes) and the bytes, padded to words. Kind 1 is code, 2
//! the addresses at which functions begin, 3 the build id where it is in memory. Out: the same.

/// Bytes at an address.
#[derive(Clone, Debug, Default)]
pub struct Piece {
    pub address: u64,
    pub bytes: Vec<u8>,
}

/// The kernel as its file has it.
#[derive(Clone, Debug, Default)]
pub struct File {
    pub code: Vec<Piece>,
    pub starts: Vec<u64>,
    pub id: Option<Piece>,
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().copied().map(u64::from_le_bytes).collect()
}

impl File {
    /// Reads all entries.
    pub fn read(mut bytes: &[u8]) -> Self {
        let mut file = Self::default();
        while let Some((head, rest)) = bytes.split_at_checked(24) {
            let [kind, address, length] = words(head)[..] else { break };
            let Some(all) = rest.get(..length as usize) else { break };
            let piece = || Piece { address, bytes: all.to_vec() };
            match kind {
                1 => file.code.push(piece()),
                2 => file.starts.extend(words(all)),
                _ => file.id = Some(piece()),
            }
            bytes = rest.get((length as usize).next_multiple_of(8)..).unwrap_or_default();
        }
        file
    }

    /// Whether it has code at this address.
    pub fn has(&self, address: u64) -> bool {
        self.code.iter().any(|piece| address.wrapping_sub(piece.address) < piece.bytes.len() as u64)
    }

    /// Its first address, and one past its last.
    pub fn range(&self) -> (u64, u64) {
        let ends = |piece: &Piece| (piece.address, piece.address + piece.bytes.len() as u64);
        let pieces = self.code.iter().map(ends).chain(self.starts.iter().map(|start| (*start, start + 1)));
        pieces.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0))
    }
}
