//! A column of a table: its header and how to compute its cell from an object.

use std::collections::HashMap;
use std::sync::OnceLock;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, kinds};
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
    /// The value at a dotted path.
    pub fn get(&self, path: &str) -> Field<'a> {
        self.object.walk(path)
    }

    /// The string at a path, `""` if it is absent.
    pub fn text(&self, path: &str) -> Value {
        self.get(path).str().into()
    }

    /// The string at a path, or `otherwise` if it is absent or empty.
    pub fn text_or(&self, path: &str, otherwise: &str) -> Value {
        let text = self.get(path).str();
        if text.is_empty() { otherwise.into() } else { text.into() }
    }

    /// The string at a path, or `otherwise` if it is absent; an empty one is shown.
    pub fn set_or(&self, path: &str, otherwise: &str) -> Value {
        let field = self.get(path);
        if field.exists() { field.str().into() } else { otherwise.into() }
    }

    /// The integer at a path, 0 if it is absent.
    pub fn integer(&self, path: &str) -> Value {
        self.get(path).int().unwrap_or(0).into()
    }

    /// The boolean at a path, or `otherwise` if it is absent.
    pub fn flag_or(&self, path: &str, otherwise: bool) -> Value {
        let field = self.get(path);
        if field.exists() { field.bool().into() } else { otherwise.into() }
    }

    /// The number of elements or members at a path.
    pub fn count(&self, path: &str) -> Value {
        self.get(path).len().into()
    }

    /// The age of the time at a path, or `otherwise` if it is absent.
    pub fn since_or(&self, path: &str, otherwise: &str) -> String {
        match age::moment(&self.get(path)) {
            Some(then) => age::since(then, self.now),
            None => otherwise.to_owned(),
        }
    }

    /// The age of the time at a path; `<unknown>` if there is none.
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

/// A column of strings.
pub const fn string(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { name, kind: "string", format: "", priority: 0, text, cell, has_header: true }
}

/// A column of integers.
pub const fn integer(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { kind: "integer", ..string(name, text, cell) }
}

/// A column of booleans.
pub const fn boolean(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { kind: "boolean", ..string(name, text, cell) }
}

/// A column of times.
pub const fn date(name: &'static str, text: Text, cell: fn(&Row<'_>) -> Value) -> Column {
    Column { kind: "date", ..string(name, text, cell) }
}

impl Column {
    /// Shown with `-o wide` only.
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

    /// The column's cell in a row.
    pub fn cell(&self, row: &Row<'_>) -> Value {
        (self.cell)(row)
    }

    /// The `TableColumnDefinition`; None for a column without a header.
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

impl Text {
    /// The text of the description.
    pub fn resolve(self) -> &'static str {
        match self {
            Text::Literal(words) => words,
            Text::Field(path) => described(path),
        }
    }
}

/// The description of a field, `GROUP.VERSION.TYPE.FIELD`. Only those of columns are cached.
fn described(path: &'static str) -> &'static str {
    static TEXTS: OnceLock<HashMap<&'static str, String>> = OnceLock::new();
    let texts = TEXTS.get_or_init(|| {
        let all = Descriptions::parse();
        let columns = kinds::KINDS.iter().flat_map(|(.., columns)| columns.iter()).chain(DEFAULT_COLUMNS);
        let paths = columns.filter_map(|column| match column.text {
            Text::Field(path) => Some(path),
            Text::Literal(_) => None,
        });
        let text = |path: &'static str| {
            let (type_name, field) = path.rsplit_once('.')?;
            let package = match type_name.strip_prefix("meta.") {
                Some(meta) => format!("io.k8s.apimachinery.pkg.apis.meta.{meta}"),
                None => format!("io.k8s.api.{type_name}"),
            };
            Some((path, all.of_field(&package, field)?.to_owned()))
        };
        paths.filter_map(text).collect()
    });
    texts.get(path).map_or("", String::as_str)
}
