//! Encoding of objects as the bytes of a response, in the requested form.
//!
//! The plain JSON form of a stored object is kept as bytes and copied, and so is its metadata.
//! Every other form (another version, protobuf, YAML, Table) is made on demand, per object, by the
//! codec and the renderers.

mod list;
mod partial;
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
use crate::registry::{Payload, Stored, parse};
use crate::render;
use crate::render::table::{self, IncludeObject, Item, TableOptions};
use crate::request::negotiate::{Accept, Format, MetaVersion, Transform};
use crate::request::options::Query;
use crate::resource_info::{Conversion, ResourceInfo, Shown};
use crate::schema::{TypeRef, schema};
use crate::{Error, Result};

/// The content of a response.
pub enum Content {
    /// All of it at once.
    Whole(Bytes),
    /// Copies of stored bytes.
    List(PlainList),
    /// Rendered item by item.
    Rendered(RenderedList),
}

/// The size of a list, in bytes, from which it is sent in chunks. Smaller lists have a
/// Content-Length.
pub const CHUNKED_FROM_BYTES: usize = 64 * 1024;

/// The form of the objects in one response.
#[derive(Clone, Copy)]
pub struct Form {
    /// The negotiated representation.
    pub accept: Accept,
    include: IncludeObject,
    /// The time that ages in tables are relative to.
    now: Timestamp,
}

impl Form {
    /// Chooses the form of a response.
    ///
    /// # Errors
    /// 400 for an invalid `includeObject`, where it matters.
    pub fn new(accept: Accept, query: &Query, now: Timestamp) -> Result<Form> {
        let include = match accept.transform {
            Transform::Table(_) => IncludeObject::parse(query.first("includeObject").unwrap_or(""))?,
            _ => IncludeObject::Metadata,
        };
        Ok(Form { accept, include, now })
    }

    /// Returns the form of a Status, which is never transformed.
    pub fn of_errors(accept: Accept) -> Form {
        let accept = Accept { transform: Transform::None, ..accept };
        Form { accept, include: IncludeObject::Metadata, now: Timestamp::UNIX_EPOCH }
    }

    fn is_plain(&self) -> bool {
        self.accept.format == Format::Json && self.accept.transform == Transform::None && !self.accept.pretty
    }

    /// Encodes the result of a write or read.
    ///
    /// # Errors
    /// The errors of the conversion to the version of the request, and 406 if the form is not
    /// available for it.
    pub async fn payload(&self, info: &Arc<ResourceInfo>, payload: Payload) -> Result<Content> {
        let whole = match payload {
            Payload::Stored(stored) => self.stored(info, &stored).await?,
            Payload::Object { value, type_ref } => self.object(info, value, &type_ref)?,
            Payload::List(page) => return self.page(info, page).await,
            Payload::Objects { items, metadata } => self.list(info, items, metadata).await?,
            Payload::Status(status) => self.status(&status),
        };
        Ok(Content::Whole(whole))
    }

    async fn stored(&self, info: &ResourceInfo, stored: &Stored) -> Result<Bytes> {
        if self.is_plain() && info.shows_stored_bytes() {
            return Ok(stored.bytes.clone());
        }
        let copied = self.partial_copy(info).and_then(|version| partial::copy(&stored.bytes, version));
        if let Some(copied) = copied {
            return Ok(copied);
        }
        let stored = parse(stored)?;
        let shown = info.show(vec![stored]).await?;
        let shown = shown.first().ok_or_else(|| Error::Internal("an object was lost".to_owned()))?;
        self.shaped(info, item(shown), &info.type_ref)
    }

    /// Encodes an object in the version that it has.
    pub fn object(&self, info: &ResourceInfo, object: Value, type_ref: &TypeRef) -> Result<Bytes> {
        self.shaped(info, Item::of(&object), type_ref)
    }

    fn shaped(&self, info: &ResourceInfo, item: Item<'_>, type_ref: &TypeRef) -> Result<Bytes> {
        match self.accept.transform {
            Transform::None => Ok(self.encode(item.requested, type_ref)),
            Transform::Table(version) => {
                let printer = info.printer(type_ref);
                let table = table::table_of_one(printer, item, &self.table_options(version, false));
                Ok(self.encode_meta("Table", &table))
            }
            Transform::PartialObject(version) => {
                let partial = render::partial_metadata(item.requested, &info.behavior.printer, version);
                Ok(self.encode_meta("PartialObjectMetadata", &partial))
            }
            Transform::PartialObjectList(_) => {
                let detail = "PartialObjectMetadataList, but the requested object is not a list";
                Err(not_this_shape(detail, &info.internal_type()))
            }
        }
    }

    async fn page(&self, info: &Arc<ResourceInfo>, page: Page) -> Result<Content> {
        let mut metadata = json!({"resourceVersion": page.revision.to_string()});
        if let Some(token) = &page.continue_token {
            metadata["continue"] = token.as_str().into();
        }
        if let Some(remaining) = page.remaining {
            metadata["remainingItemCount"] = remaining.into();
        }
        if self.is_plain() && info.shows_stored_bytes() {
            return Ok(Content::List(PlainList::new(info, page, &list_metadata(info, metadata))));
        }
        let size: usize = page.items.iter().map(|item| item.bytes.len()).sum();
        // Objects that a webhook converts are converted as a whole list.
        if size >= CHUNKED_FROM_BYTES
            && (info.is_storage_version() || matches!(info.conversion, Conversion::Local(_)))
            && let Some(renderer) = rendered::renderer(*self, info, metadata.clone())
        {
            return Ok(Content::Rendered(RenderedList::new(renderer, page.items)));
        }
        let stored = page.items.iter().map(|o| parse(o)).collect::<Result<Vec<Value>>>()?;
        self.list(info, stored, metadata).await.map(Content::Whole)
    }

    /// Encodes a list of objects that are given in the storage version.
    async fn list(&self, info: &ResourceInfo, stored: Vec<Value>, metadata: Value) -> Result<Bytes> {
        let shown = info.show(stored).await?;
        match self.accept.transform {
            Transform::None => {
                let items: Vec<Value> =
                    shown.into_iter().map(|item| as_item(info, item.into_requested())).collect();
                let list = json!({
                    "kind": info.list_kind, "apiVersion": info.api_version,
                    "metadata": list_metadata(info, metadata), "items": items,
                });
                Ok(info
                    .list_type()
                    .map_or_else(|| list.to_string().into(), |list_type| self.encode(&list, &list_type)))
            }
            Transform::Table(version) => {
                let items = shown.iter().map(item).collect();
                let options = self.table_options(version, false);
                Ok(self
                    .encode_meta("Table", &table::table(&info.behavior.printer, items, metadata, &options)))
            }
            Transform::PartialObjectList(version) => {
                let objects = shown.iter().map(Shown::requested);
                let printer = &info.behavior.printer;
                let list = render::partial_metadata_list(objects, metadata, printer, version);
                Ok(self.encode_meta("PartialObjectMetadataList", &list))
            }
            Transform::PartialObject(_) => {
                let detail = "PartialObjectMetadata, but the requested object is a list";
                Err(not_this_shape(detail, &format!("{}List", info.internal_type())))
            }
        }
    }

    fn table_options(&self, version: MetaVersion, no_headers: bool) -> TableOptions {
        TableOptions { version, include_object: self.include, no_headers, now: self.now }
    }

    /// Encodes a Status, or any other object of `v1`, by its kind.
    pub fn status(&self, status: &Value) -> Bytes {
        match schema().kind("", "v1", "Status") {
            Some(id) => self.encode(status, &id.into()),
            None => status.to_string().into(),
        }
    }

    fn encode(&self, object: &Value, type_ref: &TypeRef) -> Bytes {
        encode(object, type_ref, self.accept.format, self.accept.pretty)
    }

    /// Encodes a document of group `meta.k8s.io`.
    fn encode_meta(&self, kind: &str, document: &Value) -> Bytes {
        match schema().named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")) {
            Some(id) => self.encode(document, &id.into()),
            None => document.to_string().into(),
        }
    }
}

/// Writes an object down.
pub fn encode(object: &Value, type_ref: &TypeRef, format: Format, indented: bool) -> Bytes {
    match format {
        Format::Json if indented => pretty(object, type_ref),
        Format::Json => {
            let mut bytes = Vec::with_capacity(1024);
            codec::json::write(object, type_ref, &mut bytes);
            bytes.push(b'\n');
            bytes.into()
        }
        Format::Yaml => codec::yaml::from_json(&completed(object, type_ref)).into(),
        Format::Protobuf => match type_ref {
            TypeRef::Struct(id) => codec::protobuf::encode(object, *id).into(),
            // Custom resources have no such form, so it was not negotiated.
            TypeRef::Structural(_) => encode(object, type_ref, Format::Json, false),
        },
    }
}

/// Returns an object with the members that its type always encodes.
fn completed(object: &Value, type_ref: &TypeRef) -> Value {
    let mut bytes = Vec::with_capacity(1024);
    codec::json::write(object, type_ref, &mut bytes);
    codec::json::parse_own(&bytes).unwrap_or_default()
}

fn pretty(object: &Value, type_ref: &TypeRef) -> Bytes {
    let mut plain = Vec::with_capacity(1024);
    codec::json::write(object, type_ref, &mut plain);
    codec::json::indent(&plain).into()
}

/// Returns an object as an item of a table.
fn item(shown: &Shown) -> Item<'_> {
    Item { stored: shown.stored(), requested: shown.requested() }
}

/// Returns the metadata of a list. That of custom resources always has a `continue`.
fn list_metadata(info: &ResourceInfo, mut metadata: Value) -> Value {
    if info.is_custom() && metadata.get("continue").is_none() {
        metadata["continue"] = "".into();
    }
    metadata
}

/// Returns an object as an item of a list. An object of a built-in kind has no `kind` and
/// `apiVersion` there.
fn as_item(info: &ResourceInfo, mut item: Value) -> Value {
    if !info.is_custom()
        && let Some(members) = item.as_object_mut()
    {
        members.remove("kind");
        members.remove("apiVersion");
    }
    item
}

fn not_this_shape(detail: &str, type_name: &str) -> Error {
    Error::NotAcceptable(format!("you requested {detail} ({type_name})"))
}
