//! The plain form of a list: copies of stored bytes, made in chunks as the connection accepts them.
//!
//! A list of everything can be large, and several may be read at once, slowly: each object that is
//! not sent yet costs one pointer.

use std::sync::Arc;
use std::vec;

use bytes::Bytes;
use serde_json::Value;

use crate::registry::Stored;
use crate::registry::read::Page;
use crate::resource_info::ResourceInfo;

/// The smallest size of a chunk, in bytes, except for the last one. It is small enough that the
/// allocator keeps freed chunks, and that a chunk extended by a typical object does not exceed the
/// amount that TLS accepts at a time.
const CHUNK: usize = 60 * 1024;

/// A list, chunk by chunk.
pub struct PlainList {
    size: usize,
    next: Vec<u8>,
    items: vec::IntoIter<Arc<Stored>>,
    /// Kind and apiVersion, with which stored bytes begin, and items of lists do not.
    type_prefix: Option<String>,
    /// The bytes after the items.
    tail: Vec<u8>,
    ended: bool,
}

impl PlainList {
    /// Creates the list of a page; `metadata` is the list's.
    pub fn new(info: &ResourceInfo, page: Page, metadata: &Value) -> PlainList {
        let (kind, api_version) = (&info.list_kind, &info.api_version);
        let (head, tail) = match info.is_custom() {
            false => (
                format!(
                    "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{metadata},\"items\":["
                ),
                "]}\n".to_owned(),
            ),
            // Members are sorted.
            true => (
                format!("{{\"apiVersion\":\"{api_version}\",\"items\":["),
                format!("],\"kind\":\"{kind}\",\"metadata\":{metadata}}}\n"),
            ),
        };
        let type_prefix = info.storage.type_prefix.clone();
        let items = page.items.iter().map(|item| {
            let (brace, rest) = shown(item, type_prefix.as_deref());
            brace.len() + rest.len()
        });
        let commas = page.items.len().saturating_sub(1);
        let size = head.len() + items.sum::<usize>() + commas + tail.len();
        PlainList {
            size,
            next: head.into(),
            items: page.items.into_iter(),
            type_prefix,
            tail: tail.into(),
            ended: false,
        }
    }

    /// Returns the total size of all chunks, in bytes.
    pub fn size(&self) -> usize {
        self.size
    }
}

impl Iterator for PlainList {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.ended {
            return None;
        }
        let mut chunk = std::mem::take(&mut self.next);
        chunk.reserve(CHUNK.min(self.size));
        while chunk.len() < CHUNK {
            let Some(item) = self.items.next() else {
                chunk.append(&mut self.tail);
                self.ended = true;
                break;
            };
            let (brace, rest) = shown(&item, self.type_prefix.as_deref());
            chunk.extend_from_slice(brace);
            chunk.extend_from_slice(rest);
            if self.items.len() > 0 {
                chunk.push(b',');
            }
        }
        Some(chunk.into())
    }
}

/// Returns the two parts of a stored object's text as an item of a list, without `type_prefix`.
fn shown<'a>(item: &'a Stored, type_prefix: Option<&str>) -> (&'static [u8], &'a [u8]) {
    match type_prefix.and_then(|prefix| item.bytes.strip_prefix(prefix.as_bytes())) {
        Some(rest) => (b"{", rest.trim_ascii_end()),
        None => (b"", item.bytes.trim_ascii_end()),
    }
}

#[cfg(test)]
mod tests {
    use coracle_storage::{Expect, Key, Options, Revision, Store, log::EphemeralLog};
    use serde_json::json;

    use super::*;
    use crate::registry::ObjectIndex;
    use crate::resource_info::SharedResourceTable;

    #[tokio::test]
    async fn chunks_add_up_to_the_list() {
        let table = coracle_resources::built_in();
        let info = table.find("", "v1", "configmaps").expect("configmaps");
        let prefix = info.storage.type_prefix.as_deref().expect("a built-in kind");
        let store = Store::open(
            Box::new(EphemeralLog::new()),
            ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in())),
            Options::default(),
        )
        .expect("a store");
        for (sizes, chunks) in [
            (vec![], 1),
            (vec![10], 1),
            (vec![CHUNK / 2; 2], 2),
            (vec![10, 3 * CHUNK, 10], 2),
            (vec![CHUNK / 4; 10], 3),
        ] {
            let mut page =
                Page { revision: Revision(7), items: Vec::new(), continue_token: None, remaining: None };
            let mut items = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                let item = format!(
                    r#"{{"metadata":{{"name":"{i}","resourceVersion":"","uid":"{}"}}}}"#,
                    "u".repeat(*size)
                );
                let stored = format!("{prefix}{}\n", &item[1..]);
                let key = Key::new("configmaps", format!("ns/{i}"));
                store.put(key.clone(), Expect::Any, stored).await.expect("stored");
                let stored = store.get(&key).expect("there");
                items.push(
                    item.replace(
                        r#"resourceVersion":""#,
                        &format!(r#"resourceVersion":"{}"#, stored.revision),
                    ),
                );
                page.items.push(stored);
            }
            let metadata = json!({"resourceVersion": "7"});
            let want = format!(
                r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{metadata},"items":[{}]}}"#,
                items.join(",")
            ) + "\n";
            let list = PlainList::new(info, page, &metadata);
            assert_eq!(list.size(), want.len(), "{sizes:?}");
            let made: Vec<Bytes> = list.collect();
            assert_eq!(made.len(), chunks, "{sizes:?}");
            assert!(made.concat() == want.as_bytes(), "{sizes:?}");
        }
    }
}
