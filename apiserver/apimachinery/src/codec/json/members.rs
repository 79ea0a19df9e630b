//! The members of an object as text, for documents of which little is needed.

use std::borrow::Cow;

use super::reader::{Kind, Reader, SyntaxError};
use crate::codec::DecodeError;
use crate::codec::limits::Limits;

/// Calls `each` with the name and the text of each member of an object, which may have any number
/// of them; none is decoded.
///
/// # Errors
/// The text is not JSON, or nested too deep. Members before that were visited.
pub fn for_each_member<'a>(
    text: &'a [u8],
    mut each: impl FnMut(Cow<'a, str>, &'a [u8]),
) -> Result<(), DecodeError> {
    let mut visit = || -> Result<(), SyntaxError> {
        let limits = Limits { depth: Limits::RESPONSE.depth, ..Limits::STORED };
        let mut reader = Reader::within(text, limits);
        if reader.peek()? == Kind::Object {
            reader.begin()?;
            let mut first = true;
            while let Some(key) = reader.key(first)? {
                first = false;
                each(key.name(), reader.skip()?);
            }
        } else {
            reader.skip()?;
        }
        reader.finish()
    };
    visit().map_err(|SyntaxError(text)| DecodeError::TypeMismatch(text))
}

/// Calls `each` with the text of each item of a list.
///
/// # Errors
/// As [`for_each_member`].
pub fn for_each_item<'a>(text: &'a [u8], mut each: impl FnMut(&'a [u8])) -> Result<(), DecodeError> {
    let mut visit = || -> Result<(), SyntaxError> {
        let limits = Limits { depth: Limits::RESPONSE.depth, ..Limits::STORED };
        let mut reader = Reader::within(text, limits);
        if reader.peek()? == Kind::Array {
            reader.begin()?;
            let mut first = true;
            while reader.item(first)? {
                first = false;
                each(reader.skip()?);
            }
        } else {
            reader.skip()?;
        }
        reader.finish()
    };
    visit().map_err(|SyntaxError(text)| DecodeError::TypeMismatch(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_visited_in_their_order() {
        for (text, want) in [
            (
                r#"{"a": [1, {}] , "\u0062":"x","a":null}"#,
                Ok(vec![("a", "[1, {}]"), ("b", "\"x\""), ("a", "null")]),
            ),
            ("[{}]", Ok(vec![])),
            (" null ", Ok(vec![])),
            (r#"{"a":1}}"#, Err("invalid character '}' after top-level value")),
            (r#"{"a":"#, Err("unexpected end of JSON input")),
        ] {
            let mut found = Vec::new();
            let visited = for_each_member(text.as_bytes(), |name, text| {
                found.push((name.into_owned(), String::from_utf8_lossy(text).into_owned()));
            });
            let found: Vec<(&str, &str)> =
                found.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            let got = visited.map(|()| found).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }
}
