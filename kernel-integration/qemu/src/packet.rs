//! Packets of GDB's remote serial protocol: `$`, the text, `#`, and a checksum of two digits. Stage: capture.
//!
//! In: a request, or the bytes of a reply. Out: its packet, or what it says.

use std::fmt::{self, Write as _};

/// The other side has ended the connection.
#[derive(Debug)]
pub struct Ended;

impl fmt::Display for Ended {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("the machine, or its gdb stub, has ended the connection")
    }
}

impl std::error::Error for Ended {}

/// A request as it is sent.
pub fn packet(text: &str) -> Vec<u8> {
    format!("${text}#{:02x}", sum(text.as_bytes())).into_bytes()
}

/// The checksum.
pub fn sum(body: &[u8]) -> u8 {
    body.iter().fold(0, |sum, byte| sum.wrapping_add(*byte))
}

/// Whether the machine says that it has stopped.
pub fn is_stop(reply: &str) -> bool {
    reply.starts_with(['T', 'S'])
}

/// The text of a packet: `}` changes the next byte, `*` repeats the one before.
pub fn unpacked(body: &[u8]) -> String {
    let mut text: Vec<u8> = Vec::with_capacity(body.len());
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        match (byte, text.last().copied()) {
            (b'}', _) => text.extend(bytes.next().map(|escaped| escaped ^ 0x20)),
            (b'*', Some(last)) => {
                let times = bytes.next().map_or(0, |count| count.saturating_sub(29));
                text.extend(std::iter::repeat_n(last, usize::from(times)));
            }
            _ => text.push(*byte),
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Bytes that are written as two digits each; `None` if they are not.
pub fn from_digits(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|value| value as u8);
    let pairs = digits.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    });
    pairs.collect()
}

/// Bytes as two digits each.
pub fn to_digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Asks for memory.
pub fn read_request(address: u64, bytes: u64) -> String {
    format!("m{address:x},{bytes:x}")
}

/// Memory that was asked for; `None` if not all of it is mapped.
pub fn read_reply(reply: &str, bytes: u64) -> Option<Vec<u8>> {
    from_digits(reply).filter(|read| read.len() as u64 == bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_have_their_checksum_and_are_unpacked() {
        assert_eq!(packet("g"), b"$g#67");
        assert_eq!(unpacked(b"0* 1"), "00001");
        assert_eq!(unpacked(b"a}\x03b"), "a#b");
        assert_eq!(from_digits("00ff"), Some(vec![0, 255]));
        assert_eq!((from_digits("0"), from_digits("0x")), (None, None));
        assert_eq!((read_reply("E14", 1), read_reply("", 1), read_reply("07", 1)), (None, None, Some(vec![7])));
        assert_eq!(to_digits(b"\x07z"), "077a");
    }
}
