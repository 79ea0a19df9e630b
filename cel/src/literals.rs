//! Literal arguments that are checked when an expression is compiled.
//!
//! Source: cel-go's `cel/validator.go`.

use crate::ast::{Expr, ExprKind, Literal};
use crate::functions;
use crate::source::Issue;

/// The issues of literal durations, times and regular expressions.
pub fn check(expr: &Expr, issues: &mut Vec<Issue>) {
    expr.visit(&mut |expr| {
        let ExprKind::Call { function, target, args } = &expr.kind else { return };
        let (at, valid): (&Expr, fn(&str) -> bool) = match (&**function, target.is_some(), args.as_slice()) {
            ("duration", false, [arg]) => (arg, |text| functions::parse_duration(text).is_some()),
            ("timestamp", false, [arg]) => (arg, |text| functions::parse_time(text).is_some()),
            ("matches", true, [arg]) | ("matches", false, [_, arg]) => (arg, functions::is_pattern),
            _ => return,
        };
        if let ExprKind::Literal(Literal::String(text)) = &at.kind
            && !valid(text)
        {
            issues.push(Issue { offset: at.offset, message: format!("invalid {function} argument") });
        }
    });
}
