//! The nodes that the parser makes: numbered, and bounded in their depth.

use crate::ast::{Expr, ExprKind, Literal};
use crate::source::Issue;

/// The greatest depth of the tree of an expression.
pub const MAX_DEPTH: usize = 250;
/// The maximum number of nodes of an expression after macro expansion; checked when a macro copies
/// a subtree.
const MAX_NODES: usize = 200_000;

/// Parsing ended; the issue is recorded.
#[derive(Debug)]
pub struct ParseAborted;

/// The factory of nodes, and the issues that were found meanwhile.
#[derive(Default)]
pub struct ExprFactory {
    /// The number that were made.
    pub count: usize,
    pub issues: Vec<Issue>,
}

impl ExprFactory {
    /// Records an issue.
    pub fn issue(&mut self, offset: usize, message: impl Into<String>) {
        self.issues.push(Issue { offset, message: message.into() });
    }

    /// Builds a node of the given kind.
    pub fn node(&mut self, offset: usize, kind: ExprKind) -> Expr {
        let mut depth = 0;
        let mut deepest = |expr: &Expr| depth = depth.max(expr.depth);
        match &kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => deepest(operand),
            ExprKind::Call { target, args, .. } => {
                target.iter().for_each(|target| deepest(target));
                args.iter().for_each(deepest);
            }
            ExprKind::List(items) => items.iter().for_each(|(item, _)| deepest(item)),
            ExprKind::Map(entries) => entries.iter().for_each(|(key, value, _)| {
                deepest(key);
                deepest(value);
            }),
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| deepest(&field.value)),
            ExprKind::Comprehension(fold) => {
                [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result]
                    .into_iter()
                    .for_each(deepest);
            }
        }
        let id = self.count;
        self.count += 1;
        if depth == MAX_DEPTH {
            self.issue(offset, format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        Expr { id, offset, depth: depth + 1, kind }
    }

    /// Copies a tree. The nodes of the copy have ids of their own.
    pub fn copy(&mut self, expr: &Expr) -> Result<Expr, ParseAborted> {
        let mut copy = expr.clone();
        self.renumber(&mut copy);
        // Copies of copies grow exponentially.
        if self.count > MAX_NODES {
            self.issue(expr.offset, format!("expression node limit exceeded: {MAX_NODES}"));
            return Err(ParseAborted);
        }
        Ok(copy)
    }

    fn renumber(&mut self, expr: &mut Expr) {
        expr.id = self.count;
        self.count += 1;
        expr.visit_children(&mut |child| self.renumber(child));
    }

    /// Builds a call in function style.
    pub fn call(&mut self, offset: usize, function: &str, args: Vec<Expr>) -> Expr {
        self.node(offset, ExprKind::Call { function: function.into(), target: None, args })
    }

    /// Builds a variable.
    pub fn ident(&mut self, offset: usize, name: &str) -> Expr {
        self.node(offset, ExprKind::Ident(name.into()))
    }

    /// Builds a literal.
    pub fn literal(&mut self, offset: usize, literal: Literal) -> Expr {
        self.node(offset, ExprKind::Literal(literal))
    }

    /// Parses a signed number.
    pub fn int(&mut self, offset: usize, text: &str) -> Expr {
        let parsed = match (text.strip_prefix("0x"), text.strip_prefix("-0x")) {
            (Some(hex), _) => i64::from_str_radix(hex, 16),
            (_, Some(hex)) => i64::from_str_radix(&format!("-{hex}"), 16),
            _ => text.parse(),
        };
        if parsed.is_err() {
            self.issue(offset, "invalid int literal");
        }
        self.literal(offset, Literal::Int(parsed.unwrap_or(0)))
    }

    /// Parses an unsigned number.
    pub fn uint(&mut self, offset: usize, text: &str) -> Expr {
        let parsed = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16),
            None => text.parse(),
        };
        if parsed.is_err() {
            self.issue(offset, "invalid uint literal");
        }
        self.literal(offset, Literal::Uint(parsed.unwrap_or(0)))
    }

    /// Parses a number with a fraction.
    pub fn double(&mut self, offset: usize, text: &str) -> Expr {
        let parsed: f64 = text.parse().unwrap_or(f64::INFINITY);
        if parsed.is_infinite() {
            self.issue(offset, "invalid double literal");
        }
        self.literal(offset, Literal::Double(parsed))
    }
}
