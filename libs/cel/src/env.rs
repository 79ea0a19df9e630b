//! Environments: which variables and object types there are.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cost::Root;
use crate::decl::{DeclType, escape, is_keyword};
use crate::functions::{self, Function};
use crate::types::Type;

/// The fields of an object type.
#[derive(Clone, Debug)]
pub enum Fields {
    /// Only these.
    Known(BTreeMap<Arc<str>, Type>),
    /// Any, of any type.
    Any,
}

/// Returns the type of a field. A field with a keyword as its name is found by its escaped name.
pub(crate) fn field<'t>(fields: &'t BTreeMap<Arc<str>, Type>, name: &str) -> Option<&'t Type> {
    fields.get(name).or_else(|| fields.get(&*escape(name).filter(|_| is_keyword(name))?))
}

/// The declared variables and object types.
#[derive(Clone, Debug, Default)]
pub struct Env {
    variables: BTreeMap<Arc<str>, Type>,
    types: BTreeMap<Arc<str>, Fields>,
    /// Types whose names begin with these have any field.
    open_types: Vec<&'static str>,
    root: Option<Root>,
    /// Whether there is the macro `cel.bind`.
    binds: bool,
}

impl Env {
    /// Creates an environment without variables.
    pub fn new() -> Env {
        Env::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn variable(mut self, name: &str, ty: Type) -> Env {
        self.variables.insert(name.into(), ty);
        self
    }

    /// Removes a variable.
    #[must_use]
    pub fn without_variable(mut self, name: &str) -> Env {
        self.variables.remove(name);
        self
    }

    /// Adds a variable of a declared type, whose sizes bound the costs. `optional`: the variable
    /// may be absent.
    #[must_use]
    pub fn declared(mut self, name: &str, ty: &Arc<DeclType>, optional: bool) -> Env {
        ty.visit_objects(&mut |name, fields| {
            let fields = fields.iter().map(|(name, field)| (name.clone(), field.ty.cel_type())).collect();
            self.types.insert(name.clone(), Fields::Known(fields));
        });
        self.root = Some(Root { decl: ty.clone(), name: None });
        let ty = ty.cel_type();
        self.variable(name, if optional { Type::optional(ty) } else { ty })
    }

    /// Adds the sizes of the parts of a variable, which bound the costs.
    #[must_use]
    pub fn sized(mut self, name: &str, decl: &Arc<DeclType>) -> Env {
        self.root = Some(Root { decl: decl.clone(), name: Some(name.into()) });
        self
    }

    /// Adds the macro `cel.bind`.
    #[must_use]
    pub fn with_binds(mut self) -> Env {
        self.binds = true;
        self
    }

    /// Adds an object type.
    #[must_use]
    pub fn object(mut self, name: &str, fields: &[(&str, Type)]) -> Env {
        let fields = fields.iter().map(|(name, ty)| (Arc::from(*name), ty.clone())).collect();
        self.types.insert(name.into(), Fields::Known(fields));
        self
    }

    /// Adds a field to an object type.
    pub fn add_field(&mut self, object: &str, name: &str, ty: Type) {
        let fields = self.types.entry(object.into()).or_insert_with(|| Fields::Known(BTreeMap::new()));
        if let Fields::Known(fields) = fields {
            fields.insert(name.into(), ty);
        }
    }

    /// Adds the type `name` and all types `name.*`, which have any field.
    #[must_use]
    pub fn open_object(mut self, name: &'static str) -> Env {
        self.open_types.push(name);
        self
    }

    /// Returns the type of a variable.
    pub(crate) fn variable_type(&self, name: &str) -> Option<&Type> {
        self.variables.get(name)
    }

    /// Returns the function of a name. Functions of patches exist only together with their types.
    pub(crate) fn function(&self, name: &str) -> Option<&'static Function> {
        let is_there = !name.starts_with("jsonpatch.") || !self.open_types.is_empty();
        functions::function(name).filter(|_| is_there)
    }

    /// Returns the fields of an object type.
    pub(crate) fn fields(&self, name: &str) -> Option<&Fields> {
        let open = |prefix: &&'static str| {
            name.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if self.open_types.iter().any(open) { Some(&Fields::Any) } else { self.types.get(name) }
    }

    /// Returns the variable with the sizes that bound the costs.
    pub(crate) fn root(&self) -> Option<&Root> {
        self.root.as_ref()
    }

    /// Returns `true` if the macro `cel.bind` is available.
    pub(crate) fn binds(&self) -> bool {
        self.binds
    }
}
