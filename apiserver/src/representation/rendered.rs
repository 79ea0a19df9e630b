//! A large list in any form except the plain one: rendered in chunks, as the connection accepts
//! them.
//!
//! The document is made once with an empty list, and split there; the items between the halves are
//! rendered one by one. Each object that is not sent yet costs one pointer.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Form, as_item, completed, item, list_metadata};
use crate::codec;
use crate::registry::{Stored, parse};
use crate::render;
use crate::render::table;
use crate::request::negotiate::{Format, Transform};
use crate::resource_info::ResourceInfo;
use crate::schema::{TypeRef, schema};
use crate::{Error, Result};

/// The smallest size of a chunk, in bytes, except for the last one.
const CHUNK: usize = 64 * 1024;

/// A list, chunk by chunk. Making a chunk takes more than copying.
pub struct RenderedList {
    size: usize,
    state: State,
}

enum State {
    /// No item has been rendered yet.
    New(Renderer, Vec<Arc<Stored>>),
    Items {
        renderer: Renderer,
        items: vec::IntoIter<Arc<Stored>>,
        next: Vec<u8>,
        tail: Vec<u8>,
    },
    Done,
}

/// Renders the parts of one list.
pub struct Renderer {
    pub form: Form,
    pub info: Arc<ResourceInfo>,
    /// The document with an empty list in it, and its type.
    pub document: Value,
    pub document_type: TypeRef,
    /// The member that is the list, and the type of its items.
    pub member: &'static str,
    pub item_type: TypeRef,
}

impl RenderedList {
    /// Creates a list of these objects, of which there must be at least one.
    pub fn new(renderer: Renderer, items: Vec<Arc<Stored>>) -> RenderedList {
        let size = items.iter().map(|item| item.bytes.len()).sum();
        RenderedList { size, state: State::New(renderer, items) }
    }

    /// Returns the size of the stored objects in bytes, an estimate of the response's size.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Iterator for RenderedList {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if let State::New(..) = self.state
            && let State::New(renderer, items) = std::mem::replace(&mut self.state, State::Done)
        {
            self.state = renderer.begin(items);
        }
        let State::Items { renderer, items, next, tail } = &mut self.state else { return None };
        let mut chunk = std::mem::take(next);
        while chunk.len() < CHUNK {
            let Some(item) = items.next() else {
                chunk.append(tail);
                self.state = State::Done;
                break;
            };
            if renderer.item(&item, items.len() == 0, &mut chunk).is_err() {
                // The list ends without its end, which no client takes for a whole one.
                self.state = State::Done;
                break;
            }
        }
        Some(chunk.into())
    }
}

impl Renderer {
    fn begin(self, mut items: Vec<Arc<Stored>>) -> State {
        if let Transform::Table(_) = self.form.accept.transform
            && let Some(key) = self.info.behavior.printer.sort_key()
        {
            items.sort_by_cached_key(|item| parse(item).ok().map(|item| key(&item)));
        }
        let (next, tail) = self.halves(&items);
        State::Items { renderer: self, items: items.into_iter(), next, tail }
    }

    /// Returns the bytes before and after the items.
    fn halves(&self, items: &[Arc<Stored>]) -> (Vec<u8>, Vec<u8>) {
        let member = self.member;
        let (format, pretty) = (self.form.accept.format, self.form.accept.pretty);
        let (empty, begin, end) = match format {
            Format::Json if pretty => (format!("\"{member}\": []"), format!("\"{member}\": ["), "\n  ]"),
            Format::Json => (format!("\"{member}\":[]"), format!("\"{member}\":["), "]"),
            Format::Yaml => (format!("\n{member}: []\n"), format!("\n{member}:\n"), ""),
            Format::Protobuf => {
                // A message begins with its length, so all of it must be known before any of it is
                // sent.
                let mut scratch = Vec::new();
                let length = |item: &Arc<Stored>| {
                    scratch.clear();
                    // An item that cannot be read ends the list when it is sent.
                    let _ = self.item(item, true, &mut scratch);
                    scratch.len()
                };
                let items = items.iter().map(length).sum();
                return match self.document_type.built_in() {
                    Some(id) => codec::protobuf::encode_around(&self.document, id, items),
                    None => Default::default(),
                };
            }
        };
        let document = super::encode(&self.document, &self.document_type, format, pretty);
        let at = memchr::memmem::find(&document, empty.as_bytes()).unwrap_or(document.len());
        let rest = document.get(at + empty.len()..).unwrap_or_default();
        ([&document[..at], begin.as_bytes()].concat(), [end.as_bytes(), rest].concat())
    }

    /// Appends an item with the separator to the next one.
    fn item(&self, stored: &Stored, last: bool, out: &mut Vec<u8>) -> Result<()> {
        let item = self.value(stored)?;
        let (format, pretty) = (self.form.accept.format, self.form.accept.pretty);
        match format {
            Format::Json if pretty => {
                let mut compact = Vec::with_capacity(stored.bytes.len());
                codec::json::write(&item, &self.item_type, &mut compact);
                out.extend_from_slice(b"\n    ");
                for byte in codec::json::indent(&compact) {
                    out.push(byte);
                    // Line feeds within strings are escaped.
                    if byte == b'\n' {
                        out.extend_from_slice(b"    ");
                    }
                }
            }
            Format::Json => codec::json::write(&item, &self.item_type, out),
            Format::Yaml => {
                let item = completed(&item, &self.item_type);
                out.extend_from_slice(&codec::yaml::from_json(&Value::Array(vec![item])));
            }
            Format::Protobuf => {
                if let (Some(list), Some(item_type)) =
                    (self.document_type.built_in(), self.item_type.built_in())
                {
                    codec::protobuf::write_item(&item, list, self.member, item_type, out);
                }
            }
        }
        if format == Format::Json && !last {
            out.push(b',');
        }
        Ok(())
    }

    /// Returns an object as an item of the list.
    fn value(&self, stored: &Stored) -> Result<Value> {
        let Some(shown) = self.info.show_now(parse(stored)?) else {
            return Err(Error::Internal("a list is rendered before it is converted".to_owned()));
        };
        Ok(match self.form.accept.transform {
            Transform::Table(version) => {
                let options = self.form.table_options(version, false);
                self.info.behavior.printer.row(item(&shown), &options)
            }
            Transform::PartialObjectList(version) => {
                render::partial_metadata(shown.requested(), &self.info.behavior.printer, version)
            }
            Transform::None | Transform::PartialObject(_) => as_item(&self.info, shown.into_requested()),
        })
    }
}

/// Returns the renderer of a list in a form; None if lists of the resource do not have that form.
pub fn renderer(form: Form, info: &Arc<ResourceInfo>, metadata: Value) -> Option<Renderer> {
    let meta_type = |name: &str| {
        schema().named(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")).map(TypeRef::Struct)
    };
    let (document, document_type, member, item_type) = match form.accept.transform {
        Transform::None => {
            let document = json!({
                "kind": info.list_kind, "apiVersion": info.api_version, "metadata": list_metadata(info, metadata), "items": [],
            });
            (document, info.list_type()?, "items", info.type_ref.clone())
        }
        Transform::Table(version) => {
            let options = form.table_options(version, false);
            let mut document = table::table(&info.behavior.printer, Vec::new(), metadata, &options);
            document["rows"] = json!([]);
            (document, meta_type("Table")?, "rows", meta_type("TableRow")?)
        }
        Transform::PartialObjectList(version) => {
            let mut document = render::partial_metadata_list([], metadata, &info.behavior.printer, version);
            document["items"] = json!([]);
            (document, meta_type("PartialObjectMetadataList")?, "items", meta_type("PartialObjectMetadata")?)
        }
        Transform::PartialObject(_) => return None,
    };
    Some(Renderer { form, info: info.clone(), document, document_type, member, item_type })
}

#[cfg(test)]
mod tests {
    use coracle_storage::{Expect, Key, Options, Revision, Store, log::EphemeralLog};
    use http::{HeaderMap, HeaderValue, header};
    use jiff::Timestamp;

    use super::*;
    use crate::registry::read::Page;
    use crate::registry::{ObjectIndex, Payload};
    use crate::representation::Content;
    use crate::request::Accept;
    use crate::request::negotiate::Offered;
    use crate::request::options::Query;
    use crate::resource_info::SharedResourceTable;

    /// Checks that, in every form, the chunks of a large list are the bytes of the list encoded at
    /// once.
    #[tokio::test]
    async fn chunks_add_up_to_the_list_in_every_form() {
        let table = coracle_resources::built_in();
        let info = table.find("", "v1", "configmaps").expect("configmaps");
        let store = Store::open(
            Box::new(EphemeralLog::new()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Options::default(),
        )
        .expect("a store");
        let mut items = Vec::new();
        for i in 0..40 {
            let text = "some text: with \\\"quotes\\\"\\n and lines \u{17c}".repeat(100);
            let stored = format!(
                "{}\"metadata\":{{\"name\":\"c{i}\",\"namespace\":\"ns\",\"uid\":\"u\",\"resourceVersion\":\"\"}},\"data\":{{\"k\":\"{text}\"}}}}\n",
                info.storage.type_prefix.as_deref().expect("a built-in kind")
            );
            let key = Key::new("configmaps", format!("ns/c{i}"));
            store.put(key.clone(), Expect::Any, stored).await.expect("stored");
            items.push(store.get(&key).expect("there"));
        }
        let table_type = "as=Table;v=v1;g=meta.k8s.io";
        let partial_type = "as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
        let protobuf = "application/vnd.kubernetes.protobuf";
        for (accept, query) in [
            ("application/json".to_owned(), "pretty=1"),
            ("application/yaml".to_owned(), ""),
            (protobuf.to_owned(), ""),
            (format!("application/json;{table_type}"), ""),
            (format!("application/json;{table_type}"), "pretty=1&includeObject=Object"),
            (format!("application/yaml;{table_type}"), "includeObject=None"),
            (format!("application/json;{partial_type}"), ""),
            (format!("application/yaml;{partial_type}"), ""),
            (format!("{protobuf};{partial_type}"), ""),
        ] {
            let case = format!("{accept} {query}");
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_str(&accept).unwrap())]);
            let query = Query::parse(query);
            let accept = Accept::negotiate(&headers, &query, true, Offered { tables: true, protobuf: true })
                .expect(&case);
            let form = Form::new(accept, &query, Timestamp::UNIX_EPOCH).expect(&case);
            let page = Page {
                revision: Revision(7),
                items: items.clone(),
                continue_token: Some("token".to_owned()),
                remaining: Some(3),
            };
            let metadata = json!({"resourceVersion": "7", "continue": "token", "remainingItemCount": 3});
            let stored: Vec<Value> = items.iter().map(|item| parse(item).expect("readable")).collect();
            let want = form.list(info, stored, metadata).await.expect(&case);
            let Ok(Content::Rendered(list)) = form.payload(info, Payload::List(page)).await else {
                panic!("{case}: not rendered in chunks")
            };
            let chunks: Vec<Bytes> = list.collect();
            assert!(chunks.iter().all(|chunk| !chunk.is_empty()));
            assert!(chunks.len() > 1 || want.len() < 2 * CHUNK, "{case}: {} chunks", chunks.len());
            let got = chunks.concat();
            assert_eq!(String::from_utf8_lossy(&got), String::from_utf8_lossy(&want), "{case}");
        }
    }
}
