//! Macros: calls that are expanded while parsing.
//!
//! Source: cel-spec, "Macros"; cel-go's `parser/macro.go`, `ext/comprehensions.go` and optional
//! types.

use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal};
use crate::expr_factory::{ExprFactory, ParseAborted};

/// The result of an attempt to expand a call as a macro.
pub enum Expansion {
    /// The expression that it stands for.
    Expanded(Expr),
    /// The call is not a macro; these are its parts.
    None {
        /// The receiver.
        target: Option<Expr>,
        /// The arguments.
        args: Vec<Expr>,
    },
}

/// Expands `has(a.b)`.
pub fn expand_global(
    factory: &mut ExprFactory,
    offset: usize,
    function: &str,
    args: Vec<Expr>,
) -> Result<Expansion, ParseAborted> {
    if function != "has" || args.len() != 1 {
        return Ok(Expansion::None { target: None, args });
    }
    for arg in args {
        if let ExprKind::Select { operand, field, test_only: false } = arg.kind {
            let kind = ExprKind::Select { operand, field, test_only: true };
            return Ok(Expansion::Expanded(factory.node(offset, kind)));
        }
        factory.issue(arg.offset, "invalid argument to has() macro");
    }
    Err(ParseAborted)
}

/// Expands the macros in member style: `l.all(x, p)` and the like.
///
/// - `binds`: whether there is the macro `cel.bind`.
pub fn expand_member(
    factory: &mut ExprFactory,
    offset: usize,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
    binds: bool,
) -> Result<Expansion, ParseAborted> {
    let kind = match (function, args.len()) {
        ("all", 2 | 3) => Fold::All,
        ("exists", 2 | 3) => Fold::Exists,
        ("exists_one" | "existsOne", 2 | 3) => Fold::ExistsOne,
        ("map", 2 | 3) => Fold::Map,
        ("filter", 2) => Fold::Filter,
        ("transformList", 3 | 4) => Fold::TransformList,
        ("transformMap", 3 | 4) => Fold::TransformMap,
        ("transformMapEntry", 3 | 4) => Fold::TransformMapEntry,
        ("bind", 3) if binds && matches!(&target.kind, ExprKind::Ident(name) if **name == *"cel") => {
            return bind_variable(factory, offset, args);
        }
        ("sortBy", 2) => return sort_by(factory, offset, target, args),
        ("optMap", 2) => return optional(factory, offset, target, args, false),
        ("optFlatMap", 2) => return optional(factory, offset, target, args, true),
        _ => return Ok(Expansion::None { target: Some(target), args }),
    };
    let two = match kind {
        Fold::All | Fold::Exists | Fold::ExistsOne => args.len() == 3,
        Fold::Map | Fold::Filter => false,
        _ => true,
    };
    let second_at = args.get(1).map_or(offset, |arg| arg.offset);
    let mut args = args.into_iter();
    let var = variable(factory, args.next())?;
    let var2 = if two { Some(variable(factory, args.next())?) } else { None };
    if var2.as_ref() == Some(&var) {
        factory.issue(second_at, format!("duplicate variable name: {var}"));
        return Err(ParseAborted);
    }
    let (first, second) = (args.next().ok_or(ParseAborted)?, args.next());
    // With a filter and a transformation the filter comes first.
    let (filter, body) = match second {
        Some(body) => (Some(first), body),
        None => (None, first),
    };
    let expr = fold(factory, offset, kind, target, (var, var2), filter, body);
    Ok(Expansion::Expanded(expr))
}

#[derive(Clone, Copy, PartialEq)]
enum Fold {
    All,
    Exists,
    ExistsOne,
    Map,
    Filter,
    TransformList,
    TransformMap,
    TransformMapEntry,
}

fn variable(factory: &mut ExprFactory, arg: Option<Expr>) -> Result<Arc<str>, ParseAborted> {
    let arg = arg.ok_or(ParseAborted)?;
    match arg.kind {
        ExprKind::Ident(name) => Ok(name),
        _ => {
            factory.issue(arg.offset, "argument must be a simple name");
            Err(ParseAborted)
        }
    }
}

fn fold(
    factory: &mut ExprFactory,
    at: usize,
    kind: Fold,
    range: Expr,
    (var, var2): (Arc<str>, Option<Arc<str>>),
    filter: Option<Expr>,
    body: Expr,
) -> Expr {
    let accu = factory.ident(at, ACCUMULATOR);
    let truth = |factory: &mut ExprFactory, value| factory.literal(at, Literal::Bool(value));
    let int = |factory: &mut ExprFactory, value| factory.literal(at, Literal::Int(value));
    let (init, condition, step) = match kind {
        Fold::All => {
            let init = truth(factory, true);
            let condition = factory.call(at, "@not_strictly_false", vec![accu.clone()]);
            (init, condition, factory.call(at, "_&&_", vec![accu, body]))
        }
        Fold::Exists => {
            let init = truth(factory, false);
            let negated = factory.call(at, "!_", vec![accu.clone()]);
            let condition = factory.call(at, "@not_strictly_false", vec![negated]);
            (init, condition, factory.call(at, "_||_", vec![accu, body]))
        }
        Fold::ExistsOne => {
            let (init, one, condition) = (int(factory, 0), int(factory, 1), truth(factory, true));
            let sum = factory.call(at, "_+_", vec![accu.clone(), one]);
            (init, condition, factory.call(at, "_?_:_", vec![body, sum, accu]))
        }
        Fold::Map | Fold::Filter | Fold::TransformList => {
            let init = factory.node(at, ExprKind::List(Vec::new()));
            let condition = truth(factory, true);
            let (item, filter) = match kind {
                Fold::Filter => (factory.ident(at, &var), Some(body)),
                _ => (body, filter),
            };
            let list = factory.node(at, ExprKind::List(vec![(item, false)]));
            let sum = factory.call(at, "_+_", vec![accu.clone(), list]);
            (init, condition, guarded(factory, at, filter, sum, accu))
        }
        Fold::TransformMap | Fold::TransformMapEntry => {
            let init = factory.node(at, ExprKind::Map(Vec::new()));
            let condition = truth(factory, true);
            let insert = if kind == Fold::TransformMap {
                let key = factory.ident(at, &var);
                factory.call(at, "cel.@mapInsert", vec![accu.clone(), key, body])
            } else {
                factory.call(at, "cel.@mapInsert", vec![accu.clone(), body])
            };
            (init, condition, guarded(factory, at, filter, insert, accu))
        }
    };
    let result = result_of(factory, at, kind);
    let accu = ACCUMULATOR.into();
    let fold = Comprehension { range, var, var2, accu, init, condition, step, result };
    factory.node(at, ExprKind::Comprehension(Box::new(fold)))
}

/// Builds the result of a fold: the accumulator, or whether it counted one.
fn result_of(factory: &mut ExprFactory, at: usize, kind: Fold) -> Expr {
    let accu = factory.ident(at, ACCUMULATOR);
    if kind != Fold::ExistsOne {
        return accu;
    }
    let one = factory.literal(at, Literal::Int(1));
    factory.call(at, "_==_", vec![accu, one])
}

fn guarded(factory: &mut ExprFactory, at: usize, filter: Option<Expr>, step: Expr, accu: Expr) -> Expr {
    match filter {
        Some(filter) => factory.call(at, "_?_:_", vec![filter, step, accu]),
        None => step,
    }
}

/// Expands `o.optMap(x, e)` to `o.hasValue() ? optional.of(e with o.value() for x) :
/// optional.none()`.
fn optional(
    factory: &mut ExprFactory,
    at: usize,
    target: Expr,
    args: Vec<Expr>,
    flat: bool,
) -> Result<Expansion, ParseAborted> {
    let mut args = args.into_iter();
    let (name, body) = (args.next().ok_or(ParseAborted)?, args.next().ok_or(ParseAborted)?);
    let ExprKind::Ident(var) = name.kind else {
        let macro_name = if flat { "optFlatMap" } else { "optMap" };
        factory.issue(name.offset, format!("{macro_name}() variable name must be a simple identifier"));
        return Err(ParseAborted);
    };
    let member = |factory: &mut ExprFactory, function: &str, target: Expr| {
        let target = Some(Box::new(target));
        factory.node(at, ExprKind::Call { function: function.into(), target, args: Vec::new() })
    };
    let copy = factory.copy(&target)?;
    let (present, value) = (member(factory, "hasValue", target), member(factory, "value", copy));
    let bound = bind(factory, at, var, value, body);
    let then = if flat { bound } else { factory.call(at, "optional.of", vec![bound]) };
    let none = factory.call(at, "optional.none", Vec::new());
    Ok(Expansion::Expanded(factory.call(at, "_?_:_", vec![present, then, none])))
}

/// Expands `cel.bind(x, i, e)` to `e` with `i` for `x`.
fn bind_variable(factory: &mut ExprFactory, at: usize, args: Vec<Expr>) -> Result<Expansion, ParseAborted> {
    let mut args = args.into_iter();
    let (name, init, body) =
        (args.next(), args.next().ok_or(ParseAborted)?, args.next().ok_or(ParseAborted)?);
    let name = name.ok_or(ParseAborted)?;
    let ExprKind::Ident(var) = name.kind else {
        factory.issue(name.offset, "cel.bind() variable names must be simple identifiers");
        return Err(ParseAborted);
    };
    Ok(Expansion::Expanded(bind(factory, at, var, init, body)))
}

/// Expands `l.sortBy(x, e)`: binds `l`, and sorts it by the list of the values of `e` for its
/// items.
fn sort_by(
    factory: &mut ExprFactory,
    at: usize,
    target: Expr,
    args: Vec<Expr>,
) -> Result<Expansion, ParseAborted> {
    const INPUT: &str = "@__sortBy_input__";
    if matches!(target.kind, ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }) {
        factory.issue(
            target.offset,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        );
        return Err(ParseAborted);
    }
    let mut args = args.into_iter();
    let (var, body) = (variable(factory, args.next())?, args.next().ok_or(ParseAborted)?);
    let range = factory.ident(at, INPUT);
    let keys = fold(factory, at, Fold::Map, range, (var, None), None, body);
    let input = Some(Box::new(factory.ident(at, INPUT)));
    let function = "@sortByAssociatedKeys".into();
    let sorted = factory.node(at, ExprKind::Call { function, target: input, args: vec![keys] });
    Ok(Expansion::Expanded(bind(factory, at, INPUT.into(), target, sorted)))
}

/// Builds `body` with `var` bound to `value`: a fold over nothing, with the variable as
/// accumulator.
fn bind(factory: &mut ExprFactory, at: usize, var: Arc<str>, value: Expr, body: Expr) -> Expr {
    let range = factory.node(at, ExprKind::List(Vec::new()));
    let condition = factory.literal(at, Literal::Bool(false));
    let step = factory.ident(at, &var);
    let fold = Comprehension {
        range,
        var: "#unused".into(),
        var2: None,
        accu: var,
        init: value,
        condition,
        step,
        result: body,
    };
    factory.node(at, ExprKind::Comprehension(Box::new(fold)))
}
