//! Read access to the objects of a cluster, as the caller provides it.

use serde_json::Value;

/// Read access to the objects that an explanation is about, to their past, and to refused requests.
pub trait Objects {
    /// Returns an object of a resource, such as `pods` or `statefulsets.apps`. The namespace is
    /// empty for cluster-scoped resources.
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value>;

    /// Returns all objects of a resource in one namespace, or with `None` in all namespaces.
    fn list(&self, resource: &str, namespace: Option<&str>) -> Vec<Value>;

    /// Returns the served resources.
    fn resources(&self) -> Vec<Resource>;

    /// Returns the known past of the objects with a name, the newest first: their versions and
    /// deletions.
    fn past(&self, resource: &str, namespace: &str, name: &str) -> Vec<Version>;

    /// Returns recently refused requests about an object, the newest first. They were refused by
    /// admission, a quota, a disruption budget or a conflict.
    fn refusals(&self, resource: &str, namespace: &str, name: &str) -> Vec<Refusal>;

    /// Returns `true` if a read left out existing objects because of a limit.
    fn is_truncated(&self) -> bool {
        false
    }
}

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resource {
    /// The plural name with the group: `pods`, `statefulsets.apps`.
    pub name: String,
    /// The kind of its objects: `StatefulSet`.
    pub kind: String,
    /// The group and version of its objects: `apps/v1`.
    pub api_version: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// Whether it is that of a CustomResourceDefinition.
    pub is_custom: bool,
}

impl Resource {
    /// Returns `true` if the objects are Events, which neither own nor block other objects.
    pub(crate) fn is_event(&self) -> bool {
        ["events", "events.events.k8s.io"].contains(&self.name.as_str())
    }
}

/// A version of an object, or its deletion.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The revision of the write, which is the resource version.
    pub revision: u64,
    /// The time of the write in RFC 3339.
    pub time: Option<String>,
    /// The author of the write.
    pub writer: Option<Writer>,
    /// The object after the write; of a deletion the last state.
    pub object: Value,
    /// Whether the object was removed by this write.
    pub is_deletion: bool,
}

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writer {
    /// The name of the user.
    pub user: String,
    /// The user agent of the request.
    pub user_agent: String,
    /// The verb of the request: `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verb: String,
}

/// A writer in a few words: `alice with kubectl`, `the garbage collector`,
/// `the statefulset-controller`.
impl std::fmt::Display for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::deletion::describe(self))
    }
}

/// A request that was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The time of the request in RFC 3339.
    pub time: String,
    /// The newest revision at that time.
    pub revision: u64,
    /// The author of the request.
    pub writer: Writer,
    /// The HTTP status code of the response.
    pub code: u16,
    /// The reason of the response: `Forbidden`, `Conflict`, `TooManyRequests`.
    pub reason: String,
    /// The message of the response.
    pub message: String,
}
