//! Names of clusters.

use std::fmt;
use std::str::FromStr;

/// The maximum length of a name, as of a DNS subdomain.
const MAX_LENGTH: usize = 253;

/// The name of a cluster, its user and its context: lower-case letters, digits, `.` and `-`, as
/// `kind` has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Name(String);

/// The error for an invalid [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name has 1 to {MAX_LENGTH} lower-case letters, digits, `.` and `-`")]
pub struct InvalidName;

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Default for Name {
    fn default() -> Name {
        Name("coracle".to_owned())
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Name, InvalidName> {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
        let is_valid = (1..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_valid { Ok(Name(text.to_owned())) } else { Err(InvalidName) }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_kind() {
        for valid in ["coracle", "a", "a.b-1", &"a".repeat(MAX_LENGTH)] {
            assert_eq!(valid.parse::<Name>().map(|name| name.to_string()).as_deref(), Ok(valid));
        }
        for invalid in ["", "A", "a b", "a/b", "a\n", "ä", &"a".repeat(MAX_LENGTH + 1)] {
            assert_eq!(invalid.parse::<Name>(), Err(InvalidName), "{invalid:?}");
        }
    }
}
