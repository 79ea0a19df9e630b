//! Removing fields from an object.

use serde_json::{Map, Value};

use super::FieldPathSet;
use super::set;
use super::shape::{FieldType, Position, Shape};
use crate::schema::TypeRef;

/// Returns the object without the fields of a set and everything inside of them. A value from which
/// something inside is removed stays, even if it is then empty.
pub fn remove(object: &Value, kind: &TypeRef, fields: &FieldPathSet) -> Value {
    remove_values(Position::whole(kind), object, fields)
}

fn remove_values(place: Position<'_>, value: &Value, fields: &FieldPathSet) -> Value {
    let shape = place.shape(None, Some(value));
    match (&shape, value) {
        (Shape::Struct(_) | Shape::Map(_) | Shape::Object(_), Value::Object(members)) => {
            let mut kept = Map::new();
            for (name, value) in members {
                let part = fields.child(&set::field(name));
                match part {
                    Some(part) if part.is_member() => {}
                    Some(part) => {
                        let place = member_of(place, &shape, name);
                        kept.insert(
                            name.clone(),
                            place.map_or_else(|| value.clone(), |place| remove_values(place, value, part)),
                        );
                    }
                    None => _ = kept.insert(name.clone(), value.clone()),
                }
            }
            kept.into()
        }
        (Shape::Items { keys, item }, Value::Array(items)) => {
            let item = place.inner(*item);
            let kept = items.iter().filter_map(|value| match fields.child(&item.element(keys, value)) {
                Some(part) if part.is_member() => None,
                Some(part) => Some(remove_values(item, value, part)),
                None => Some(value.clone()),
            });
            kept.collect()
        }
        // Atomic values: something inside of them is all of them.
        (Shape::Leaf, Value::Object(_)) => Map::new().into(),
        (Shape::Leaf, Value::Array(_)) => Vec::<Value>::new().into(),
        _ => value.clone(),
    }
}

/// Returns the position of a member inside of a position of this shape; None if it has no such
/// member.
fn member_of<'s>(place: Position<'s>, shape: &Shape<'s>, name: &str) -> Option<Position<'s>> {
    let field_type = match shape {
        Shape::Struct(known) => FieldType::Member(known.field(name)?),
        Shape::Map(entry) => *entry,
        Shape::Object(object) => object.member(name),
        Shape::Leaf | Shape::Items { .. } => return None,
    };
    Some(place.inner(field_type))
}

/// Adds the structs that contain named fields: an owner of something in a struct owns the struct,
/// for the purpose of removal.
pub fn with_named_fields(fields: &FieldPathSet, kind: &TypeRef) -> FieldPathSet {
    name_fields(Position::whole(kind), fields)
}

fn name_fields(place: Position<'_>, fields: &FieldPathSet) -> FieldPathSet {
    let shape = place.shape(None, None);
    let mut named = FieldPathSet::default();
    if fields.is_member() {
        named.insert_self();
    }
    for (element, part) in fields.children() {
        let name = element.strip_prefix("f:");
        let inner = match (&shape, name) {
            (Shape::Items { item, .. }, None) => Some(place.inner(*item)),
            (shape, Some(name)) => member_of(place, shape, name),
            _ => None,
        };
        let mut part = inner.map_or_else(|| part.clone(), |inner| name_fields(inner, part));
        let is_named = match (&shape, name) {
            (Shape::Struct(known), Some(name)) => known.field(name).is_some(),
            (Shape::Object(object), Some(name)) => object.declares(name),
            _ => false,
        };
        if is_named {
            part.insert_self();
        }
        named.insert(|| element.to_owned(), part);
    }
    named
}
