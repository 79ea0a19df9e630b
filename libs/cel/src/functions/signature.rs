//! Signatures: `string.(int)->string` is one of a member function, `(A,list<A>)->bool` of a global
//! one.

use std::sync::Arc;

use super::function::Overload;
use crate::types::Type;

/// Reads a signature.
pub fn overload(text: &str) -> Option<Overload> {
    let (head, result) = text.split_once(")->")?;
    let (target, params) = head.split_once('(')?;
    let member = target.strip_suffix('.');
    let mut types = Vec::new();
    if let Some(target) = member {
        types.push(type_of(target)?);
    }
    let mut rest = params;
    while !rest.is_empty() {
        let end = end_of_type(rest);
        types.push(type_of(rest.get(..end)?)?);
        rest = rest.get(end..)?.trim_start_matches(',');
    }
    Some(Overload { member: member.is_some(), params: types, result: type_of(result)? })
}

/// Returns the end of the first type of a list: at a comma outside of brackets.
fn end_of_type(text: &str) -> usize {
    let mut open = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' => open += 1,
            '>' => open -= 1,
            ',' if open == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn type_of(text: &str) -> Option<Type> {
    if let Some((outer, inner)) = text.strip_suffix('>').and_then(|text| text.split_once('<')) {
        let end = end_of_type(inner);
        let first = type_of(inner.get(..end)?)?;
        return Some(match outer {
            "list" => Type::list(first),
            "optional" => Type::optional(first),
            "type" => Type::Type(Arc::new(first)),
            "map" => Type::map(first, type_of(inner.get(end + 1..)?)?),
            _ => return None,
        });
    }
    Some(match text {
        "A" => Type::Param(0),
        "B" => Type::Param(1),
        "duration" => Type::Duration,
        "timestamp" => Type::Timestamp,
        "null" => Type::Null,
        "ip" => Type::Opaque("net.IP".into()),
        "cidr" => Type::Opaque("net.CIDR".into()),
        "url" => Type::Opaque("kubernetes.URL".into()),
        "quantity" => Type::Opaque("kubernetes.Quantity".into()),
        "semver" => Type::Opaque("kubernetes.Semver".into()),
        "format" => Type::Opaque("kubernetes.NamedFormat".into()),
        "authorizer" => Type::Opaque("kubernetes.authorization.Authorizer".into()),
        "pathcheck" => Type::Opaque("kubernetes.authorization.PathCheck".into()),
        "groupcheck" => Type::Opaque("kubernetes.authorization.GroupCheck".into()),
        "resourcecheck" => Type::Opaque("kubernetes.authorization.ResourceCheck".into()),
        "decision" => Type::Opaque("kubernetes.authorization.Decision".into()),
        other => return Type::named(other),
    })
}
