//! The frames of a watch: one JSON document (or length-delimited message) an event.

use bytes::Bytes;
use coracle_storage::Revision;
use serde_json::{Value, json};

use super::{Form, item, partial};
use crate::codec;
use crate::object_meta::ObjectMeta;
use crate::registry::parse;
use crate::registry::watch::{Change, Notice};
use crate::render::{self, table};
use crate::request::Accept;
use crate::request::negotiate::{Format, Transform};
use crate::resource_info::{Conversion, ResourceInfo, Shown};
use crate::{Error, Result};

/// Makes the frames of one watch.
pub struct Frames {
    form: Form,
    /// Tables name their columns in the first event only.
    columns_sent: bool,
}

impl Frames {
    /// Frames in a form.
    pub fn new(form: Form) -> Frames {
        Frames { form, columns_sent: false }
    }

    /// The frames of some changes, one after the other; None if they have no such form, which ends the watch.
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

    /// A frame in any form.
    async fn made(&mut self, info: &ResourceInfo, change: &Change) -> Bytes {
        let (kind, shown) = match shown(info, change).await {
            Ok(shown) => shown,
            Err(error) => {
                return self.delimit("ERROR", &self.form.unindented().status(&error.status().to_value()));
            }
        };
        let form = self.form.unindented();
        let bytes = match form.accept.transform {
            Transform::None => form.encode(shown.requested(), &info.type_ref),
            Transform::Table(version) => {
                let options = form.table_options(version, std::mem::replace(&mut self.columns_sent, true));
                form.encode_meta(
                    "Table",
                    &table::table_of_one(&info.behaviour.printer, item(&shown), &options),
                )
            }
            Transform::PartialObject(version) | Transform::PartialObjectList(version) => {
                let partial = render::partial_metadata(shown.requested(), &info.behaviour.printer, version);
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

/// The type of a change's event, and its object.
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

/// The type of a change's event, and its object in the stored form.
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

/// An object of the kind that holds nothing but a revision.
fn bookmark(info: &ResourceInfo, revision: Revision, initial_end: bool) -> Value {
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if initial_end {
        metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    json!({"kind": info.kind, "apiVersion": info.storage.api_version, "metadata": metadata})
}

/// The frame of the plain form; None for changes without a stored object.
fn plain(change: &Change) -> Option<Bytes> {
    stored_bytes(change).map(|(kind, object)| json_frame(kind, &object))
}

/// The type of a change's event, and the bytes of its object; None for changes without a stored one.
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
