//! Words of the wire language as an enum: each with its spelling, in the order in which they are listed.

/// An enum whose values have names.
macro_rules! table {
    ($(#[$doc:meta])* pub enum $type:ident { $($(#[$each:meta])* $name:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $type { $($(#[$each])* $name,)* }

        impl $type {
            /// All of them.
            pub const ALL: [Self; [$($text),*].len()] = [$(Self::$name),*];

            /// How it is spelled.
            #[inline]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The one that is spelled so.
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
