//! Parses plain hexadecimal numbers and checks them. Stage: read.
//!
//! In: the bytes of a field. Out: the number, or what is wrong with the field. Plain means `0-9a-fA-F` only: no sign,
//! no `0x`, no underscore. Any number of leading zeros is allowed, as long as the value fits.

use wide::{bytemuck, i16x8, u8x16, u16x8};

/// Why a field is not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNumber {
    /// The field is empty.
    Empty,
    /// A byte is not a hexadecimal digit.
    NotHex,
    /// The value needs more bits than allowed.
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
/// [`BadNumber`] says what is wrong.
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

/// Parses sixteen bytes as digits at once. Returns their value, valid if all are digits, and a bit for each byte that
/// is not a digit.
#[inline(always)]
fn sixteen(bytes: &[u8; 16]) -> (u64, u32) {
    let text = u8x16::new(*bytes);
    let (number, letter) = (text - u8x16::splat(b'0'), (text | u8x16::splat(0x20)) - u8x16::splat(b'a'));
    let is_number = number.simd_eq(number.min(u8x16::splat(9)));
    let is_letter = letter.simd_eq(letter.min(u8x16::splat(5)));
    let nibbles = (number & is_number) | ((letter + u8x16::splat(10)) & is_letter);
    // Each pair of digits becomes a byte, then the eight bytes become a word. The first digit is the most significant
    // one.
    let pairs: u16x8 = bytemuck::cast(nibbles);
    let pairs = if cfg!(target_endian = "little") { pairs << 4 | pairs >> 8 } else { pairs >> 4 | pairs };
    let pairs: i16x8 = bytemuck::cast(pairs & u16x8::splat(0xff));
    let value = u8x16::narrow_i16x8(pairs, pairs).to_array();
    let [value, _] = value.as_chunks::<8>().0 else { unreachable!("twice eight bytes") };
    (u64::from_be_bytes(*value), !(is_number | is_letter).to_bitmask() & 0xffff)
}

/// Sixteen digits.
#[inline]
fn hex16(digits: &[u8; 16]) -> Option<u64> {
    let (value, bad) = sixteen(digits);
    (bad == 0).then_some(value)
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

/// A number of 16 digits, and the text after the one space that follows it; `None` for anything else.
#[inline]
pub fn sixteen_and_space(text: &[u8]) -> Option<(u64, &[u8])> {
    let (sixteen, after) = text.split_first_chunk::<16>()?;
    Some((hex16(sixteen)?, after.strip_prefix(b" ")?))
}

/// A number of up to 16 digits, and the text after the one space that follows it; `None` for anything else, which
/// [`hex64`] may still accept.
#[inline(always)]
pub fn number_and_space(text: &[u8]) -> Option<(u64, &[u8])> {
    let (value, bad) = sixteen(text.first_chunk()?);
    let digits = (bad | 1 << 16).trailing_zeros() as usize;
    if digits == 0 || text.get(digits) != Some(&b' ') {
        return None;
    }
    Some((value >> (64 - 4 * digits), &text[digits + 1..]))
}

/// The addresses of a stack, separated by one space; each of them is checked.
pub struct Addresses<'a>(Option<&'a [u8]>);

impl<'a> Addresses<'a> {
    /// The addresses in the bytes after the time stamp of a line.
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
        if let Some((sixteen, after)) = rest.split_first_chunk::<16>()
            && let Some(value) = hex16(sixteen)
        {
            match after.split_first() {
                None => {
                    self.0 = None;
                    return Some(Ok(value));
                }
                Some((b' ', after)) => {
                    self.0 = Some(after);
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
/// [`BadNumber`] says what is wrong.
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
    fn numbers_before_a_space_are_read_like_others() {
        let texts =
            ["", "0", "f", "1234567", "12345678", "123456789", "abcdef012345", "fedcba987654321", "fedcba9876543210"];
        for text in texts {
            for (at, byte) in (0..text.len()).flat_map(|at| (0..=255).map(move |byte: u8| (at, byte))).chain([(99, 0)])
            {
                let mut digits = text.as_bytes().to_vec();
                digits.iter_mut().skip(at).take(1).for_each(|digit| *digit = byte);
                for after in [&b"x"[..], b"12345678 and more"] {
                    let line = [&digits[..], b" ", after].concat();
                    let space = line.iter().position(|byte| *byte == b' ').expect("there is one");
                    let (number, rest) = (hex64(&line[..space]), &line[space + 1..]);
                    if let Some(found) = number_and_space(&line) {
                        assert_eq!((Ok(found.0), found.1), (number, rest), "{line:?}");
                    } else if after.len() > 8 && space <= 16 {
                        assert!(number.is_err(), "{line:?}");
                    }
                }
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
