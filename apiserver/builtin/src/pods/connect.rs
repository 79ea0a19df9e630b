//! Subresources that lead to a kubelet: logs, exec, attach, port forwarding, proxies.
//!
//! Nodes are simulated, so no such road ends anywhere but at a line of log; but a request is checked on its way as a real one
//! is, and refused first for what is wrong with it.

use std::sync::Arc;

use coracle_apimachinery::error::Status;
use coracle_apimachinery::field::{ErrorType, Errors, FieldError, Path};
use coracle_apimachinery::names::{GroupKind, GroupResource};
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::resource_info::{Connection, Subresource, api_version};
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::{Registry, parse};
use coracle_apiserver::serve::{Connect, ConnectRequest, Connected};
use coracle_behavior::Profile;
use futures::FutureExt;
use serde_json::{Value, json};

use crate::pods::log::{self, Follower, LogOptions};

/// Answers requests for connections to pods, services and nodes.
///
/// - `profile`: the behavior of pods that nothing else is said about
pub fn connect(profile: Profile) -> Connect {
    Arc::new(move |request| perform(request, profile).boxed())
}

/// Admits and checks a request for a connection, and answers the one for a log.
///
/// # Errors
/// 501 where a real server would now talk to a kubelet.
async fn perform(request: ConnectRequest<'_>, profile: Profile) -> Result<Connected> {
    let ConnectRequest { registry, target, subresource, connection, query, caller } = request;
    match connection {
        Connection::Log => check_log_options(&target.name, query)?,
        _ => {
            let mut options = options(subresource, connection, query);
            registry.admit_connect(target, &subresource.name, &mut options, caller).await?;
        }
    }
    let is_pod = target.info.group_kind.kind == "Pod";
    let name = if connection == Connection::Proxy { bare_name(&target.name) } else { &target.name };
    let revision = registry.store.revision();
    let Some(stored) = registry.current(&target.info, &target.namespace, name) else {
        return Err(Error::not_found(&target.info.group_resource, name));
    };
    let object = parse(&stored)?;
    if target.info.group_kind.kind == "Service" {
        return Err(Error::ServiceUnavailable(format!(
            "no endpoints available for service {}",
            coracle_apimachinery::field::quote(name)
        )));
    }
    let container = query.first("container").unwrap_or("");
    if is_pod && !is_placed(registry, &object, connection, container)? {
        return Ok(Connected::Nothing);
    }
    if connection == Connection::Log {
        let now = registry.now();
        let options = LogOptions::parse(query, now)?;
        let writer = log::Writer::of(registry, &object, profile)?;
        if let Some(mut log) = log::of(&object, &options, writer, now)? {
            let follows = log::follow(registry, target, &object, &mut log, options, revision)
                .map(Follower::into_stream);
            return Ok(Connected::Text { text: log.text, follows });
        }
    }
    Err(Error::Status(Box::new(Status {
        code: 501,
        reason: "NotImplemented".into(),
        message: absent(connection).to_owned(),
        details: None,
        continue_token: None,
    })))
}

/// Whether a pod is somewhere that a connection could lead to; the log of one that is not is empty.
fn is_placed(registry: &Registry, pod: &Value, connection: Connection, container: &str) -> Result<bool> {
    let text = |pointer| pod.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    match connection {
        Connection::Proxy if text("/status/podIP").is_empty() => {
            return Err(Error::bad_request("address not allowed"));
        }
        Connection::Proxy => return Ok(true),
        Connection::Log | Connection::Exec | Connection::Attach => check_container(pod, container)?,
        Connection::PortForward => {}
    }
    let node = text("/spec/nodeName");
    if node.is_empty() && connection == Connection::Log {
        return Ok(false);
    }
    if node.is_empty() {
        let name = pod.name();
        return Err(Error::bad_request(format!("pod {name} does not have a host assigned")));
    }
    let nodes = GroupResource::new("", "nodes");
    if coracle_apimachinery::cluster::Cluster::get(registry, &nodes, "", node)?.is_none() {
        // The real server takes the missing node for the pod.
        return Err(Error::not_found(&GroupResource::new("", "pods"), node));
    }
    Ok(true)
}

/// Why there is nothing to connect to.
fn absent(connection: Connection) -> &'static str {
    match connection {
        Connection::Log => "nodes are simulated: no kubelet has reported this pod, so it has no log",
        Connection::Exec => "exec is not supported: nodes are simulated, and containers have no processes",
        Connection::Attach => {
            "attach is not supported: nodes are simulated, and containers have no processes"
        }
        Connection::PortForward => {
            "port-forward is not supported: nodes are simulated, and pods have no network"
        }
        Connection::Proxy => "proxy is not supported: nodes are simulated, and pods have no network",
    }
}

/// The options of a connection, such as PodExecOptions, as admission sees them.
fn options(subresource: &Subresource, connection: Connection, query: &Query) -> Value {
    let mut options = json!({
        "kind": subresource.kind,
        "apiVersion": api_version(&subresource.group, &subresource.version),
    });
    let text = |name: &str| query.first(name).filter(|text| !text.is_empty());
    match connection {
        Connection::Exec | Connection::Attach => {
            for name in ["stdin", "stdout", "stderr", "tty"] {
                if query.flag(name) == Some(true) {
                    options[name] = true.into();
                }
            }
            if let Some(container) = text("container") {
                options["container"] = container.into();
            }
            if connection == Connection::Exec {
                options["command"] = query.all("command").collect::<Vec<_>>().into();
            }
        }
        Connection::PortForward => {
            let ports = query.all("ports").filter_map(|port| port.parse::<i64>().ok());
            let ports: Vec<i64> = ports.collect();
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        Connection::Proxy => {
            if let Some(path) = text("path") {
                options["path"] = path.into();
            }
        }
        Connection::Log => {}
    }
    options
}

/// Of `scheme:name:port`, where the others may be missing.
fn bare_name(name: &str) -> &str {
    let parts: Vec<&str> = name.split(':').collect();
    match parts[..] {
        [name, _] | [_, name, _] => name,
        _ => name,
    }
}

fn check_log_options(pod: &str, query: &Query) -> Result<()> {
    let mut errors = Errors::new();
    let mut least = |field: &str, least: i64, detail: &str| -> Result<()> {
        if let Some(value) = query.int(field)?.filter(|value| *value < least) {
            errors.push(FieldError::new(ErrorType::Invalid, &Path::of(field), Some(value.into()), detail));
        }
        Ok(())
    };
    least("tailLines", 0, "must be greater than or equal to 0")?;
    least("limitBytes", 1, "must be greater than 0")?;
    if query.has("sinceSeconds") && query.has("sinceTime") {
        let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        // Go prints a path of no name so.
        errors.push(FieldError::new(ErrorType::Forbidden, &Path::of("[]"), None, detail));
    } else {
        least("sinceSeconds", 1, "must be greater than 0")?;
    }
    if query.has("stream") {
        let detail = "may not be specified";
        errors.push(FieldError::new(ErrorType::Forbidden, &Path::of("stream"), None, detail));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid(&GroupKind::new("", "PodLogOptions"), pod, errors))
    }
}

/// A container must be named, unless there is but one.
fn check_container(pod: &Value, name: &str) -> Result<()> {
    let names = |member: &str| -> Vec<&str> {
        let containers = pod.pointer(&format!("/spec/{member}")).and_then(Value::as_array);
        containers.into_iter().flatten().filter_map(|c| c.get("name").and_then(Value::as_str)).collect()
    };
    let kinds = [
        ("", names("containers")),
        ("init ", names("initContainers")),
        ("ephemeral ", names("ephemeralContainers")),
    ];
    if !name.is_empty() {
        if kinds.iter().any(|(_, names)| names.contains(&name)) {
            return Ok(());
        }
        return Err(Error::bad_request(format!("container {name} is not valid for pod {}", pod.name())));
    }
    let [(_, plain), others @ ..] = &kinds;
    if plain.len() == 1 {
        return Ok(());
    }
    let mut text = format!(
        "a container name must be specified for pod {}, choose one of: [{}]",
        pod.name(),
        plain.join(" ")
    );
    for (kind, names) in others.iter().filter(|(_, names)| !names.is_empty()) {
        text.push_str(&format!(" or one of the {kind}containers: [{}]", names.join(" ")));
    }
    Err(Error::bad_request(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containers() {
        let one = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}});
        let two = json!({"metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "c"}, {"name": "d"}], "initContainers": [{"name": "i"}],
        }});
        let choose = "a container name must be specified for pod p, choose one of: [c d] or one of the init containers: [i]";
        for (pod, container, want) in [
            (&one, "", ""),
            (&one, "x", "container x is not valid for pod p"),
            (&two, "", choose),
            (&two, "i", ""),
        ] {
            let error = check_container(pod, container).err().map(|e| e.to_string()).unwrap_or_default();
            assert_eq!(error, want, "{container}");
        }
    }

    #[test]
    fn log_options() {
        let invalid = |what: &str| format!("PodLogOptions \"p\" is invalid: {what}");
        for (query, want) in [
            ("tailLines=0&limitBytes=1&sinceSeconds=1", String::new()),
            ("tailLines=-1", invalid("tailLines: Invalid value: -1: must be greater than or equal to 0")),
            ("limitBytes=0", invalid("limitBytes: Invalid value: 0: must be greater than 0")),
            ("tailLines=x", "strconv.ParseInt: parsing \"x\": invalid syntax".to_owned()),
            ("stream=All", invalid("stream: Forbidden: may not be specified")),
        ] {
            let error = check_log_options("p", &Query::parse(query)).err();
            assert_eq!(error.map(|e| e.to_string()).unwrap_or_default(), want, "{query}");
        }
    }

    #[test]
    fn names_of_what_is_proxied() {
        for name in ["web", "web:80", "https:web:443", "https:web:"] {
            assert_eq!(bare_name(name), "web", "{name}");
        }
    }
}
