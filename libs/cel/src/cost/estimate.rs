//! The estimate of an expression, node by node.

use std::sync::Arc;

use super::functions::{self, CallEstimate, Operand};
use super::range::{CALL, LIST, MAP, OBJECT, Range};
use crate::ast::{ACCUMULATOR, Comprehension, Expr, ExprKind, Literal};
use crate::decl::{DeclKind, DeclType};
use crate::functions::CallRef;
use crate::types::Type;

/// Estimates the cost of an expression over a variable of a declared type.
pub fn estimate(expr: &Expr, types: &[Type], calls: &[Option<CallRef>], root: &Root) -> Range {
    let nodes = vec![Known::default(); types.len()];
    Estimator { types, calls, root, nodes, scopes: Vec::new() }.cost(expr)
}

/// The variable that has a declared type.
#[derive(Clone, Debug)]
pub struct Root {
    /// Its declared type.
    pub decl: Arc<DeclType>,
    /// Its name; None if every path begins at it, whatever the name of the variable.
    pub name: Option<Arc<str>>,
}

/// The place of a value within the root.
#[derive(Clone, Debug, Default)]
enum Path {
    /// No path: the value is computed.
    #[default]
    Empty,
    /// A path that leads to no declared type.
    Unknown,
    /// A path to a declared type.
    At(Arc<DeclType>),
}

/// The sizes of the keys or indexes and of the values of a list or map.
#[derive(Clone, Copy, Debug)]
pub struct Entries {
    is_list: bool,
    key: Range,
    value: Range,
}

impl Entries {
    fn union(self, other: Entries) -> Entries {
        let (key, value) = (self.key.union(other.key), self.value.union(other.value));
        Entries { is_list: self.is_list, key, value }
    }
}

/// The facts about a node.
#[derive(Clone, Debug, Default)]
struct Known {
    path: Path,
    size: Option<Range>,
    entries: Option<Entries>,
}

/// A variable of a macro.
struct Scoped {
    name: Arc<str>,
    known: Known,
}

struct Estimator<'t> {
    types: &'t [Type],
    calls: &'t [Option<CallRef>],
    root: &'t Root,
    nodes: Vec<Known>,
    scopes: Vec<Scoped>,
}

const FIELD: &str = "";

impl Estimator<'_> {
    fn ty(&self, expr: &Expr) -> &Type {
        self.types.get(expr.id).unwrap_or(&Type::Dyn)
    }

    fn known(&self, expr: &Expr) -> Known {
        self.nodes.get(expr.id).cloned().unwrap_or_default()
    }

    fn learn(&mut self, expr: &Expr, learn: impl FnOnce(&mut Known)) {
        if let Some(known) = self.nodes.get_mut(expr.id) {
            learn(known);
        }
    }

    fn scoped(&self, expr: &Expr) -> Option<&Known> {
        let ExprKind::Ident(name) = &expr.kind else { return None };
        self.scopes.iter().rev().find(|scoped| scoped.name == *name).map(|scoped| &scoped.known)
    }

    fn path(&self, expr: &Expr) -> Path {
        match self.scoped(expr) {
            Some(known) => known.path.clone(),
            None => self.known(expr).path,
        }
    }

    /// Returns the first step of a path.
    fn begin(&self, name: &str) -> Path {
        match &self.root.name {
            Some(root) if **root != *name => Path::Unknown,
            _ => Path::At(self.root.decl.clone()),
        }
    }

    /// Returns the path with a further step. After an empty path it is the first one: upstream
    /// examines only the steps after the first.
    fn step(&self, path: &Path, step: &str, part: fn(&DeclType, &str) -> Option<Arc<DeclType>>) -> Path {
        match path {
            Path::Empty => self.begin(step),
            Path::Unknown => Path::Unknown,
            Path::At(decl) => part(decl, step).map_or(Path::Unknown, Path::At),
        }
    }

    fn size_at(path: &Path) -> Option<Range> {
        match path {
            Path::At(decl) => Some(Range { min: 0, max: decl.max_elements }),
            _ => None,
        }
    }

    fn size(&self, expr: &Expr) -> Option<Range> {
        let literal = || match &expr.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text.chars().count()),
            ExprKind::Literal(Literal::Bytes(bytes)) => Some(bytes.len()),
            ExprKind::Literal(_) => Some(1),
            ExprKind::List(items) => Some(items.len()),
            ExprKind::Map(entries) => Some(entries.len()),
            _ => None,
        };
        self.known(expr)
            .size
            .or_else(|| literal().map(|size| Range::fixed(size as u64)))
            .or_else(|| Self::size_at(&self.path(expr)))
            .or_else(|| is_scalar(self.ty(expr)).then_some(Range::ONE))
            .or_else(|| self.scoped(expr)?.size)
    }

    fn entries(&self, expr: &Expr) -> Option<Entries> {
        self.known(expr).entries.or_else(|| self.scoped(expr)?.entries)
    }

    fn cost(&mut self, expr: &Expr) -> Range {
        match &expr.kind {
            ExprKind::Literal(_) => Range::ZERO,
            ExprKind::Ident(name) => {
                let path = match self.scoped(expr) {
                    Some(known) => known.path.clone(),
                    None => self.begin(name),
                };
                self.learn(expr, |known| known.path = path);
                Range::fixed(CALL)
            }
            ExprKind::Select { operand, field, test_only } => self.select(expr, operand, field, *test_only),
            ExprKind::Call { target, args, .. } => self.call(expr, target.as_deref(), args),
            ExprKind::List(items) => {
                let mut sum = Range::fixed(LIST);
                let mut size = None;
                for (item, _) in items {
                    sum = sum.plus(self.cost(item));
                    size = Some(self.joined(size, item));
                }
                let value = size.unwrap_or_default();
                let entries = Entries { is_list: true, key: Range::ONE, value };
                self.learn(expr, |known| known.entries = Some(entries));
                sum
            }
            ExprKind::Map(entries) => {
                let mut sum = Range::fixed(MAP);
                let (mut keys, mut values) = (None, None);
                for (key, value, _) in entries {
                    sum = sum.plus(self.cost(key)).plus(self.cost(value));
                    keys = Some(self.joined(keys, key));
                    values = Some(self.joined(values, value));
                }
                let (key, value) = (keys.unwrap_or_default(), values.unwrap_or_default());
                let entries = Entries { is_list: false, key, value };
                self.learn(expr, |known| known.entries = Some(entries));
                sum
            }
            ExprKind::Struct { fields, .. } => {
                let mut sum = Range::fixed(OBJECT);
                for field in fields {
                    sum = sum.plus(self.cost(&field.value));
                }
                sum
            }
            ExprKind::Comprehension(fold) if is_binding(fold) => {
                let sum = self.cost(&fold.range).plus(self.cost(&fold.init));
                self.push(&fold.accu, &fold.init);
                let sum = sum.plus(self.cost(&fold.result));
                self.scopes.pop();
                self.copy_sizes(expr, &fold.result);
                sum
            }
            ExprKind::Comprehension(fold) => self.fold(expr, fold),
        }
    }

    fn joined(&self, sizes: Option<Range>, item: &Expr) -> Range {
        let size = self.size(item).unwrap_or(Range::UNKNOWN);
        sizes.map_or(size, |sizes| sizes.union(size))
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let (size, entries) = (self.size(from), self.entries(from));
        self.learn(to, |known| {
            known.size = size.or(known.size);
            known.entries = entries.or(known.entries);
        });
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, test_only: bool) -> Range {
        let cost = self.cost(operand);
        if test_only {
            return cost;
        }
        let part = if self.root.name.is_some() { member_of_device } else { member };
        let path = self.step(&self.path(operand), field, part);
        self.learn(expr, |known| known.path = path);
        match self.ty(operand) {
            Type::Map(_) | Type::Object(_) | Type::Param(_) => cost.plus(Range::fixed(CALL)),
            _ => cost,
        }
    }

    fn push(&mut self, name: &Arc<str>, init: &Expr) {
        let known = Known { path: self.path(init), size: self.size(init), entries: self.entries(init) };
        self.scopes.push(Scoped { name: name.clone(), known });
    }

    fn fold(&mut self, expr: &Expr, fold: &Comprehension) -> Range {
        let mut sum = self.cost(&fold.range).plus(self.cost(&fold.init));
        self.push(&fold.accu, &fold.init);
        let (entries, path) = (self.entries(&fold.range), self.path(&fold.range));
        let is_list =
            entries.map_or(matches!(self.ty(&fold.range), Type::List(_)), |entries| entries.is_list);
        let key = Known {
            path: if is_list { self.step(&path, FIELD, index) } else { self.step(&path, FIELD, key) },
            size: entries.map(|entries| entries.key),
            entries: None,
        };
        let value = Known {
            path: self.step(&path, FIELD, item),
            size: entries.map(|entries| entries.value),
            entries: None,
        };
        let depth = self.scopes.len();
        match &fold.var2 {
            Some(var2) => {
                self.scopes.push(Scoped { name: fold.var.clone(), known: key });
                self.scopes.push(Scoped { name: var2.clone(), known: value });
            }
            None => {
                let known = if is_list { value } else { key };
                self.scopes.push(Scoped { name: fold.var.clone(), known });
            }
        }
        let each = self.cost(&fold.condition).plus(self.cost(&fold.step));
        self.scopes.truncate(depth);
        sum = sum.plus(self.cost(&fold.result));
        self.scopes.pop();
        let count = self.size(&fold.range).unwrap_or(Range::UNKNOWN);
        let (size, entries) = match &fold.init.kind {
            ExprKind::Literal(_) => (self.size(&fold.init), None),
            ExprKind::List(_) | ExprKind::Map(_) => (Some(count), self.entries(&fold.step)),
            _ => (None, None),
        };
        self.learn(expr, |known| {
            known.size = size.or(known.size);
            known.entries = entries.or(known.entries);
        });
        sum.plus(count.times(each))
    }

    fn operand(&self, expr: &Expr) -> Operand {
        let ty = self.ty(expr).clone();
        let item = match &ty {
            Type::List(item) => Some((**item).clone()),
            _ => None,
        };
        let path = self.path(expr);
        // Where there is no path, items have none either.
        let items = match path {
            Path::Empty => Path::Empty,
            path => self.step(&path, FIELD, item_of_list),
        };
        Operand {
            size: self.size(expr),
            item: item.map(|ty| (ty, Self::size_at(&items).unwrap_or(Range::UNKNOWN))),
            ty,
            literal: match &expr.kind {
                ExprKind::Literal(Literal::Int(value)) => Some(*value),
                _ => None,
            },
        }
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, args: &[Expr]) -> Range {
        let Some(Some(call)) = self.calls.get(expr.id) else {
            args.iter().for_each(|arg| _ = self.cost(arg));
            return Range::ZERO;
        };
        if let ("dyn", [arg]) = (call.function.name, args) {
            let cost = self.cost(arg).plus(Range::fixed(CALL));
            self.copy_sizes(expr, arg);
            return cost;
        }
        let costs: Vec<Range> = args.iter().map(|arg| self.cost(arg)).collect();
        let operands: Vec<Operand> = args.iter().map(|arg| self.operand(arg)).collect();
        if call.overloads.is_empty() {
            return Range::ZERO;
        }
        let target = target.filter(|_| !call.qualified);
        let sum = target.map_or(Range::ZERO, |target| self.cost(target));
        let target = target.map(|target| self.operand(target));
        let args_cost = costs.iter().fold(Range::ZERO, |sum, cost| sum.plus(*cost));
        let (mut cost, mut size) = (Range { min: u64::MAX, max: 0 }, None);
        for overload in &call.overloads {
            let name = call.function.name;
            let found = match (name, costs.as_slice()) {
                ("_&&_" | "_||_", [a, b]) => {
                    CallEstimate { cost: Range { min: a.min, max: a.plus(*b).max }, size: None }
                }
                ("_?_:_", [condition, a, b]) => self.conditional(expr, args, *condition, a.union(*b)),
                _ => {
                    let found = functions::estimate(name, overload, target.as_ref(), &operands);
                    CallEstimate { cost: found.cost.plus(args_cost), size: found.size }
                }
            };
            if let ("_+_", [a, b], Some(_)) = (name, args, found.size)
                && let (Some(a), Some(b)) = (self.entries(a), self.entries(b))
            {
                self.learn(expr, |known| known.entries = Some(a.union(b)));
            }
            cost = cost.union(found.cost);
            size = match (size, found.size) {
                (Some(a), Some(b)) => Some(Range::union(a, b)),
                (a, b) => a.or(b),
            };
            if let ("_[_]", Some(Type::List(_) | Type::Map(_)), [list, _]) =
                (name, overload.params.first(), args)
            {
                size = self.entries(list).map(|entries| entries.value);
                let path = self.step(&self.path(list), FIELD, item);
                self.learn(expr, |known| known.path = path);
            }
            size = size.or_else(|| self.size(expr));
        }
        self.learn(expr, |known| known.size = size.or(known.size));
        sum.plus(cost)
    }

    fn conditional(&mut self, expr: &Expr, args: &[Expr], condition: Range, either: Range) -> CallEstimate {
        let mut size = None;
        if let [_, a, b] = args {
            let known = |expr| self.size(expr).unwrap_or(Range::UNKNOWN);
            size = Some(known(a).union(known(b)));
            if let (Some(a), Some(b)) = (self.entries(a), self.entries(b)) {
                self.learn(expr, |known| known.entries = Some(a.union(b)));
            }
        }
        CallEstimate { cost: condition.plus(either), size }
    }
}

/// Returns `true` if a fold only binds a variable.
fn is_binding(fold: &Comprehension) -> bool {
    matches!(&fold.range.kind, ExprKind::List(items) if items.is_empty())
        && matches!(fold.condition.kind, ExprKind::Literal(Literal::Bool(false)))
        && *fold.accu != *ACCUMULATOR
}

fn is_scalar(ty: &Type) -> bool {
    match ty {
        Type::Optional(of) => is_scalar(of),
        ty => ty.is_scalar(),
    }
}

fn member(decl: &DeclType, field: &str) -> Option<Arc<DeclType>> {
    match &decl.kind {
        DeclKind::Object { fields, .. } => fields.get(field).map(|field| field.ty.clone()),
        _ => None,
    }
}

/// Returns the type of a member of a device. Attributes of all names have the same size.
fn member_of_device(decl: &DeclType, field: &str) -> Option<Arc<DeclType>> {
    match &decl.kind {
        DeclKind::Map(item) if matches!(item.kind, DeclKind::Dyn) && item.max_elements > 0 => {
            Some(item.clone())
        }
        _ => member(decl, field),
    }
}

fn item(decl: &DeclType, _: &str) -> Option<Arc<DeclType>> {
    match &decl.kind {
        DeclKind::List(item, _) | DeclKind::Map(item) => Some(item.clone()),
        _ => None,
    }
}

fn item_of_list(decl: &DeclType, step: &str) -> Option<Arc<DeclType>> {
    item(decl, step)
}

/// Returns the declared type of an index or key: there is none.
fn index(_: &DeclType, _: &str) -> Option<Arc<DeclType>> {
    None
}

fn key(decl: &DeclType, _: &str) -> Option<Arc<DeclType>> {
    match &decl.kind {
        DeclKind::Map(_) => Some(Arc::new(DeclType { kind: DeclKind::String, max_elements: 0, min_size: 2 })),
        _ => None,
    }
}
