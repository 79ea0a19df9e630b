//! Looks up the fields of a type by which a strategic merge patch is merged.

use crate::schema::{FieldSchema, Type, schema};
use crate::{Error, Result};

/// A field that holds a list, and the type of its items.
pub struct ListField {
    /// The field.
    pub field: &'static FieldSchema,
    /// The type of the items.
    pub item: Type,
}

impl ListField {
    /// Finds the list with that name in a type.
    pub fn find(ty: &Type, name: &str) -> Result<ListField> {
        let field = find_field(ty, name)?;
        let item = match field.ty.item() {
            Some(item) if item.item().is_some() => {
                return Err(Error::Unclassified("unexpected slice of slice".into()));
            }
            Some(item) => item,
            None if field.pointer => &field.ty,
            None => return Err(Error::Unclassified("expected slice or array type, but got: struct".into())),
        };
        Ok(ListField { field, item: item.clone() })
    }

    /// Returns the member by which items are identified, if they are maps.
    pub fn merge_key(&self) -> Option<&'static str> {
        self.field.merge_key
    }
}

/// Finds the field with that name in a type.
pub fn find_field(ty: &Type, name: &str) -> Result<&'static FieldSchema> {
    let type_name = match ty {
        Type::Struct(id) => {
            let found = schema().get(*id);
            match found.field(name) {
                Some(field) => return Ok(field),
                None => found.name,
            }
        }
        Type::RawExtension => "RawExtension",
        Type::FieldsV1 => "FieldsV1",
        Type::Json => "JSON",
        Type::SchemaOrBool => "JSONSchemaPropsOrBool",
        Type::SchemaOrArray => "JSONSchemaPropsOrArray",
        Type::SchemaOrStrings => "JSONSchemaPropsOrStringArray",
        _ => {
            let message = "merging an object in json but data type is not struct, instead is: map";
            return Err(Error::Unclassified(message.into()));
        }
    };
    Err(Error::Unclassified(format!(
        "unable to find api field in struct {type_name} for the json field {}",
        crate::field::quote(name)
    )))
}
