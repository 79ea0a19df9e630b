//! Subresources that lead to a kubelet: logs, exec, attach, port forwarding, proxies.
//!
//! Nodes are simulated, so each of these roads ends here: at what annotations and commands say
//! (`log/`, `command.rs`), or at a process that an annotation names (`port_forward.rs`,
//! `proxy.rs`). A request is checked on its way as a real one is, and refused first for what is
//! wrong with it.

use std::sync::Arc;

use coracle_apimachinery::field::{ErrorType, Errors, FieldError, Path};
use coracle_apimachinery::names::{GroupKind, GroupResource};
use coracle_apimachinery::object_meta::ObjectMeta;
use coracle_apimachinery::request::Verb;
use coracle_apimachinery::request::options::Query;
use coracle_apimachinery::resource_info::{Connection, Subresource, api_version};
use coracle_apimachinery::{Error, Result};
use coracle_apiserver::access::UserInfo;
use coracle_apiserver::access::authorize::{
    Authorizer, Decision, RequestAttributes, ResourceTarget, Target as Attributes,
};
use coracle_apiserver::registry::{Registry, Target, parse};
use coracle_apiserver::serve::{Connect, ConnectRequest, Connected, ServeUpgraded};
use coracle_behavior::Profile;
use futures::FutureExt;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::behavior::behavior_of;
use super::command::{self, ContainerTarget, not_implemented};
use super::log::{self, Follower, LogOptions};
use super::proxy::ProxiedName;
use super::{port_forward, proxy};
use crate::forwarding::ForwardAccess;

/// The connections to pods at once: each may hold some megabytes.
const MAX_CONNECTIONS: usize = 512;

/// The gate that makes a GET need the right of a POST. Source:
/// `pkg/registry/core/pod/rest/authorize.go`.
const CREATE_PERMISSION: &str = "AuthorizePodWebsocketUpgradeCreatePermission";

/// Answers requests for connections to pods, services and nodes.
///
/// - `profile`: the behavior of pods that nothing else is said about
/// - `access`: the addresses that their ports may lead to
pub fn connect(profile: Profile, access: Arc<ForwardAccess>) -> Connect {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    Arc::new(move |request| {
        let (access, places) = (access.clone(), places.clone());
        async move {
            match perform(request, profile, &access).await? {
                Connected::Streams { headers, serve } => {
                    let place = places.try_acquire_owned().map_err(|_| too_many_connections())?;
                    let serve: ServeUpgraded = Box::new(|connection| {
                        async move {
                            serve(connection).await;
                            drop(place);
                        }
                        .boxed()
                    });
                    Ok(Connected::Streams { headers, serve })
                }
                connected => Ok(connected),
            }
        }
        .boxed()
    })
}

fn too_many_connections() -> Error {
    let message = format!("there are {MAX_CONNECTIONS} connections to pods already, please try again later");
    Error::plain(429, "TooManyRequests", message)
}

/// Admits and checks a request for a connection, and answers it.
///
/// # Errors
/// 501 where a real server would now talk to a kubelet, and nothing says what that would answer.
async fn perform(request: ConnectRequest<'_>, profile: Profile, access: &ForwardAccess) -> Result<Connected> {
    let ConnectRequest {
        registry,
        authorizer,
        verb,
        target,
        subresource,
        connection,
        query,
        headers,
        path,
        caller,
    } = request;
    match connection {
        Connection::Log => {
            LogOptions::parse(query, registry.now())?;
            check_log_options(&target.name, query)?;
        }
        _ if query.has("dryRun") => return Err(Error::bad_request("dryRun is not supported")),
        _ => {
            let mut options = options(subresource, connection, query, path)?;
            registry.admit_connect(target, &subresource.name, &mut options, caller).await?;
        }
    }
    // A GET opens a WebSocket, and does what a POST does.
    let enters = matches!(connection, Connection::Exec | Connection::Attach | Connection::PortForward);
    if enters && verb != Verb::Create && registry.features().is_enabled(CREATE_PERMISSION) {
        may_create(authorizer, caller.user, target, &subresource.name)?;
    }
    let named = match connection {
        Connection::Proxy => ProxiedName::parse(&target.name).ok_or_else(|| {
            let kind = target.info.group_kind.kind.to_lowercase();
            let name = coracle_apimachinery::field::quote(&target.name);
            Error::bad_request(format!("invalid {kind} request {name}"))
        })?,
        _ => ProxiedName::of(&target.name),
    };
    let revision = registry.store.revision();
    let Some(stored) = registry.current(&target.info, &target.namespace, named.name) else {
        return Err(Error::not_found(&target.info.group_resource, named.name));
    };
    let object = parse(&stored)?;
    match target.info.group_kind.kind.as_str() {
        "Pod" => {}
        "Service" => return proxy::service_upstream(registry, &object, &named, access).map(Connected::Proxy),
        _ => {
            let message = "proxy is not supported: nodes are simulated, and run no kubelet that would answer";
            return Err(not_implemented(message.to_owned()));
        }
    }
    let container = query.first("container").unwrap_or("");
    if !is_placed(registry, &object, connection, container)? {
        return Ok(Connected::Nothing);
    }
    match connection {
        Connection::Log => {
            let now = registry.now();
            let options = LogOptions::parse(query, now)?;
            let writer = log::Writer::of(registry.as_ref(), &object, profile)?;
            let mut log = log::of(&object, &options, writer, now)?.ok_or_else(|| {
                not_implemented(
                    "nodes are simulated: no kubelet has reported this pod, so it has no log".to_owned(),
                )
            })?;
            let follows = log::follow(registry, target, &object, &mut log, options, revision);
            Ok(Connected::Text { text: log.text, follows: follows.map(Follower::into_stream) })
        }
        Connection::Exec | Connection::Attach => {
            let only = object.pointer("/spec/containers/0/name").and_then(Value::as_str).unwrap_or_default();
            let container = if container.is_empty() { only } else { container };
            let container = ContainerTarget { registry, target, pod: &object, container, revision, profile };
            command::connect(&container, connection, query, headers)
        }
        Connection::PortForward => {
            let (_, behavior) = behavior_of(registry.as_ref(), &object, profile)?;
            let target =
                |container| ContainerTarget { registry, target, pod: &object, container, revision, profile };
            let names = container_names(&object);
            let mut lives = names.iter().filter_map(|name| target(name).written_from_now_on().transpose());
            let Some(life) = lives.next().transpose()? else {
                let text = format!("unable to do port forwarding: pod {} is not running", object.name());
                return Ok(command::refused(500, &text));
            };
            port_forward::connect(&object, behavior, access, life, query, headers)
        }
        Connection::Proxy => proxy::pod_upstream(registry, &object, &named, access).map(Connected::Proxy),
    }
}

/// Returns the names of the containers of a pod.
fn container_names(pod: &Value) -> Vec<&str> {
    let containers = pod.pointer("/spec/containers").and_then(Value::as_array).into_iter().flatten();
    containers.filter_map(|container| container["name"].as_str()).collect()
}

/// Checks that a user may create connections of a kind.
///
/// # Errors
/// 403 if they may not.
fn may_create(authorizer: &Authorizer, user: &UserInfo, target: &Target, subresource: &str) -> Result<()> {
    let GroupResource { group, resource } = &target.info.group_resource;
    let Target { namespace, name, .. } = target;
    let attributes = ResourceTarget { group, resource, subresource, namespace, name };
    let request = RequestAttributes { verb: Verb::Create.as_str(), target: Attributes::Resource(attributes) };
    match authorizer.decide(user, &request) {
        Decision { allowed: true, .. } => Ok(()),
        Decision { reason, .. } => Err(Error::forbidden(&target.info.group_resource, name, reason)),
    }
}

/// Returns whether the pod has a node that a connection can lead to. Without a node its log is
/// empty, which is `false`, and other connections are errors.
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
        // kube-apiserver takes the missing node for the pod.
        return Err(Error::not_found(&GroupResource::new("", "pods"), node));
    }
    Ok(true)
}

/// Builds the options of a connection, such as PodExecOptions, for admission.
///
/// # Errors
/// 400 for a port that is no number.
fn options(subresource: &Subresource, connection: Connection, query: &Query, path: &str) -> Result<Value> {
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
            let ports = query.all("ports").flat_map(|ports| ports.split(',')).map(port);
            let ports: Vec<u16> = ports.collect::<Result<_>>()?;
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        Connection::Proxy => {
            if !path.is_empty() {
                options["path"] = path.into();
            }
        }
        Connection::Log => {}
    }
    Ok(options)
}

/// Parses a port, with the error of Go.
fn port(text: &str) -> Result<u16> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or_else(|| {
        let detail = if is_number { "value out of range" } else { "invalid syntax" };
        let text = coracle_apimachinery::field::quote(text);
        Error::bad_request(format!("cannot convert to []int32: strconv.ParseUint: parsing {text}: {detail}"))
    })
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

/// Checks the name of a container. It is required unless the pod has only one container.
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
}
