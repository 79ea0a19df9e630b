//! The declared types of objects, from the schema table and from the schemas of custom resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_cel::{DeclField, DeclKind, DeclType, ListSemantics, escape};

use crate::schema::{StructId, Type, TypeRef, schema};

/// Returns the declared type of an object.
pub fn object_type(type_ref: &TypeRef) -> Option<DeclType> {
    match type_ref {
        TypeRef::Struct(id) => Some(of_struct(*id, &mut Vec::new())),
        TypeRef::Structural(schema) => DeclType::of_schema(&schema.document(), "object", true),
    }
}

/// Returns the declared type of a struct. `around` are the structs that contain it: a struct within
/// itself has the type "any" there.
fn of_struct(id: StructId, around: &mut Vec<StructId>) -> DeclType {
    let table = schema();
    let of = table.get(id);
    if around.contains(&id) {
        return decl(DeclKind::Dyn);
    }
    around.push(id);
    let fields = of.members().iter().filter_map(|field| {
        let name = escape(field.name)?;
        let ty = Arc::new(of_type(&field.ty, around));
        Some((Arc::from(name.as_str()), DeclField { json_name: field.name.into(), ty }))
    });
    let fields: BTreeMap<Arc<str>, DeclField> = fields.collect();
    around.pop();
    let name = format!("{}#{}", of.openapi_name(), around.len());
    decl(DeclKind::Object { name: name.into(), fields })
}

fn of_type(ty: &Type, around: &mut Vec<StructId>) -> DeclType {
    decl(match ty {
        Type::Struct(id) => return of_struct(*id, around),
        Type::List(item) | Type::ListMessage(item) => {
            DeclKind::List(Arc::new(of_type(item, around)), ListSemantics::Atomic)
        }
        Type::Map(value) => DeclKind::Map(Arc::new(of_type(value, around))),
        Type::String | Type::Quantity => DeclKind::String,
        Type::Bool => DeclKind::Bool,
        Type::Int32 | Type::Int64 => DeclKind::Int,
        Type::Double => DeclKind::Double,
        Type::Bytes => DeclKind::Bytes,
        Type::Time | Type::MicroTime => DeclKind::Timestamp,
        Type::Duration => DeclKind::Duration,
        _ => DeclKind::Dyn,
    })
}

fn decl(kind: DeclKind) -> DeclType {
    DeclType { kind, max_elements: u64::MAX, min_size: 1 }
}
