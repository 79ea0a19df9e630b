//! Bootstrap: the objects that kube-apiserver creates at start.
//!
//! `objects.jsonl` contains them, one a line, in the order of their creation: namespaces, API
//! services, priority levels and flow schemas, the service CIDR, priority classes, the default RBAC
//! roles and bindings, and the `kubernetes` service. A line is the object as it is stored, with the
//! metadata that the server sets, so that a start need not make it: `${uid}`, `${now}` and others
//! stand for what only the start knows. A test of the crate that stores them verifies the lines.
//!
//! The file has what controllers add to these objects, such as the rules of aggregated roles;
//! [`initial_objects`] leaves out what belongs to a controller that does not run.
//!
//! Service accounts and `kube-root-ca.crt` are created by controllers.

use std::borrow::Cow;

use serde_json::Value;

use crate::Error;
use crate::object_meta::ObjectMeta;

/// The metadata that the server sets.
const SET_BY_SERVER: [&str; 4] = ["uid", "resourceVersion", "creationTimestamp", "managedFields"];

/// The place of the uid.
const UID: &str = "${uid}";

const OBJECTS: &str = include_str!("objects.jsonl");

/// The parameters of the objects.
pub struct Parameters<'a> {
    /// The current time in RFC 3339, whole seconds.
    pub now: &'a str,
    /// The port on which the API is served.
    pub secure_port: u16,
    /// The block of cluster IPs, such as `10.0.0.0/24`.
    pub service_cidr: &'a str,
    /// The cluster IP of the `kubernetes` service: the first address of the block.
    pub kubernetes_ip: &'a str,
    /// Whether a controller runs, by kube-controller-manager's name.
    pub is_selected: &'a dyn Fn(&str) -> bool,
}

/// An object that is there from the start.
#[derive(Clone, Debug)]
pub enum InitialObject {
    /// One without the metadata that the server sets.
    New(Value),
    /// One that is complete but for its uid.
    Prepared(PreparedObject),
}

/// An object as it is stored, with a place for its uid.
#[derive(Clone, Debug)]
pub struct PreparedObject(String);

/// The identity of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// The group and version.
    pub api_version: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The namespace; "" if it has none.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl InitialObject {
    /// Returns the identity of the object.
    ///
    /// # Errors
    /// A prepared object is not in the form in which objects are stored.
    pub fn identity(&self) -> Result<Identity<'_>, Error> {
        match self {
            InitialObject::New(object) => {
                let text = |member: &str| object.get(member).and_then(Value::as_str).unwrap_or("");
                Ok(Identity {
                    api_version: text("apiVersion"),
                    kind: text("kind"),
                    namespace: object.namespace(),
                    name: object.name(),
                })
            }
            InitialObject::Prepared(PreparedObject(text)) => identity(text)
                .ok_or_else(|| Error::Internal(format!("not an object as it is stored: {text}"))),
        }
    }

    /// Returns the object without the metadata that the server sets.
    ///
    /// # Errors
    /// A prepared object is not JSON.
    pub fn object(&self) -> Result<Cow<'_, Value>, Error> {
        match self {
            InitialObject::New(object) => Ok(Cow::Borrowed(object)),
            InitialObject::Prepared(PreparedObject(text)) => {
                let mut object: Value =
                    serde_json::from_str(text).map_err(|error| Error::Internal(error.to_string()))?;
                SET_BY_SERVER.into_iter().for_each(|member| object.set_meta(member, Value::Null));
                Ok(Cow::Owned(object))
            }
        }
    }
}

impl PreparedObject {
    /// Returns the bytes to store.
    pub fn with_uid(&self, uid: &str) -> Vec<u8> {
        self.0.replacen(UID, uid, 1).into_bytes()
    }
}

impl From<Value> for InitialObject {
    fn from(object: Value) -> InitialObject {
        InitialObject::New(object)
    }
}

/// Returns all objects, in the order in which they are created.
pub fn initial_objects(parameters: &Parameters<'_>) -> Vec<InitialObject> {
    let lines = OBJECTS.split_inclusive('\n');
    lines.map(|line| initial_object(line, parameters)).collect()
}

/// Returns all objects without the metadata that the server sets, in the order in which they are
/// created.
pub fn objects(parameters: &Parameters<'_>) -> Vec<Value> {
    let objects = initial_objects(parameters);
    objects.iter().map(|object| object.object().expect("every line is JSON").into_owned()).collect()
}

/// Returns the lines of the file, with the places of what only a start knows.
pub fn lines() -> impl Iterator<Item = InitialObject> {
    OBJECTS.split_inclusive('\n').map(|line| InitialObject::Prepared(PreparedObject(line.to_owned())))
}

/// Reads the identity of a stored object, of which it is the beginning.
fn identity(text: &str) -> Option<Identity<'_>> {
    let (kind, rest) = text.strip_prefix(r#"{"kind":""#)?.split_once('"')?;
    let (api_version, rest) = rest.strip_prefix(r#","apiVersion":""#)?.split_once('"')?;
    let (name, rest) = rest.strip_prefix(r#","metadata":{"name":""#)?.split_once('"')?;
    let namespace = rest.strip_prefix(r#","namespace":""#).and_then(|rest| rest.split_once('"'));
    Some(Identity { api_version, kind, namespace: namespace.map_or("", |(namespace, _)| namespace), name })
}

fn initial_object(line: &str, parameters: &Parameters<'_>) -> InitialObject {
    let prepared = InitialObject::Prepared(PreparedObject(filled(line, parameters)));
    let (controller, change) = match identity(line).map(|identity| identity.kind) {
        Some("ClusterRole") if line.contains(r#""aggregationRule":{"#) => {
            ("clusterrole-aggregation-controller", without_rules as fn(&mut Value))
        }
        Some("ServiceCIDR") => ("service-cidr-controller", without_finalizers as fn(&mut Value)),
        _ => return prepared,
    };
    if (parameters.is_selected)(controller) {
        return prepared;
    }
    let mut object = prepared.object().expect("every line is JSON").into_owned();
    change(&mut object);
    InitialObject::New(object)
}

/// Removes what only the controller of aggregated roles adds.
fn without_rules(role: &mut Value) {
    role["rules"] = Value::Null;
}

/// Removes what only the controller of service CIDRs adds.
fn without_finalizers(service_cidr: &mut Value) {
    service_cidr.set_meta("finalizers", Value::Null);
    service_cidr["status"]["conditions"][0]["message"] = "Kubernetes default Service CIDR is ready".into();
}

/// Fills in what a start knows, but for the uid.
fn filled(line: &str, parameters: &Parameters<'_>) -> String {
    let port = parameters.secure_port.to_string();
    let mut filled = String::with_capacity(line.len() + 64);
    let mut rest = line;
    while let Some((before, (place, after))) =
        rest.split_once("${").and_then(|(before, place)| Some((before, place.split_once('}')?)))
    {
        filled.push_str(before);
        rest = after;
        match place {
            "now" => filled.push_str(parameters.now),
            "today" => filled.push_str(parameters.now.split('T').next().unwrap_or_default()),
            "service-cidr" => filled.push_str(parameters.service_cidr),
            "kubernetes-ip" => filled.push_str(parameters.kubernetes_ip),
            // A number, in the place of a text.
            "secure-port" => {
                filled.pop();
                filled.push_str(&port);
                rest = rest.strip_prefix('"').unwrap_or(rest);
            }
            place => filled.extend(["${", place, "}"]),
        }
    }
    filled.push_str(rest);
    filled
}
