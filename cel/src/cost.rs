//! Costs: estimated from the declared sizes before an evaluation, counted during it.
//!
//! Source: cel-go's `checker/cost.go` and `interpreter/runtimecost.go`; `k8s.io/apiserver/pkg/cel/library/cost.go`.

use std::sync::Arc;

use crate::ast::{Comprehension, Expr, ExprKind, Literal};
use crate::decl::{DeclKind, DeclType, ListSemantics};
use crate::env::Env;
use crate::program::CallRef;
use crate::types::Type;
use crate::value::{List, Value};

const TRAVERSAL: f64 = 0.1;
const REGEX_LENGTH: f64 = 0.25;

/// A range of costs or of sizes. Sums and products stop at the greatest number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub min: u64,
    pub max: u64,
}

impl Range {
    const ZERO: Range = Range { min: 0, max: 0 };
    const ONE: Range = Range { min: 1, max: 1 };
    const UNKNOWN: Range = Range { min: 0, max: u64::MAX };

    fn fixed(value: u64) -> Range {
        Range { min: value, max: value }
    }

    fn plus(self, other: Range) -> Range {
        Range { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Range) -> Range {
        Range { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn union(self, other: Range) -> Range {
        Range { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn by(self, factor: f64) -> Range {
        Range { min: scaled(self.min, factor), max: scaled(self.max, factor) }
    }
}

fn scaled(value: u64, factor: f64) -> u64 {
    // The conversion stops at the greatest number.
    (value as f64 * factor).ceil() as u64
}

/// Where the sizes of variables come from.
pub struct Sizes<'e> {
    pub env: &'e Env,
}

/// The estimated cost of an expression.
pub fn estimate(expr: &Expr, types: &[Type], calls: &[Option<CallRef>], sizes: &Sizes<'_>) -> Range {
    Estimator { types, calls, sizes, scopes: Vec::new() }.cost(expr).cost
}

/// What is known of a value: its cost, its size if it was computed, and its declared type if it is part of a variable.
#[derive(Clone)]
struct Estimate {
    cost: Range,
    size: Option<Range>,
    decl: Option<Arc<DeclType>>,
}

impl Estimate {
    fn of(cost: Range) -> Estimate {
        Estimate { cost, size: None, decl: None }
    }
}

/// A variable of a fold: its name, size and declared type.
type Scoped = (Arc<str>, Option<Range>, Option<Arc<DeclType>>);

struct Estimator<'t> {
    types: &'t [Type],
    calls: &'t [Option<CallRef>],
    sizes: &'t Sizes<'t>,
    scopes: Vec<Scoped>,
}

impl Estimator<'_> {
    fn ty(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id).unwrap_or(&Type::Dyn)
    }

    fn size(&self, expr: &Expr, found: &Estimate) -> Range {
        if let Some(size) = found.size {
            return size;
        }
        if let Some(decl) = &found.decl {
            return Range { min: 0, max: decl.max_elements };
        }
        if self.ty(expr).is_scalar() { Range::ONE } else { Range::UNKNOWN }
    }

    fn cost(&mut self, expr: &Expr) -> Estimate {
        match &expr.kind {
            ExprKind::Literal(literal) => {
                let size = match literal {
                    Literal::String(text) => Some(Range::fixed(text.len() as u64)),
                    Literal::Bytes(bytes) => Some(Range::fixed(bytes.len() as u64)),
                    _ => None,
                };
                Estimate { cost: Range::ZERO, size, decl: None }
            }
            ExprKind::Ident(name) => {
                let scoped = self.scopes.iter().rev().find(|(scoped, ..)| scoped == name);
                let (size, decl) = match scoped {
                    Some((_, size, decl)) => (*size, decl.clone()),
                    None => (None, self.sizes.env.decl(name).cloned()),
                };
                Estimate { cost: Range::ONE, size, decl }
            }
            ExprKind::Select { operand, field, test_only } => self.select(operand, field, *test_only),
            ExprKind::Call { target, args, .. } => self.call(expr, target.as_deref(), args),
            ExprKind::List(items) => {
                let mut sum = Range::fixed(10);
                for (item, _) in items {
                    sum = sum.plus(self.cost(item).cost);
                }
                Estimate { cost: sum, size: Some(Range::fixed(items.len() as u64)), decl: None }
            }
            ExprKind::Map(entries) => {
                let mut sum = Range::fixed(30);
                for (key, value, _) in entries {
                    sum = sum.plus(self.cost(key).cost).plus(self.cost(value).cost);
                }
                Estimate { cost: sum, size: Some(Range::fixed(entries.len() as u64)), decl: None }
            }
            ExprKind::Struct { fields, .. } => {
                let mut sum = Range::fixed(40);
                for field in fields {
                    sum = sum.plus(self.cost(&field.value).cost);
                }
                Estimate::of(sum)
            }
            ExprKind::Comprehension(fold) => self.fold(fold),
        }
    }

    fn select(&mut self, operand: &Expr, field: &str, test_only: bool) -> Estimate {
        let target = self.cost(operand);
        if test_only {
            return Estimate::of(target.cost);
        }
        let counted = matches!(self.ty(operand), Type::Map(_) | Type::Object(_) | Type::Param(_));
        let cost = if counted { target.cost.plus(Range::ONE) } else { target.cost };
        let decl = target.decl.and_then(|decl| member(&decl, field));
        Estimate { cost, size: None, decl }
    }

    fn fold(&mut self, fold: &Comprehension) -> Estimate {
        let range = self.cost(&fold.range);
        let init = self.cost(&fold.init);
        let mut sum = range.cost.plus(init.cost);
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), init.size, init.decl.clone()));
        let (key, value) = range.decl.as_deref().map_or((None, None), parts);
        let is_map = matches!(self.ty(&fold.range), Type::Map(_));
        let first = match (&fold.var2, is_map) {
            (None, false) => value.clone(),
            (_, true) => key,
            (Some(_), false) => None,
        };
        self.scopes.push((fold.var.clone(), None, first));
        if let Some(var) = &fold.var2 {
            self.scopes.push((var.clone(), None, value));
        }
        let condition = self.cost(&fold.condition);
        let step = self.cost(&fold.step);
        self.scopes.truncate(depth + 1);
        let result = self.cost(&fold.result);
        self.scopes.truncate(depth);
        sum = sum.plus(result.cost);
        let count = self.size(&fold.range, &range);
        let cost = sum.plus(count.times(step.cost.plus(condition.cost)));
        let size = match &fold.init.kind {
            ExprKind::List(_) | ExprKind::Map(_) => Some(Range { min: 0, max: count.max }),
            ExprKind::Literal(_) => Some(Range::ONE),
            _ => result.size,
        };
        Estimate { cost, size, decl: None }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, args: &[Expr]) -> Estimate {
        let Some(Some(call)) = self.calls.get(expr.id) else { return Estimate::of(Range::ZERO) };
        let (name, qualified) = (call.function.name, call.qualified);
        // Which of the overloads fit decides whether sizes count.
        let texts = call.overloads.iter().any(|overload| {
            let first = overload.params.first();
            matches!(
                first,
                Some(Type::String | Type::Bytes | Type::List(_) | Type::Map(_) | Type::Dyn | Type::Param(_))
            )
        });
        let mut parts: Vec<(&Expr, Estimate)> = Vec::new();
        if let Some(target) = target.filter(|_| !qualified) {
            parts.push((target, self.cost(target)));
        }
        for arg in args {
            parts.push((arg, self.cost(arg)));
        }
        let sum = parts.iter().fold(Range::ZERO, |sum, (_, part)| sum.plus(part.cost));
        let costs: Vec<Range> = parts.iter().map(|(_, part)| part.cost).collect();
        let sizes: Vec<Range> = parts.iter().map(|(expr, part)| self.size(expr, part)).collect();
        let (cost, size) = match (name, costs.as_slice(), sizes.as_slice()) {
            ("_&&_" | "_||_", [a, b], _) => (Range { min: a.min, max: a.plus(*b).max }, None),
            ("_?_:_", [condition, a, b], [_, then, otherwise]) => {
                (condition.plus(a.union(*b)), Some(then.union(*otherwise)))
            }
            (_, _, sizes) => {
                let (cost, size) = of_function(name, sizes, texts);
                (sum.plus(cost), size)
            }
        };
        let decl = match (name, parts.first()) {
            ("_[_]" | "_[?_]" | "_?._", Some((_, first))) => {
                first.decl.as_deref().and_then(|decl| match name {
                    "_?._" => match args {
                        [_, Expr { kind: ExprKind::Literal(Literal::String(field)), .. }] => {
                            member(decl, field)
                        }
                        _ => None,
                    },
                    _ => parts_of_index(decl),
                })
            }
            // The value within an optional one has its type.
            ("value" | "orValue" | "or", Some((_, first))) => first.decl.clone(),
            _ => None,
        };
        Estimate { cost, size, decl }
    }
}

fn parts_of_index(decl: &DeclType) -> Option<Arc<DeclType>> {
    parts(decl).1
}

/// The declared types of keys and of values.
fn parts(decl: &DeclType) -> (Option<Arc<DeclType>>, Option<Arc<DeclType>>) {
    match &decl.kind {
        DeclKind::List(item, _) => (None, Some(item.clone())),
        DeclKind::Map(value) => {
            // As upstream, whose type of keys has no length.
            let key = DeclType { kind: DeclKind::String, max_elements: 0, min_size: 2 };
            (Some(Arc::new(key)), Some(value.clone()))
        }
        _ => (None, None),
    }
}

fn member(decl: &DeclType, field: &str) -> Option<Arc<DeclType>> {
    match &decl.kind {
        DeclKind::Object { fields, .. } => fields.get(field).map(|field| field.ty.clone()),
        DeclKind::Map(value) => Some(value.clone()),
        _ => None,
    }
}

/// The cost of a function for arguments of these sizes, and the size of its result.
fn of_function(name: &str, sizes: &[Range], texts: bool) -> (Range, Option<Range>) {
    let same = |size: Range| Some(Range { min: 0, max: size.max });
    match (name, sizes) {
        ("startsWith" | "endsWith", [_, arg]) => (arg.by(TRAVERSAL), None),
        ("bytes", [arg]) => (arg.by(TRAVERSAL), Some(Range { min: arg.min, max: arg.max.saturating_mul(4) })),
        ("string", [arg]) if texts => (arg.by(TRAVERSAL), same(*arg)),
        ("@in", [_, list]) => (*list, None),
        ("matches", [text, pattern]) | ("find", [text, pattern]) | ("findAll", [text, pattern, ..]) => {
            let text_cost = text.plus(Range::ONE).by(TRAVERSAL);
            (text_cost.times(pattern.by(REGEX_LENGTH)), same(*text))
        }
        ("contains", [text, part]) => (text.by(TRAVERSAL).times(part.by(TRAVERSAL)), None),
        ("_+_", [a, b]) if texts => {
            let size = a.plus(*b);
            (size.by(TRAVERSAL), Some(size))
        }
        ("_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_", [a, b]) => {
            let max = a.max.min(b.max);
            (Range { min: u64::from(max > 0), max }.by(TRAVERSAL), None)
        }
        ("isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf", [list, rest @ ..]) => {
            let each = if rest.is_empty() { *list } else { list.by(TRAVERSAL) };
            (each.plus(Range::ONE), None)
        }
        (
            "url" | "isURL" | "ip" | "isIP" | "cidr" | "isCIDR" | "quantity" | "isQuantity" | "semver"
            | "isSemver",
            [text, ..],
        ) => (text.by(TRAVERSAL).union(Range::ONE), None),
        (
            "lowerAscii" | "upperAscii" | "substring" | "trim" | "strings.quote" | "jsonpatch.escapeKey",
            [text, ..],
        ) => (text.by(TRAVERSAL), same(*text)),
        ("replace", [text, old, new, ..]) => {
            let made = text.max.saturating_mul(new.max.max(1));
            // Where nothing is replaced, something is inserted everywhere.
            let max = made.checked_div(old.min).unwrap_or(made.max(text.max));
            (text.by(TRAVERSAL), Some(Range { min: 0, max }))
        }
        ("split", [text, ..]) => (text.by(TRAVERSAL), same(*text)),
        ("join", [list, ..]) => (list.by(TRAVERSAL), None),
        ("format", [text, ..]) => (text.by(TRAVERSAL), None),
        ("validate", [_, text]) => (text.by(TRAVERSAL), None),
        ("sets.contains" | "sets.intersects", [a, b]) => (a.times(*b).plus(Range::ONE), None),
        ("sets.equivalent", [a, b]) => (a.times(*b).times(Range::fixed(2)).plus(Range::ONE), None),
        ("distinct", [list]) => (list.times(*list).by(TRAVERSAL).plus(Range::ONE), same(*list)),
        ("sort" | "reverse" | "slice" | "flatten", [list, ..]) => (list.plus(Range::ONE), same(*list)),
        ("check", _) => (Range::fixed(350_000), None),
        _ => (Range::ONE, None),
    }
}

/// The cost of a call with these arguments.
pub fn of_call(name: &str, args: &[Value<'_>]) -> u64 {
    let size = |at: usize| args.get(at).map_or(0, Value::size);
    let traversed = |at: usize| scaled(size(at), TRAVERSAL);
    match name {
        "startsWith" | "endsWith" | "validate" => traversed(1),
        "bytes"
        | "string"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "split"
        | "strings.quote"
        | "jsonpatch.escapeKey"
        | "url"
        | "isURL"
        | "quantity"
        | "isQuantity"
        | "ip"
        | "isIP"
        | "cidr"
        | "isCIDR"
        | "semver"
        | "isSemver"
        | "format" => traversed(0).max(1),
        "@in" => match args {
            [_, Value::List(list)] => list.len() as u64,
            _ => 1,
        },
        "matches" | "find" | "findAll" => {
            scaled(size(0) + 1, TRAVERSAL).saturating_mul(scaled(size(1), REGEX_LENGTH))
        }
        "contains" => traversed(0).saturating_mul(traversed(1)),
        "_+_" => match args {
            // Lists are copied, sets compared item by item.
            [Value::List(List::Json(_, _, ListSemantics::Atomic)), _] | [Value::List(List::Values(_)), _] => {
                size(0).saturating_add(size(1)).max(1)
            }
            [Value::List(_), _] => size(0).saturating_mul(size(1)).max(1),
            [Value::String(_) | Value::Bytes(_), _] => scaled(size(0) + size(1), TRAVERSAL),
            _ => 1,
        },
        "_==_" | "_!=_" | "_<_" | "_<=_" | "_>_" | "_>=_" => match args {
            [a, b] => scaled(a.lesser_size(b), TRAVERSAL),
            _ => 1,
        },
        "isSorted" | "sum" | "min" | "max" | "indexOf" | "lastIndexOf" | "sort" | "reverse" | "slice" => {
            size(0) + 1
        }
        "flatten" => match args.first() {
            Some(Value::List(list)) => list.iter().fold(1, |sum: u64, item| sum.saturating_add(item.size())),
            _ => 1,
        },
        "distinct" => scaled(size(0).saturating_mul(size(0)), TRAVERSAL) + 1,
        "sets.contains" | "sets.intersects" | "sets.equivalent" => size(0).saturating_mul(size(1)) + 1,
        "cel.@mapInsert" => traversed(0).max(1),
        // What is made may be much longer than what is given.
        "replace" => match args {
            [Value::String(text), Value::String(old), Value::String(new), ..] => {
                let found = if old.is_empty() { text.len() + 1 } else { text.len() / old.len() };
                let made = (found as u64).saturating_mul(new.len() as u64);
                traversed(0).saturating_add(scaled(made, 0.01)).max(1)
            }
            _ => 1,
        },
        "join" => size(0).saturating_mul(scaled(size(1), TRAVERSAL).max(1)).max(1),
        "check" => 350_000,
        _ => 1,
    }
}
