//! Literals that are checked when an expression is compiled: arguments, patterns of `format`, the
//! elements of lists and maps.
//!
//! Source: cel-go's `cel/validator.go` and `ext/formatting.go`.

use crate::ast::{Expr, ExprKind, Literal};
use crate::functions::{self, Part};
use crate::source::Issue;
use crate::time;
use crate::types::Type;

/// The types of the nodes.
type Types<'t> = &'t dyn Fn(&Expr) -> Type;

/// Reports the issues of literals in an expression that passed the type check.
pub fn check(expr: &Expr, types: Types<'_>, issues: &mut Vec<Issue>) {
    expr.visit(&mut |expr| check_argument(expr, issues));
    check_elements(expr, types, issues);
    expr.visit(&mut |expr| check_format(expr, types, issues));
}

/// Checks literal durations, times and regular expressions. The receiver does not count as an
/// argument.
fn check_argument(expr: &Expr, issues: &mut Vec<Issue>) {
    let ExprKind::Call { function, args, .. } = &expr.kind else { return };
    let Some(ExprKind::Literal(literal)) = args.first().map(|arg| &arg.kind) else { return };
    let valid = match (&**function, literal) {
        ("duration", Literal::String(text)) => time::parse_duration(text).is_some(),
        ("timestamp", Literal::String(text)) => time::is_timestamp(text),
        ("timestamp", Literal::Int(seconds)) => time::is_second(*seconds),
        ("matches", Literal::String(pattern)) => functions::is_pattern(pattern),
        _ => return,
    };
    if !valid && let Some(arg) = args.first() {
        issues.push(Issue { offset: arg.offset, message: format!("invalid {function} argument") });
    }
}

/// Checks that the elements of the literal of a list or map have one type, except within the values
/// of `format`.
fn check_elements(expr: &Expr, types: Types<'_>, issues: &mut Vec<Issue>) {
    let of = |element: &Expr, optional: bool| match (optional, types(element)) {
        (true, Type::Optional(inner)) => (*inner).clone(),
        (_, ty) => ty,
    };
    let mut compare = |first: &mut Option<Type>, element: &Expr, ty: Type| match first {
        None => {
            *first = Some(ty);
            true
        }
        Some(first) if *first == ty => true,
        Some(first) => {
            let message = format!("expected type '{first}' but found '{ty}'");
            issues.push(Issue { offset: element.offset, message });
            false
        }
    };
    match &expr.kind {
        ExprKind::Call { function, .. } if &**function == "format" => return,
        ExprKind::List(items) => {
            let mut first = None;
            let _ = items.iter().all(|(item, optional)| compare(&mut first, item, of(item, *optional)));
        }
        ExprKind::Map(entries) => {
            let (mut keys, mut values) = (None, None);
            for (key, value, optional) in entries {
                compare(&mut keys, key, of(key, false));
                compare(&mut values, value, of(value, *optional));
            }
        }
        _ => {}
    }
    expr.visit_below(&mut |child| check_elements(child, types, issues));
}

/// Checks a literal pattern with a literal list of values.
fn check_format(expr: &Expr, types: Types<'_>, issues: &mut Vec<Issue>) {
    let ExprKind::Call { function, target: Some(target), args } = &expr.kind else { return };
    let (ExprKind::Literal(Literal::String(pattern)), [list]) = (&target.kind, args.as_slice()) else {
        return;
    };
    let ExprKind::List(values) = &list.kind else { return };
    if &**function != "format" {
        return;
    }
    let mut misfit = None;
    let parsed = functions::parse_format(pattern, values.len(), |part, index| {
        let (Part::Clause(verb, _), Some((value, _))) = (part, values.get(index)) else { return Ok(()) };
        let Some(wrong) = misfits(verb, value, types) else { return Ok(()) };
        misfit = Some(wrong.offset);
        Err(functions::misfit(verb, types(wrong).name()))
    });
    let message = match parsed {
        Err(message) => message,
        Ok(used) if used < values.len() => {
            let given = values.len();
            format!("too many arguments supplied to string.format (expected {used}, got {given})")
        }
        Ok(_) => return,
    };
    issues.push(Issue { offset: misfit.unwrap_or(expr.offset), message });
}

/// Returns the part of a value that a clause cannot print.
fn misfits<'e>(verb: char, value: &'e Expr, types: Types<'_>) -> Option<&'e Expr> {
    if !functions::fits(verb, &types(value)) {
        return Some(value);
    }
    match &value.kind {
        ExprKind::List(items) if verb == 's' => items.iter().find_map(|(item, _)| misfits(verb, item, types)),
        ExprKind::Map(entries) if verb == 's' => {
            let mut parts = entries.iter().flat_map(|(key, value, _)| [key, value]);
            parts.find_map(|part| misfits(verb, part, types))
        }
        _ => None,
    }
}
