//! The macro that defines the lines of the text form: from one list it makes the structs, their printing and their
//! parsing.
//!
//! In: for each line its word, and its fields with their names and types, in the order of the line. Out: a struct for
//! each line, and the enum of all of them. Runs in: the compiler.

/// Defines the lines that consist of a word and fields.
macro_rules! lines {
    ($(
        $(#[$doc:meta])*
        $name:ident $(<$life:lifetime>)? = $word:literal {
            $($(#[$each:meta])* $field:ident: $type:ty = $key:expr,)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            pub struct $name $(<$life>)? {
                $($(#[$each])* pub $field: $type,)*
            }

            impl<'a> $name $(<$life>)? {
                /// The word after `# `.
                pub const WORD: &'static str = $word;
                /// The names of the fields, in the order of the line.
                pub const KEYS: &'static [&'static str] = &[$($key),*];

                /// Parses the text after the word.
                ///
                /// # Errors
                /// [`BadLine`] says which field is missing or wrong.
                pub fn read(rest: &'a str) -> Result<Self, BadLine<'a>> {
                    let fields = Fields(rest);
                    Ok(Self {
                        $($field: <$type as Field<'a>>::find($key, fields, Self::KEYS)?,)*
                    })
                }
            }

            impl $(<$life>)? Display for $name $(<$life>)? {
                fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                    f.write_str(concat!("# ", $word))?;
                    $(Field::print(&self.$field, $key, f)?;)*
                    Ok(())
                }
            }
        )*

        /// A line that begins with `#`.
        #[derive(Clone, Copy, Debug)]
        pub enum Line<'a> {
            /// The first line of a header.
            Profile(Profile),
            /// A fact of a header, but not an anchor.
            Header(Header<&'a str>),
            /// An anchor of a header.
            Anchor(Anchor<'a>),
            $($(#[$doc])* $name($name $(<$life>)?),)*
            /// A word that this version does not know. A newer writer may have more of them.
            Unknown {
                /// The word.
                word: &'a str,
                /// The text after it.
                rest: &'a str,
            },
        }

        impl Display for Line<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                match self {
                    Self::Profile(line) => line.fmt(f),
                    Self::Header(line) => line.fmt(f),
                    Self::Anchor(line) => Header { fact: Fact::Anchor, value: line }.fmt(f),
                    $(Self::$name(line) => line.fmt(f),)*
                    Self::Unknown { word, rest } => write!(f, "# {word} {rest}"),
                }
            }
        }

        /// The word and the names of the fields of each line that has fields. The name of the counters is empty.
        pub const LINES: [(&str, &[&str]); [$($word),*].len()] = [$(($word, $name::KEYS)),*];

        /// Parses a line that has fields; `None` if there is none with this word.
        fn with_fields<'a>(word: &str, rest: &'a str) -> Option<Result<Line<'a>, BadLine<'a>>> {
            match word {
                $($word => Some($name::read(rest).map(Line::$name)),)*
                _ => None,
            }
        }
    };
}

pub(super) use lines;
