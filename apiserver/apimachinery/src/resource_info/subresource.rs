//! Subresources: the endpoints below an object's path, and their implementation.

use crate::names::Text;
use crate::render::table::Printer;
use crate::schema::TypeRef;
use crate::strategy::Part;

/// A subresource of a resource.
#[derive(Clone)]
pub struct Subresource {
    /// The name, such as `status`.
    pub name: Text,
    /// The group of its kind.
    pub group: Text,
    /// The version of its kind.
    pub version: Text,
    /// The kind.
    pub kind: Text,
    /// The verbs, sorted.
    pub verbs: Vec<Text>,
    /// The type of the request and the response.
    pub type_ref: TypeRef,
    /// The kind of endpoint.
    pub endpoint: Endpoint,
    /// The columns of its Tables; None if it is not served as one.
    pub printer: Option<Printer>,
}

/// Equality as seen by clients, like that of resources: columns do not count.
impl PartialEq for Subresource {
    fn eq(&self, other: &Subresource) -> bool {
        (&self.name, &self.group, &self.version, &self.kind)
            == (&other.name, &other.group, &other.version, &other.kind)
            && (&self.verbs, &self.type_ref, self.endpoint) == (&other.verbs, &other.type_ref, other.endpoint)
    }
}

impl std::fmt::Debug for Subresource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.name)
    }
}

/// The kind of endpoint of a subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A part of the object itself.
    Part(Part),
    /// The number of replicas, as a Scale.
    Scale,
    /// Executes an action on the object, and responds with another kind.
    Action,
    /// Connects the client to a process or server behind the object.
    Connect(Connection),
}

/// The target of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Connection {
    /// The log of a pod.
    Log,
    /// A command that is run in it.
    Exec,
    /// A process of it.
    Attach,
    /// The ports of a pod.
    PortForward,
    /// The HTTP server that it runs.
    Proxy,
}

impl Endpoint {
    /// Returns the endpoint with a name; None if there is none.
    pub fn named(name: &str) -> Option<Endpoint> {
        Some(match name {
            "status" => Endpoint::Part(Part::Status),
            "finalize" => Endpoint::Part(Part::Finalize),
            "ephemeralcontainers" => Endpoint::Part(Part::EphemeralContainers),
            "resize" => Endpoint::Part(Part::Resize),
            "approval" => Endpoint::Part(Part::Approval),
            "scale" => Endpoint::Scale,
            "binding" | "eviction" | "token" => Endpoint::Action,
            "log" => Endpoint::Connect(Connection::Log),
            "exec" => Endpoint::Connect(Connection::Exec),
            "attach" => Endpoint::Connect(Connection::Attach),
            "portforward" => Endpoint::Connect(Connection::PortForward),
            "proxy" => Endpoint::Connect(Connection::Proxy),
            _ => return None,
        })
    }
}

impl Subresource {
    /// Returns `true` if the subresource has a verb.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|known| known == verb)
    }
}

impl Part {
    /// Returns the part of the object that a subresource writes; None if it does not write a part
    /// of the object.
    pub fn of(subresource: Option<&Subresource>) -> Option<Part> {
        match subresource.map(|subresource| subresource.endpoint) {
            None => Some(Part::Main),
            Some(Endpoint::Part(part)) => Some(part),
            Some(_) => None,
        }
    }
}
