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

/// A number of up to 64 bits.
///
/// # Errors
/// [`BadNumber`] says why it is none.
#[inline]
pub fn hex64(field: &[u8]) -> Result<u64, BadNumber> {
    if field.len() > 16 {
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

#[cold]
fn hex64_long(field: &[u8]) -> Result<u64, BadNumber> {
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
    fn every_byte_is_a_digit_exactly_if_the_standard_library_says_so() {
        for byte in 0..=255u8 {
            assert_eq!(hex64(&[byte]).ok(), (byte as char).to_digit(16).map(u64::from), "{byte}");
        }
    }
}
