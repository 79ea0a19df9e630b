//! The shapes of the values of flags.

/// The values that a flag takes on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    /// None: the flag stands for `true`.
    Switch,
    /// One whole number; `signed` if a negative one is refused by its range, not by the parser of flags.
    Number {
        /// Whether the type has negative numbers.
        signed: bool,
    },
    /// One text.
    Text,
    /// One path of a file or directory.
    File,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// One text at a time; the flag may be repeated.
    Each,
    /// Elements separated by commas; the flag may be repeated.
    List {
        /// Whether elements may begin with a hyphen.
        hyphens: bool,
    },
}
