//! Names with dots: variables such as `authorizer.requestResource`, and types such as
//! `google.protobuf.Timestamp`.

use crate::ast::{Expr, ExprKind};
use crate::env::Env;
use crate::types::Type;

/// Makes an identifier of each selection that is a name.
pub fn resolve(expr: &mut Expr, env: &Env) {
    if let ExprKind::Select { test_only: false, .. } = &expr.kind
        && let Some(name) = qualified(expr)
        && (env.variable_type(&name).is_some() || Type::named(&name).is_some())
    {
        expr.kind = ExprKind::Ident(name.into());
        return;
    }
    expr.visit_children(&mut |child| resolve(child, env));
}

/// Returns a chain of names, such as `a.b.c`.
pub fn qualified(expr: &Expr) -> Option<String> {
    match &expr.kind {
        ExprKind::Ident(name) => Some(name.to_string()),
        ExprKind::Select { operand, field, test_only: false } => {
            Some(format!("{}.{field}", qualified(operand)?))
        }
        _ => None,
    }
}
