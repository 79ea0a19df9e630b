//! Image references: the tag of an image, for defaulting.
//!
//! Source: the reference grammar of `distribution/reference`, normalised as Docker does.

/// Returns the tag of an image: `latest` if it has neither a tag nor a digest, None if it has only
/// a digest or is malformed.
pub fn tag(image: &str) -> Option<&str> {
    let (domain, rest) = split_domain(image);
    if is_hex(image, 64) && image.len() == 64 {
        return None;
    }
    let (name, tag, digest) = split(rest);
    let well_formed = domain.is_none_or(is_domain)
        && name.len() <= 255
        && name.split('/').all(is_path_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    match (well_formed, tag, digest) {
        (false, ..) => None,
        (true, None, None) => Some("latest"),
        (true, tag, _) => tag,
    }
}

/// Splits the registry from an image name. A registry differs from a first path component by a dot,
/// a port, capitals or the name `localhost`.
fn split_domain(image: &str) -> (Option<&str>, &str) {
    match image.split_once('/') {
        Some((first, rest))
            if first == "localhost"
                || first.contains(['.', ':'])
                || first.chars().any(|c| c.is_uppercase()) =>
        {
            (Some(first), rest)
        }
        _ => (None, image),
    }
}

/// Splits an image into name, tag and digest.
fn split(rest: &str) -> (&str, Option<&str>, Option<&str>) {
    let (named, digest) = match rest.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (rest, None),
    };
    match named.split_once(':') {
        Some((name, tag)) => (name, Some(tag), digest),
        None => (named, None, digest),
    }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let address_like = address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
            if address.is_empty() || !address_like {
                return false;
            }
            return port.is_empty() || port.strip_prefix(':').is_some_and(is_digits);
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let component = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    host.split('.').all(component) && port.is_none_or(is_digits)
}

/// Returns `true` for lower-case words joined by one dot, one or two underscores, or any number of
/// dashes.
fn is_path_component(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let edges = |b: Option<&u8>| b.is_some_and(|&b| word(b));
    let bytes = text.as_bytes();
    edges(bytes.first())
        && edges(bytes.last())
        && text.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()).all(|separator| {
            matches!(separator, "" | "." | "_" | "__") || separator.bytes().all(|b| b == b'-')
        })
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || b == b'.' || b == b'-')
}

fn is_digest(text: &str) -> bool {
    let Some((algorithm, hash)) = text.split_once(':') else { return false };
    matches!((algorithm, hash.len()), ("sha256", 64) | ("sha384", 96) | ("sha512", 128))
        && is_hex(hash, hash.len())
}

fn is_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_have_their_tags() {
        let digest = format!("nginx@sha256:{}", "0".repeat(64));
        let both = format!("nginx:1@sha256:{}", "0".repeat(64));
        for (image, want) in [
            ("nginx", Some("latest")),
            ("nginx:latest", Some("latest")),
            ("nginx:1.2", Some("1.2")),
            ("localhost/x", Some("latest")),
            ("host:5000/a/b", Some("latest")),
            ("host:5000/a/b:t", Some("t")),
            ("[::1]:5000/a", Some("latest")),
            ("a__b/c--d", Some("latest")),
            ("Nginx", None),
            ("Registry/nginx", Some("latest")),
            ("a..b", None),
            (" x", None),
            ("", None),
            ("x@sha256:12", None),
            (digest.as_str(), None),
            (both.as_str(), Some("1")),
            (&"a".repeat(64), None),
        ] {
            assert_eq!(tag(image), want, "{image}");
        }
    }
}
