//! The paths in the `selectableFields` of a CustomResourceDefinition.

/// Parses a path such as `.spec.color` or `.spec['color']` into its names; None if it is malformed.
pub fn parse(path: &str) -> Option<Vec<&str>> {
    let mut names = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        let name;
        if let Some(quoted) = rest.strip_prefix("['") {
            (name, rest) = quoted.split_once("']")?;
        } else {
            let after = rest.strip_prefix('.')?;
            (name, rest) = after.split_at(after.find(['.', '[']).unwrap_or(after.len()));
        }
        names.push(name);
    }
    Some(names)
}

/// Returns the JSON pointer to a path of names.
pub fn pointer(names: &[&str]) -> String {
    names.iter().map(|name| format!("/{}", name.replace('~', "~0").replace('/', "~1"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_where_their_names_do() {
        let object = serde_json::json!({"spec": {
            "color": 1, "a.b": {"c": 2}, "x/y": 3, "~1": 4, "deep": {"er": 5},
        }});
        for (path, want) in [
            (".spec.color", Some(1)),
            (".spec['color']", Some(1)),
            (".spec['a.b'].c", Some(2)),
            (".spec['x/y']", Some(3)),
            (".spec.x/y", Some(3)),
            (".spec['~1']", Some(4)),
            (".spec.deep.er", Some(5)),
            (".spec['deep']['er']", Some(5)),
            ("spec.color", None),
            (".spec['color", None),
        ] {
            let found = parse(path).and_then(|names| object.pointer(&pointer(&names))?.as_i64());
            assert_eq!(found, want, "{path}");
        }
    }
}
