//! Names in dynamic resource allocation: pools, attributes and capacities, shares of devices.

use std::borrow::Cow;

use coracle_apimachinery::field::{Errors, Field, Path};
use coracle_apimachinery::validation::content;
use coracle_apimachinery::validation::volume_sources::validate_csi_driver_name;
use serde_json::Value;

const MAX_IDENTIFIER: usize = 32;
const MAX_POOL_NAME: usize = 253;
/// The length at which a qualified name is shortened in a path: that of the longest valid one.
pub const MAX_SHOWN_QUALIFIED_NAME: usize = 63 + 1 + MAX_IDENTIFIER;
/// The length at which the name of a counter is shortened in a path.
pub const MAX_SHOWN_COUNTER: usize = 63;

/// Validates the name of a pool: subdomains, separated by slashes.
pub fn validate_pool_name(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.push(name.required(""));
    }
    errors.push_if(name.len() > MAX_POOL_NAME, || name.too_long(MAX_POOL_NAME));
    for part in name.str().split('/') {
        for error in content::dns1123_subdomain(part) {
            errors.push(name.invalid_value(part, error));
        }
    }
}

/// Validates `name` or `domain/name`. As upstream, a name with more slashes is accepted.
pub fn validate_qualified_name(name: &str, field: &Field<'_>, errors: &mut Errors) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [id] => validate_identifier(id, field, errors),
        [domain, id] => {
            if domain.is_empty() {
                errors.push(field.invalid_value("", "the domain must not be empty"));
            } else {
                let domain = Value::from(*domain);
                validate_csi_driver_name(&Field::at(Some(&domain), field.path().clone()), errors);
            }
            if id.is_empty() {
                errors.push(field.invalid_value("", "the name must not be empty"));
            } else {
                validate_identifier(id, field, errors);
            }
        }
        _ => {}
    }
}

fn validate_identifier(id: &str, field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(id.len() > MAX_IDENTIFIER, || field.too_long(MAX_IDENTIFIER));
    for error in content::c_identifier(id) {
        errors.push(field.invalid_value(id, error));
    }
}

/// Validates `domain/name`.
pub fn validate_full_name(name: &Field<'_>, errors: &mut Errors) {
    validate_qualified_name(name.str(), name, errors);
    errors.push_if(!name.str().contains('/'), || {
        name.invalid("a fully qualified name must be a domain and a name separated by a slash")
    });
}

/// Validates the id of a share: a UUID in its usual form.
pub fn validate_share(id: &Field<'_>, errors: &mut Errors) {
    const NORMAL: &str = "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
    let text = id.str();
    if let Some(error) = uuid_error(text) {
        errors.push(id.invalid(format!("error validating uid: {error}")));
    } else {
        errors.push_if(text.len() != 36 || text != text.to_lowercase(), || id.invalid(NORMAL));
    }
}

/// Returns the error in a UUID in one of the forms that Go's parser accepts; None if it is valid.
fn uuid_error(text: &str) -> Option<String> {
    const FORMAT: &str = "invalid UUID format";
    let hexadecimal = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    let plain = match text.len() {
        36 => text,
        45 => match text.get(..9) {
            Some(prefix) if prefix.eq_ignore_ascii_case("urn:uuid:") => text.get(9..).unwrap_or(""),
            prefix => return Some(format!("invalid urn prefix: {:?}", prefix.unwrap_or(text))),
        },
        38 => match text.strip_prefix('{').and_then(|text| text.strip_suffix('}')) {
            Some(inner) => inner,
            None => return Some("invalid bracketed UUID format".to_owned()),
        },
        32 => return (!hexadecimal(text)).then(|| FORMAT.to_owned()),
        length => return Some(format!("invalid UUID length: {length}")),
    };
    let parts: Vec<&str> = plain.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let valid = lengths == [8, 4, 4, 4, 12] && parts.iter().all(|part| hexadecimal(part));
    (!valid).then(|| FORMAT.to_owned())
}

/// Validates the entries of a map: each key, reported at the map, and each value, with a path
/// that has the key shortened to `shown` bytes.
pub fn validate_map(
    map: &Field<'_>,
    shown: usize,
    errors: &mut Errors,
    key_rule: fn(&str, &Field<'_>, &mut Errors),
    mut each: impl FnMut(&Field<'_>, &mut Errors),
) {
    for (key, value) in map.entries() {
        key_rule(key, map, errors);
        each(&value.with_path(entry_path(map, key, shown)), errors);
    }
}

fn entry_path(map: &Field<'_>, key: &str, shown: usize) -> Path {
    map.path().key(&shortened(key, shown))
}

/// Shortens a text to `most` bytes, if it is longer, by replacing its middle with `...`.
fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    const ELLIPSIS: &str = "...";
    if text.len() <= most {
        return text.into();
    }
    let kept = most - ELLIPSIS.len();
    let bytes = text.as_bytes();
    let (head, tail) = (&bytes[..kept.div_ceil(2)], &bytes[bytes.len() - kept / 2..]);
    format!("{}{ELLIPSIS}{}", String::from_utf8_lossy(head), String::from_utf8_lossy(tail)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_parsed_as_go_does() {
        for (text, want) in [
            ("123e4567-e89b-12d3-a456-426614174000", None),
            ("123e4567e89b12d3a456426614174000", None),
            ("{123e4567-e89b-12d3-a456-426614174000}", None),
            ("urn:uuid:123e4567-e89b-12d3-a456-426614174000", None),
            ("urn:uuix:123e4567-e89b-12d3-a456-426614174000", Some("invalid urn prefix: \"urn:uuix:\"")),
            ("a", Some("invalid UUID length: 1")),
            ("", Some("invalid UUID length: 0")),
            ("123e4567-e89b-12d3-a456-42661417400g", Some("invalid UUID format")),
        ] {
            assert_eq!(uuid_error(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn long_keys_are_shortened_in_paths() {
        assert_eq!(shortened("abc", 63), "abc");
        let shown = shortened(&"x".repeat(64), 63).into_owned();
        assert_eq!(shown, format!("{}...{}", "x".repeat(30), "x".repeat(30)));
    }
}
