//! The bytes of an object in the store, and the errors of the store.

use bytes::Bytes;
use coracle_storage::{CommitOutcome, StoreError, Write};
use serde_json::Value;

use crate::object_meta::ObjectMeta;
use crate::registry::index::{ObjectIndex, STAMP_SITE};
use crate::registry::{Author, Origin, Registry};
use crate::resource_info::ResourceInfo;
use crate::telemetry::latency::{Phase, measure};
use crate::{Error, Result, codec};

/// The placeholder of the revision in the bytes to store, until it is cut out.
const MARK: &str = "@";

/// Encodes the bytes to store: in Go's order, with an empty place for the revision.
pub fn stored_bytes(info: &ResourceInfo, mut object: Value) -> Bytes {
    object["kind"] = info.kind.as_ref().into();
    object["apiVersion"] = info.storage.api_version.as_str().into();
    let mut bytes = Vec::with_capacity(1024);
    if info.is_custom() {
        object.set_meta("resourceVersion", "");
        codec::json::write(&object, &info.storage.type_ref, &mut bytes);
        bytes.push(b'\n');
        return bytes.into();
    }
    object.set_meta("resourceVersion", MARK);
    codec::json::write(&object, &info.storage.type_ref, &mut bytes);
    // As answers end, so that reading copies them as they are.
    bytes.push(b'\n');
    let site = format!("{STAMP_SITE}{MARK}");
    // Go's order puts nothing before it in which the same bytes could stand unescaped.
    if let Some(at) = memchr::memmem::find(&bytes, site.as_bytes()) {
        bytes.drain(at + STAMP_SITE.len()..at + site.len());
    }
    bytes.into()
}

impl Registry {
    /// Commits writes of a request, on the time of the request that is executed.
    ///
    /// # Errors
    /// See [`store_failed`].
    pub(in crate::registry) async fn commit(
        &self,
        writes: Vec<Write>,
        origin: Origin<'_>,
    ) -> Result<CommitOutcome<ObjectIndex>> {
        let _timer = measure(Phase::Store);
        self.store.commit_by(writes, Some(self.author(origin))).await.map_err(store_failed)
    }

    /// Returns the author of a write that is made now.
    pub(in crate::registry) fn author(&self, origin: Origin<'_>) -> Author {
        self.authors.author(origin, self.now())
    }
}

/// The maximum message size, in bytes, of kube-apiserver's etcd client; etcd itself accepts less.
const MAX_MESSAGE_BYTES: usize = 2 << 20;

/// Converts an error of the store. The limits are etcd's, and reported as kube-apiserver passes
/// them on. Other failures, except a full disk, are logged for the operator.
pub(in crate::registry) fn store_failed(error: StoreError) -> Error {
    match error {
        StoreError::TooLarge { bytes, .. } if bytes > MAX_MESSAGE_BYTES => Error::Unclassified(format!(
            "rpc error: code = ResourceExhausted desc = trying to send message larger than max ({bytes} vs. {MAX_MESSAGE_BYTES})"
        )),
        StoreError::TooLarge { .. } => Error::Unclassified("etcdserver: request is too large".to_owned()),
        StoreError::Full { .. } => {
            Error::Unclassified("etcdserver: mvcc: database space exceeded".to_owned())
        }
        StoreError::NoSpace => {
            Error::Internal("no space is left on the disk of the data directory".to_owned())
        }
        // Words of etcd, which kube-apiserver passes on, too.
        StoreError::Rejected(reason) => Error::Unclassified(reason.to_string()),
        StoreError::Unknown(reason) => {
            tracing::warn!(%reason, "it is unknown whether a write is stored");
            Error::Unclassified("etcdserver: request timed out".to_owned())
        }
        // The server is stopping, and says so to everyone.
        StoreError::Closed => Error::Internal("the store cannot take writes".to_owned()),
        error => {
            tracing::error!(%error, "the store refused a write");
            Error::Internal("the store cannot take writes".to_owned())
        }
    }
}
