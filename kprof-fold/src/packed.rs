//! Packed: samples in a few bytes each. Stage: fold; the storage of [`crate::tracks`] and of the aliasing check.
//!
//! In: the time stamp of each sample of one CPU, and small numbers about it. Out: the same, in the order of time.
//! A sample is written as the difference to the time stamp before it, then the numbers, each in as many bytes as it
//! needs (7 bits in a byte, LEB128). That is 6 to 8 bytes instead of 24. Samples are provisional until `commit`.

/// The samples of one CPU, each with `N` numbers.
#[derive(Clone, Debug, Default)]
pub struct Packed<const N: usize> {
    bytes: Vec<u8>,
    end: Point,
    /// Where the samples that are no longer provisional end.
    certain: Point,
}

/// The state after a sample.
#[derive(Clone, Copy, Debug)]
struct Point {
    bytes: usize,
    len: usize,
    tsc: u64,
    is_sorted: bool,
}

impl Default for Point {
    fn default() -> Self {
        Self { bytes: 0, len: 0, tsc: 0, is_sorted: true }
    }
}

/// The most bytes of one number.
const MAX_NUMBER: usize = 10;
/// The most bytes of a sample: `N` is at most 2.
const MAX_SAMPLE: usize = 3 * MAX_NUMBER;

impl<const N: usize> Packed<N> {
    /// Adds a sample.
    #[inline]
    pub fn push(&mut self, tsc: u64, numbers: [u32; N]) {
        const { assert!((N + 1) * MAX_NUMBER <= MAX_SAMPLE) };
        let mut sample = [0; MAX_SAMPLE];
        let difference = tsc.wrapping_sub(self.end.tsc) as i64;
        let mut length = 0;
        // The sign becomes the lowest bit, so that small differences in both directions are small numbers.
        put(&mut sample, &mut length, (difference << 1 ^ difference >> 63) as u64);
        numbers.iter().for_each(|number| put(&mut sample, &mut length, u64::from(*number)));
        self.bytes.extend_from_slice(&sample[..length]);
        let is_sorted = self.end.is_sorted && (self.end.len == 0 || tsc >= self.end.tsc);
        self.end = Point { bytes: self.bytes.len(), len: self.end.len + 1, tsc, is_sorted };
    }

    /// The samples since the last `commit` or `discard` count.
    pub fn commit(&mut self) {
        self.certain = self.end;
    }

    /// The samples since the last `commit` or `discard` do not count.
    pub fn discard(&mut self) {
        self.end = self.certain;
        self.bytes.truncate(self.end.bytes);
    }

    /// How many samples there are.
    pub fn len(&self) -> usize {
        self.end.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.end.len == 0
    }

    /// The bytes that all samples take.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Puts the samples in the order of time. Samples of one CPU nearly always are already.
    pub fn sort(&mut self) {
        if self.end.is_sorted {
            return;
        }
        let mut samples: Vec<(u64, [u32; N])> = self.iter().collect();
        samples.sort_by_key(|(tsc, _)| *tsc);
        *self = Self::default();
        samples.into_iter().for_each(|(tsc, numbers)| self.push(tsc, numbers));
        self.commit();
    }

    /// The samples: time stamp and numbers.
    pub fn iter(&self) -> Iter<'_, N> {
        Iter { rest: &self.bytes, tsc: 0 }
    }

    /// The first and the last time stamp of samples that are sorted.
    pub fn span(&self) -> Option<(u64, u64)> {
        self.iter().next().map(|(first, _)| (first, self.end.tsc))
    }
}

#[inline]
fn put(bytes: &mut [u8; MAX_SAMPLE], at: &mut usize, mut number: u64) {
    while number >= 0x80 {
        bytes[*at] = number as u8 | 0x80;
        *at += 1;
        number >>= 7;
    }
    bytes[*at] = number as u8;
    *at += 1;
}

/// Goes through the samples.
#[derive(Clone, Debug)]
pub struct Iter<'a, const N: usize> {
    rest: &'a [u8],
    tsc: u64,
}

impl<const N: usize> Iter<'_, N> {
    #[inline]
    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let (byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            number |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
    }
}

impl<const N: usize> Iterator for Iter<'_, N> {
    type Item = (u64, [u32; N]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let folded = self.number()?;
        self.tsc = self.tsc.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg());
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.number()? as u32;
        }
        Some((self.tsc, numbers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_come_back_as_they_were_and_in_order_once_sorted() {
        let times = [5, 5, 1 << 63, 0, u64::MAX, 127, 128, 1 << 40];
        let samples: Vec<_> = times.iter().zip(0..).map(|(tsc, at)| (*tsc, [u32::MAX >> at, at])).collect();
        let mut packed = Packed::<2>::default();
        samples.iter().for_each(|(tsc, numbers)| packed.push(*tsc, *numbers));
        packed.commit();
        assert_eq!(packed.iter().collect::<Vec<_>>(), samples);
        packed.sort();
        let mut sorted = samples.clone();
        sorted.sort_by_key(|(tsc, _)| *tsc);
        assert_eq!((packed.iter().collect::<Vec<_>>(), packed.len()), (sorted, 8));
        assert_eq!(packed.span(), Some((0, u64::MAX)));
    }

    #[test]
    fn what_is_discarded_leaves_no_trace() {
        let mut packed = Packed::<1>::default();
        packed.push(100, [1]);
        packed.commit();
        packed.push(50, [2]);
        packed.discard();
        packed.push(200, [3]);
        packed.commit();
        assert_eq!(packed.iter().collect::<Vec<_>>(), [(100, [1]), (200, [3])]);
        let before = packed.bytes();
        packed.sort();
        assert_eq!((packed.bytes(), packed.is_empty()), (before, false));
    }
}
