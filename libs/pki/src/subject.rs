//! The distinguished names of subjects.

use x509_parser::asn1_rs::{Any, Tag};
use x509_parser::x509::X509Name;

use crate::Error;

/// The identifier of a common name.
pub const COMMON_NAME: &[u64] = &[2, 5, 4, 3];
/// The identifier of an organization.
pub const ORGANIZATION: &[u64] = &[2, 5, 4, 10];

/// The subject of a certificate or of a request for one: its attributes in their order, without
/// their division into sets.
///
/// Source: `FillFromRDNSequence` of Go's `crypto/x509/pkix`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    attributes: Vec<(Vec<u64>, Option<String>)>,
}

impl Subject {
    /// Makes a subject of attributes with texts.
    pub fn new(attributes: &[(&[u64], &str)]) -> Subject {
        let attributes = attributes.iter().map(|(id, text)| (id.to_vec(), Some((*text).to_owned())));
        Subject { attributes: attributes.collect() }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// An identifier has numbers beyond 64 bits, or a text has bytes that its type does not have.
    pub fn read(name: &X509Name<'_>) -> Result<Subject, Error> {
        let attributes = name.iter_attributes().map(|attribute| {
            let id = attribute.attr_type().iter().ok_or(Error::Structure)?.collect();
            Ok((id, text(attribute.attr_value())?))
        });
        Ok(Subject { attributes: attributes.collect::<Result<_, Error>>()? })
    }

    /// Iterates over the values of an attribute; None for those that are not texts.
    pub fn values<'a>(&'a self, id: &'a [u64]) -> impl Iterator<Item = Option<&'a str>> {
        self.attributes.iter().filter(move |(own, _)| own == id).map(|(_, value)| value.as_deref())
    }

    /// Iterates over the texts of an attribute.
    pub fn texts<'a>(&'a self, id: &'a [u64]) -> impl Iterator<Item = &'a str> {
        self.values(id).flatten()
    }

    /// Returns the common name, the last one of several; empty without one.
    pub fn common_name(&self) -> &str {
        self.texts(COMMON_NAME).last().unwrap_or("")
    }

    /// Iterates over the organizations in their order.
    pub fn organizations(&self) -> impl Iterator<Item = &str> {
        self.texts(ORGANIZATION)
    }
}

/// Decodes the text of a value; None for types other than those of texts.
fn text(value: &Any<'_>) -> Result<Option<String>, Error> {
    let bytes = value.data;
    let ascii = |is_valid: fn(u8) -> bool| match bytes.iter().all(|byte| is_valid(*byte)) {
        true => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        false => Err(Error::InvalidString),
    };
    let text = match value.tag() {
        Tag::PrintableString => ascii(is_printable),
        Tag::NumericString => ascii(|byte| byte.is_ascii_digit() || byte == b' '),
        Tag::Ia5String => ascii(|byte| byte.is_ascii()),
        // It counts as Latin-1.
        Tag::T61String => ascii(|_| true),
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).map_err(|_| Error::InvalidString),
        Tag::BmpString => bmp(bytes).ok_or(Error::InvalidString),
        _ => return Ok(None),
    };
    text.map(Some)
}

/// Returns `true` for the characters of a PrintableString, and for two more that are common in it.
fn is_printable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b" '()+,-./:=?*&".contains(&byte)
}

/// Decodes a text of two bytes a character; one zero at the end does not count.
fn bmp(bytes: &[u8]) -> Option<String> {
    let bytes = bytes.strip_suffix(&[0, 0]).filter(|_| bytes.len().is_multiple_of(2)).unwrap_or(bytes);
    let pairs = bytes.chunks(2).map(|pair| match pair {
        [high, low] => Some(u32::from(u16::from_be_bytes([*high, *low]))),
        _ => None,
    });
    let reserved = |point: &u32| matches!(point, 0xfffe | 0xffff | 0xfdd0..=0xfdef);
    pairs.map(|point| char::from_u32(point.filter(|point| !reserved(point))?)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::asn1_rs::{Class, Header, Length};

    #[test]
    fn texts_are_read_by_their_types() {
        for (tag, bytes, want) in [
            (Tag::Utf8String, "système".as_bytes(), Ok(Some("système"))),
            (Tag::Utf8String, b"a\0b", Ok(Some("a\0b"))),
            (Tag::Utf8String, b"\xff", Err(Error::InvalidString)),
            (Tag::PrintableString, b"system:masters", Ok(Some("system:masters"))),
            (Tag::PrintableString, b"a\0", Err(Error::InvalidString)),
            (Tag::T61String, b"system:masters\xe9", Ok(Some("system:mastersé"))),
            (Tag::BmpString, b"\0s\0y", Ok(Some("sy"))),
            (Tag::BmpString, b"\0s\0\0", Ok(Some("s"))),
            (Tag::BmpString, b"\0", Err(Error::InvalidString)),
            (Tag::BmpString, b"\xd8\0", Err(Error::InvalidString)),
            (Tag::Ia5String, b"\x80", Err(Error::InvalidString)),
            (Tag::NumericString, b"1 2", Ok(Some("1 2"))),
            (Tag::Integer, b"\x01", Ok(None)),
        ] {
            let header = Header::new(Class::Universal, false, tag, Length::Definite(bytes.len()));
            let got = text(&Any::new(header, bytes));
            assert_eq!(got, want.map(|text| text.map(str::to_owned)), "{tag:?} {bytes:?}");
        }
    }

    #[test]
    fn the_last_common_name_counts() {
        let subject =
            Subject::new(&[(COMMON_NAME, "a"), (ORGANIZATION, "x"), (COMMON_NAME, "b"), (ORGANIZATION, "y")]);
        assert_eq!(subject.common_name(), "b");
        assert_eq!(subject.organizations().collect::<Vec<_>>(), ["x", "y"]);
    }
}
