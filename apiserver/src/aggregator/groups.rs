//! What other servers serve, for the documents of discovery.

use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

/// A group and version of another server.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteVersion {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// `groupPriorityMinimum` and `versionPriority`, by which they are ordered.
    pub priorities: (i64, i64),
    /// Its APIResourceList; None while it is not available.
    pub resources: Option<Value>,
}

/// All of them, in the order of discovery.
#[derive(Debug, Default)]
pub struct RemoteGroups(ArcSwap<Vec<RemoteVersion>>);

impl RemoteGroups {
    /// Those of now.
    pub fn load(&self) -> Arc<Vec<RemoteVersion>> {
        self.0.load_full()
    }

    /// Replaces them, if they changed.
    pub fn replace(&self, mut versions: Vec<RemoteVersion>) {
        versions.sort_by(|a, b| {
            let by =
                |v: &RemoteVersion| (-v.priorities.0, v.group.clone(), -v.priorities.1, v.version.clone());
            by(a).cmp(&by(b))
        });
        if *self.0.load_full() != versions {
            self.0.store(Arc::new(versions));
        }
    }
}
