//! A macro for the keywords of the text form and of ctl: an enum in which each variant has a spelling.
//! The order is that of the list.

/// Makes an enum whose variants have spellings.
macro_rules! table {
    ($(#[$doc:meta])* pub enum $type:ident { $($(#[$each:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$each])* $name,)* }

        impl $type {
            /// All variants.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// The spelling of this word.
            #[inline]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The word with this spelling.
            pub fn of(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$name),)* _ => None }
            }
        }

        impl core::fmt::Display for $type {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use table;
