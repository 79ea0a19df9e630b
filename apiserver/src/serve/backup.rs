//! Backup: all objects at one revision, as the file that [`coracle_storage::backup`] describes.
//!
//! The path is outside of resources, so RBAC guards it by `nonResourceURLs`: no default role but
//! cluster-admin has it. It stands outside of `/debug/`, which roles grant for profiles as a whole:
//! whoever reads a backup reads every Secret.

use coracle_storage::backup::Chunks;
use futures::stream;
use http::{HeaderValue, Response, header};

use super::{Body, respond};
use crate::registry::Registry;

/// The path of a backup of all objects.
pub const BACKUP_PATH: &str = "/coracle/backup";

/// Responds with a backup of the newest revision. A client may take longer for it than for other
/// responses, but must keep reading.
pub fn backup(registry: &Registry) -> Response<Body> {
    let snapshot = registry.store.snapshot();
    let bytes = usize::try_from(snapshot.bytes()).unwrap_or(usize::MAX);
    let body = Body::stream(stream::iter(Chunks::new(&snapshot))).with_initial_memory(bytes);
    let mut response = respond::plain(200, "application/octet-stream", Default::default()).map(|_| body);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
