//! A set of vectors, for errors that name many. In: vectors. Out: text such as `8, 10-14, 32`. Pure.

use core::fmt;

/// A set of vectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vectors([u128; 2]);

impl Vectors {
    #[cfg(any(test, feature = "profiling"))]
    pub(super) fn insert(&mut self, vector: u8) {
        self.0[usize::from(vector >> 7)] |= 1 << (vector & 127);
    }

    /// Whether the set has this vector.
    pub fn contains(&self, vector: u8) -> bool {
        self.0[usize::from(vector >> 7)] >> (vector & 127) & 1 == 1
    }

    /// Whether the set has no vector.
    pub fn is_empty(&self) -> bool {
        self.0 == [0, 0]
    }
}

impl fmt::Display for Vectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |vector: Option<u8>| vector.is_some_and(|vector| self.contains(vector));
        let mut separator = "";
        for first in (0..=u8::MAX).filter(|vector| self.contains(*vector) && !has(vector.checked_sub(1))) {
            let last = (first..=u8::MAX).take_while(|vector| self.contains(*vector)).last().unwrap_or(first);
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ", ";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_side_by_side_are_a_range() {
        let of = |vectors: &[u8]| {
            let mut set = Vectors::default();
            assert!(set.is_empty());
            vectors.iter().for_each(|vector| set.insert(*vector));
            assert!((0..=u8::MAX).all(|vector| set.contains(vector) == vectors.contains(&vector)));
            set.to_string()
        };
        assert_eq!(of(&[8, 10, 11, 12, 32, 127, 128, 255]), "8, 10-12, 32, 127-128, 255");
        assert_eq!(of(&[0]), "0");
        assert_eq!(of(&(0..=255).collect::<Vec<_>>()), "0-255");
    }
}
