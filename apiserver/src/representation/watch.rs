//! The frames of a watch: one JSON document (or length-delimited message) an event.

use bytes::Bytes;
use coracle_clock::Clock;
use coracle_storage::Revision;
use serde_json::{Value, json};

use super::{Form, item, partial};
use crate::codec;
use crate::object_meta::ObjectMeta;
use crate::registry::parse;
use crate::registry::watch::{Change, Notice};
use crate::render;
use crate::render::table::{self, INITIAL_EVENTS_END};
use crate::request::Accept;
use crate::request::negotiate::{Format, Transform};
use crate::resource_info::{Conversion, ResourceInfo, Shown};
use crate::{Error, Result};

/// Makes the frames of one watch.
pub struct Frames {
    form: Form,
    /// Ages in a table count up to the time at which its event is made.
    clock: Clock,
    /// Tables name their columns in the first event only.
    columns_sent: bool,
}

impl Frames {
    /// Frames in a form.
    pub fn new(form: Form, clock: Clock) -> Frames {
        Frames { form, clock, columns_sent: false }
    }

    /// Returns the frames of some changes, one after the other; None if they do not have the form,
    /// which ends the watch.
    pub async fn encode(&mut self, info: &ResourceInfo, notices: &[Notice]) -> Option<Vec<Bytes>> {
        if matches!(self.form.accept.transform, Transform::PartialObjectList(_)) {
            return None;
        }
        let mut frames = Vec::with_capacity(notices.len());
        for notice in notices {
            frames.push(self.frame(info, notice).await);
        }
        Some(frames)
    }

    async fn frame(&mut self, info: &ResourceInfo, notice: &Notice) -> Bytes {
        if !(self.form.is_plain() && info.shows_stored_bytes()) {
            let partial = self.form.partial_copy(info).and_then(|version| {
                let (kind, object) = stored_bytes(&notice.change)?;
                Some(json_frame(kind, &partial::copy(&object, version)?))
            });
            return match partial {
                Some(frame) => frame,
                None => self.made(info, &notice.change).await,
            };
        }
        match (&notice.shared, &notice.change) {
            (Some(event), change) => event.frame(|_| plain(change).unwrap_or_default()),
            (None, change) => match plain(change) {
                Some(frame) => frame,
                None => self.made(info, change).await,
            },
        }
    }

    /// Encodes a frame in any form.
    async fn made(&mut self, info: &ResourceInfo, change: &Change) -> Bytes {
        let (kind, shown) = match shown(info, change).await {
            Ok(shown) => shown,
            Err(error) => {
                return self.delimit("ERROR", &self.form.unindented().status(&error.status().to_value()));
            }
        };
        let form = Form { now: self.clock.now(), ..self.form.unindented() };
        let bytes = match form.accept.transform {
            Transform::None => form.encode(shown.requested(), &info.type_ref),
            Transform::Table(version) => {
                let options = form.table_options(version, std::mem::replace(&mut self.columns_sent, true));
                form.encode_meta(
                    "Table",
                    &table::table_of_one(&info.behavior.printer, item(&shown), &options),
                )
            }
            Transform::PartialObject(version) | Transform::PartialObjectList(version) => {
                let partial = render::partial_metadata(shown.requested(), &info.behavior.printer, version);
                form.encode_meta("PartialObjectMetadata", &partial)
            }
        };
        self.delimit(kind, &bytes)
    }

    fn delimit(&self, kind: &str, object: &[u8]) -> Bytes {
        match self.form.accept.format {
            Format::Protobuf => codec::protobuf::watch_frame(kind, object).into(),
            Format::Yaml | Format::Json => json_frame(kind, object),
        }
    }
}

impl Form {
    /// Frames are separated by line feeds.
    fn unindented(&self) -> Form {
        Form { accept: Accept { pretty: false, ..self.accept }, ..*self }
    }
}

/// Returns the type of a change's event, and its object.
async fn shown(info: &ResourceInfo, change: &Change) -> Result<(&'static str, Shown)> {
    let (kind, mut stored) = changed(info, change)?;
    // A bookmark holds nothing that others could convert, and gets no defaults.
    if matches!(change, Change::Bookmark { .. })
        && (info.is_custom() || matches!(info.conversion, Conversion::Remote(_)))
    {
        stored["apiVersion"] = info.api_version.as_str().into();
        return Ok((kind, Shown::of(stored)));
    }
    let shown = info.show(vec![stored]).await?.pop();
    Ok((kind, shown.ok_or_else(|| Error::Internal("an object was lost".to_owned()))?))
}

/// Returns the type of a change's event, and its object in the stored form.
fn changed(info: &ResourceInfo, change: &Change) -> Result<(&'static str, Value)> {
    Ok(match change {
        Change::Added(stored) => ("ADDED", parse(stored)?),
        Change::Modified(stored) => ("MODIFIED", parse(stored)?),
        Change::Deleted(stored, revision) => {
            let mut last = parse(stored)?;
            last.set_meta("resourceVersion", revision.to_string());
            ("DELETED", last)
        }
        Change::Bookmark { revision, initial_end } => ("BOOKMARK", bookmark(info, *revision, *initial_end)),
        Change::Error(error) => return Err(error.clone()),
    })
}

/// Returns an object of the kind with only a resourceVersion, for a bookmark.
fn bookmark(info: &ResourceInfo, revision: Revision, initial_end: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_end {
        metadata["annotations"] = json!({INITIAL_EVENTS_END: "true"});
    }
    json!({"kind": info.kind, "apiVersion": info.storage.api_version, "metadata": metadata})
}

/// Encodes a frame in the plain form; returns None for a change without a stored object.
fn plain(change: &Change) -> Option<Bytes> {
    stored_bytes(change).map(|(kind, object)| json_frame(kind, &object))
}

/// Returns the type of a change's event, and the bytes of its object; None for a change without a
/// stored object.
fn stored_bytes(change: &Change) -> Option<(&'static str, Bytes)> {
    match change {
        Change::Added(stored) => Some(("ADDED", stored.bytes.clone())),
        Change::Modified(stored) => Some(("MODIFIED", stored.bytes.clone())),
        Change::Deleted(stored, revision) => Some(("DELETED", stored.restamped(*revision))),
        Change::Bookmark { .. } | Change::Error(_) => None,
    }
}

fn json_frame(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 32);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object.trim_ascii_end());
    frame.extend_from_slice(b"}\n");
    frame.into()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use coracle_storage::{Expect, Key, Options, Store, log::EphemeralLog};
    use http::{HeaderMap, HeaderValue, header};
    use jiff::Timestamp;

    use super::*;
    use crate::registry::ObjectIndex;
    use crate::request::negotiate::Offered;
    use crate::request::options::Query;
    use crate::resource_info::SharedResourceTable;

    #[tokio::test]
    async fn ages_grow_during_a_watch() {
        let table = coracle_resources::built_in();
        let info = table.find("", "v1", "configmaps").expect("configmaps");
        let index = ObjectIndex::new(SharedResourceTable::new(coracle_resources::built_in()));
        let store = Store::open(Box::new(EphemeralLog::new()), index, Options::default()).expect("a store");
        let key = Key::new("configmaps", "ns/a");
        let type_prefix = info.storage.type_prefix.as_deref().expect("a built-in kind");
        let metadata = r#"{"name":"a","namespace":"ns","uid":"u","resourceVersion":"","creationTimestamp":"1970-01-01T00:00:00Z"}"#;
        let object = format!("{type_prefix}\"metadata\":{metadata}}}\n");
        store.put(key.clone(), Expect::Any, object).await.expect("stored");
        let notice = Notice::from(Change::Modified(store.get(&key).expect("there")));

        let accept = HeaderValue::from_static("application/json;as=Table;v=v1;g=meta.k8s.io");
        let headers = HeaderMap::from_iter([(header::ACCEPT, accept)]);
        let query = Query::parse("");
        let offered = Offered { tables: true, protobuf: true };
        let accept = Accept::negotiate(&headers, &query, true, offered).expect("a form");
        let (clock, mock) = Clock::mock(Timestamp::UNIX_EPOCH);
        let form = Form::new(accept, &query, clock.now()).expect("a form");
        let mut frames = Frames::new(form, clock);
        for age in ["0s", "3s", "6s"] {
            let made = frames.encode(info, std::slice::from_ref(&notice)).await.expect("frames");
            let event: Value = serde_json::from_slice(&made[0]).expect("JSON");
            assert_eq!(event["object"]["rows"][0]["cells"], json!(["a", 0, age]), "{event}");
            mock.advance(Duration::from_secs(3));
        }
    }
}
