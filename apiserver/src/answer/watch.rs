//! The frames of a watch: one JSON document (or length-delimited message) an event.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Form, shown};
use crate::codec;
use crate::registry::served::Served;
use crate::registry::watch::{Change, Notice};
use crate::render;
use crate::request::negotiate::{Format, Transform};

/// Makes the frames of one watch.
pub struct Frames {
    form: Form,
    /// Tables name their columns in the first event only.
    columns_told: bool,
}

impl Frames {
    pub fn new(form: Form) -> Frames {
        Frames { form, columns_told: false }
    }

    /// The frames of some changes, one after the other.
    pub fn encode(&mut self, served: &Served, notices: &[Notice]) -> Vec<Bytes> {
        notices.iter().map(|notice| self.frame(served, notice)).collect()
    }

    fn frame(&mut self, served: &Served, notice: &Notice) -> Bytes {
        if !(self.form.is_plain() && served.is_storage_version()) {
            return self.made(served, &notice.change);
        }
        match (&notice.shared, &notice.change) {
            (Some(event), change) => event.frame(|_| plain(change).unwrap_or_default()),
            (None, change) => plain(change).unwrap_or_else(|| self.made(served, change)),
        }
    }

    /// A frame in any form.
    fn made(&mut self, served: &Served, change: &Change) -> Bytes {
        let (kind, object) = match change {
            Change::Added(stored) => ("ADDED", shown(served, stored, None)),
            Change::Modified(stored) => ("MODIFIED", shown(served, stored, None)),
            Change::Deleted(stored, revision) => ("DELETED", shown(served, stored, Some(*revision))),
            Change::Bookmark { revision, initial_end } => {
                let mut metadata = json!({"resourceVersion": revision.to_string()});
                if *initial_end {
                    metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                }
                let resource = served.resource;
                let bookmark =
                    json!({"kind": resource.kind, "apiVersion": served.api_version, "metadata": metadata});
                ("BOOKMARK", bookmark)
            }
            Change::Error(error) => {
                return self.delimit("ERROR", &self.form.status(&error.status().to_value()));
            }
        };
        let shape = match self.form.accept.transform {
            Transform::None => return self.delimit(kind, &self.form.encode_frame_object(served, &object)),
            Transform::Table(version) => {
                let columns = !std::mem::replace(&mut self.columns_told, true);
                let metadata = json!({"resourceVersion": object.pointer("/metadata/resourceVersion")});
                ("Table", self.form.table(served, version.api_version(), &[object], &metadata, columns))
            }
            Transform::PartialObject(version) | Transform::PartialObjectList(version) => {
                ("PartialObjectMetadata", render::partial_metadata(&object, version.api_version()))
            }
        };
        let bytes = self.form.encode_meta(shape.0, &shape.1);
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
    fn encode_frame_object(&self, served: &Served, object: &Value) -> Bytes {
        let unindented = Form { accept: crate::request::Accept { pretty: false, ..self.accept }, ..*self };
        unindented.encode(object, served.type_id())
    }
}

/// The frame of the plain form; None for changes that tell no stored object.
fn plain(change: &Change) -> Option<Bytes> {
    let (kind, object): (&str, Bytes) = match change {
        Change::Added(stored) => ("ADDED", stored.bytes.clone()),
        Change::Modified(stored) => ("MODIFIED", stored.bytes.clone()),
        Change::Deleted(stored, revision) => ("DELETED", stored.restamped(*revision)),
        Change::Bookmark { .. } | Change::Error(_) => return None,
    };
    Some(json_frame(kind, &object))
}

fn json_frame(kind: &str, object: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(object.len() + 32);
    frame.extend_from_slice(b"{\"type\":\"");
    frame.extend_from_slice(kind.as_bytes());
    frame.extend_from_slice(b"\",\"object\":");
    frame.extend_from_slice(object);
    frame.extend_from_slice(b"}\n");
    frame.into()
}
