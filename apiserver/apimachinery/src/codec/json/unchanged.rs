//! The members of an object that a change leaves as they are. They are decoded already, and need not
//! be again.

use serde_json::{Map, Value};

/// Members of an object, and of its metadata, that are set aside while the others are changed and
/// decoded.
#[derive(Debug, Default)]
pub struct Unchanged {
    members: Map<String, Value>,
    metadata: Map<String, Value>,
}

impl Unchanged {
    /// Takes members out of a decoded object. Kind and apiVersion stay: they name its type.
    ///
    /// - `is_unchanged`: whether a member stays as it is, by its path: `["spec"]`, or
    ///   `["metadata", "labels"]`
    pub fn take(object: &mut Value, is_unchanged: impl Fn(&[&str], &Value) -> bool) -> Unchanged {
        let Value::Object(all) = object else { return Unchanged::default() };
        let metadata = match all.get_mut("metadata") {
            Some(Value::Object(metadata)) => {
                take(metadata, |name, value| is_unchanged(&["metadata", name], value))
            }
            _ => Map::new(),
        };
        let members = take(all, |name, value| {
            !matches!(name, "kind" | "apiVersion" | "metadata") && is_unchanged(&[name], value)
        });
        Unchanged { members, metadata }
    }

    /// Puts the members back.
    pub fn restore(self, object: &mut Value) {
        let Unchanged { members, metadata } = self;
        let Value::Object(all) = object else { return };
        if !metadata.is_empty() {
            match all.get_mut("metadata") {
                Some(Value::Object(rest)) => rest.extend(metadata),
                _ => drop(all.insert("metadata".to_owned(), Value::Object(metadata))),
            }
        }
        all.extend(members);
    }
}

fn take(members: &mut Map<String, Value>, is_taken: impl Fn(&str, &Value) -> bool) -> Map<String, Value> {
    let (taken, kept) = std::mem::take(members).into_iter().partition(|(name, value)| is_taken(name, value));
    *members = kept;
    taken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_set_aside_and_put_back() {
        let whole = json!({
            "kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "labels": {"b": "c"}}, "data": {"d": "e"}, "immutable": true,
        });
        for (kept, want) in [
            (vec![], json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}})),
            (
                vec!["metadata.labels", "data"],
                json!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"labels": {"b": "c"}}, "data": {"d": "e"}}),
            ),
            (vec!["metadata.name", "metadata.labels", "data", "immutable"], whole.clone()),
        ] {
            let mut object = whole.clone();
            let unchanged = Unchanged::take(&mut object, |path, _| !kept.contains(&&*path.join(".")));
            assert_eq!(object, want, "{kept:?}");
            unchanged.restore(&mut object);
            assert_eq!(object, whole, "{kept:?}");
        }
        // A change may leave no metadata, which decoding then adds or does not.
        let mut object = whole.clone();
        let unchanged = Unchanged::take(&mut object, |path, _| path.len() == 2);
        object["metadata"] = Value::Null;
        unchanged.restore(&mut object);
        assert_eq!(object, whole);
    }

    #[test]
    fn what_is_no_object_has_no_members() {
        for value in [json!(null), json!([]), json!("metadata"), json!({"metadata": []})] {
            let mut object = value.clone();
            Unchanged::take(&mut object, |_, _| true).restore(&mut object);
            assert_eq!(object, value);
        }
    }
}
