//! The syntax tree. Macros are expanded to comprehensions.

use std::sync::Arc;

/// The name of the accumulator of a macro, which no expression can write.
pub const ACCUMULATOR: &str = "@result";

/// A node.
#[derive(Clone, Debug)]
pub struct Expr {
    /// The number of the node in its tree, the key of the checker's results.
    pub id: usize,
    /// The position in the source, in characters.
    pub offset: usize,
    /// The depth of the tree below it.
    pub depth: usize,
    /// The kind of node.
    pub kind: ExprKind,
}

/// The kind of a node.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// A literal.
    Literal(Literal),
    /// A variable or a type.
    Ident(Arc<str>),
    /// `operand.field`, or `has(operand.field)`.
    Select {
        /// The object or map.
        operand: Box<Expr>,
        /// The field or key.
        field: Arc<str>,
        /// Whether it only tests the presence of the field.
        test_only: bool,
    },
    /// `function(args)` or `target.function(args)`; operators are functions with names such as
    /// `_+_`.
    Call {
        /// The name.
        function: Arc<str>,
        /// The receiver of a call in member style.
        target: Option<Box<Expr>>,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `[a, ?b]`; the second value is whether the element is optional.
    List(Vec<(Expr, bool)>),
    /// `{k: v, ?k: v}`.
    Map(Vec<(Expr, Expr, bool)>),
    /// `Name{field: value}`.
    Struct {
        /// The name of the type.
        name: Arc<str>,
        /// The fields.
        fields: Vec<StructField>,
    },
    /// A fold over a list or map.
    Comprehension(Box<Comprehension>),
}

/// The field of a struct literal.
#[derive(Clone, Debug)]
pub struct StructField {
    /// The position in the source, in characters.
    pub offset: usize,
    /// The name.
    pub name: Arc<str>,
    /// The value.
    pub value: Expr,
    /// Whether the value is optional.
    pub optional: bool,
}

/// A fold: `accu` starts as `init`; for each element, while `condition` holds, it becomes `step`.
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// The list or map.
    pub range: Expr,
    /// The element of a list or key of a map; with two variables the index or key.
    pub var: Arc<str>,
    /// The element or value, if there are two variables.
    pub var2: Option<Arc<str>>,
    /// The accumulator.
    pub accu: Arc<str>,
    /// The first value of the accumulator.
    pub init: Expr,
    /// Whether the fold continues.
    pub condition: Expr,
    /// The next value of the accumulator.
    pub step: Expr,
    /// The value of the whole.
    pub result: Expr,
}

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true` and `false`
    Bool(bool),
    /// A signed number.
    Int(i64),
    /// An unsigned number.
    Uint(u64),
    /// A number with a fraction.
    Double(f64),
    /// A text.
    String(Arc<str>),
    /// Bytes.
    Bytes(Arc<[u8]>),
}

impl Expr {
    /// Calls `visit` for each node directly below it, which it may change.
    pub fn visit_children(&mut self, visit: &mut dyn FnMut(&mut Expr)) {
        match &mut self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => visit(operand),
            ExprKind::Call { target, args, .. } => {
                target.iter_mut().for_each(|target| visit(target));
                args.iter_mut().for_each(visit);
            }
            ExprKind::List(items) => items.iter_mut().for_each(|(item, _)| visit(item)),
            ExprKind::Map(entries) => entries.iter_mut().for_each(|(key, value, _)| {
                visit(key);
                visit(value);
            }),
            ExprKind::Struct { fields, .. } => fields.iter_mut().for_each(|field| visit(&mut field.value)),
            ExprKind::Comprehension(fold) => {
                let fold = &mut **fold;
                for part in
                    [&mut fold.range, &mut fold.init, &mut fold.condition, &mut fold.step, &mut fold.result]
                {
                    visit(part);
                }
            }
        }
    }

    /// Calls `visit` for the node and all below it.
    pub fn visit<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        visit(self);
        self.visit_below(&mut |child| child.visit(visit));
    }

    /// Calls `visit` for each node directly below it.
    pub fn visit_below<'a>(&'a self, visit: &mut dyn FnMut(&'a Expr)) {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => visit(operand),
            ExprKind::Call { target, args, .. } => {
                target.iter().for_each(|target| visit(target));
                args.iter().for_each(visit);
            }
            ExprKind::List(items) => items.iter().for_each(|(item, _)| visit(item)),
            ExprKind::Map(entries) => entries.iter().for_each(|(key, value, _)| {
                visit(key);
                visit(value);
            }),
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            ExprKind::Comprehension(fold) => {
                for part in [&fold.range, &fold.init, &fold.condition, &fold.step, &fold.result] {
                    visit(part);
                }
            }
        }
    }
}
