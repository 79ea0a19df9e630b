//! String formats: `date-time`, `ipv4`, `uuid` and the others that schemas of custom resources may
//! use.
//!
//! Source: the formats that apiextensions-apiserver supports, with the rules of go-openapi's
//! `strfmt` for them.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::LazyLock;

use regex::Regex;

use super::content;

/// The rule of a format.
type Rule = fn(&str) -> bool;

/// All formats, by their names without hyphens.
const FORMATS: [(&str, Rule); 25] = [
    ("bsonobjectid", |text| text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit())),
    ("uri", is_uri),
    ("email", is_email),
    ("hostname", is_hostname),
    ("ipv4", |text| text.contains('.') && is_ip(text)),
    ("ipv6", |text| text.contains(':') && is_ip(text)),
    ("cidr", is_cidr),
    ("mac", is_mac),
    ("uuid", |text| is_uuid(text, &[])),
    ("uuid3", |text| is_uuid(text, &[(12, "3")])),
    ("uuid4", |text| is_uuid(text, &[(12, "4"), (16, "89ab")])),
    ("uuid5", |text| is_uuid(text, &[(12, "5"), (16, "89ab")])),
    ("isbn", |text| is_isbn10(text) || is_isbn13(text)),
    ("isbn10", is_isbn10),
    ("isbn13", is_isbn13),
    ("creditcard", is_credit_card),
    ("ssn", |text| text.len() == 11 && SSN.is_match(text)),
    ("hexcolor", |text| HEX_COLOR.is_match(text)),
    ("rgbcolor", |text| RGB_COLOR.is_match(text)),
    ("byte", |text| BASE64.is_match(text)),
    ("password", |_| true),
    ("date", is_date),
    ("duration", is_duration),
    ("datetime", is_date_time),
    ("k8sshortname", |text| content::dns1123_label(text).is_empty()),
];

static SSN: LazyLock<Regex> = LazyLock::new(|| rule(r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$"));
static HEX_COLOR: LazyLock<Regex> = LazyLock::new(|| rule("^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$"));
static RGB_COLOR: LazyLock<Regex> = LazyLock::new(|| {
    let part = r"[\t\n\f\r ]*(0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[\t\n\f\r ]*";
    rule(&format!(r"^rgb\({part},{part},{part}\)$"))
});
static BASE64: LazyLock<Regex> = LazyLock::new(|| {
    rule("^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$")
});
static HOSTNAME: LazyLock<Regex> = LazyLock::new(|| {
    let (word, tail) = (r"[a-zA-Z0-9\p{S}\p{L}]", r"[a-zA-Z0-9\-\p{S}\p{L}]");
    rule(&format!(
        r"^({word}((-?{word}{{0,62}})?)|({word}(({tail}{{0,61}}{word})?)(\.)){{1,}}([a-zA-Z\p{{L}}]){{2,63}})$"
    ))
});
static CREDIT_CARD: LazyLock<Regex> = LazyLock::new(|| {
    rule(concat!(
        "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|",
        "3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}|6[27][0-9]{14})$"
    ))
});
static TIME: LazyLock<Regex> =
    LazyLock::new(|| rule("^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$"));
static DURATION_PART: LazyLock<Regex> = LazyLock::new(|| rule(r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)"));

/// Compiles one of the constant expressions above.
fn rule(pattern: &str) -> Regex {
    Regex::new(pattern).expect("the expressions of this module are valid")
}

/// Returns whether a text has a format; true for unknown formats.
pub fn is_valid(format: &str, text: &str) -> bool {
    find(format).is_none_or(|rule| rule(text))
}

/// Returns `true` if strings are validated against this format.
pub fn is_text_format(format: &str) -> bool {
    find(format).is_some()
}

/// Returns whether a format is known for a type, which is empty for any type. Of other formats
/// nothing is validated.
pub fn is_known(format: &str, of_type: &str) -> bool {
    match of_type {
        "" | "string" => is_text_format(format),
        "integer" => ["int32", "int64"].contains(&format),
        "number" => ["float", "double"].contains(&format),
        _ => false,
    }
}

fn find(format: &str) -> Option<Rule> {
    let name = format.replace('-', "");
    if name == "k8slongname" {
        return Some(|text| content::dns1123_subdomain(text).is_empty());
    }
    FORMATS.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule)
}

fn is_ip(text: &str) -> bool {
    read_ip(text).is_some()
}

/// Reads an IP address. The numbers of IPv4 may begin with zeros, as in Go before 1.17.
fn read_ip(text: &str) -> Option<IpAddr> {
    let at = text.rfind(':').map_or(0, |at| at + 1);
    let (prefix, last) = text.split_at(at);
    let digits = |number: &str| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
    if !last.contains('.') || !last.split('.').all(digits) {
        return text.parse().ok();
    }
    let number = |number: &str| match number.trim_start_matches('0') {
        "" => "0".to_owned(),
        number => number.to_owned(),
    };
    let numbers: Vec<String> = last.split('.').map(number).collect();
    format!("{prefix}{}", numbers.join(".")).parse().ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let most = match read_ip(address) {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => return false,
    };
    let digits = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    digits && length.parse::<u8>().is_ok_and(|length| length <= most)
}

/// Returns whether a text is a MAC address: 6, 8 or 20 octets, separated by colons, hyphens, dots
/// or nothing.
fn is_mac(text: &str) -> bool {
    let groups = |separator: char, width: usize, counts: [usize; 3]| {
        let groups: Vec<&str> = text.split(separator).collect();
        counts.contains(&groups.len())
            && groups.iter().all(|g| g.len() == width && g.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    groups(':', 2, [6, 8, 20])
        || groups('-', 2, [6, 8, 20])
        || groups('.', 4, [3, 4, 10])
        || matches!(text.len(), 12 | 16 | 40) && text.bytes().all(|b| b.is_ascii_hexdigit())
}

/// Returns whether a text is a UUID. `digits` are required hexadecimal digits, in lower case, by
/// their positions in the number without hyphens.
fn is_uuid(text: &str, digits: &[(usize, &str)]) -> bool {
    let mut number = String::new();
    let mut rest = text;
    for length in [8, 4, 4, 4, 12] {
        if !number.is_empty() {
            rest = rest.strip_prefix('-').unwrap_or(rest);
        }
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        number.push_str(group);
        rest = after;
    }
    number.make_ascii_lowercase();
    let is_one_of =
        |at: usize, allowed: &str| number.get(at..=at).is_some_and(|digit| allowed.contains(digit));
    rest.is_empty()
        && number.bytes().all(|b| b.is_ascii_hexdigit())
        && digits.iter().all(|(at, allowed)| is_one_of(*at, allowed))
}

/// Returns the characters of a text without white space and hyphens.
fn without_separators(text: &str) -> Vec<u8> {
    text.bytes().filter(|b| !matches!(b, b'-' | b' ' | b'\t' | b'\n' | b'\x0c' | b'\r')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = without_separators(text);
    let Some((last, first)) = digits.split_last().filter(|(_, first)| first.len() == 9) else { return false };
    if !first.iter().all(u8::is_ascii_digit) || !(last.is_ascii_digit() || *last == b'X') {
        return false;
    }
    let value = |digit: u8| if digit == b'X' { 10 } else { u32::from(digit - b'0') };
    (1u32..).zip(&digits).map(|(factor, digit)| factor * value(*digit)).sum::<u32>() % 11 == 0
}

fn is_isbn13(text: &str) -> bool {
    let digits = without_separators(text);
    if digits.len() != 13 || !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let factors = [1u32, 3].into_iter().cycle();
    factors.zip(&digits).map(|(factor, digit)| factor * u32::from(digit - b'0')).sum::<u32>() % 10 == 0
}

/// Returns whether a text is a credit card number, by its digits and their checksum (Luhn).
fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let weigh = |(index, digit): (usize, u8)| {
        let digit = u32::from(digit - b'0');
        match (index % 2, digit * 2) {
            (0, _) => digit,
            (_, double) => double % 10 + double / 10,
        }
    };
    CREDIT_CARD.is_match(&digits) && digits.bytes().rev().enumerate().map(weigh).sum::<u32>() % 10 == 0
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && text.split('.').all(|label| label.len() <= 63) && HOSTNAME.is_match(text)
}

fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(at, b)| if matches!(at, 4 | 7) { b == b'-' } else { b.is_ascii_digit() });
    shape && jiff::civil::Date::from_str(text).is_ok()
}

fn is_date_time(text: &str) -> bool {
    let text = text.to_lowercase();
    let mut parts = text.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let part = |found: &regex::Captures<'_>, index: usize, most: &str| {
        found.get(index).is_some_and(|part| part.as_str() <= most)
    };
    is_date(date)
        && TIME
            .captures(time)
            .is_some_and(|found| part(&found, 1, "23") && part(&found, 2, "59") && part(&found, 3, "59"))
}

/// Returns whether a text is a Go duration, or a number with a longer unit: `2 weeks`, `1d`.
fn is_duration(text: &str) -> bool {
    /// A unit is one of these, or begins with the last.
    const UNITS: [&[&str]; 8] = [
        &["ns", "nano"],
        &["us", "µs", "micro"],
        &["ms", "milli"],
        &["s", "sec"],
        &["m", "min"],
        &["h", "hr", "hour"],
        &["d", "day"],
        &["w", "wk", "week"],
    ];
    let is_unit = |unit: &str| {
        let unit = unit.to_lowercase();
        UNITS.iter().any(|names| {
            names.contains(&unit.as_str()) || names.last().is_some_and(|last| unit.starts_with(last))
        })
    };
    let part = |found: regex::Captures<'_>| {
        let number = found.get(1).is_some_and(|number| number.as_str().parse::<i64>().is_ok());
        number && found.get(2).is_some_and(|unit| is_unit(unit.as_str()))
    };
    coracle_duration::parse(text).is_ok() || DURATION_PART.captures_iter(text).any(part)
}

/// Returns whether Go's `url.ParseRequestURI` accepts a text: a path, or a scheme and the rest of a
/// URI.
fn is_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return false;
    }
    if text == "*" {
        return true;
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')));
    let (scheme, rest) = match end {
        Some(0) if text.starts_with(':') => return false,
        Some(end) if text[end..].starts_with(':') && text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            (&text[..end], &text[end + 1..])
        }
        _ => ("", text),
    };
    let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !rest.starts_with('/') {
        return !scheme.is_empty();
    }
    let (authority, path) = match rest.strip_prefix("//").filter(|_| !rest.starts_with("///")) {
        Some(rest) => rest.split_at(rest.find('/').unwrap_or(rest.len())),
        None => ("", rest),
    };
    has_valid_escapes(path) && is_authority(authority)
}

fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|after| after.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2)
}

fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    let is_host =
        |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "-._~!$&'()*+,;=:[]<>\"%".contains(c);
    let port = match (host.starts_with('['), host.rfind(']')) {
        (true, None) => return false,
        (true, Some(end)) => &host[end + 1..],
        (false, _) => host.find(':').map_or("", |at| &host[at..]),
    };
    let is_port =
        port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()));
    user.chars().all(is_user) && host.chars().all(is_host) && is_port && has_valid_escapes(user)
}

/// Returns whether Go's `mail.ParseAddress` accepts a text: an address, or a name with an address
/// in angle brackets.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>').and_then(|inside| inside.rsplit_once('<')) {
        Some((name, address)) if is_phrase(name) => address,
        Some(_) => return false,
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let literal = domain.strip_prefix('[').and_then(|domain| domain.strip_suffix(']'));
    let is_domain = literal.map_or_else(|| is_dot_atom(domain), is_ip);
    (is_dot_atom(local) || is_quoted(local)) && is_domain
}

fn is_atom_character(c: char) -> bool {
    !c.is_ascii() || c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c)
}

fn is_dot_atom(text: &str) -> bool {
    text.split('.').all(|atom| !atom.is_empty() && atom.chars().all(is_atom_character))
}

fn is_quoted(text: &str) -> bool {
    let Some(inside) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else { return false };
    let mut escaped = false;
    let fits = inside.chars().all(|c| {
        let fits = escaped || c != '"' && !c.is_control();
        escaped = !escaped && c == '\\';
        fits
    });
    fits && !escaped
}

fn is_phrase(text: &str) -> bool {
    let text = text.trim();
    is_quoted(text)
        || text.split([' ', '\t']).all(|word| word.chars().all(|c| is_atom_character(c) || c == '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_their_formats() {
        for (format, right, wrong) in [
            ("bsonobjectid", &["507f1f77bcf86cd799439011"][..], &["507f", "g07f1f77bcf86cd799439011"][..]),
            (
                "uri",
                &["http://x/y", "/a", "mailto:a", "https://[::1]:80/?q"],
                &["::", "", "a", "http://a b/", "/%zz"],
            ),
            (
                "email",
                &["a@b.cd", "a@b", "Bob <b@c.de>", "\"a b\"@c"],
                &["nope", "a@", "@b", "a b@c", "a..b@c"],
            ),
            ("hostname", &["a.bc", "localhost", "a-b.example"], &["a.b", "a_b..c", "-a.bc", ""]),
            (
                "ipv4",
                &["1.2.3.4", "01.2.003.4", "::ffff:01.2.3.4"],
                &["1.2.3", "::1", "1.2.3.0256", "1..2.3"],
            ),
            ("ipv6", &["::1", "::ffff:1.2.3.4"], &["1.2.3.4", "g::"]),
            ("cidr", &["10.0.0.0/8", "01.2.3.0/24", "::/0"], &["10.0.0.0", "10.0.0.0/33", "10.0.0.0/+8"]),
            (
                "mac",
                &["01:02:03:04:05:06", "01-02-03-04-05-06", "0102.0304.0506", "4111111111111111"],
                &["zz", "01:02:03:04:05"],
            ),
            (
                "uuid",
                &["3F2504E0-4F89-11D3-9A0C-0305E82C3301", "3f2504e04f8911d39a0c0305e82c3301"],
                &["x", ""],
            ),
            ("uuid3", &["a3bb189e-8bf9-3888-9912-ace4e6543002"], &["a3bb189e-8bf9-4888-9912-ace4e6543002"]),
            ("uuid4", &["a3bb189e-8bf9-4888-9912-ace4e6543002"], &["a3bb189e-8bf9-4888-c912-ace4e6543002"]),
            ("uuid5", &["a3bb189e-8bf9-5888-b912-ace4e6543002"], &["a3bb189e-8bf9-3888-9912-ace4e6543002"]),
            ("isbn", &["0-306-40615-2", "978-3-16-148410-0"], &["0-306-40615-3"]),
            ("isbn10", &["080442957X"], &["9783161484100"]),
            ("isbn13", &["9783161484100"], &["9783161484101"]),
            ("creditcard", &["4111 1111 1111 1111"], &["4111 1111 1111 1112", "1"]),
            ("ssn", &["123-45-6789"], &["123456789", "12-345-6789"]),
            ("hexcolor", &["#fff", "00FF00"], &["#ff", "#ggg"]),
            ("rgbcolor", &["rgb(0, 255,1)"], &["rgb(256,0,0)", "0,0,0"]),
            ("byte", &["YWJj", "YQ=="], &["*", "YQ=", ""]),
            ("password", &["", "p"], &[]),
            ("date", &["2020-02-29"], &["2020-02-30", "2020-2-3", "today"]),
            ("duration", &["1h30m", "2 weeks", "1d", "-1s"], &["1x", "", "h"]),
            (
                "date-time",
                &["2020-01-01T10:00:00Z", "2020-01-01t10:00:00.5+01:00"],
                &["yesterday", "2020-01-01T24:00:00Z"],
            ),
            ("k8s-short-name", &["a-b"], &["a.b", "A"]),
            ("k8s-long-name", &["a.b"], &["A", ""]),
        ] {
            assert!(is_text_format(format), "{format}");
            for text in right {
                assert!(is_valid(format, text), "{format} {text}");
            }
            for text in wrong {
                assert!(!is_valid(format, text), "{format} {text}");
            }
        }
        assert!(!is_text_format("int32") && is_valid("nonsense", "x"));
    }

    #[test]
    fn formats_belong_to_types() {
        for (format, of_type, want) in [
            ("int32", "integer", true),
            ("int32", "number", false),
            ("int32", "", false),
            ("double", "number", true),
            ("double", "integer", false),
            ("date", "string", true),
            ("date-time", "", true),
            ("date", "boolean", false),
            ("date", "array", false),
            ("nonsense", "string", false),
        ] {
            assert_eq!(is_known(format, of_type), want, "{format} of {of_type:?}");
        }
    }
}
