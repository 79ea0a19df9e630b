//! Numbers of clap's own arguments, each within its range. Those of options are read by their
//! forms.

use coracle_control_plane::range::{Range, RangedValue, parse};

/// Returns a parser for clap of values within a range.
pub fn within<T: RangedValue + Send + Sync + 'static>(
    range: Range<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| parse(range, text)
}

#[cfg(test)]
pub(crate) mod tests;
