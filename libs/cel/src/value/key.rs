//! The keys of maps that are made.

use std::sync::Arc;

/// The key of a map that is made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A boolean.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An unsigned integer.
    Uint(u64),
    /// The bits of a number with a fraction.
    Double(u64),
    /// A text.
    String(Arc<str>),
    /// null
    Null,
}

impl Key {
    /// Iterates over the key and the equal keys of other numeric types.
    pub(crate) fn alternatives(self) -> impl Iterator<Item = Key> {
        let (int, uint) = match &self {
            Key::Int(value) => (None, u64::try_from(*value).ok()),
            Key::Uint(value) => (i64::try_from(*value).ok(), None),
            Key::Double(bits) => {
                let value = f64::from_bits(*bits);
                let whole = value.fract() == 0.0;
                let int = (whole && value.abs() < 9.2e18).then_some(value as i64);
                (int, (whole && (0.0..1.8e19).contains(&value)).then_some(value as u64))
            }
            _ => (None, None),
        };
        [Some(self), int.map(Key::Int), uint.map(Key::Uint)].into_iter().flatten()
    }
}
