//! Repairs one damaged byte of a `# batch` line. Stage: read, only for batches that do not match their checksum.
//!
//! In: the line, how many bytes of the batch follow it, and by which bits the checksum differs. Out: the line as it was
//! written. CRC-32 is linear, so each change of one byte changes the checksum in its own way. The change of the
//! checksum is followed back from the end of the batch to each byte of the line. Some other damage looks the same with
//! a probability below 2 in 100 000 (places times values, divided by 2^32). Damage to the lines after the `# batch`
//! line is not repaired: they have so many bytes that a wrong repair would be likely.
//!
//! Source: R. N. Williams, A Painless Guide to CRC Error Detection Algorithms, 1993, sections 5 and 11.

/// The polynomial of CRC-32/ISO-HDLC, least significant bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// How a byte at the end of a message changes the sum.
const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut sum, mut bit) = (byte as u32, 0);
        while bit < 8 {
            sum = sum >> 1 ^ if sum & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = sum;
        byte += 1;
    }
    table
}

/// For each upper byte of an entry of the table, the index of that entry. The upper bytes are all different.
fn bytes_of(table: &[u32; 256]) -> [u8; 256] {
    let mut bytes = [0; 256];
    for (sum, byte) in table.iter().zip(0..=u8::MAX) {
        bytes[(sum >> 24) as usize] = byte;
    }
    bytes
}

/// Finds the byte of the line whose damage explains the `change` of the checksum. If there is exactly one such byte,
/// returns the repaired line and the index of the byte. `after` bytes follow the line.
pub fn repaired(line: &[u8], after: u64, change: u32) -> Option<(Vec<u8>, usize)> {
    const TABLE: [u32; 256] = table();
    let bytes = bytes_of(&TABLE);
    // Follows the change of the checksum back by one byte.
    let back = |change: u32| {
        let byte = bytes[(change >> 24) as usize];
        (change ^ TABLE[usize::from(byte)]) << 8 | u32::from(byte)
    };
    let mut change = (0..after).fold(change, |change, _| back(change));
    let mut found = None;
    for place in (0..line.len()).rev() {
        change = back(change);
        if (1..256).contains(&change) {
            if found.is_some() {
                return None;
            }
            found = Some((place, change as u8));
        }
    }
    let (place, difference) = found?;
    let mut line = line.to_vec();
    line[place] ^= difference;
    Some((line, place))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kprof_format::checksum::Crc32;

    #[test]
    fn every_single_damaged_byte_of_the_line_is_found() {
        let line = b"# batch cpu=1 from=10 to=90 first-tick=3 last-tick=20 taken=17 coalesced=0 user=1 idle=0";
        for rest in [&b"\n"[..], b"\na 1 2 ffffffff80201000\n", &[b'x'; 5000]] {
            let sum = |line: &[u8]| Crc32::of_batch("7").with(line).with(rest).end();
            let written = sum(line);
            for place in 0..line.len() {
                for difference in [1, 2, 0x20, 0x80, 0xff] {
                    let mut damaged = line.to_vec();
                    damaged[place] ^= difference;
                    let found = repaired(&damaged, rest.len() as u64, sum(&damaged) ^ written);
                    assert_eq!(found, Some((line.to_vec(), place)));
                }
            }
        }
    }

    #[test]
    fn other_damage_is_not_repaired() {
        let line = b"# batch cpu=1 from=10 to=90 first-tick=3 last-tick=20";
        let rest = b"\na 1 2 ffffffff80201000 ffffffff80202000\n".repeat(20);
        let sum = |line: &[u8], rest: &[u8]| Crc32::of_batch("7").with(line).with(rest).end();
        let written = sum(line, &rest);
        for place in 0..rest.len() {
            let mut damaged = rest.clone();
            damaged[place] ^= 4;
            assert_eq!(repaired(line, rest.len() as u64, sum(line, &damaged) ^ written), None);
        }
        for (first, second) in (0..line.len()).zip(1..line.len()) {
            let mut damaged = line.to_vec();
            (damaged[first], damaged[second]) = (b'?', b'!');
            assert_eq!(repaired(&damaged, rest.len() as u64, sum(&damaged, &rest) ^ written), None);
        }
    }
}
