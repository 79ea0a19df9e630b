//! Owned fields after a change of their schema: what became atomic is owned as a whole.
//!
//! Source: `reconcile_schema.go` of structured-merge-diff's `typed`.

use super::FieldPathSet;
use super::shape::{FieldType, Position, Shape};
use crate::schema::TypeRef;

/// Makes the owners of something inside of a value that is atomic today own the value. Returns
/// whether that changes the set.
pub fn reconcile(fields: &mut FieldPathSet, kind: &TypeRef) -> bool {
    reconcile_inside(Position::whole(kind), fields)
}

fn reconcile_inside(place: Position<'_>, fields: &mut FieldPathSet) -> bool {
    if !fields.has_children() {
        return false;
    }
    if place.field_type.is_atomic() {
        fields.collapse();
        return true;
    }
    let shape = place.shape(None, None);
    let mut changed = false;
    for (element, part) in fields.children_mut() {
        let inner = match (&shape, element.strip_prefix("f:")) {
            (Shape::Items { item, .. }, None) => Some(*item),
            (Shape::Struct(known), Some(name)) => known.field(name).map(FieldType::Member),
            (Shape::Map(entry), Some(_)) => Some(*entry),
            (Shape::Object(object), Some(name)) => Some(object.member(name)),
            _ => None,
        };
        changed |= inner.is_some_and(|inner| reconcile_inside(place.inner(inner), part));
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::schema::StructuralSchema;

    #[test]
    fn fields_inside_of_what_became_atomic_are_owned_as_a_whole() {
        let text = json!({"type": "string"});
        let object = |more: Value| {
            let mut object = json!({"type": "object", "properties": {"a": &text, "b": &text}});
            object.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            object
        };
        let list =
            |list_type: &str| json!({"type": "array", "x-kubernetes-list-type": list_type, "items": &text});
        let free = json!({"type": "object", "x-kubernetes-map-type": "atomic", "x-kubernetes-preserve-unknown-fields": true});
        for (case, schema, owned, want) in [
            ("granular stays", object(json!({})), json!({"f:a": {}}), json!({"f:a": {}})),
            ("an object", object(json!({"x-kubernetes-map-type": "atomic"})), json!({"f:a": {}}), json!({})),
            ("a list", list("atomic"), json!({"v:\"x\"": {}}), json!({})),
            ("a set stays", list("set"), json!({"v:\"x\"": {}}), json!({"v:\"x\"": {}})),
            ("nothing specified", free, json!({"f:a": {}}), json!({"f:a": {}})),
            ("what became a scalar", text.clone(), json!({"f:a": {}}), json!({"f:a": {}})),
        ] {
            let schema = json!({"type": "object", "properties": {"spec": schema}});
            let kind = TypeRef::Structural(StructuralSchema::read(schema).unwrap().into());
            let mut fields = FieldPathSet::parse(&json!({"f:spec": owned})).unwrap();
            let changed = reconcile(&mut fields, &kind);
            assert_eq!(changed, owned != want, "{case}");
            assert_eq!(fields.into_value(), json!({"f:spec": want}), "{case}");
        }
    }
}
