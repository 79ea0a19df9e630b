//! Named formats.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::url::{URL_CONTEXT, Url};
use crate::time::parse_time;

/// A format that texts are validated against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFormat {
    /// `dns1123Label`
    Dns1123Label,
    /// `dns1123Subdomain`
    Dns1123Subdomain,
    /// `dns1035Label`
    Dns1035Label,
    /// `qualifiedName`
    QualifiedName,
    /// `dns1123LabelPrefix`
    Dns1123LabelPrefix,
    /// `dns1123SubdomainPrefix`
    Dns1123SubdomainPrefix,
    /// `dns1035LabelPrefix`
    Dns1035LabelPrefix,
    /// `labelValue`
    LabelValue,
    /// `uri`
    Uri,
    /// `uuid`
    Uuid,
    /// `byte`
    Byte,
    /// `date`
    Date,
    /// `datetime`
    DateTime,
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

impl NamedFormat {
    /// Returns the format of a name.
    pub fn named(name: &str) -> Option<NamedFormat> {
        Some(match name {
            "dns1123Label" => NamedFormat::Dns1123Label,
            "dns1123Subdomain" => NamedFormat::Dns1123Subdomain,
            "dns1035Label" => NamedFormat::Dns1035Label,
            "qualifiedName" => NamedFormat::QualifiedName,
            "dns1123LabelPrefix" => NamedFormat::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => NamedFormat::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => NamedFormat::Dns1035LabelPrefix,
            "labelValue" => NamedFormat::LabelValue,
            "uri" => NamedFormat::Uri,
            "uuid" => NamedFormat::Uuid,
            "byte" => NamedFormat::Byte,
            "date" => NamedFormat::Date,
            "datetime" => NamedFormat::DateTime,
            _ => return None,
        })
    }

    /// Returns the name by which the format is compared, and the size of the pattern that
    /// determines its cost.
    fn facts(self) -> (&'static str, u64) {
        match self {
            NamedFormat::Dns1123Label => ("DNS1123Label", 30),
            NamedFormat::Dns1123Subdomain => ("DNS1123Subdomain", 60),
            NamedFormat::Dns1035Label => ("DNS1035Label", 30),
            NamedFormat::QualifiedName => ("QualifiedName", 60),
            NamedFormat::Dns1123LabelPrefix => ("DNS1123LabelPrefix", 30),
            NamedFormat::Dns1123SubdomainPrefix => ("DNS1123SubdomainPrefix", 60),
            NamedFormat::Dns1035LabelPrefix => ("DNS1035LabelPrefix", 30),
            NamedFormat::LabelValue => ("LabelValue", 40),
            NamedFormat::Uri => ("URI", 1103),
            NamedFormat::Uuid => ("uuid", 70),
            NamedFormat::Byte => ("byte", 84),
            NamedFormat::Date => ("date", 71),
            NamedFormat::DateTime => ("datetime", 71),
        }
    }

    /// Returns the name in upstream's value.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// Returns the size of the pattern that determines the cost of a validation.
    pub fn pattern_size(self) -> u64 {
        self.facts().1
    }

    /// Returns the errors in a text; None if it is valid.
    pub fn validate(self, text: &str) -> Option<Vec<String>> {
        let mut errors = Errors(Vec::new());
        match self {
            NamedFormat::Dns1123Label => errors.dns_name(text, 63, is_label, LABEL),
            NamedFormat::Dns1123LabelPrefix => errors.dns_prefix(text, 63, is_label, LABEL),
            NamedFormat::Dns1123Subdomain => errors.dns_name(text, 253, is_subdomain, SUBDOMAIN),
            NamedFormat::Dns1123SubdomainPrefix => errors.dns_prefix(text, 253, is_subdomain, SUBDOMAIN),
            NamedFormat::Dns1035Label => errors.dns_name(text, 63, is_label_1035, LABEL_1035),
            NamedFormat::Dns1035LabelPrefix => errors.dns_prefix(text, 63, is_label_1035, LABEL_1035),
            NamedFormat::QualifiedName => errors.qualified_name(text),
            NamedFormat::LabelValue => {
                errors.require(text.len() <= 63, || too_long(63));
                errors.require(text.is_empty() || is_name(text), || VALUE.into());
            }
            NamedFormat::Uri => {
                if let Err(wrong) = Url::parse(text) {
                    errors.require(false, || wrong.trim_start_matches(URL_CONTEXT).to_owned());
                }
            }
            NamedFormat::Uuid => errors.require(is_uuid(text), || "does not match the UUID format".into()),
            NamedFormat::Byte => errors.require(STANDARD.decode(text).is_ok(), || "invalid base64".into()),
            NamedFormat::Date => {
                let fits = text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10;
                errors.require(fits, || "invalid date".into());
            }
            NamedFormat::DateTime => {
                let fits = parse_time(text).is_some() && text.len() > 10;
                errors.require(fits, || "invalid datetime".into());
            }
        }
        (!errors.0.is_empty()).then_some(errors.0)
    }
}

/// The error in a text.
struct Errors(Vec<String>);

impl Errors {
    fn require(&mut self, fits: bool, wrong: impl FnOnce() -> String) {
        if !fits {
            self.0.push(wrong());
        }
    }

    fn dns_name(&mut self, text: &str, max: usize, fits: fn(&str) -> bool, wrong: &str) {
        self.require(text.len() <= max, || too_long(max));
        self.require(fits(text), || wrong.into());
    }

    /// Validates a prefix. It may end with a hyphen, which is followed by something in the full
    /// name.
    fn dns_prefix(&mut self, text: &str, max: usize, fits: fn(&str) -> bool, wrong: &str) {
        self.require(text.len() <= max, || too_long(max));
        let is_name = match text.strip_suffix('-') {
            Some(stem) => fits(&format!("{stem}a")),
            None => fits(text),
        };
        self.require(is_name, || wrong.into());
    }

    fn qualified_name(&mut self, text: &str) {
        let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
        if let Some(domain) = domain {
            self.require(!domain.is_empty(), || "prefix part must be non-empty".into());
            let fits = domain.is_empty() || is_subdomain(domain);
            self.require(fits, || format!("prefix part {SUBDOMAIN}"));
        }
        self.require(!name.is_empty(), || "name part must be non-empty".into());
        self.require(name.len() <= 63, || format!("name part {}", too_long(63)));
        self.require(is_name(name), || NAME.into());
    }
}

fn too_long(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    inner && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

fn is_label_1035(text: &str) -> bool {
    is_label(text) && text.starts_with(|c: char| c.is_ascii_lowercase())
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_label)
}

fn is_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

fn is_uuid(text: &str) -> bool {
    let hyphens = [8, 13, 18, 23];
    let fits = |(at, c): (usize, u8)| if hyphens.contains(&at) { c == b'-' } else { c.is_ascii_hexdigit() };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}
