//! The declared types of objects, from the schema table and from the schemas of custom resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_cel::{DeclField, DeclKind, DeclType, ListSemantics, escape};

use crate::schema::{StructId, Type, TypeRef, schema};

/// Types are nested so deep; what is deeper has any type.
const MAX_DEPTH: usize = 16;

/// The declared type of an object.
pub fn object_type(type_ref: &TypeRef) -> Option<DeclType> {
    match type_ref {
        TypeRef::Struct(id) => Some(of_struct(*id, 0)),
        TypeRef::Structural(schema) => DeclType::of_schema(schema.document(), "object", true),
    }
}

fn of_struct(id: StructId, depth: usize) -> DeclType {
    let table = schema();
    let of = table.get(id);
    if depth > MAX_DEPTH {
        return decl(DeclKind::Dyn);
    }
    let fields = of.members().iter().filter_map(|field| {
        let name = escape(field.name)?;
        let ty = Arc::new(of_type(&field.ty, depth + 1));
        Some((Arc::from(name.as_str()), DeclField { json_name: field.name.into(), ty }))
    });
    let fields: BTreeMap<Arc<str>, DeclField> = fields.collect();
    // Structs of one name have one type, however deep they are.
    decl(DeclKind::Object { name: format!("{}#{depth}", of.openapi_name()).into(), fields })
}

fn of_type(ty: &Type, depth: usize) -> DeclType {
    decl(match ty {
        Type::Struct(id) => return of_struct(*id, depth),
        Type::List(item) | Type::ListMessage(item) => {
            DeclKind::List(Arc::new(of_type(item, depth + 1)), ListSemantics::Atomic)
        }
        Type::Map(value) => DeclKind::Map(Arc::new(of_type(value, depth + 1))),
        Type::String | Type::Quantity => DeclKind::String,
        Type::Bool => DeclKind::Bool,
        Type::Int32 | Type::Int64 => DeclKind::Int,
        Type::Double => DeclKind::Double,
        Type::Bytes => DeclKind::Bytes,
        Type::Time | Type::MicroTime => DeclKind::Timestamp,
        _ => DeclKind::Dyn,
    })
}

fn decl(kind: DeclKind) -> DeclType {
    DeclType { kind, max_elements: u64::MAX, min_size: 1 }
}
