//! A column of a table: its header and how to compute its cell from an object.

use std::collections::HashMap;
use std::sync::LazyLock;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::age;
use crate::field::Field;
use crate::schema::Descriptions;

/// An object whose cells are computed, and the current time.
pub struct Row<'a> {
    /// The object.
    pub object: Field<'a>,
    /// The time that ages are relative to.
    pub now: Timestamp,
}

impl<'a> Row<'a> {
    /// Returns the value at a dotted path.
    pub fn get(&self, path: &'a str) -> Field<'a> {
        self.object.walk(path)
    }

    /// Returns the string at a path; `""` if it is absent.
    pub fn text(&self, path: &str) -> Value {
        self.get(path).str().into()
    }

    /// Returns the string at a path, or `otherwise` if it is absent or empty.
    pub fn text_or(&self, path: &str, otherwise: &str) -> Value {
        let text = self.get(path).str();
        if text.is_empty() { otherwise.into() } else { text.into() }
    }

    /// Returns the string at a path, or `otherwise` if it is absent; an empty one is shown.
    pub fn set_or(&self, path: &str, otherwise: &str) -> Value {
        let field = self.get(path);
        if field.exists() { field.str().into() } else { otherwise.into() }
    }

    /// Returns the integer at a path; 0 if it is absent.
    pub fn integer(&self, path: &str) -> Value {
        self.get(path).int().unwrap_or(0).into()
    }

    /// Returns the boolean at a path, or `otherwise` if it is absent.
    pub fn flag_or(&self, path: &str, otherwise: bool) -> Value {
        let field = self.get(path);
        if field.exists() { field.bool().into() } else { otherwise.into() }
    }

    /// Returns the number of elements or members at a path.
    pub fn count(&self, path: &str) -> Value {
        self.get(path).len().into()
    }

    /// Formats the age of the time at a path, or `otherwise` if it is absent.
    pub fn since_or(&self, path: &str, otherwise: &str) -> String {
        match age::moment(&self.get(path)) {
            Some(then) => age::since(then, self.now),
            None => otherwise.to_owned(),
        }
    }

    /// Formats the age of the time at a path; `<unknown>` if it is absent.
    pub fn since(&self, path: &str) -> String {
        self.since_or(path, "<unknown>")
    }
}

/// The description of a column.
#[derive(Clone, Copy)]
pub enum Text {
    /// The description itself.
    Literal(&'static str),
    /// The description of a field: `core.v1.PodStatus.podIP`.
    Field(&'static str),
}

/// A column: its definition, and the function that computes its cells.
#[derive(Clone, Copy)]
pub struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    /// 0: always shown; 1: with `-o wide`.
    priority: u8,
    text: Text,
    cell: fn(&Row<'_>) -> Value,
    /// False for a cell without a header.
    has_header: bool,
}

/// Creates a column of strings.
pub const fn string(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { name, kind: "string", format: "", priority: 0, text, cell, has_header: true }
}

/// Creates a column of integers.
pub const fn integer(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { kind: "integer", ..string(name, text, cell) }
}

/// Creates a column of booleans.
pub const fn boolean(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { kind: "boolean", ..string(name, text, cell) }
}

/// Creates a column of times.
pub const fn date(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { kind: "date", ..string(name, text, cell) }
}

impl Column {
    /// Marks the column as shown with `-o wide` only.
    pub const fn wide(self) -> Column {
        Column { priority: 1, ..self }
    }

    /// Marks the column as the object's name, which clients may print as `kind/name`.
    pub const fn naming(self) -> Column {
        Column { format: "name", ..self }
    }

    /// Leaves the column out of the table's definitions, but not out of its rows.
    pub const fn without_header(self) -> Column {
        Column { has_header: false, ..self }
    }

    /// Returns the cell of the column in a row.
    pub fn cell(&self, row: &Row<'_>) -> Value {
        (self.cell)(row)
    }

    /// Returns the `TableColumnDefinition`; None for a column without a header.
    pub fn definition(&self) -> Option<Value> {
        self.has_header.then(|| {
            json!({
                "name": self.name, "type": self.kind, "format": self.format, "priority": self.priority,
                "description": self.text.resolve(),
            })
        })
    }
}

/// The description of names.
pub const NAME_TEXT: Text = Text::Field("meta.v1.ObjectMeta.name");
/// The description of creation times.
pub const CREATED_TEXT: Text = Text::Field("meta.v1.ObjectMeta.creationTimestamp");

/// The column of names.
pub const NAME: Column = string("Name", NAME_TEXT, |row| row.text("metadata.name")).naming();
/// The column of ages.
pub const AGE: Column = string("Age", CREATED_TEXT, |row| row.since("metadata.creationTimestamp").into());

/// The columns of a kind without columns of its own.
pub const DEFAULT_COLUMNS: &[Column] = &[
    NAME,
    date("Created At", CREATED_TEXT, |row| row.text_or("metadata.creationTimestamp", "0001-01-01T00:00:00Z")),
];

/// Returns the `TableColumnDefinition`s of columns.
pub fn definitions(columns: &[Column]) -> Vec<Value> {
    // All of them in one pass over the descriptions.
    let fields: Vec<&'static str> = columns.iter().filter_map(|column| column.text.field()).collect();
    describe(&fields);
    columns.iter().filter_map(Column::definition).collect()
}

impl Text {
    /// Returns the text of the description.
    pub fn resolve(self) -> String {
        match self {
            Text::Literal(words) => words.to_owned(),
            Text::Field(path) => describe(&[path]).swap_remove(0),
        }
    }

    /// Returns the field that it describes.
    fn field(self) -> Option<&'static str> {
        match self {
            Text::Literal(_) => None,
            Text::Field(path) => Some(path),
        }
    }
}

/// The columns of Scale, the kind of `/scale` of any resource.
pub const SCALE: &[Column] = &[
    string("Name", NAME_TEXT, |row| row.text("metadata.name")),
    integer("Desired", Text::Field("autoscaling.v1.ScaleSpec.replicas"), |row| row.integer("spec.replicas")),
    integer("Available", Text::Field("autoscaling.v1.ScaleStatus.replicas"), |row| {
        row.integer("status.replicas")
    }),
    AGE,
];

/// Returns the descriptions of fields, each `GROUP.VERSION.TYPE.FIELD`. Caches those of columns
/// that were shown.
fn describe(paths: &[&'static str]) -> Vec<String> {
    static TEXTS: LazyLock<Mutex<HashMap<&'static str, String>>> = LazyLock::new(Mutex::default);
    let mut texts = TEXTS.lock();
    let missing: Vec<&'static str> =
        paths.iter().filter(|path| !texts.contains_key(*path)).copied().collect();
    if !missing.is_empty() {
        let fields: Vec<(String, &'static str)> = missing.iter().map(|path| openapi_field(path)).collect();
        let descriptions = Descriptions::parse_types(fields.iter().map(|(type_name, _)| type_name.as_str()));
        for (path, (type_name, field)) in missing.into_iter().zip(&fields) {
            let text = descriptions.of_field(type_name, field).unwrap_or_default();
            texts.insert(path, text.to_owned());
        }
    }
    paths.iter().map(|path| texts.get(path).cloned().unwrap_or_default()).collect()
}

/// Returns the name of a type in OpenAPI documents, and the name of the field.
fn openapi_field(path: &'static str) -> (String, &'static str) {
    let (type_name, field) = path.rsplit_once('.').unwrap_or((path, ""));
    let type_name = match type_name.strip_prefix("meta.") {
        Some(meta) => format!("io.k8s.apimachinery.pkg.apis.meta.{meta}"),
        None => format!("io.k8s.api.{type_name}"),
    };
    (type_name, field)
}
