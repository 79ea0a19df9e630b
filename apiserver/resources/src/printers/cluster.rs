//! Kinds of the whole cluster: nodes, namespaces, classes, API services.

use std::collections::BTreeSet;

use coracle_apimachinery::render::columns::Text::{Field as Described, Literal};
use coracle_apimachinery::render::columns::{AGE, Column, NAME, Row, boolean, integer, string};
use serde_json::Value;

/// The columns of Namespace.
pub const NAMESPACE: &[Column] =
    &[NAME, string("Status", Literal("The status of the namespace"), |row| row.text("status.phase")), AGE];

/// The columns of Node.
pub const NODE: &[Column] = &[
    NAME,
    string("Status", Literal("The status of the node"), node_status),
    string("Roles", Literal("The roles of the node"), roles),
    AGE,
    string("Version", Described("core.v1.NodeSystemInfo.kubeletVersion"), |row| {
        row.text("status.nodeInfo.kubeletVersion")
    }),
    string("Internal-IP", Described("core.v1.NodeStatus.addresses"), |row| address(row, "InternalIP")).wide(),
    string("External-IP", Described("core.v1.NodeStatus.addresses"), |row| address(row, "ExternalIP")).wide(),
    string("OS-Image", Described("core.v1.NodeSystemInfo.osImage"), |row| {
        row.text_or("status.nodeInfo.osImage", "<unknown>")
    })
    .wide(),
    string("Kernel-Version", Described("core.v1.NodeSystemInfo.kernelVersion"), |row| {
        let info = row.get("status.nodeInfo");
        let (kernel, architecture) = (info.get("kernelVersion").str(), info.get("architecture").str());
        let kernel = if kernel.is_empty() { "<unknown>" } else { kernel };
        if architecture.is_empty() { kernel.into() } else { format!("{kernel} ({architecture})").into() }
    })
    .wide(),
    string("Container-Runtime", Described("core.v1.NodeSystemInfo.containerRuntimeVersion"), |row| {
        row.text_or("status.nodeInfo.containerRuntimeVersion", "<unknown>")
    })
    .wide(),
];

/// The columns of ComponentStatus.
pub const COMPONENT_STATUS: &[Column] = &[
    NAME,
    string("Status", Literal("Status of the component conditions"), |row| {
        match healthy(row, "status").as_str() {
            None => "Unknown".into(),
            Some("True") => "Healthy".into(),
            Some(_) => "Unhealthy".into(),
        }
    }),
    string("Message", Literal("Message of the component conditions"), |row| {
        healthy(row, "message").as_str().into()
    }),
    string("Error", Literal("Error of the component conditions"), |row| {
        healthy(row, "error").as_str().into()
    }),
];

/// The columns of PriorityClass.
pub const PRIORITY_CLASS: &[Column] = &[
    NAME,
    integer("Value", Described("scheduling.v1.PriorityClass.value"), |row| row.integer("value")),
    boolean("Global-Default", Described("scheduling.v1.PriorityClass.globalDefault"), |row| {
        row.flag_or("globalDefault", false)
    }),
    AGE,
    string("PreemptionPolicy", Described("scheduling.v1.PriorityClass.preemptionPolicy"), |row| {
        row.text("preemptionPolicy")
    }),
];

/// The columns of RuntimeClass.
pub const RUNTIME_CLASS: &[Column] = &[NAME, string("Handler", Literal(""), |row| row.text("handler")), AGE];

/// The columns of APIService.
pub const API_SERVICE: &[Column] = &[
    NAME,
    string("Service", Literal("The reference to the service that hosts this API endpoint."), |row| {
        let service = row.get("spec.service");
        if !service.exists() {
            return "Local".into();
        }
        format!("{}/{}", service.get("namespace").str(), service.get("name").str()).into()
    }),
    string("Available", Literal("Whether this service is available."), |row| {
        let mut conditions = row.get("status.conditions").items();
        let Some(condition) = conditions.find(|c| c.get("type").str() == "Available") else {
            return "Unknown".into();
        };
        match (condition.get("status").str(), condition.get("reason").str()) {
            (status @ "True", _) | (status, "") => status.into(),
            (status, reason) => format!("{status} ({reason})").into(),
        }
    }),
    AGE,
];

fn node_status(row: &Row<'_>) -> Value {
    let ready = row.get("status.conditions").items().filter(|c| c.get("type").str() == "Ready").last();
    let status = match ready.map(|c| c.get("status").str()) {
        None => "Unknown",
        Some("True") => "Ready",
        Some(_) => "NotReady",
    };
    let cordoned = if row.get("spec.unschedulable").bool() { ",SchedulingDisabled" } else { "" };
    format!("{status}{cordoned}").into()
}

/// Formats the roles in labels: `node-role.kubernetes.io/ROLE` or `kubernetes.io/role=ROLE`.
fn roles(row: &Row<'_>) -> Value {
    let labels = row.get("metadata.labels");
    let roles: BTreeSet<&str> = labels
        .entries()
        .filter_map(|(key, value)| match key {
            "kubernetes.io/role" => Some(value.str()),
            key => key.strip_prefix("node-role.kubernetes.io/"),
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { "<none>".into() } else { roles.into_iter().collect::<Vec<_>>().join(",").into() }
}

fn address(row: &Row<'_>, kind: &str) -> Value {
    let mut addresses = row.get("status.addresses").items();
    let address = addresses.find(|address| address.get("type").str() == kind);
    address.map_or("<none>", |address| address.get("address").str()).into()
}

/// Returns a member of the first health condition.
fn healthy(row: &Row<'_>, member: &str) -> Value {
    let mut conditions = row.get("conditions").items();
    let condition = conditions.find(|c| c.get("type").str() == "Healthy");
    condition.map_or(Value::Null, |c| c.get(member).str().into())
}
