//! Tables: objects as rows of cells, as shown by `kubectl get`.
//!
//! A [`Printer`] has the columns of a kind. Built-in kinds have their own; those of custom
//! resources are in their definition. A kind without columns is shown by name and creation time.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::columns::{self, Column, DEFAULT_COLUMNS, Row};
use super::custom::CustomColumn;
use super::partial_metadata;
use crate::error::{Error, Result};
use crate::field::{Field, quote};
use crate::request::negotiate::MetaVersion;

/// The part of the object that each row includes (`includeObject`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IncludeObject {
    /// No object.
    None,
    /// The object's metadata.
    #[default]
    Metadata,
    /// The whole object.
    Object,
}

impl IncludeObject {
    /// Parses the query parameter `includeObject`.
    pub fn parse(text: &str) -> Result<IncludeObject> {
        match text {
            "None" => Ok(IncludeObject::None),
            "" | "Metadata" => Ok(IncludeObject::Metadata),
            "Object" => Ok(IncludeObject::Object),
            other => Err(Error::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                quote(other)
            ))),
        }
    }
}

/// The options of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableOptions {
    /// The version of the `meta.k8s.io` group.
    pub version: MetaVersion,
    /// The part of the object that each row includes.
    pub include_object: IncludeObject,
    /// Without column definitions, as in every event of a watch but the first.
    pub no_headers: bool,
    /// The time that ages are relative to.
    pub now: Timestamp,
}

/// An object of a table.
#[derive(Clone, Copy)]
pub struct Item<'a> {
    /// The stored version, from which cells are computed.
    pub stored: &'a Value,
    /// The requested version, which rows may include.
    pub requested: &'a Value,
}

impl<'a> Item<'a> {
    /// Creates an item whose two versions are the same.
    pub fn of(object: &'a Value) -> Item<'a> {
        Item { stored: object, requested: object }
    }
}

/// The `conditions` of a row, for a finished object.
pub type RowConditions = fn(&Value) -> Option<Value>;

/// The sort key of rows.
pub type SortKey = fn(&Value) -> (i64, String);

/// The columns of a kind, the order of its rows, and the annotation that it does not show.
#[derive(Clone, Default)]
pub struct Printer {
    columns: Columns,
    sort_key: Option<SortKey>,
    row_conditions: Option<RowConditions>,
    hidden_annotation: Option<&'static str>,
}

#[derive(Clone, Default)]
enum Columns {
    BuiltIn(&'static [Column]),
    /// Kinds without columns of their own.
    #[default]
    Default,
    Custom(Arc<[CustomColumn]>),
}

impl Printer {
    /// Returns the printer of a kind with these columns.
    pub fn of_columns(columns: &'static [Column]) -> Printer {
        Printer { columns: Columns::BuiltIn(columns), ..Printer::default() }
    }

    /// Sorts rows by a key.
    pub fn sorted_by(self, key: SortKey) -> Printer {
        Printer { sort_key: Some(key), ..self }
    }

    /// Adds conditions to rows.
    pub fn with_row_conditions(self, conditions: RowConditions) -> Printer {
        Printer { row_conditions: Some(conditions), ..self }
    }

    /// Omits an annotation in responses with only the metadata. kube-apiserver derives these from
    /// its internal objects, which store the value of that annotation elsewhere.
    pub fn without_annotation(self, name: &'static str) -> Printer {
        Printer { hidden_annotation: Some(name), ..self }
    }

    /// Returns the printer of a custom resource with these `additionalPrinterColumns` (a list, or
    /// absent).
    pub fn of_custom_resource(columns: Option<&Value>) -> Printer {
        Printer { columns: Columns::Custom(CustomColumn::read(columns).into()), ..Printer::default() }
    }

    /// Returns the annotation that metadata-only responses omit; None if they omit none.
    pub fn hidden_annotation(&self) -> Option<&'static str> {
        self.hidden_annotation
    }

    /// Returns the sort key of rows; None if rows have the order of the list.
    pub fn sort_key(&self) -> Option<SortKey> {
        self.sort_key
    }

    /// Returns the `TableColumnDefinition`s of the columns.
    pub fn definitions(&self) -> Vec<Value> {
        match &self.columns {
            Columns::BuiltIn(columns) => columns::definitions(columns),
            Columns::Default => columns::definitions(DEFAULT_COLUMNS),
            Columns::Custom(columns) => columns.iter().map(CustomColumn::definition).collect(),
        }
    }

    /// Returns the cells of an object's row.
    pub fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let row = Row { object: Field::root(object), now };
        match &self.columns {
            Columns::BuiltIn(columns) => columns.iter().map(|column| column.cell(&row)).collect(),
            Columns::Default => DEFAULT_COLUMNS.iter().map(|column| column.cell(&row)).collect(),
            Columns::Custom(columns) => CustomColumn::cells(columns, object, now),
        }
    }

    /// Returns the row of an object.
    pub fn row(&self, item: Item<'_>, options: &TableOptions) -> Value {
        let mut row = Map::new();
        row.insert("cells".into(), self.cells(item.stored, options.now).into());
        if let Some(conditions) = self.row_conditions.and_then(|conditions| conditions(item.stored)) {
            row.insert("conditions".into(), conditions);
        }
        let ends_initial_events = || {
            let annotations = item.requested.pointer("/metadata/annotations");
            annotations.is_some_and(|annotations| annotations[INITIAL_EVENTS_END] == "true")
        };
        let object = match options.include_object {
            // Clients wait for the annotation of this one.
            IncludeObject::None if ends_initial_events() => {
                partial_metadata(item.requested, self, options.version)
            }
            IncludeObject::None => Value::Null,
            IncludeObject::Metadata => partial_metadata(item.requested, self, options.version),
            IncludeObject::Object => item.requested.clone(),
        };
        row.insert("object".into(), object);
        row.into()
    }
}

/// The annotation of the bookmark that ends the initial events of a watch (KEP-3157).
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// Returns a table of these objects. `metadata` is the list's; for a single object see
/// [`table_of_one`].
pub fn table(printer: &Printer, mut items: Vec<Item<'_>>, metadata: Value, options: &TableOptions) -> Value {
    if let Some(key) = printer.sort_key() {
        items.sort_by_cached_key(|item| key(item.stored));
    }
    let rows: Vec<Value> = items.into_iter().map(|item| printer.row(item, options)).collect();
    let nothing = rows.is_empty() && matches!(printer.columns, Columns::Default);
    let definitions = if options.no_headers { Value::Null } else { printer.definitions().into() };
    json!({
        "kind": "Table", "apiVersion": options.version.api_version(), "metadata": metadata,
        "columnDefinitions": definitions,
        "rows": if nothing { Value::Null } else { rows.into() },
    })
}

/// Returns a table of one object, with that object's resourceVersion.
pub fn table_of_one(printer: &Printer, item: Item<'_>, options: &TableOptions) -> Value {
    let mut metadata = Map::new();
    if let Some(revision) = item.requested.pointer("/metadata/resourceVersion") {
        metadata.insert("resourceVersion".into(), revision.clone());
    }
    table(printer, vec![item], metadata.into(), options)
}
