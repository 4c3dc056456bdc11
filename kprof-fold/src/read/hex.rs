//! Plain hexadecimal numbers, checked. Stage: read.
//!
//! In: the bytes of a field. Out: the number, or why it is none. Plain means `0-9a-fA-F` only: no sign, no `0x`, no
//! underscore. Any number of leading zeros is fine; what counts is whether the value fits.

/// Why a field is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumber {
    /// No byte at all.
    Empty,
    /// A byte that is no hexadecimal digit.
    NotHex,
    /// The value needs more bits than it may have.
    TooLarge,
}

impl std::fmt::Display for BadNumber {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "is empty",
            Self::NotHex => "is not a plain hexadecimal number",
            Self::TooLarge => "is too large",
        })
    }
}

const NOT_HEX: u8 = 0xff;

const DIGITS: [u8; 256] = {
    let mut table = [NOT_HEX; 256];
    let mut value = 0;
    while value < 16 {
        table[b"0123456789abcdef"[value] as usize] = value as u8;
        table[b"0123456789ABCDEF"[value] as usize] = value as u8;
        value += 1;
    }
    table
};

/// The value of a digit; above 15 for any other byte.
#[inline]
pub(super) fn digit(byte: u8) -> u8 {
    DIGITS[byte as usize]
}

/// A number of up to 64 bits.
///
/// # Errors
/// [`BadNumber`] says why it is none.
#[inline]
pub fn hex64(field: &[u8]) -> Result<u64, BadNumber> {
    if field.len() >= 16 {
        return hex64_long(field);
    }
    let mut value = 0u64;
    let mut bad = 0u8;
    for byte in field {
        let digit = DIGITS[*byte as usize];
        bad |= digit;
        value = value << 4 | u64::from(digit & 0xf);
    }
    match (field.is_empty(), bad & 0x80) {
        (true, _) => Err(BadNumber::Empty),
        (false, 0) => Ok(value),
        _ => Err(BadNumber::NotHex),
    }
}

fn hex64_long(field: &[u8]) -> Result<u64, BadNumber> {
    if let Ok(sixteen) = <&[u8; 16]>::try_from(field) {
        return hex16(sixteen).ok_or(BadNumber::NotHex);
    }
    hex64_padded(field)
}

/// Sixteen digits, eight at a time in one register.
#[inline]
fn hex16(digits: &[u8; 16]) -> Option<u64> {
    const ONES: u64 = u64::from_le_bytes(*b"ffffffff");
    const ZEROS: u64 = u64::from_le_bytes(*b"00000000");
    let [high, low] = crate::stacks::words_of(digits);
    let (low, bad_low) = hex8(low);
    // The upper half of a kernel address, and of a size, is nearly always one of these.
    let (high, bad_high) = match high {
        ONES => (u32::MAX, 0),
        ZEROS => (0, 0),
        other => hex8(other),
    };
    (bad_high | bad_low == 0).then_some(u64::from(high) << 32 | u64::from(low))
}

/// Eight digits, the first in the lowest byte: their value, and not 0 in the second place if one is no digit.
#[inline]
fn hex8(text: u64) -> (u32, u64) {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let letter = text >> 6 & ONES;
    let nibbles = (text & (0x0f * ONES)) + letter * 9;
    // Above 9 exactly where a letter stands, and never above 15.
    let above_nine = (nibbles + 0x76 * ONES) >> 7 & ONES;
    let bad_value = (above_nine ^ letter) | nibbles & (0xf0 * ONES);
    // Upper half of the byte: 3 for a digit; 4 or 6 for a letter.
    let bad_upper = text & (0x80 * ONES) | (text >> 4 ^ text >> 6 ^ ONES) & ONES | (text >> 5 | letter) & ONES ^ ONES;
    let pairs = (nibbles << 4 | nibbles >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs | pairs >> 8) & 0x0000_ffff_0000_ffff;
    // The first digit is the highest.
    (((fours | fours >> 16) as u32).swap_bytes(), bad_value | bad_upper)
}

#[cold]
fn hex64_padded(field: &[u8]) -> Result<u64, BadNumber> {
    if field.iter().any(|byte| DIGITS[*byte as usize] == NOT_HEX) {
        return Err(BadNumber::NotHex);
    }
    let zeros = field.iter().take_while(|byte| **byte == b'0').count();
    let digits = &field[zeros..];
    match digits.len() {
        0 => Ok(0),
        1..=16 => hex64(digits),
        _ => Err(BadNumber::TooLarge),
    }
}

/// A number of 16 digits and what is behind the one space that follows it; `None` for anything else.
#[inline]
pub fn sixteen_and_space(text: &[u8]) -> Option<(u64, &[u8])> {
    let (sixteen, behind) = text.split_first_chunk::<16>()?;
    Some((hex16(sixteen)?, behind.strip_prefix(b" ")?))
}

/// The addresses of a stack with one space between, each checked.
pub struct Addresses<'a>(Option<&'a [u8]>);

impl<'a> Addresses<'a> {
    /// Of the bytes behind the time stamp of a line.
    pub fn of(text: &'a [u8]) -> Self {
        Self(Some(text))
    }
}

impl Iterator for Addresses<'_> {
    type Item = Result<u64, BadNumber>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.0?;
        // Nearly every address has 16 digits.
        if let Some((sixteen, behind)) = rest.split_first_chunk::<16>()
            && let Some(value) = hex16(sixteen)
        {
            match behind.split_first() {
                None => {
                    self.0 = None;
                    return Some(Ok(value));
                }
                Some((b' ', behind)) => {
                    self.0 = Some(behind);
                    return Some(Ok(value));
                }
                _ => {}
            }
        }
        let space = memchr::memchr(b' ', rest);
        self.0 = space.map(|space| &rest[space + 1..]);
        Some(hex64(&rest[..space.unwrap_or(rest.len())]))
    }
}

/// A number of up to 32 bits.
///
/// # Errors
/// [`BadNumber`] says why it is none.
#[inline]
pub fn hex32(field: &[u8]) -> Result<u32, BadNumber> {
    u32::try_from(hex64(field)?).map_err(|_| BadNumber::TooLarge)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_digits_that_fit_are_a_number() {
        assert_eq!(hex64(b"ffffffff80201000"), Ok(0xffff_ffff_8020_1000));
        assert_eq!(hex64(b"FfFf"), Ok(0xffff));
        assert_eq!(hex64(b"00000000000000000000000000001"), Ok(1));
        assert_eq!(hex64(b"10000000000000000"), Err(BadNumber::TooLarge));
        assert_eq!(hex64(b"0000000000000000000000000000g"), Err(BadNumber::NotHex));
        assert_eq!(hex64(b""), Err(BadNumber::Empty));
        for bad in [&b"0x1"[..], b"+1", b"-1", b"1_0", b"1 ", b"g", b"\0", b"\xff", b"/", b":", b"@", b"`"] {
            assert_eq!(hex64(bad), Err(BadNumber::NotHex), "{bad:?}");
        }
        assert_eq!(hex32(b"ffffffff"), Ok(u32::MAX));
        assert_eq!(hex32(b"100000000"), Err(BadNumber::TooLarge));
    }

    #[test]
    fn sixteen_digits_are_read_like_fewer() {
        for at in 0..16 {
            for byte in 0..=255u8 {
                let mut digits = *b"09afAF5e12345678";
                digits[at] = byte;
                let text = std::str::from_utf8(&digits).ok().filter(|text| !text.starts_with('+'));
                let expected = text.and_then(|text| u64::from_str_radix(text, 16).ok());
                assert_eq!(hex64(&digits).ok(), expected, "{byte} at {at}");
            }
        }
    }

    #[test]
    fn addresses_are_cut_at_single_spaces() {
        let all = |text: &[u8]| Addresses::of(text).collect::<Result<Vec<_>, _>>();
        assert_eq!(
            all(b"ffffffff80201000 303b 0123456789a b"),
            Ok(vec![0xffff_ffff_8020_1000, 0x303b, 0x0012_3456_789a, 0xb])
        );
        assert_eq!(all(b"ffffffff80201000"), Ok(vec![0xffff_ffff_8020_1000]));
        assert_eq!(all(b"0ffffffff80201000 1"), Ok(vec![0xffff_ffff_8020_1000, 1]));
        assert_eq!(all(b"ffffffff80201000f"), Err(BadNumber::TooLarge));
        for empty in [&b""[..], b"1 ", b" 1", b"1  2", b"ffffffff80201000 "] {
            assert_eq!(all(empty), Err(BadNumber::Empty), "{empty:?}");
        }
    }

    #[test]
    fn every_byte_is_a_digit_exactly_if_the_standard_library_says_so() {
        for byte in 0..=255u8 {
            assert_eq!(hex64(&[byte]).ok(), (byte as char).to_digit(16).map(u64::from), "{byte}");
        }
    }
}
