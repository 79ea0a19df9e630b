//! The rules for single strings and numbers: names, labels, ports. Each returns the errors, with
//! kube-apiserver's messages; an empty list means valid.
//!
//! Source: RFC 1035 and 1123 as the API narrows them; API conventions, "Names".

const SUBDOMAIN: &str = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const QUALIFIED: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";

/// Formats the message of a failed pattern: the rule, examples, the expression.
pub fn regex_error(rule: &str, pattern: &str, examples: &[&str]) -> String {
    if examples.is_empty() {
        return format!("{rule} (regex used for validation is '{pattern}')");
    }
    let mut text = format!("{rule} (e.g. ");
    for (i, example) in examples.iter().enumerate() {
        if i > 0 {
            text.push_str(" or ");
        }
        text.push_str(&format!("'{example}', "));
    }
    text.push_str(&format!("regex used for validation is '{pattern}')"));
    text
}

/// Formats the message for a text of more than `max` characters.
pub fn max_length(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// The message about an empty text.
pub const EMPTY: &str = "must be non-empty";

fn is_label_shape(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Validates a DNS label (RFC 1123): `my-name`, at most 63 characters.
pub fn dns1123_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !is_label_shape(text) {
        errors.push(if text.contains('.') && dns1123_subdomain(text).is_empty() {
            "must not contain dots".to_owned()
        } else {
            regex_error(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                "[a-z0-9]([-a-z0-9]*[a-z0-9])?",
                &["my-name", "123-abc"],
            )
        });
    }
    errors
}

/// Validates a DNS subdomain (RFC 1123): `example.com`, at most 253 characters.
pub fn dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    if !text.split('.').all(is_label_shape) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character",
            SUBDOMAIN,
            &["example.com"],
        ));
    }
    errors
}

/// Validates a text like [`dns1123_subdomain`], but allows underscores inside of labels and one
/// before each.
pub fn dns1123_subdomain_with_underscore(text: &str) -> Vec<String> {
    const LABEL: &str = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?";
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    let without = |label: &str| label.strip_prefix('_').unwrap_or(label).replace('_', "-");
    if !text.split('.').all(|label| is_label_shape(&without(label))) {
        errors.push(regex_error(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character",
            &format!(r"{LABEL}(\.{LABEL})*"),
            &["example.com"],
        ));
    }
    errors
}

/// Validates a DNS label (RFC 1035): like RFC 1123, but it starts with a letter.
pub fn dns1035_label(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 63 {
        errors.push(max_length(63));
    }
    if !is_label_shape(text) || !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        errors.push(regex_error(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            "[a-z]([-a-z0-9]*[a-z0-9])?",
            &["my-name", "abc-123"],
        ));
    }
    errors
}

/// Validates a subdomain that may have `*` as its first label.
pub fn wildcard_dns1123_subdomain(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    if !text.strip_prefix("*.").is_some_and(|rest| rest.split('.').all(is_label_shape)) {
        errors.push(regex_error(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!(r"\*\.{SUBDOMAIN}"),
            &["*.example.com"],
        ));
    }
    errors
}

fn is_qualified_shape(text: &str) -> bool {
    let edge = |c: u8| c.is_ascii_alphanumeric();
    let inner = |c: u8| edge(c) || matches!(c, b'-' | b'_' | b'.');
    let bytes = text.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => edge(first) && edge(last) && bytes.iter().all(|&c| inner(c)),
        _ => false,
    }
}

const QUALIFIED_RULE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";

/// The longest name part of a label key, and the longest label value.
const LABEL_LENGTH: usize = 63;

fn qualified_error() -> String {
    regex_error(QUALIFIED_RULE, QUALIFIED, &["MyName", "my.name", "123-abc"])
}

/// Formats the message for a text of more than `max` bytes. The rules that moved to the newer
/// package count bytes; the older ones count characters.
fn max_bytes(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// Validates a qualified name, `name` or `prefix/name`, as keys of labels, annotations and
/// finalizers are.
pub fn qualified_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    let name = match text.split('/').collect::<Vec<_>>().as_slice() {
        [name] => *name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push(format!("prefix part {EMPTY}"));
            } else {
                errors.extend(long_name(prefix).into_iter().map(|e| format!("prefix part {e}")));
            }
            *name
        }
        _ => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                qualified_error()
            )];
        }
    };
    if name.is_empty() {
        errors.push(format!("name part {EMPTY}"));
    } else if name.len() > LABEL_LENGTH {
        errors.push(format!("name part {}", max_bytes(LABEL_LENGTH)));
    }
    if !is_qualified_shape(name) {
        errors.push(format!("name part {}", qualified_error()));
    }
    errors
}

/// Validates a text like [`dns1123_subdomain`], with the messages of the newer package.
pub fn long_name(text: &str) -> Vec<String> {
    let mut errors = dns1123_subdomain(text);
    if text.len() > 253
        && let Some(first) = errors.first_mut()
    {
        *first = max_bytes(253);
    }
    errors
}

/// Validates the value of a label, which is empty or like the name part of a label key.
pub fn label_value(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > LABEL_LENGTH {
        errors.push(max_bytes(LABEL_LENGTH));
    }
    if !text.is_empty() && !is_qualified_shape(text) {
        errors.push(regex_error(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({QUALIFIED})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    errors
}

/// Validates the name of an RBAC object: any single segment of a path.
pub fn path_segment(text: &str) -> Vec<String> {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

/// Validates a prefix of a path segment.
pub fn path_segment_prefix(text: &str) -> Vec<String> {
    ["/", "%"].iter().filter(|c| text.contains(**c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Validates a key in the data of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 253 {
        errors.push(max_length(253));
    }
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    if text.is_empty() || !text.bytes().all(inner) {
        errors.push(regex_error(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    errors.extend(not_a_dot_path(text));
    errors
}

fn not_a_dot_path(text: &str) -> Option<String> {
    match text {
        "." => Some("must not be '.'".to_owned()),
        ".." => Some("must not be '..'".to_owned()),
        _ if text.starts_with("..") => Some("must not start with '..'".to_owned()),
        _ => None,
    }
}

/// Validates the name of an environment variable: printable ASCII except `=`.
pub fn env_var_name(text: &str) -> Vec<String> {
    if text.is_empty() {
        return vec![format!("environment variable name {EMPTY}")];
    }
    if text.bytes().any(|c| !(b' '..=b'~').contains(&c) || c == b'=') {
        return vec!["a valid environment variable name must consist only of printable ASCII characters other than '='".to_owned()];
    }
    Vec::new()
}

/// Validates a C identifier: `my_name`.
pub fn c_identifier(text: &str) -> Vec<String> {
    let head = |c: char| c.is_ascii_alphabetic() || c == '_';
    if text.starts_with(head) && text.chars().all(|c| head(c) || c.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// Requires a number between `low` and `high`, both included.
pub fn in_range(value: i64, low: i64, high: i64) -> Vec<String> {
    if (low..=high).contains(&value) {
        return Vec::new();
    }
    vec![format!("must be between {low} and {high}, inclusive")]
}

/// Validates a port number.
pub fn port_number(port: i64) -> Vec<String> {
    in_range(port, 1, 65535)
}

/// Validates an IANA service name, which is the format of port names.
pub fn port_name(text: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if text.len() > 15 {
        errors.push(max_length(15));
    }
    if text.is_empty() || !text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-') {
        errors.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !text.bytes().any(|c| c.is_ascii_lowercase()) {
        errors.push("must contain at least one letter (a-z)".to_owned());
    }
    if text.contains("--") {
        errors.push("must not contain consecutive hyphens".to_owned());
    }
    if text.starts_with('-') || text.ends_with('-') {
        errors.push("must not begin or end with a hyphen".to_owned());
    }
    errors
}

/// Validates a percentage, such as `5%`.
pub fn percent(text: &str) -> Vec<String> {
    let digits = text.strip_suffix('%').unwrap_or("");
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![regex_error(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// Validates the name of an HTTP header.
pub fn http_header_name(text: &str) -> Vec<String> {
    if !text.is_empty() && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-') {
        return Vec::new();
    }
    vec![regex_error(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_format_has_its_rule() {
        assert!(dns1123_label("my-name").is_empty());
        assert_eq!(dns1123_label("a.b"), ["must not contain dots"]);
        assert_eq!(dns1123_label("A_").len(), 1);
        assert!(dns1123_subdomain("a.b-c.1").is_empty());
        assert_eq!(dns1123_subdomain("a..b").len(), 1);
        assert!(qualified_name("example.com/MyName").is_empty());
        assert_eq!(qualified_name("").len(), 2);
        assert!(qualified_name("a/b/c")[0].ends_with(
            "[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ));
        assert_eq!(
            qualified_name(&format!("{}/n", "a".repeat(254))),
            ["prefix part must be no more than 253 bytes"]
        );
        assert!(label_value("").is_empty());
        assert_eq!(label_value("-a").len(), 1);
        assert_eq!(port_name("http--2"), ["must not contain consecutive hyphens"]);
        assert_eq!(path_segment("a/b%"), ["may not contain '/'", "may not contain '%'"]);
    }
}
