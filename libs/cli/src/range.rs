//! Numbers and durations on the command line and in the environment, each within its range.
//!
//! Every flag for a number has the value parser [`within`] its range, so that an error names the flag, the value and the range. A
//! test walks all flags.

use std::fmt::{self, Display};
use std::time::Duration;

use coracle_control_plane::range::Range;

/// A type of values that have a range.
pub trait Quantity: Copy + Ord + Default {
    /// A noun phrase for the type.
    const KIND: &'static str;

    /// Reads a value; None for a text of another form.
    fn read(text: &str) -> Option<Self>;

    /// Writes a value as users write it.
    fn write(self) -> String;
}

macro_rules! whole_numbers {
    ($($number:ty),*) => {$(
        impl Quantity for $number {
            const KIND: &'static str = "a whole number";

            fn read(text: &str) -> Option<$number> {
                text.parse().ok()
            }

            fn write(self) -> String {
                self.to_string()
            }
        }
    )*};
}

whole_numbers!(i64, u32, u64, usize);

impl Quantity for Duration {
    const KIND: &'static str = "a duration";

    fn read(text: &str) -> Option<Duration> {
        coracle_duration::parse(text).ok()?.try_into().ok()
    }

    fn write(self) -> String {
        self.try_into().map_or_else(|_| format!("{self:?}"), coracle_duration::print)
    }
}

/// A range as an error shows it.
struct Shown<T>(Range<T>);

impl<T: Quantity> Display for Shown<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { least, most, or_zero } = self.0;
        let zero = if or_zero { "0, or " } else { "" };
        write!(f, "{zero}{} from {} to {}", T::KIND, least.write(), most.write())
    }
}

/// Parses a value and checks its range.
///
/// # Errors
/// The range, in a form that follows the value.
pub fn parse<T: Quantity>(range: Range<T>, text: &str) -> Result<T, String> {
    T::read(text).filter(|value| range.contains(*value)).ok_or_else(|| format!("it must be {}", Shown(range)))
}

/// A parser of values within a range, for clap.
pub fn within<T: Quantity + Send + Sync + 'static>(
    range: Range<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| parse(range, text)
}

/// Checks the range of a value that was parsed before.
///
/// # Errors
/// One line with the flag, the value and the range.
pub fn check<T: Quantity>(range: Range<T>, flag: &str, value: T) -> Result<T, String> {
    match range.contains(value) {
        true => Ok(value),
        false => {
            Err(format!("invalid value '{}' for '--{flag}': it must be {}", value.write(), Shown(range)))
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
