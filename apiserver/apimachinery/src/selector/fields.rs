//! Field selectors: `metadata.name=a,status.phase!=Running`.
//!
//! Source: "Field Selectors"; commas, equal signs and backslashes in values are escaped with a
//! backslash.

/// The maximum number of terms: each is evaluated for every object of a list.
const MAX_TERMS: usize = 1000;

/// The terms that the fields must satisfy; an empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSelector {
    terms: Vec<Term>,
}

/// A requirement on one field.
#[derive(Clone, Debug, PartialEq)]
pub struct Term {
    /// The field's path, such as `metadata.name`.
    pub field: String,
    /// The value it is compared with.
    pub value: String,
    /// Whether the value must be equal, or must differ.
    pub equal: bool,
}

impl FieldSelector {
    /// Returns `true` if the selector selects everything.
    pub fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    /// Returns the terms.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// Returns the one value that a field must have; None if the selector does not require one.
    pub fn exact(&self, field: &str) -> Option<&str> {
        self.terms.iter().find(|t| t.equal && t.field == field).map(|t| t.value.as_str())
    }

    /// Returns `true` if the fields satisfy every term. `field` returns a field's value; a missing
    /// field counts as empty.
    pub fn matches<'a>(&self, field: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.terms.iter().all(|t| (field(&t.field).unwrap_or("") == t.value) == t.equal)
    }

    /// Parses the string form. The error is the message.
    pub fn parse(text: &str) -> Result<FieldSelector, String> {
        let mut terms = Vec::new();
        // In this order, so that of several errors kube-apiserver's is reported.
        let mut parts = split(text);
        parts.sort_unstable();
        if parts.len() > MAX_TERMS {
            return Err(format!("invalid selector: too many terms, at most {MAX_TERMS} are allowed"));
        }
        for part in parts {
            if part.is_empty() {
                continue;
            }
            let (field, equal, value) = split_term(part)
                .ok_or_else(|| format!("invalid selector: '{text}'; can't understand '{part}'"))?;
            let value = unescape(value)?;
            // An operator alone requires nothing.
            if !(field.is_empty() && value.is_empty()) {
                terms.push(Term { field: field.to_owned(), value, equal });
            }
        }
        Ok(FieldSelector { terms })
    }
}

/// Splits at unescaped commas.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn split_term(term: &str) -> Option<(&str, bool, &str)> {
    for (i, _) in term.char_indices() {
        let rest = &term[i..];
        for (operator, equal) in [("!=", false), ("==", true), ("=", true)] {
            if let Some(value) = rest.strip_prefix(operator) {
                return Some((&term[..i], equal, value));
            }
        }
    }
    None
}

fn unescape(value: &str) -> Result<String, String> {
    if !value.contains(['\\', ',', '=']) {
        return Ok(value.to_owned());
    }
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                other => {
                    let sequence: String = std::iter::once('\\').chain(other).collect();
                    return Err(format!("invalid field selector: invalid escape sequence: {sequence}"));
                }
            },
            ',' | '=' => {
                return Err(format!("invalid field selector: unescaped character in value: {}", c as u32));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_selectors_match() {
        let object = |field: &str| match field {
            "metadata.name" => Some("a,b"),
            "status.phase" => Some("Running"),
            _ => None,
        };
        for (selector, want) in [
            ("", true),
            ("metadata.name=a\\,b", true),
            ("metadata.name==a", false),
            ("metadata.name!=a", true),
            ("status.phase=Running,metadata.name!=x", true),
            ("spec.nodeName=", true),
            ("=", true),
            ("==,!=", true),
            ("==,metadata.name=a", false),
        ] {
            assert_eq!(FieldSelector::parse(selector).expect(selector).matches(object), want, "{selector}");
        }
    }

    #[test]
    fn invalid_field_selectors_are_rejected() {
        assert_eq!(
            FieldSelector::parse("a=1,b"),
            Err("invalid selector: 'a=1,b'; can't understand 'b'".to_owned())
        );
        assert!(FieldSelector::parse("a=\\x").is_err());
        assert!(FieldSelector::parse("===").is_err());
    }
}
