//! The subject alternative names that a request asks for.

use x509_parser::extensions::{GeneralName, SubjectAlternativeName};

use crate::Error;

/// Subject alternative names of the four kinds that are known; others are ignored.
///
/// Source: `parseSANExtension` of Go's `crypto/x509`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AlternativeNames {
    /// The DNS names.
    pub dns: Vec<String>,
    /// The e-mail addresses.
    pub email: Vec<String>,
    /// The IP addresses, of four or of sixteen bytes.
    pub ip: Vec<Vec<u8>>,
    /// The URIs.
    pub uri: Vec<String>,
}

impl AlternativeNames {
    /// Returns `true` if there are no names.
    pub fn is_empty(&self) -> bool {
        *self == AlternativeNames::default()
    }

    /// Reads the value of the extension.
    pub(crate) fn read(names: &SubjectAlternativeName<'_>) -> Result<AlternativeNames, Error> {
        let mut read = AlternativeNames::default();
        for name in &names.general_names {
            match name {
                GeneralName::DNSName(name) => read.dns.push((*name).to_owned()),
                GeneralName::RFC822Name(name) => read.email.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) if matches!(bytes.len(), 4 | 16) => {
                    read.ip.push(bytes.to_vec())
                }
                GeneralName::URI(name) => read.uri.push((*name).to_owned()),
                GeneralName::IPAddress(_) => return Err(Error::AlternativeNames),
                GeneralName::Invalid(tag, _) if matches!(tag.0, 1 | 2 | 6 | 7) => {
                    return Err(Error::AlternativeNames);
                }
                _ => {}
            }
        }
        Ok(read)
    }
}
