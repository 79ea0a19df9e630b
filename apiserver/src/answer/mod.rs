//! Answer: from objects to the bytes of a response, in the form the client asked for.
//!
//! The plain JSON form of a stored object is kept as bytes and copied. Every other form (another version, protobuf, YAML,
//! Table, PartialObjectMetadata) is made on demand, per object, by the codec and the renderers.

mod list;
mod rendered;
pub mod watch;

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

pub use list::PlainList;
pub use rendered::RenderedList;

use crate::codec;
use crate::registry::read::Page;
use crate::registry::served::Served;
use crate::registry::{Payload, Stored, parse};
use crate::render;
use crate::render::table::{self, IncludeObject, Item, Printer};
use crate::request::negotiate::{Accept, Format, MetaVersion, Transform};
use crate::request::options::Query;
use crate::schema::{StructId, schema};
use crate::{Error, Result};

/// What a response is to hold.
pub enum Content {
    /// All of it at once.
    Whole(Bytes),
    /// Copies of stored bytes.
    List(PlainList),
    /// Rendered item by item.
    Rendered(RenderedList),
}

/// Lists of less bytes are made at once, and tell their length.
pub const IN_CHUNKS_FROM: usize = 64 * 1024;

/// How one request's objects are to be shown.
#[derive(Clone, Copy)]
pub struct Form {
    pub accept: Accept,
    include: IncludeObject,
    /// What ages in tables count from.
    now: Timestamp,
}

impl Form {
    /// # Errors
    /// 400 for an `includeObject` that means nothing, where it matters.
    pub fn new(accept: Accept, query: &Query, now: Timestamp) -> Result<Form> {
        let include = match accept.transform {
            Transform::Table(_) => IncludeObject::parse(query.first("includeObject").unwrap_or(""))?,
            _ => IncludeObject::Metadata,
        };
        Ok(Form { accept, include, now })
    }

    /// The form of a Status: never transformed.
    pub fn of_errors(accept: Accept) -> Form {
        let accept = Accept { transform: Transform::None, ..accept };
        Form { accept, include: IncludeObject::Metadata, now: Timestamp::UNIX_EPOCH }
    }

    fn is_plain(&self) -> bool {
        self.accept.format == Format::Json && self.accept.transform == Transform::None && !self.accept.pretty
    }

    /// What a write or read answers with.
    pub fn payload(&self, served: &Arc<Served>, payload: Payload) -> Result<Content> {
        let whole = match payload {
            Payload::Stored(stored) => self.stored(served, &stored)?,
            Payload::Object { value, type_id } => self.object(served, value, type_id)?,
            Payload::List(page) => return self.page(served, page),
            Payload::Objects { items, metadata } => self.list(served, &items, metadata)?,
            Payload::Status(status) => self.status(&status),
        };
        Ok(Content::Whole(whole))
    }

    pub fn stored(&self, served: &Served, stored: &Stored) -> Result<Bytes> {
        if self.is_plain() && served.is_storage_version() {
            return Ok(stored.bytes.clone());
        }
        let stored = parse(stored)?;
        let asked = served.from_storage(stored.clone());
        self.shaped(served, Item { stored: &stored, requested: &asked }, served.type_id())
    }

    /// An object in the form of its version.
    pub fn object(&self, served: &Served, object: Value, type_id: StructId) -> Result<Bytes> {
        self.shaped(served, Item::of(&object), type_id)
    }

    fn shaped(&self, served: &Served, item: Item<'_>, type_id: StructId) -> Result<Bytes> {
        match self.accept.transform {
            Transform::None => Ok(self.encode(item.requested, type_id)),
            Transform::Table(version) => {
                let table = table::table_of_one(&printer(served), item, &self.table_options(version, false));
                Ok(self.encode_meta("Table", &table))
            }
            Transform::PartialObject(version) => {
                let partial = render::partial_metadata(item.requested, version);
                Ok(self.encode_meta("PartialObjectMetadata", &partial))
            }
            Transform::PartialObjectList(_) => {
                let detail = "PartialObjectMetadataList, but the requested object is not a list";
                Err(not_this_shape(detail, &served.internal_type()))
            }
        }
    }

    fn page(&self, served: &Arc<Served>, page: Page) -> Result<Content> {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(token) = &page.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        if self.is_plain() && served.is_storage_version() {
            return Ok(Content::List(PlainList::new(served, page, &metadata)));
        }
        let size: usize = page.items.iter().map(|item| item.bytes.len()).sum();
        if size >= IN_CHUNKS_FROM
            && let Some(renderer) = rendered::renderer(*self, served, metadata.clone())
        {
            return Ok(Content::Rendered(RenderedList::new(renderer, page.items)));
        }
        let stored = page.items.iter().map(|o| parse(o)).collect::<Result<Vec<Value>>>()?;
        self.list(served, &stored, metadata).map(Content::Whole)
    }

    /// A list of objects in the form that is stored.
    fn list(&self, served: &Served, stored: &[Value], metadata: Value) -> Result<Bytes> {
        let asked: Vec<Value> = stored.iter().map(|o| served.from_storage(o.clone())).collect();
        match self.accept.transform {
            Transform::None => {
                let items: Vec<Value> = asked.into_iter().map(without_type).collect();
                let list = json!({
                    "kind": served.resource.list_kind, "apiVersion": served.api_version,
                    "metadata": metadata, "items": items,
                });
                let resource = served.resource;
                let list_type = schema().kind(resource.group, resource.version, &resource.list_kind);
                Ok(list_type
                    .map_or_else(|| list.to_string().into(), |list_type| self.encode(&list, list_type)))
            }
            Transform::Table(version) => {
                let items = stored
                    .iter()
                    .zip(&asked)
                    .map(|(stored, asked)| Item { stored, requested: asked })
                    .collect();
                let options = self.table_options(version, false);
                Ok(self.encode_meta("Table", &table::table(&printer(served), items, metadata, &options)))
            }
            Transform::PartialObjectList(version) => {
                let list = render::partial_metadata_list(&asked, metadata, version);
                Ok(self.encode_meta("PartialObjectMetadataList", &list))
            }
            Transform::PartialObject(_) => {
                let detail = "PartialObjectMetadata, but the requested object is a list";
                Err(not_this_shape(detail, &format!("{}List", served.internal_type())))
            }
        }
    }

    fn table_options(&self, version: MetaVersion, no_headers: bool) -> table::Options {
        table::Options { version, include_object: self.include, no_headers, now: self.now }
    }

    /// A Status, or anything else of `v1` that is known by its kind.
    pub fn status(&self, status: &Value) -> Bytes {
        match schema().kind("", "v1", "Status") {
            Some(type_id) => self.encode(status, type_id),
            None => status.to_string().into(),
        }
    }

    fn encode(&self, object: &Value, type_id: StructId) -> Bytes {
        encode(object, type_id, self.accept.format, self.accept.pretty)
    }

    /// A document of group `meta.k8s.io`.
    fn encode_meta(&self, kind: &str, document: &Value) -> Bytes {
        match schema().named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")) {
            Some(type_id) => self.encode(document, type_id),
            None => document.to_string().into(),
        }
    }
}

/// Writes an object down.
pub fn encode(object: &Value, type_id: StructId, format: Format, indented: bool) -> Bytes {
    match format {
        Format::Json if indented => pretty(object, type_id),
        Format::Json => {
            let mut bytes = Vec::with_capacity(1024);
            codec::json::write(object, type_id, &mut bytes);
            bytes.push(b'\n');
            bytes.into()
        }
        Format::Yaml => codec::yaml::from_json(&completed(object, type_id)).into(),
        Format::Protobuf => codec::protobuf::encode(object, type_id).into(),
    }
}

/// An object with the members that its type always prints.
fn completed(object: &Value, type_id: StructId) -> Value {
    let mut bytes = Vec::with_capacity(1024);
    codec::json::write(object, type_id, &mut bytes);
    codec::json::parse_own(&bytes).unwrap_or_default()
}

fn pretty(object: &Value, type_id: StructId) -> Bytes {
    let mut plain = Vec::with_capacity(1024);
    codec::json::write(object, type_id, &mut plain);
    codec::json::indent(&plain).into()
}

fn printer(served: &Served) -> Printer<'_> {
    Printer::of_kind(&served.group_kind.group, &served.group_kind.kind)
}

fn without_type(mut item: Value) -> Value {
    if let Some(members) = item.as_object_mut() {
        members.remove("kind");
        members.remove("apiVersion");
    }
    item
}

fn not_this_shape(detail: &str, type_name: &str) -> Error {
    Error::NotAcceptable(format!("you requested {detail} ({type_name})"))
}
