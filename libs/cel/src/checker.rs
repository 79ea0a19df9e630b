//! The type checker.
//!
//! Source: cel-go's `checker/checker.go`; the texts of errors are its.

use std::sync::Arc;

use crate::ast::{Comprehension, Expr, ExprKind, Literal, StructField};
use crate::env::{self, Env, Fields};
use crate::functions::{self, CallRef, Overload};
use crate::literals;
use crate::names::qualified;
use crate::source::Issue;
use crate::types::{MAX_TYPE, Substitution, Type};

/// The state of checking.
pub struct Checker<'e> {
    env: &'e Env,
    scopes: Vec<(Arc<str>, Type)>,
    types: Vec<Type>,
    calls: Vec<Option<CallRef>>,
    known: Substitution,
    issues: Vec<Issue>,
}

impl<'e> Checker<'e> {
    /// Creates a checker for an expression of `nodes` nodes.
    pub fn new(env: &'e Env, nodes: usize) -> Checker<'e> {
        Checker {
            env,
            scopes: Vec::new(),
            types: vec![Type::Dyn; nodes],
            calls: vec![None; nodes],
            known: Substitution::default(),
            issues: Vec::new(),
        }
    }

    /// Returns the type of the whole expression, the outermost types of all nodes, the resolved
    /// calls, and the issues.
    pub fn finish(self, expr: &Expr) -> (Type, Vec<Type>, Vec<Option<CallRef>>, Vec<Issue>) {
        let mut issues = self.issues;
        if issues.is_empty() {
            let ty = |expr: &Expr| self.types.get(expr.id).map_or(Type::Dyn, |ty| self.known.apply(ty, true));
            literals::check(expr, &ty, &mut issues);
        }
        let whole = self.types.get(expr.id).map_or(Type::Dyn, |ty| self.known.apply(ty, true));
        let types = self.types.iter().map(|ty| self.known.outline(ty)).collect();
        (whole, types, self.calls, issues)
    }

    fn issue(&mut self, expr: &Expr, message: String) -> Type {
        self.issues.push(Issue { offset: expr.offset, message });
        Type::Error
    }

    /// Returns the type of a node.
    pub fn check(&mut self, expr: &Expr) -> Type {
        let ty = match &expr.kind {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident(name) => match self.lookup(name) {
                Some(ty) => ty,
                None => self.undeclared(expr, name),
            },
            ExprKind::Select { operand, field, test_only } => self.select(expr, operand, field, *test_only),
            ExprKind::Call { function, target, args } => self.call(expr, function, target.as_deref(), args),
            ExprKind::List(items) => self.list(items),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => self.structure(expr, name, fields),
            ExprKind::Comprehension(fold) => self.fold(expr, fold),
        };
        // A type that repeats itself would grow without bound.
        let ty = if ty.is_larger_than(MAX_TYPE) { Type::Dyn } else { ty };
        if let Some(place) = self.types.get_mut(expr.id) {
            *place = ty.clone();
        }
        ty
    }

    fn undeclared(&mut self, expr: &Expr, name: &str) -> Type {
        self.issue(expr, format!("undeclared reference to '{name}' (in container '')"))
    }

    fn lookup(&self, name: &str) -> Option<Type> {
        let scoped = self.scopes.iter().rev().find(|(scoped, _)| **scoped == *name);
        scoped
            .map(|(_, ty)| ty.clone())
            .or_else(|| self.env.variable_type(name).cloned())
            .or_else(|| Type::named(name).map(|ty| Type::Type(Arc::new(ty))))
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &Arc<str>, test_only: bool) -> Type {
        let target = self.check(operand);
        let target = self.known.apply(&target, false);
        let (inner, optional) = match &target {
            Type::Optional(inner) => (self.known.apply(inner, false), true),
            _ => (target.clone(), false),
        };
        let found = self.field(expr, &inner, field);
        match (test_only, optional) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(found),
            (false, false) => found,
        }
    }

    /// Returns the type of a field of a value of type `target`.
    fn field(&mut self, at: &Expr, target: &Type, field: &str) -> Type {
        match target {
            Type::Map(entry) => self.known.apply(&entry.1, false),
            Type::Object(name) => match self.env.fields(name) {
                Some(Fields::Any) => Type::Dyn,
                Some(Fields::Known(fields)) => match env::field(fields, field) {
                    Some(ty) => ty.clone(),
                    None => self.issue(at, format!("undefined field '{field}'")),
                },
                None => self.issue(at, format!("unexpected failed resolution of '{name}'")),
            },
            Type::Param(_) => {
                // A value with fields of an undetermined type is known at runtime only.
                self.known.assign(&Type::Dyn, target);
                Type::Dyn
            }
            Type::Dyn => Type::Dyn,
            Type::Error => Type::Error,
            // The types of Kubernetes' libraries are objects whose fields are not declared.
            Type::Opaque(name) if name.starts_with("kubernetes.") => {
                self.issue(at, format!("unexpected failed resolution of '{name}'"))
            }
            other => self.issue(at, format!("type '{other}' does not support field selection")),
        }
    }

    fn call(&mut self, expr: &Expr, function: &Arc<str>, target: Option<&Expr>, args: &[Expr]) -> Type {
        if &**function == "_?._" {
            return self.optional_select(expr, args);
        }
        if let Some(target) = target
            && let Some(prefix) = qualified(target)
            && let Some(found) = self.env.function(&format!("{prefix}.{function}"))
        {
            let types: Vec<Type> = args.iter().map(|arg| self.check(arg)).collect();
            return self.resolve(expr, found, &types, false, true);
        }
        let mut types: Vec<Type> = args.iter().map(|arg| self.check(arg)).collect();
        if let Some(target) = target {
            types.insert(0, self.check(target));
        }
        let Some(found) = self.env.function(function) else {
            return self.undeclared(expr, function);
        };
        if let "_&&_" | "_||_" = found.name {
            return self.logical(expr, found, args, &types);
        }
        self.resolve(expr, found, &types, target.is_some(), false)
    }

    /// Checks the operands of logical operators one by one.
    fn logical(
        &mut self,
        expr: &Expr,
        function: &'static functions::Function,
        args: &[Expr],
        types: &[Type],
    ) -> Type {
        self.record(
            expr,
            CallRef { function, overloads: function.overloads.iter().collect(), qualified: false },
        );
        let mut result = Type::Bool;
        for (arg, ty) in args.iter().zip(types) {
            if !self.known.assign(ty, &Type::Bool) {
                let found = self.known.apply(ty, true);
                self.issue(arg, format!("expected type 'bool' but found '{found}'"));
                result = Type::Error;
            }
        }
        result
    }

    fn optional_select(&mut self, expr: &Expr, args: &[Expr]) -> Type {
        let [operand, name] = args else { return Type::Error };
        let ExprKind::Literal(Literal::String(field)) = &name.kind else { return Type::Error };
        let target = self.check(operand);
        let target = self.known.apply(&target, false);
        let target = match &target {
            Type::Optional(inner) => self.known.apply(inner, false),
            other => other.clone(),
        };
        let found = self.field(expr, &target, field);
        if let Some(function) = functions::function("_?._") {
            self.record(
                expr,
                CallRef { function, overloads: function.overloads.iter().collect(), qualified: false },
            );
        }
        Type::optional(found)
    }

    fn record(&mut self, expr: &Expr, call: CallRef) {
        if let Some(place) = self.calls.get_mut(expr.id) {
            *place = Some(call);
        }
    }

    fn resolve(
        &mut self,
        expr: &Expr,
        function: &'static functions::Function,
        args: &[Type],
        member: bool,
        qualified: bool,
    ) -> Type {
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in &function.overloads {
            if overload.member != member || overload.params.len() != args.len() {
                continue;
            }
            let before = self.known.checkpoint();
            let instance = self.instantiate(overload);
            let fits = args.iter().zip(&instance.params).all(|(arg, param)| self.known.assign(arg, param));
            if !fits {
                self.known.restore(before);
                continue;
            }
            fitting.push(overload);
            let ty = self.known.apply(&instance.result, false);
            result = Some(match result {
                None => ty,
                Some(other) if other == ty => ty,
                Some(_) => Type::Dyn,
            });
        }
        self.record(expr, CallRef { function, overloads: fitting, qualified });
        if let Some(result) = result {
            return result;
        }
        let names: Vec<String> = args.iter().map(|arg| self.known.apply(arg, true).to_string()).collect();
        let signature = match names.split_first() {
            Some((target, rest)) if member => format!("{target}.({})", rest.join(", ")),
            _ => format!("({})", names.join(", ")),
        };
        self.issue(
            expr,
            format!("found no matching overload for '{}' applied to '{signature}'", function.name),
        )
    }

    /// Returns the overload with fresh type variables.
    fn instantiate(&mut self, overload: &Overload) -> Overload {
        let mut variables = [None, None];
        let mut fresh = |ty: &Type, known: &mut Substitution| replace(ty, &mut variables, known);
        let params = overload.params.iter().map(|ty| fresh(ty, &mut self.known)).collect();
        let result = fresh(&overload.result, &mut self.known);
        Overload { member: overload.member, params, result }
    }

    fn list(&mut self, items: &[(Expr, bool)]) -> Type {
        let mut joined: Option<Type> = None;
        for (item, optional) in items {
            let ty = self.element(item, *optional);
            joined = Some(self.join(joined, ty));
        }
        Type::list(joined.unwrap_or_else(|| self.known.fresh()))
    }

    fn map(&mut self, entries: &[(Expr, Expr, bool)]) -> Type {
        let (mut keys, mut values) = (None, None);
        for (key, value, optional) in entries {
            let ty = self.check(key);
            keys = Some(self.join(keys, ty));
            let ty = self.element(value, *optional);
            values = Some(self.join(values, ty));
        }
        let keys = keys.unwrap_or_else(|| self.known.fresh());
        Type::map(keys, values.unwrap_or_else(|| self.known.fresh()))
    }

    /// Returns the type of an element, without the enclosing optional type if the element is
    /// optional.
    fn element(&mut self, expr: &Expr, optional: bool) -> Type {
        let ty = self.check(expr);
        if !optional {
            return ty;
        }
        match self.known.apply(&ty, false) {
            Type::Optional(inner) => (*inner).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let shown = self.known.apply(&other, true);
                self.issue(expr, format!("expected type 'optional_type({shown})' but found '{shown}'"));
                other
            }
        }
    }

    /// Returns the more general of the types of two elements; dyn if neither can be used as the
    /// other.
    fn join(&mut self, joined: Option<Type>, ty: Type) -> Type {
        let Some(joined) = joined else { return ty };
        if joined.is_dyn() || ty.is_dyn() {
            return Type::Dyn;
        }
        if !self.known.assign(&joined, &ty) {
            return Type::Dyn;
        }
        if joined == Type::Null { ty } else { joined }
    }

    fn structure(&mut self, expr: &Expr, name: &Arc<str>, fields: &[StructField]) -> Type {
        let env = self.env;
        let Some(known) = env.fields(name) else {
            fields.iter().for_each(|field| _ = self.check(&field.value));
            return self.undeclared(expr, name);
        };
        for field in fields {
            let found = self.element(&field.value, field.optional);
            let wanted = match known {
                Fields::Any => Type::Dyn,
                Fields::Known(fields) => match fields.get(&field.name) {
                    Some(ty) => ty.clone(),
                    None => {
                        let message = format!("undefined field '{}'", field.name);
                        self.issues.push(Issue { offset: field.offset, message });
                        continue;
                    }
                },
            };
            if !self.known.assign(&found, &wanted) {
                let found = self.known.apply(&found, true);
                let message = format!(
                    "expected type of field '{}' is '{wanted}' but provided type is '{found}'",
                    field.name
                );
                self.issues.push(Issue { offset: field.offset, message });
            }
        }
        Type::Object(name.clone())
    }

    fn fold(&mut self, expr: &Expr, fold: &Comprehension) -> Type {
        let range = self.check(&fold.range);
        let init = self.check(&fold.init);
        let range = self.known.apply(&range, false);
        let (first, second) = match &range {
            Type::List(item) if fold.var2.is_some() => (Type::Int, (**item).clone()),
            Type::List(item) => ((**item).clone(), Type::Dyn),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Dyn | Type::Error | Type::Param(_) => (Type::Dyn, Type::Dyn),
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                self.issue(&fold.range, message);
                (Type::Error, Type::Error)
            }
        };
        let depth = self.scopes.len();
        self.scopes.push((fold.accu.clone(), init.clone()));
        self.scopes.push((fold.var.clone(), first));
        if let Some(var) = &fold.var2 {
            self.scopes.push((var.clone(), second));
        }
        let condition = self.check(&fold.condition);
        self.expect(&fold.condition, &condition, &Type::Bool);
        let step = self.check(&fold.step);
        let _ = expr;
        self.expect(&fold.step, &step, &init);
        self.scopes.truncate(depth + 1);
        let result = self.check(&fold.result);
        self.scopes.truncate(depth);
        self.known.apply(&result, false)
    }

    fn expect(&mut self, at: &Expr, found: &Type, wanted: &Type) {
        if !self.known.assign(found, wanted) {
            let (wanted, found) = (self.known.apply(wanted, true), self.known.apply(found, true));
            self.issue(at, format!("expected type '{wanted}' but found '{found}'"));
        }
    }
}

fn replace(ty: &Type, variables: &mut [Option<Type>; 2], known: &mut Substitution) -> Type {
    match ty {
        Type::Param(number) => match variables.get_mut(*number) {
            Some(variable) => variable.get_or_insert_with(|| known.fresh()).clone(),
            None => Type::Dyn,
        },
        Type::List(inner) => Type::list(replace(inner, variables, known)),
        Type::Optional(inner) => Type::optional(replace(inner, variables, known)),
        Type::Type(inner) => Type::Type(Arc::new(replace(inner, variables, known))),
        Type::Map(entry) => {
            let key = replace(&entry.0, variables, known);
            Type::map(key, replace(&entry.1, variables, known))
        }
        other => other.clone(),
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}
