//! Environments: which variables and object types there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::checker::Checker;
use crate::cost::{self, Sizes};
use crate::decl::DeclType;
use crate::literals;
use crate::parser;
use crate::program::Program;
use crate::source::Issues;
use crate::types::Type;

/// The fields of an object type.
#[derive(Clone, Debug)]
pub enum Fields {
    /// Only these.
    Known(BTreeMap<Arc<str>, Type>),
    /// Any, of any type.
    Any,
}

/// The declared variables and object types.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<Arc<str>, Type>,
    types: BTreeMap<Arc<str>, Fields>,
    /// Types whose names begin with these have any field.
    open_types: Vec<&'static str>,
    declared: BTreeMap<Arc<str>, Arc<DeclType>>,
    has_bindings: bool,
}

impl Env {
    /// An environment without variables.
    pub fn new() -> Env {
        Env::default()
    }

    /// With a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Env {
        self.variables.insert(name.into(), ty);
        self
    }

    /// With a variable of a declared type, whose sizes bound the costs. `optional` makes it one that may be absent.
    #[must_use]
    pub fn declared(mut self, name: &str, ty: &Arc<DeclType>, optional: bool) -> Env {
        ty.visit_objects(&mut |name, fields| {
            let fields = fields.iter().map(|(name, field)| (name.clone(), field.ty.cel_type())).collect();
            self.types.insert(name.clone(), Fields::Known(fields));
        });
        self.declared.insert(name.into(), ty.clone());
        let ty = ty.cel_type();
        self.variable(name, if optional { Type::optional(ty) } else { ty })
    }

    /// With an object type.
    #[must_use]
    pub fn object(mut self, name: &str, fields: &[(&str, Type)]) -> Env {
        let fields = fields.iter().map(|(name, ty)| (Arc::from(*name), ty.clone())).collect();
        self.types.insert(name.into(), Fields::Known(fields));
        self
    }

    /// With a further field of an object type.
    pub fn add_field(&mut self, object: &str, name: &str, ty: Type) {
        let fields = self.types.entry(object.into()).or_insert_with(|| Fields::Known(BTreeMap::new()));
        if let Fields::Known(fields) = fields {
            fields.insert(name.into(), ty);
        }
    }

    /// With the type `name` and all types `name.*`, which have any field.
    #[must_use]
    pub fn open_object(mut self, name: &'static str) -> Env {
        self.open_types.push(name);
        self
    }

    /// With the macro `cel.bind(name, value, expression)`, which few environments of Kubernetes have.
    #[must_use]
    pub fn with_bindings(mut self) -> Env {
        self.has_bindings = true;
        self
    }

    /// The type of a variable.
    pub(crate) fn variable_type(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// The fields of an object type.
    pub(crate) fn fields(&self, name: &str) -> Option<&Fields> {
        let open = |prefix: &&'static str| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if self.open_types.iter().any(open) { Some(&Fields::Any) } else { self.types.get(name) }
    }

    /// The declared type of a variable.
    pub(crate) fn decl(&self, name: &str) -> Option<&Arc<DeclType>> {
        self.declared.get(name)
    }

    /// Parses and checks an expression.
    ///
    /// # Errors
    /// What is wrong with it, in the words of cel-go.
    pub fn compile(&self, text: &str) -> Result<Program, Issues> {
        let (expr, nodes) = parser::parse(text, self.has_bindings)?;
        let mut checker = Checker::new(self, nodes);
        checker.check(&expr);
        let (output, types, calls, mut issues) = checker.finish(&expr);
        if issues.is_empty() {
            literals::check(&expr, &mut issues);
        }
        if !issues.is_empty() {
            return Err(Issues::new(text, issues));
        }
        let mut program = Program::new(expr, output, calls);
        program.max_cost = cost::estimate(&program.expr, &types, &program.calls, &Sizes { env: self }).max;
        Ok(program)
    }
}
