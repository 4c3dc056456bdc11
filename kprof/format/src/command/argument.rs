//! The arguments of a function with a probe: their types, and conditions on them.
//!
//! In: `u64,i32`, or `arg1:u32 >= 4096`. Out: the types, the condition; and of a register's value, the value of the
//! argument, and whether the condition holds. Runs in: any; the breakpoint handler too. No allocation. A condition that
//! all values meet, or that no value meets, is refused, because it must be a mistake.

use crate::event::MAX_ARGUMENTS;
use crate::text::decimal;
use core::fmt;

/// The most conditions of a probe.
pub const MAX_CONDITIONS: usize = 4;

/// The type of an argument. A register has 64 bits; of those above the type's own the value is not defined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArgumentType {
    bits: u8,
    is_signed: bool,
}

/// The names of the types, in the order of their codes from 1 on.
const TYPES: [(&str, ArgumentType); 8] = [
    ("u8", ArgumentType { bits: 8, is_signed: false }),
    ("u16", ArgumentType { bits: 16, is_signed: false }),
    ("u32", ArgumentType { bits: 32, is_signed: false }),
    ("u64", ArgumentType { bits: 64, is_signed: false }),
    ("i8", ArgumentType { bits: 8, is_signed: true }),
    ("i16", ArgumentType { bits: 16, is_signed: true }),
    ("i32", ArgumentType { bits: 32, is_signed: true }),
    ("i64", ArgumentType { bits: 64, is_signed: true }),
];

impl ArgumentType {
    /// A whole register.
    pub const U64: Self = Self { bits: 64, is_signed: false };

    fn parse(name: &str) -> Option<Self> {
        TYPES.iter().find(|(known, _)| *known == name).map(|(_, of)| *of)
    }

    /// Its number, from 1.
    const fn code(self) -> u64 {
        (self.bits.trailing_zeros() as u64).wrapping_sub(2).wrapping_add(if self.is_signed { 4 } else { 0 })
    }

    fn decode(code: u64) -> Option<Self> {
        TYPES.get(usize::try_from(code).ok()?.checked_sub(1)?).map(|(_, of)| *of)
    }

    /// The value of an argument of this type in a register. The bits above those of the type become zeros, or the sign.
    #[inline]
    pub fn of_register(self, register: u64) -> u64 {
        let above = 64_u32.wrapping_sub(self.bits.into());
        let shifted = register.wrapping_shl(above);
        if self.is_signed { (shifted as i64).wrapping_shr(above) as u64 } else { shifted.wrapping_shr(above) }
    }

    /// Parses a value: decimal, or hexadecimal after `0x`; a `-` only for a signed type. `None` if the text is no value
    /// of this type.
    fn value(self, text: &str) -> Option<u64> {
        let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let magnitude = match digits.strip_prefix("0x") {
            Some(digits) => super::probe::hex(digits)?,
            None => decimal(digits)?,
        };
        let value = if is_negative { magnitude.wrapping_neg() } else { magnitude };
        let has_sign = self.is_signed && (value as i64) < 0;
        let is_of_type = self.of_register(value) == value && (magnitude == 0 || is_negative == has_sign);
        is_of_type.then_some(value)
    }
}

impl fmt::Display for ArgumentType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(TYPES.iter().find(|(_, of)| of == self).map_or("", |(name, _)| name))
    }
}

/// The types of the first arguments of a function, which its records have.
///
/// ```
/// use kprof_format::command::ArgumentTypes;
/// let types = ArgumentTypes::parse("u64,i32").unwrap();
/// let values: Vec<u64> = types.values([7, 0x5_ffff_fffe, 0, 0, 0, 0]).collect();
/// assert_eq!((types.to_string(), values), ("u64,i32".to_owned(), vec![7, -2_i64 as u64]));
/// assert!(ArgumentTypes::parse("u64,f32").is_none() && ArgumentTypes::parse("").is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArgumentTypes(u32);

impl ArgumentTypes {
    /// The types, with commas between; `None` if there is an unknown one, or more than [`MAX_ARGUMENTS`].
    pub fn parse(text: &str) -> Option<Self> {
        let (mut packed, mut count) = (0, 0_u32);
        for name in text.split(',') {
            packed |= (ArgumentType::parse(name)?.code() as u32).checked_shl(count.checked_mul(4)?)?;
            count = count.checked_add(1).filter(|count| *count as usize <= MAX_ARGUMENTS)?;
        }
        Some(Self(packed))
    }

    /// The same as a number of 24 bits; 0 if there is none.
    pub fn encode(self) -> u32 {
        self.0
    }

    /// The types that [`Self::encode`] has given.
    pub fn decode(packed: u32) -> Self {
        Self(packed)
    }

    /// The types.
    pub fn iter(self) -> impl Iterator<Item = ArgumentType> {
        let code = move |index: u32| u64::from(self.0.wrapping_shr(index.wrapping_mul(4)) & 0xf);
        (0..MAX_ARGUMENTS as u32).map_while(move |index| ArgumentType::decode(code(index)))
    }

    /// The values of the arguments in these registers.
    pub fn values(self, registers: [u64; MAX_ARGUMENTS]) -> impl Iterator<Item = u64> {
        self.iter().zip(registers).map(|(of, register)| of.of_register(register))
    }
}

impl fmt::Display for ArgumentTypes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        self.iter().try_for_each(|of| write!(f, "{}{of}", core::mem::replace(&mut between, ",")))
    }
}

/// How an argument is compared. `&`: they have a bit in common.
const COMPARISONS: [&str; 7] = ["==", "!=", "<=", ">=", "<", ">", "&"];

/// A condition on an argument.
///
/// ```
/// use kprof_format::command::Condition;
/// let condition = Condition::parse("arg2:i32>=-1").unwrap();
/// assert_eq!(condition.to_string(), "arg2:i32 >= -1");
/// assert!(condition.holds([0, 0xffff_ffff, 0, 0, 0, 0]) && !condition.holds([0, 0xffff_fffe, 0, 0, 0, 0]));
/// // No value of the type meets these.
/// assert!(Condition::parse("arg1:u8 == 256").is_none() && Condition::parse("arg1 < 0").is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Condition {
    /// From 0.
    argument: u8,
    of: ArgumentType,
    /// An index of [`COMPARISONS`].
    comparison: u8,
    value: u64,
}

/// What [`Condition::parse`] expects.
pub const EXPECTED_CONDITION: &str = "argN OP VALUE or argN:TYPE OP VALUE: N from 1 to 6, TYPE u8 to u64 or i8 to i64 \
    (without one u64), OP one of == != < <= > >= &, VALUE decimal or 0x and hexadecimal; some values of TYPE must meet \
    it, and others must not";

impl Condition {
    /// Parses a condition; the spaces around the comparison are optional. `None` if the text is no condition, if the
    /// type does not have this value, if all values meet the condition, or if no value meets it.
    pub fn parse(text: &str) -> Option<Self> {
        let at = text.find(['=', '!', '<', '>', '&'])?;
        let (name, rest) = text.split_at(at);
        let comparison = COMPARISONS.iter().position(|symbol| rest.starts_with(symbol))?;
        let value = rest.get(COMPARISONS.get(comparison)?.len()..)?.trim();
        let (name, of) = match name.trim().split_once(':') {
            Some((name, of)) => (name, ArgumentType::parse(of)?),
            None => (name.trim(), ArgumentType::U64),
        };
        let argument = (0..MAX_ARGUMENTS as u8).zip(["arg1", "arg2", "arg3", "arg4", "arg5", "arg6"]);
        let argument = argument.into_iter().find(|(_, known)| *known == name)?.0;
        let condition = Self { argument, of, comparison: comparison as u8, value: of.value(value)? };
        condition.has_a_meaning().then_some(condition)
    }

    /// Whether some values of the type meet it and others do not.
    fn has_a_meaning(self) -> bool {
        let above = 64_u32.wrapping_sub(self.of.bits.into());
        let ones = u64::MAX.wrapping_shr(above);
        let sign = 1_u64.wrapping_shl(u32::from(self.of.bits).wrapping_sub(1));
        let (min, max) = if self.of.is_signed { (sign, ones ^ sign) } else { (0, ones) };
        // Enough for every comparison: if some values of the type meet it and others do not, this list has one of each.
        let tried = [min, max, self.value, self.value.wrapping_sub(1), self.value.wrapping_add(1), 0, ones];
        let meets = |of: bool| tried.iter().any(|value| self.holds_for(self.of.of_register(*value)) == of);
        meets(true) && meets(false)
    }

    /// Whether the arguments in these registers meet it.
    #[inline]
    pub fn holds(self, registers: [u64; MAX_ARGUMENTS]) -> bool {
        let register = registers.get(usize::from(self.argument)).copied().unwrap_or(0);
        self.holds_for(self.of.of_register(register))
    }

    #[inline]
    fn holds_for(self, value: u64) -> bool {
        let order = match self.of.is_signed {
            true => (value as i64).cmp(&(self.value as i64)),
            false => value.cmp(&self.value),
        };
        match COMPARISONS.get(usize::from(self.comparison)) {
            Some(&"==") => order.is_eq(),
            Some(&"!=") => order.is_ne(),
            Some(&"<=") => order.is_le(),
            Some(&">=") => order.is_ge(),
            Some(&"<") => order.is_lt(),
            Some(&">") => order.is_gt(),
            _ => value & self.value != 0,
        }
    }

    /// The same as two words; the first one is never 0.
    pub fn encode(self) -> [u64; 2] {
        let first = self.of.code() | u64::from(self.argument) << 8 | u64::from(self.comparison) << 16;
        [first, self.value]
    }

    /// The condition that [`Self::encode`] has given. `None` for other words.
    #[inline]
    pub fn decode([first, value]: [u64; 2]) -> Option<Self> {
        let of = ArgumentType::decode(first & 0xff)?;
        Some(Self { argument: (first >> 8) as u8, of, comparison: (first >> 16) as u8, value })
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "arg{}", u32::from(self.argument).wrapping_add(1))?;
        if self.of != ArgumentType::U64 {
            write!(f, ":{}", self.of)?;
        }
        write!(f, " {} ", COMPARISONS.get(usize::from(self.comparison)).unwrap_or(&""))?;
        if self.of.is_signed { write!(f, "{}", self.value as i64) } else { write!(f, "{}", self.value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn types_have_codes_and_values() {
        for (code, (name, of)) in (1..).zip(TYPES) {
            assert_eq!((of.code(), ArgumentType::decode(code), of.to_string()), (code, Some(of), name.to_string()));
        }
        assert_eq!([0, 9].map(ArgumentType::decode), [None; 2]);
        let six = "u8,i8,u16,i16,u32,i64";
        let types = ArgumentTypes::parse(six).unwrap();
        assert_eq!(ArgumentTypes::decode(types.encode()).to_string(), six);
        let values: Vec<i64> = types.values([0x1_ff; 6]).map(|value| value as i64).collect();
        assert_eq!(values, [0xff, -1, 0x1ff, 0x1ff, 0x1ff, 0x1ff]);
        assert_eq!(ArgumentTypes::default().values([1; 6]).count(), 0);
        for wrong in ["", "u64,", "u128", "u8,u8,u8,u8,u8,u8,u8", "bool"] {
            assert_eq!(ArgumentTypes::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_condition_compares_values_of_its_type() {
        let cases: [(&str, u64, bool); 16] = [
            ("arg1 == 5", 5, true),
            ("arg1 == 5", 1 << 32 | 5, false),
            ("arg1:u32 == 5", 1 << 32 | 5, true),
            ("arg1 != 5", 5, false),
            ("arg1 < 5", 4, true),
            ("arg1 < 5", 5, false),
            ("arg1 <= 5", 5, true),
            ("arg1 > 5", 5, false),
            ("arg1 > 5", u64::MAX, true),
            ("arg1 >= 0xffff800000000000", 0xffff_8000_0000_0000, true),
            ("arg1:i64 > 5", u64::MAX, false),
            ("arg1:i64 < 0", u64::MAX, true),
            ("arg1:i8 == -128", 0x1280, true),
            ("arg1:i8 <= -0x80", 0x81, false),
            ("arg1 & 0x30", 0x10, true),
            ("arg1 & 0x30", 0xcf, false),
        ];
        for (text, register, expected) in cases {
            let condition = Condition::parse(text).unwrap_or_else(|| panic!("{text}"));
            let again = Condition::decode(condition.encode());
            assert_eq!(again, Some(condition), "{text}");
            assert_eq!(Condition::parse(&condition.to_string()), Some(condition), "{text}");
            assert_eq!(condition.holds([register, 0, 0, 0, 0, 0]), expected, "{text} for {register:x}");
        }
        assert!(Condition::parse("arg6==1").unwrap().holds([0, 0, 0, 0, 0, 1]));
    }

    #[test]
    fn what_is_no_condition_and_what_means_nothing_is_refused() {
        let wrong = [
            "",
            "arg1",
            "arg0 == 1",
            "arg7 == 1",
            "arg1 = 1",
            "arg1 == ",
            "arg1 == +1",
            "arg1 == 0x",
            "arg1 == 1 2",
            "arg1 == x",
            "arg1:u128 == 1",
            "arg1: == 1",
            "x == 1",
            "arg1 == -1",
            "arg1:u8 == 256",
            "arg1:i8 == 128",
            "arg1:i8 == -129",
            "arg1 == 18446744073709551616",
            "arg1 =! 1",
            "arg1 << 1",
            // All values meet these, or none does.
            "arg1 < 0",
            "arg1 >= 0",
            "arg1 & 0",
            "arg1:u8 > 255",
            "arg1:u8 <= 255",
            "arg1:i8 < -128",
            "arg1:i8 >= -128",
            "arg1:i8 > 127",
            "arg1:i64 <= 9223372036854775807",
        ];
        for text in wrong {
            assert_eq!(Condition::parse(text), None, "{text}");
        }
        for text in ["arg1:i8 >= -127", "arg1:u8 < 255", "arg1 <= 0", "arg1 > 0", "arg1:i8 & -1", "arg1:u8 & 255"] {
            assert!(Condition::parse(text).is_some(), "{text}");
        }
        assert_eq!(Condition::decode([0, 1]), None);
    }
}
