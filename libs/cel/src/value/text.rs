//! Texts.

use std::ops::Deref;
use std::sync::Arc;

/// A text, of the object that is evaluated or made while evaluating.
#[derive(Clone, Debug)]
pub enum Text<'a> {
    /// A part of the object.
    Borrowed(&'a str),
    /// A text that was made.
    Shared(Arc<str>),
}

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Text::Borrowed(text) => text,
            Text::Shared(text) => text,
        }
    }
}

impl From<String> for Text<'_> {
    fn from(text: String) -> Self {
        Text::Shared(text.into())
    }
}
