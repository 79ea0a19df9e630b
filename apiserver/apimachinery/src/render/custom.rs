//! The columns of a custom resource: its name, and its `additionalPrinterColumns`.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::columns::{CREATED_TEXT, NAME_TEXT};
use super::json_path::{JsonPath, Visits};
use crate::field::Field;
use crate::go_value::GoValue;

/// The bytes of text in the cells of a row: each may be the whole object.
const MAX_ROW: usize = 4 << 20;

/// A column of a custom resource.
pub struct CustomColumn {
    definition: Value,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    kind: String,
    path: JsonPath,
}

impl CustomColumn {
    /// Reads the columns: the name, then the declared columns, or the age if none are declared. An
    /// invalid path ends the list.
    pub fn read(declared: Option<&Value>) -> Vec<CustomColumn> {
        let name =
            json!({"name": "Name", "type": "string", "format": "name", "description": NAME_TEXT.resolve()});
        let age = json!({
            "name": "Age", "type": "date", "description": CREATED_TEXT.resolve(),
            "jsonPath": ".metadata.creationTimestamp",
        });
        let declared = declared.and_then(Value::as_array).filter(|columns| !columns.is_empty());
        let declared = declared.map_or_else(|| std::slice::from_ref(&age), Vec::as_slice);
        let columns = declared.iter().map(|column| {
            let column = Field::root(column);
            CustomColumn::new(&column, column.get("jsonPath").str())
        });
        std::iter::once(CustomColumn::new(&Field::root(&name), ".metadata.name"))
            .chain(columns)
            .map_while(|column| column)
            .collect()
    }

    fn new(column: &Field<'_>, path: &str) -> Option<CustomColumn> {
        let kind = column.get("type").str();
        let description = match column.get("description").str() {
            "" => format!("Custom resource definition column (in JSONPath format): {path}"),
            description => description.to_owned(),
        };
        let definition = json!({
            "name": column.get("name").str(), "type": kind, "format": column.get("format").str(),
            "description": description, "priority": column.get("priority").int().unwrap_or(0),
        });
        Some(CustomColumn { definition, kind: kind.to_owned(), path: JsonPath::parse(path)? })
    }

    /// Returns the `TableColumnDefinition`.
    pub fn definition(&self) -> Value {
        self.definition.clone()
    }

    /// Returns the cells of an object's row. Cells beyond the limits of a row are null.
    pub fn cells(columns: &[CustomColumn], object: &Value, now: Timestamp) -> Vec<Value> {
        let visits = Visits::of_row();
        let mut bytes = MAX_ROW;
        let cell = |column: &CustomColumn| {
            let cell = if bytes == 0 { Value::Null } else { column.cell(object, now, &visits) };
            bytes = bytes.saturating_sub(cell.as_str().map_or(0, str::len));
            cell
        };
        columns.iter().map(cell).collect()
    }

    /// Returns the first value of the path, in the format of the column's type; null if there is
    /// none, or if it does not have that type.
    fn cell(&self, object: &Value, now: Timestamp, visits: &Visits) -> Value {
        let Some(found) = self.path.first(object, visits) else { return Value::Null };
        match (self.kind.as_str(), &*found) {
            ("string", Value::Null) => "<no value>".into(),
            ("string", Value::String(text)) => text.as_str().into(),
            ("string", list_or_map @ (Value::Array(_) | Value::Object(_))) => list_or_map.to_string().into(),
            ("string", scalar) => GoValue(scalar).to_string().into(),
            ("integer", Value::Number(n)) => n.as_i64().or(n.as_f64().map(|f| f as i64)).into(),
            ("number", Value::Number(n)) => n.clone().into(),
            ("boolean", Value::Bool(b)) => (*b).into(),
            ("date", Value::String(text)) if text.is_empty() || text == "null" => "<unknown>".into(),
            ("date", Value::String(text)) => match text.parse() {
                Ok(then) => age::since(then, now).into(),
                Err(_) => "<invalid>".into(),
            },
            _ => Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T01:00:00Z".parse().expect("a time")
    }

    #[test]
    fn cells_are_formatted_by_type() {
        let object = json!({
            "metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"n": 3, "f": 1.5, "s": "text", "b": true, "l": ["x", "y"], "m": {"k": 1}, "bad": "x", "z": null, "empty": ""},
        });
        for (kind, path, want) in [
            ("integer", ".spec.n", json!(3)),
            ("integer", ".spec.f", json!(1)),
            ("integer", ".spec.s", json!(null)),
            ("number", ".spec.f", json!(1.5)),
            ("boolean", ".spec.b", json!(true)),
            ("boolean", ".spec.n", json!(null)),
            ("string", ".spec.s", json!("text")),
            ("string", ".spec.n", json!("3")),
            ("string", ".spec.b", json!("true")),
            ("string", ".spec.f", json!("1.5")),
            ("string", ".spec.l", json!("[\"x\",\"y\"]")),
            ("string", ".spec.m", json!("{\"k\":1}")),
            ("string", ".spec.l[0]", json!("x")),
            ("string", ".spec.l[7]", json!(null)),
            ("string", ".spec.none", json!(null)),
            ("string", ".spec.z", json!("<no value>")),
            ("integer", ".spec.z", json!(null)),
            ("date", ".spec.z", json!(null)),
            ("date", ".spec.empty", json!("<unknown>")),
            ("date", ".metadata.creationTimestamp", json!("60m")),
            ("date", ".spec.bad", json!("<invalid>")),
            ("date", ".spec.none", json!(null)),
        ] {
            let columns = json!([{"name": "C", "type": kind, "jsonPath": path}]);
            let columns = CustomColumn::read(Some(&columns));
            assert_eq!(CustomColumn::cells(&columns, &object, now())[1], want, "{kind} {path}");
        }
    }

    #[test]
    fn all_columns_of_a_row_share_what_it_may_take() {
        let many = |path: &str| {
            let column = json!({"name": "C", "type": "string", "jsonPath": path});
            CustomColumn::read(Some(&vec![column; 2000].into()))
        };
        let large = json!({"spec": {"s": "x".repeat(100_000)}});
        let cells = CustomColumn::cells(&many(".spec"), &large, now());
        let bytes: usize = cells.iter().filter_map(Value::as_str).map(str::len).sum();
        assert_eq!(cells.len(), 2001);
        assert!((MAX_ROW..MAX_ROW + 200_000).contains(&bytes), "{bytes}");
        // Each column visits all of it.
        let wide = json!({"spec": {"l": vec![json!({"a": 1}); 2_000]}});
        let cells = CustomColumn::cells(&many("..a"), &wide, now());
        assert_eq!((&cells[1], cells.last()), (&json!("1"), Some(&Value::Null)));
        assert_eq!(CustomColumn::cells(&many(".spec.l[0].a"), &wide, now()).last(), Some(&json!("1")));
    }

    #[test]
    fn declared_columns_follow_the_name() {
        let names = |declared: Value| -> Vec<String> {
            let columns = CustomColumn::read(Some(&declared));
            columns.iter().map(|c| c.definition()["name"].as_str().expect("a name").to_owned()).collect()
        };
        assert_eq!(names(json!([])), ["Name", "Age"]);
        let bad_in_between = json!([
            {"name": "A", "type": "string", "jsonPath": ".a"},
            {"name": "B", "type": "string", "jsonPath": ".b["},
            {"name": "C", "type": "string", "jsonPath": ".c"},
        ]);
        assert_eq!(names(bad_in_between), ["Name", "A"]);
        let described = json!([{"name": "A", "type": "string", "jsonPath": ".a", "priority": 1}]);
        let definition = CustomColumn::read(Some(&described))[1].definition();
        assert_eq!(definition["description"], "Custom resource definition column (in JSONPath format): .a");
        assert_eq!(definition["priority"], 1);
    }
}
