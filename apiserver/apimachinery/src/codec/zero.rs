//! Zero values: those that a Go struct prints although they were not set, and those that it omits.

use std::sync::OnceLock;

use serde_json::{Map, Value};

use crate::schema::{FieldSchema, Struct, StructId, Type, schema};

/// Returns the zero value of a type as Go prints it; null for nil.
pub fn of(ty: &Type) -> Value {
    match ty {
        Type::Struct(id) => of_struct(*id),
        Type::String => Value::String(String::new()),
        Type::Bool => Value::Bool(false),
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString => 0.into(),
        Type::Quantity => Value::String("0".to_owned()),
        Type::Duration => Value::String("0s".to_owned()),
        Type::List(_)
        | Type::ListMessage(_)
        | Type::Map(_)
        | Type::Bytes
        | Type::Time
        | Type::MicroTime
        | Type::RawExtension
        | Type::FieldsV1
        | Type::Json
        | Type::SchemaOrBool
        | Type::SchemaOrArray
        | Type::SchemaOrStrings
        | Type::Any => Value::Null,
    }
}

/// Returns the value of a null item of a list or a null value of a map.
pub fn of_entry(ty: &Type) -> Value {
    // Bytes are empty, not nil, after a round trip through the store.
    if *ty == Type::Bytes { Value::String(String::new()) } else { of(ty) }
}

/// Returns the zero value of a struct as Go prints it.
pub fn of_struct(id: StructId) -> Value {
    let mut members = Map::new();
    complete(schema().get(id), &mut members);
    Value::Object(members)
}

/// Adds the zero values that Go prints, except those it prints as null.
pub fn complete(known: &Struct, members: &mut Map<String, Value>) {
    for field in known.members().iter().filter(|field| field.keep && !field.pointer) {
        if !members.contains_key(field.name) {
            let zero = of(&field.ty);
            if !zero.is_null() {
                members.insert(field.name.to_owned(), zero);
            }
        }
    }
}

/// Removes what was printed as null, as a decoder omits it.
pub fn drop_nulls(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(members)) => {
            let known = schema().get(*id);
            members.retain(|name, member| match known.field(name) {
                Some(_) if member.is_null() => false,
                Some(field) => {
                    drop_nulls(member, &field.ty);
                    true
                }
                None => true,
            });
        }
        (Type::List(item) | Type::ListMessage(item), Value::Array(items)) => {
            items.iter_mut().for_each(|value| drop_nulls(value, item));
        }
        (Type::Map(item), Value::Object(entries)) => {
            entries.values_mut().for_each(|value| drop_nulls(value, item));
        }
        _ => {}
    }
}

/// Removes the lists that are empty: after a round trip through the store they are none.
pub fn drop_empty_lists(object: &mut Value, id: StructId) {
    if has_empty_list(object) {
        drop_empty_lists_of(object, &Type::Struct(id));
    }
}

fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(members) => members.values().any(has_empty_list),
        _ => false,
    }
}

fn drop_empty_lists_of(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(members)) => {
            let known = schema().get(*id);
            members.retain(|name, member| match known.field(name).map(|field| &field.ty) {
                Some(Type::List(_) | Type::ListMessage(_))
                    if member.as_array().is_some_and(Vec::is_empty) =>
                {
                    false
                }
                Some(ty) => {
                    drop_empty_lists_of(member, ty);
                    true
                }
                None => true,
            });
        }
        (Type::List(item) | Type::ListMessage(item), Value::Array(items)) => {
            items.iter_mut().for_each(|value| drop_empty_lists_of(value, item));
        }
        (Type::Map(item), Value::Object(entries)) => {
            entries.values_mut().for_each(|value| drop_empty_lists_of(value, item));
        }
        _ => {}
    }
}

/// Adds what is printed as null: members without a value that Go does not omit.
pub fn add_nulls(value: &mut Value, ty: &Type) {
    match (ty, value) {
        (Type::Struct(id), Value::Object(members)) => {
            for field in schema().get(*id).members() {
                match members.get_mut(field.name) {
                    Some(member) => add_nulls(member, &field.ty),
                    None if field.keep => _ = members.insert(field.name.to_owned(), Value::Null),
                    None => {}
                }
            }
        }
        (Type::List(item) | Type::ListMessage(item), Value::Array(items)) => {
            items.iter_mut().for_each(|value| add_nulls(value, item));
        }
        (Type::Map(item), Value::Object(entries)) => {
            entries.values_mut().for_each(|value| add_nulls(value, item));
        }
        _ => {}
    }
}

/// Returns `true` if a member with this value is omitted.
pub fn is_omitted(field: &FieldSchema, value: &Value) -> bool {
    match (&field.ty, value) {
        (_, Value::Null) => true,
        _ if field.pointer => false,
        // Where Go prints both, a manager may own an empty list, but not a null.
        (Type::List(_) | Type::ListMessage(_), Value::Array(items)) => items.is_empty() && !field.keep,
        (Type::Map(_), Value::Object(entries)) => entries.is_empty(),
        _ if field.keep => false,
        (Type::String | Type::Bytes, Value::String(text)) => text.is_empty(),
        (Type::Bool, Value::Bool(set)) => !set,
        (Type::Int32 | Type::Int64 | Type::Double, Value::Number(number)) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

/// Returns `true` if null leaves a member unchanged, rather than clearing it.
pub fn ignores_null(field: &FieldSchema) -> bool {
    let scalar = matches!(field.ty, Type::String | Type::Bool | Type::Int32 | Type::Int64 | Type::Double);
    !field.pointer && (scalar || matches!(field.ty, Type::Struct(_) | Type::RawExtension | Type::FieldsV1))
}

/// Returns the struct of the (recursive) schema of a CustomResourceDefinition.
pub fn json_schema() -> StructId {
    static ID: OnceLock<StructId> = OnceLock::new();
    *ID.get_or_init(|| {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        schema().named(name).expect("the table has it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_lists_are_none_once_they_are_stored() {
        let role = schema().kind("rbac.authorization.k8s.io", "v1", "ClusterRole").expect("a kind");
        for (object, want) in [
            (json!({"metadata": {}, "rules": []}), json!({"metadata": {}})),
            (
                json!({"rules": [{"verbs": []}, {"verbs": ["get"]}]}),
                json!({"rules": [{}, {"verbs": ["get"]}]}),
            ),
        ] {
            let mut got = object.clone();
            drop_empty_lists(&mut got, role);
            assert_eq!(got, want, "{object}");
        }
    }

    #[test]
    fn members_that_are_printed_as_null_are_added() {
        let role = schema().kind("rbac.authorization.k8s.io", "v1", "ClusterRole").expect("a kind");
        let mut object = json!({"metadata": {"name": "r"}});
        add_nulls(&mut object, &Type::Struct(role));
        assert_eq!(object, json!({"metadata": {"name": "r"}, "rules": null}));
    }

    #[test]
    fn printed_nulls_are_dropped_except_in_free_form_content() {
        let role = schema().kind("rbac.authorization.k8s.io", "v1", "ClusterRole").expect("a kind");
        let revision = schema().kind("apps", "v1", "ControllerRevision").expect("a kind");
        for (id, object, want) in [
            (role, json!({"metadata": {"name": "r"}, "rules": null}), json!({"metadata": {"name": "r"}})),
            (role, json!({"rules": [{"verbs": null}]}), json!({"rules": [{}]})),
            (
                revision,
                json!({"data": {"a": null}, "revision": 1}),
                json!({"data": {"a": null}, "revision": 1}),
            ),
        ] {
            let mut got = object.clone();
            drop_nulls(&mut got, &Type::Struct(id));
            assert_eq!(got, want, "{object}");
        }
    }
}
