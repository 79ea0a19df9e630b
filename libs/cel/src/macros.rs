//! Macros: calls that are expanded while parsing.
//!
//! Source: cel-spec, "Macros"; cel-go's `parser/macro.go`, `ext/comprehensions.go` and optional types.

use std::sync::Arc;

use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal};
use crate::nodes::{Nodes, Stopped};

/// Whether a call was a macro.
pub enum Expansion {
    /// The expression that it stands for.
    Expanded(Expr),
    /// It was none; here are its parts.
    None {
        /// The receiver.
        target: Option<Expr>,
        /// The arguments.
        args: Vec<Expr>,
    },
}

/// Expands `has(a.b)`.
pub fn expand_global(
    nodes: &mut Nodes,
    offset: usize,
    function: &str,
    args: Vec<Expr>,
) -> Result<Expansion, Stopped> {
    if function != "has" || args.len() != 1 {
        return Ok(Expansion::None { target: None, args });
    }
    for arg in args {
        if let ExprKind::Select { operand, field, test_only: false } = arg.kind {
            let kind = ExprKind::Select { operand, field, test_only: true };
            return Ok(Expansion::Expanded(nodes.node(offset, kind)));
        }
        nodes.issue(arg.offset, "invalid argument to has() macro");
    }
    Err(Stopped)
}

/// Expands the macros in member style: `l.all(x, p)` and the like.
///
/// - `binds`: whether there is the macro `cel.bind`.
pub fn expand_member(
    nodes: &mut Nodes,
    offset: usize,
    function: &str,
    target: Expr,
    args: Vec<Expr>,
    binds: bool,
) -> Result<Expansion, Stopped> {
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
            return bind_variable(nodes, offset, args);
        }
        ("sortBy", 2) => return sort_by(nodes, offset, target, args),
        ("optMap", 2) => return optional(nodes, offset, target, args, false),
        ("optFlatMap", 2) => return optional(nodes, offset, target, args, true),
        _ => return Ok(Expansion::None { target: Some(target), args }),
    };
    let two = match kind {
        Fold::All | Fold::Exists | Fold::ExistsOne => args.len() == 3,
        Fold::Map | Fold::Filter => false,
        _ => true,
    };
    let second_at = args.get(1).map_or(offset, |arg| arg.offset);
    let mut args = args.into_iter();
    let var = variable(nodes, args.next())?;
    let var2 = if two { Some(variable(nodes, args.next())?) } else { None };
    if var2.as_ref() == Some(&var) {
        nodes.issue(second_at, format!("duplicate variable name: {var}"));
        return Err(Stopped);
    }
    let (first, second) = (args.next().ok_or(Stopped)?, args.next());
    // With a filter and a transformation the filter comes first.
    let (filter, body) = match second {
        Some(body) => (Some(first), body),
        None => (None, first),
    };
    let expr = fold(nodes, offset, kind, target, (var, var2), filter, body);
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

fn variable(nodes: &mut Nodes, arg: Option<Expr>) -> Result<Arc<str>, Stopped> {
    let arg = arg.ok_or(Stopped)?;
    match arg.kind {
        ExprKind::Ident(name) => Ok(name),
        _ => {
            nodes.issue(arg.offset, "argument must be a simple name");
            Err(Stopped)
        }
    }
}

fn fold(
    nodes: &mut Nodes,
    at: usize,
    kind: Fold,
    range: Expr,
    (var, var2): (Arc<str>, Option<Arc<str>>),
    filter: Option<Expr>,
    body: Expr,
) -> Expr {
    let accu = nodes.ident(at, ACCUMULATOR);
    let truth = |nodes: &mut Nodes, value| nodes.literal(at, Literal::Bool(value));
    let int = |nodes: &mut Nodes, value| nodes.literal(at, Literal::Int(value));
    let (init, condition, step) = match kind {
        Fold::All => {
            let init = truth(nodes, true);
            let condition = nodes.call(at, "@not_strictly_false", vec![accu.clone()]);
            (init, condition, nodes.call(at, "_&&_", vec![accu, body]))
        }
        Fold::Exists => {
            let init = truth(nodes, false);
            let negated = nodes.call(at, "!_", vec![accu.clone()]);
            let condition = nodes.call(at, "@not_strictly_false", vec![negated]);
            (init, condition, nodes.call(at, "_||_", vec![accu, body]))
        }
        Fold::ExistsOne => {
            let (init, one, condition) = (int(nodes, 0), int(nodes, 1), truth(nodes, true));
            let sum = nodes.call(at, "_+_", vec![accu.clone(), one]);
            (init, condition, nodes.call(at, "_?_:_", vec![body, sum, accu]))
        }
        Fold::Map | Fold::Filter | Fold::TransformList => {
            let init = nodes.node(at, ExprKind::List(Vec::new()));
            let condition = truth(nodes, true);
            let (item, filter) = match kind {
                Fold::Filter => (nodes.ident(at, &var), Some(body)),
                _ => (body, filter),
            };
            let list = nodes.node(at, ExprKind::List(vec![(item, false)]));
            let sum = nodes.call(at, "_+_", vec![accu.clone(), list]);
            (init, condition, guarded(nodes, at, filter, sum, accu))
        }
        Fold::TransformMap | Fold::TransformMapEntry => {
            let init = nodes.node(at, ExprKind::Map(Vec::new()));
            let condition = truth(nodes, true);
            let insert = if kind == Fold::TransformMap {
                let key = nodes.ident(at, &var);
                nodes.call(at, "cel.@mapInsert", vec![accu.clone(), key, body])
            } else {
                nodes.call(at, "cel.@mapInsert", vec![accu.clone(), body])
            };
            (init, condition, guarded(nodes, at, filter, insert, accu))
        }
    };
    let result = result_of(nodes, at, kind);
    let accu = ACCUMULATOR.into();
    let fold = Comprehension { range, var, var2, accu, init, condition, step, result };
    nodes.node(at, ExprKind::Comprehension(Box::new(fold)))
}

/// The result of a fold: the accumulator, or whether it counted one.
fn result_of(nodes: &mut Nodes, at: usize, kind: Fold) -> Expr {
    let accu = nodes.ident(at, ACCUMULATOR);
    if kind != Fold::ExistsOne {
        return accu;
    }
    let one = nodes.literal(at, Literal::Int(1));
    nodes.call(at, "_==_", vec![accu, one])
}

fn guarded(nodes: &mut Nodes, at: usize, filter: Option<Expr>, step: Expr, accu: Expr) -> Expr {
    match filter {
        Some(filter) => nodes.call(at, "_?_:_", vec![filter, step, accu]),
        None => step,
    }
}

/// `o.optMap(x, e)` is `o.hasValue() ? optional.of(e with o.value() for x) : optional.none()`.
fn optional(
    nodes: &mut Nodes,
    at: usize,
    target: Expr,
    args: Vec<Expr>,
    flat: bool,
) -> Result<Expansion, Stopped> {
    let mut args = args.into_iter();
    let (name, body) = (args.next().ok_or(Stopped)?, args.next().ok_or(Stopped)?);
    let ExprKind::Ident(var) = name.kind else {
        let macro_name = if flat { "optFlatMap" } else { "optMap" };
        nodes.issue(name.offset, format!("{macro_name}() variable name must be a simple identifier"));
        return Err(Stopped);
    };
    let member = |nodes: &mut Nodes, function: &str, target: Expr| {
        let target = Some(Box::new(target));
        nodes.node(at, ExprKind::Call { function: function.into(), target, args: Vec::new() })
    };
    let copy = nodes.copy(&target)?;
    let (present, value) = (member(nodes, "hasValue", target), member(nodes, "value", copy));
    let bound = bind(nodes, at, var, value, body);
    let then = if flat { bound } else { nodes.call(at, "optional.of", vec![bound]) };
    let none = nodes.call(at, "optional.none", Vec::new());
    Ok(Expansion::Expanded(nodes.call(at, "_?_:_", vec![present, then, none])))
}

/// `cel.bind(x, i, e)` is `e` with `i` for `x`.
fn bind_variable(nodes: &mut Nodes, at: usize, args: Vec<Expr>) -> Result<Expansion, Stopped> {
    let mut args = args.into_iter();
    let (name, init, body) = (args.next(), args.next().ok_or(Stopped)?, args.next().ok_or(Stopped)?);
    let name = name.ok_or(Stopped)?;
    let ExprKind::Ident(var) = name.kind else {
        nodes.issue(name.offset, "cel.bind() variable names must be simple identifiers");
        return Err(Stopped);
    };
    Ok(Expansion::Expanded(bind(nodes, at, var, init, body)))
}

/// `l.sortBy(x, e)` binds `l`, and sorts it by the list of what `e` is for each of its items.
fn sort_by(nodes: &mut Nodes, at: usize, target: Expr, args: Vec<Expr>) -> Result<Expansion, Stopped> {
    const INPUT: &str = "@__sortBy_input__";
    if matches!(target.kind, ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. }) {
        nodes.issue(
            target.offset,
            "sortBy can only be applied to a list, identifier, comprehension, call or select expression",
        );
        return Err(Stopped);
    }
    let mut args = args.into_iter();
    let (var, body) = (variable(nodes, args.next())?, args.next().ok_or(Stopped)?);
    let range = nodes.ident(at, INPUT);
    let keys = fold(nodes, at, Fold::Map, range, (var, None), None, body);
    let input = Some(Box::new(nodes.ident(at, INPUT)));
    let function = "@sortByAssociatedKeys".into();
    let sorted = nodes.node(at, ExprKind::Call { function, target: input, args: vec![keys] });
    Ok(Expansion::Expanded(bind(nodes, at, INPUT.into(), target, sorted)))
}

/// `body` with `var` for `value`: a fold over nothing, with the variable as accumulator.
fn bind(nodes: &mut Nodes, at: usize, var: Arc<str>, value: Expr, body: Expr) -> Expr {
    let range = nodes.node(at, ExprKind::List(Vec::new()));
    let condition = nodes.literal(at, Literal::Bool(false));
    let step = nodes.ident(at, &var);
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
    nodes.node(at, ExprKind::Comprehension(Box::new(fold)))
}
