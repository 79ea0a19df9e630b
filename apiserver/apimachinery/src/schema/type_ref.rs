//! The type of an object: built in, or of a custom resource.

use std::sync::Arc;

use super::structural::StructuralSchema;
use super::types::StructId;

/// The type of an object: a struct of the table, or the structural schema of a custom resource.
/// Whatever walks objects by their types begins here.
#[derive(Clone, Debug, PartialEq)]
pub enum TypeRef {
    /// A built-in type.
    Struct(StructId),
    /// The type of a custom resource.
    Structural(Arc<StructuralSchema>),
}

impl TypeRef {
    /// Returns the built-in type; None for other types.
    pub fn built_in(&self) -> Option<StructId> {
        match self {
            TypeRef::Struct(id) => Some(*id),
            TypeRef::Structural(_) => None,
        }
    }
}

impl From<StructId> for TypeRef {
    fn from(id: StructId) -> TypeRef {
        TypeRef::Struct(id)
    }
}
