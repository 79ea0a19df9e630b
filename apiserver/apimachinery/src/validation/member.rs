//! Rules for one member of an object that most kinds need: it is required, has one of some values,
//! or satisfies a rule of [`super::content`].

use serde_json::Value;

use super::content;
use crate::field::{Errors, Field};

/// A rule for strings: returns the errors.
pub type StringRule = fn(&str) -> Vec<String>;

/// Validates a required member.
pub fn required(field: &Field<'_>, errors: &mut Errors) {
    errors.push_if(field.is_empty(), || field.required(""));
}

/// Validates that all of these members are set.
pub fn all_required(object: &Field<'_>, members: &[&str], errors: &mut Errors) {
    for member in members {
        required(&object.get(member), errors);
    }
}

/// Validates a required member that must satisfy the rule.
pub fn required_and(field: &Field<'_>, rule: StringRule, errors: &mut Errors) {
    if field.is_empty() {
        errors.push(field.required(""));
    } else {
        errors.invalid_each(field, rule(field.str()));
    }
}

/// Validates an optional member that must satisfy the rule; an empty string counts as absent.
pub fn if_any(field: &Field<'_>, rule: StringRule, errors: &mut Errors) {
    if !field.is_empty() {
        errors.invalid_each(field, rule(field.str()));
    }
}

/// Validates an optional member that must satisfy the rule even if it is empty.
pub fn if_set(field: &Field<'_>, rule: StringRule, errors: &mut Errors) {
    if field.exists() {
        errors.invalid_each(field, rule(field.str()));
    }
}

/// Validates an optional member that must have one of these values.
pub fn one_of(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    errors.push_if(field.exists() && !supported.contains(&field.str()), || field.not_supported(supported));
}

/// Validates a required member that must have one of these values.
pub fn required_one_of(field: &Field<'_>, supported: &[&str], errors: &mut Errors) {
    if field.is_empty() {
        errors.push(field.required(""));
    } else {
        one_of(field, supported, errors);
    }
}

/// Validates a port number; an absent one counts as 0.
pub fn port_number(port: &Field<'_>, errors: &mut Errors) {
    let number = port.int().unwrap_or(0);
    errors.extend(content::port_number(number).into_iter().map(|e| port.invalid_value(number, e)));
}

/// Validates a port number or name.
pub fn port(port: &Field<'_>, errors: &mut Errors) {
    match port.value() {
        Some(Value::String(name)) => errors.invalid_each(port, content::port_name(name)),
        _ => port_number(port, errors),
    }
}

/// Validates a path with a domain, such as `prefix.example.com/path`.
pub fn domain_prefixed_path(path: &Field<'_>, errors: &mut Errors) {
    const PATH: &str = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+";
    let text = path.str();
    if text.is_empty() {
        errors.push(path.required(""));
        return;
    }
    let Some((host, rest)) = text.split_once('/').filter(|(host, rest)| !host.is_empty() && !rest.is_empty())
    else {
        errors.push(path.invalid("must be a domain-prefixed path (such as \"acme.io/foo\")"));
        return;
    };
    errors.extend(content::dns1123_subdomain(host).into_iter().map(|e| path.invalid_value(host, e)));
    let inner = |c: char| c.is_ascii_alphanumeric() || r"/-._~%!$&'()*+,;=:".contains(c);
    errors.push_if(!rest.chars().all(inner), || {
        path.invalid_value(rest, content::regex_error("Invalid path", PATH, &[]))
    });
}

/// Validates a domain of at least two labels; a trailing dot is allowed.
pub fn fully_qualified_domain_name(domain: &Field<'_>, errors: &mut Errors) {
    if domain.is_empty() {
        errors.push(domain.required(""));
        return;
    }
    let text = domain.str().strip_suffix('.').unwrap_or(domain.str());
    let mistakes = content::dns1123_subdomain(text);
    if !mistakes.is_empty() {
        errors.push(domain.invalid_value(text, mistakes.join(",")));
    } else if !text.contains('.') {
        errors.push(
            domain.invalid_value(text, "should be a domain with at least two segments separated by dots"),
        );
    } else {
        for label in text.split('.') {
            let mistakes = content::dns1123_label(label);
            errors.push_if(!mistakes.is_empty(), || domain.invalid_value(label, mistakes.join(",")));
        }
    }
}
