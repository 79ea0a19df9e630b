//! The declared type of a value, by which debug builds check the names that code asks for.
//!
//! A misspelled name would read an absent member, so that the rule that asked for it would never
//! apply. The type is found at the root, by the object's `apiVersion` and `kind`, and followed from
//! there; a name that a struct does not have panics. Values with another beginning, and objects of
//! custom kinds, are not checked. Release builds carry and check nothing.

use std::fmt::Display;

use serde_json::Value;

#[cfg(debug_assertions)]
use crate::schema::{StructId, Type, schema};

/// The declared type of a value, if it is known.
#[derive(Clone, Copy, Default)]
pub(super) struct Declared(#[cfg(debug_assertions)] Option<Known>);

#[cfg(debug_assertions)]
#[derive(Clone, Copy)]
enum Known {
    Struct(StructId),
    Other(&'static Type),
}

#[cfg(not(debug_assertions))]
impl Declared {
    pub(super) fn of_object(_: &Value) -> Declared {
        Declared()
    }

    pub(super) fn member(self, _: &str, _: impl Display) -> Declared {
        self
    }

    pub(super) fn has_member(self, _: &str) -> bool {
        true
    }

    pub(super) fn item(self) -> Declared {
        self
    }

    pub(super) fn entry(self) -> Declared {
        self
    }
}

#[cfg(debug_assertions)]
impl Declared {
    /// Returns the type of an object, as named by its `apiVersion` and `kind`.
    pub(super) fn of_object(object: &Value) -> Declared {
        let name = |member| object.get(member).and_then(Value::as_str);
        let (Some(version), Some(kind)) = (name("apiVersion"), name("kind")) else { return Declared(None) };
        Declared(schema().kind_of(version, kind).map(Known::Struct))
    }

    /// Returns the type of a member.
    ///
    /// # Panics
    /// If values of this type have no member of that name. `path` is that of the value.
    pub(super) fn member(self, name: &str, path: impl Display) -> Declared {
        let id = match self.0 {
            None => return self,
            Some(Known::Struct(id)) => id,
            Some(Known::Other(ty)) => match ty {
                Type::Map(value) => return Declared::of(value),
                // These have no declared members, or hold one of several types.
                Type::RawExtension | Type::FieldsV1 | Type::Json | Type::Any => return Declared(None),
                Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings => return Declared(None),
                other => panic!("no field {name:?} in {other:?} at {path}"),
            },
        };
        let declared = schema().get(id);
        let Some(field) = declared.field(name) else {
            panic!("no field {name:?} in {} at {path}", declared.openapi_name());
        };
        Declared::of(&field.ty)
    }

    /// Returns `true` if values of this type may have a member of that name.
    pub(super) fn has_member(self, name: &str) -> bool {
        !matches!(self.0, Some(Known::Struct(id)) if schema().get(id).field(name).is_none())
    }

    /// Returns the type of an item of a list.
    pub(super) fn item(self) -> Declared {
        match self.0 {
            Some(Known::Other(ty)) => ty.item().map_or(Declared(None), Declared::of),
            _ => Declared(None),
        }
    }

    /// Returns the type of a value of a map.
    pub(super) fn entry(self) -> Declared {
        match self.0 {
            Some(Known::Other(ty)) => ty.value().map_or(Declared(None), Declared::of),
            _ => Declared(None),
        }
    }

    fn of(ty: &'static Type) -> Declared {
        Declared(Some(match ty {
            Type::Struct(id) => Known::Struct(*id),
            other => Known::Other(other),
        }))
    }
}
