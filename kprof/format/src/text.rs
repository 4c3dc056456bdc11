//! The elements of the text form: numbers and escaped names.
//!
//! In: numbers and arbitrary bytes. Out: bytes that can be written into a line of `profiling.txt` and are read back
//! unchanged. Runs in: any (a panic hook writes lines too). Never allocates, never emits a space, a line feed or a byte
//! above 0x7e inside a field.

/// A task without a known name is shown as this prefix and its id in hex.
pub const UNNAMED_TASK: &str = "id";
/// The event stream of a CPU is named by this prefix and the number of the CPU.
pub const EVENT_PREFIX: &str = "event-";

/// A decimal number: digits only, because `str::parse` also takes a `+`.
///
/// ```
/// use kprof_format::text::decimal;
/// assert_eq!(["20", "+20", "256", ""].map(decimal::<u8>), [Some(20), None, None, None]);
/// ```
pub fn decimal<N: core::str::FromStr>(text: &str) -> Option<N> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A number as lower-case hex without `0x` and without leading zeros, in its own buffer.
#[derive(Clone, Copy, Debug)]
pub struct Hex {
    digits: [u8; 16],
    start: u8,
}

impl Hex {
    /// The digits of `value`; zero is `0`.
    ///
    /// ```
    /// use kprof_format::text::Hex;
    /// assert_eq!(Hex::new(0xffff_ffff_8020_1000).as_bytes(), b"ffffffff80201000");
    /// assert_eq!(Hex::new(0).as_bytes(), b"0");
    /// ```
    #[inline]
    pub const fn new(value: u64) -> Self {
        let [high, low] = [spread(value >> 32), spread(value)];
        // The most significant digit comes first, so big endian.
        let digits = ((high as u128) << 64 | low as u128).to_be_bytes();
        let start = (value | 1).leading_zeros() / 4;
        Self { digits, start: start as u8 }
    }

    /// All sixteen digits, leading zeros included.
    #[inline]
    pub const fn all(&self) -> &[u8; 16] {
        &self.digits
    }

    /// How many of the sixteen digits are leading zeros.
    #[inline]
    pub const fn leading_zeros(&self) -> usize {
        self.start as usize
    }

    /// The digits, one to sixteen of them.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.digits[self.start as usize..]
    }
}

/// The eight digits of `value`, leading zeros included.
///
/// ```
/// assert_eq!(&kprof_format::text::eight_digits(0x8020_1000), b"80201000");
/// ```
#[inline]
pub const fn eight_digits(value: u32) -> [u8; 8] {
    spread(value as u64).to_be_bytes()
}

/// The eight hex digits of the lower 32 bits, one in each byte, computed in parallel: 4 bits are moved into each byte
/// and turned into ASCII by adding `0`, and 39 more for digits above 9.
#[inline]
const fn spread(value: u64) -> u64 {
    let halves = (value & 0xffff_0000) << 16 | value & 0xffff;
    let bytes = (halves << 8 | halves) & 0x00ff_00ff_00ff_00ff;
    let digits = (bytes << 4 | bytes) & 0x0f0f_0f0f_0f0f_0f0f;
    let above_nine = (digits + 0x0606_0606_0606_0606) >> 4 & 0x0101_0101_0101_0101;
    digits + 0x3030_3030_3030_3030 + above_nine * 39
}

/// A number in decimal, in its own buffer. Used for the values of counters, because `core::fmt` is slower.
#[derive(Clone, Copy, Debug)]
pub struct Decimal {
    digits: [u8; 20],
    start: u8,
}

impl Decimal {
    /// The digits of `value`; zero is `0`.
    ///
    /// ```
    /// use kprof_format::text::Decimal;
    /// assert_eq!(Decimal::new(u64::MAX).as_str(), "18446744073709551615");
    /// assert_eq!(Decimal::new(100).as_str(), "100");
    /// assert_eq!(Decimal::new(0).as_str(), "0");
    /// ```
    pub fn new(mut value: u64) -> Self {
        let mut digits = [b'0'; 20];
        let mut start = 20;
        for place in digits.iter_mut().rev() {
            *place = b'0' + (value % 10) as u8;
            start -= 1;
            value /= 10;
            if value == 0 {
                break;
            }
        }
        Self { digits, start }
    }

    /// One to twenty digits.
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.digits[usize::from(self.start)..]).unwrap_or_default()
    }
}

/// Parses hex digits: `0-9a-fA-F`, at least one digit, no sign, no prefix, at most 64 bits.
///
/// ```
/// use kprof_format::text::parse_hex;
/// assert_eq!(parse_hex(b"00ffffffff80201000"), Some(0xffff_ffff_8020_1000));
/// assert_eq!(parse_hex(b"1ffffffff80201000"), None);
/// assert_eq!(parse_hex(b"0x10"), None);
/// ```
pub fn parse_hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = (*digit as char).to_digit(16)?;
        (value >> 60 == 0).then_some(value << 4 | u64::from(digit))
    })
}

/// The bytes of `name` as they are written into a line: bytes up to 0x20, bytes from 0x7f on, `%`, and a leading `#`
/// become `%xx`. An empty name becomes `%00`.
///
/// A name that consists of one zero byte is written in the same way as an empty one; no kernel distinguishes the two.
///
/// ```
/// use kprof_format::text::escaped;
/// assert!(escaped(b"#a b%").eq(*b"%23a%20b%25"));
/// assert!(escaped(b"").eq(*b"%00"));
/// ```
pub fn escaped(name: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let empty: &[u8] = if name.is_empty() { b"%00" } else { b"" };
    let bytes = name.iter().enumerate().flat_map(|(at, &byte)| {
        let is_plain = may_stand(byte) && byte != b'%' && !(at == 0 && byte == b'#');
        written(byte, is_plain)
    });
    empty.iter().copied().chain(bytes)
}

/// A field that was read, as it is written again. Another program may have written bytes that [`escaped`] does not:
/// they become `%xx`, so that every byte is ASCII, and [`unescaped`] gives the same name.
///
/// ```
/// use kprof_format::text::{rewritten, unescaped};
/// let field = "caf\u{e9}%20%".as_bytes();
/// assert!(rewritten(field).eq(*b"caf%c3%a9%20%"));
/// assert!(unescaped(b"caf%c3%a9%20%").eq(unescaped(field)));
/// ```
pub fn rewritten(field: &[u8]) -> impl Iterator<Item = u8> + '_ {
    field.iter().flat_map(|&byte| written(byte, may_stand(byte)))
}

/// Whether a field may have this byte.
fn may_stand(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e)
}

/// The byte itself, or `%xx`.
fn written(byte: u8, is_plain: bool) -> impl Iterator<Item = u8> {
    let escape = [b'%', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
    let (bytes, count) = if is_plain { ([byte, 0, 0], 1) } else { (escape, 3) };
    bytes.into_iter().take(count)
}

/// The bytes that [`escaped`] was made from. A `%` without two hex digits is kept as it is, so every text can be
/// decoded. `%00` alone is the empty name.
///
/// ```
/// use kprof_format::text::unescaped;
/// assert!(unescaped(b"%23a%20b%25").eq(*b"#a b%"));
/// assert_eq!(unescaped(b"%00").count(), 0);
/// assert!(unescaped(b"100%").eq(*b"100%"));
/// ```
pub fn unescaped(field: &[u8]) -> impl Iterator<Item = u8> + '_ {
    let mut rest = if field == b"%00" { &[] } else { field };
    core::iter::from_fn(move || {
        let (&first, after) = rest.split_first()?;
        if first == b'%'
            && let Some(digits) = after.first_chunk::<2>()
            && let Some(byte) = parse_hex(digits)
        {
            rest = &after[2..];
            return Some(byte as u8);
        }
        rest = after;
        Some(first)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_single_byte_name_survives_escaping() {
        for byte in 1..=255_u8 {
            for name in [&[byte][..], &[b'a', byte], &[byte, byte, b'z']] {
                let mut field = [0; 16];
                let mut length = 0;
                for (slot, byte) in field.iter_mut().zip(escaped(name)) {
                    *slot = byte;
                    length += 1;
                }
                let field = &field[..length];
                assert!(field.iter().all(|byte| (0x21..=0x7e).contains(byte)), "{field:?}");
                assert!(field[0] != b'#');
                assert!(unescaped(field).eq(name.iter().copied()), "{name:?} became {field:?}");
            }
        }
    }

    #[test]
    fn a_field_of_any_bytes_is_written_again_with_the_same_name() {
        for byte in 1..=255_u8 {
            for field in [&[byte][..], b"%", b"%4", &[b'%', byte, b'1'], &[b'%', b'a', byte], &[byte, b'%', b'4', b'1']]
            {
                let again: Vec<u8> = rewritten(field).collect();
                assert!(again.iter().all(|byte| (0x21..=0x7e).contains(byte)), "{again:?}");
                assert!(unescaped(&again).eq(unescaped(field)), "{field:?} became {again:?}");
            }
        }
    }

    #[test]
    fn hex_survives_writing_and_reading() {
        for shift in 0..64 {
            for value in [1_u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
                assert_eq!(parse_hex(Hex::new(value).as_bytes()), Some(value));
            }
        }
        for bad in [&b""[..], b"+1", b"-1", b" 1", b"1 ", b"g", b"10000000000000000"] {
            assert_eq!(parse_hex(bad), None, "{bad:?}");
        }
    }
}
