//! Requests that delete objects, their authors, and the graceful deletion of pods.

use serde_json::Value;

use crate::conditions::condition;
use crate::context::{Context, Target, is_terminating};
use crate::explanation::Cause;
use crate::kubectl;
use crate::objects::{Version, Writer};
use crate::text::{duration, items, quoted, text, text_or_empty, texts, time};

/// Returns the version of an object in which its deletion was requested: the first one with a
/// deletion timestamp, or the deletion itself.
///
/// - `versions`: the newest first
/// - `uid`: the uid of the object; empty for the newest object of the name
pub fn request<'a>(versions: &'a [Version], uid: &str) -> Option<&'a Version> {
    let uid = if uid.is_empty() { uid_of(versions.first()?) } else { uid };
    let is_meant = |version: &&Version| uid_of(version) == uid;
    versions
        .iter()
        .skip_while(|version| !is_meant(version))
        .take_while(is_meant)
        .take_while(|version| version.is_deletion || is_terminating(&version.object))
        .last()
}

fn uid_of(version: &Version) -> &str {
    text_or_empty(&version.object["metadata"]["uid"])
}

/// A writer by its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    GarbageCollector,
    NamespaceController,
    /// A controller of the controller manager that its user or user agent names.
    Controller(String),
    /// The controller manager, without saying which controller.
    ControllerManager,
    Scheduler,
    /// The kubelet of a node; empty for one that does not say which.
    Kubelet(String),
    Client,
}

/// Returns the role of a writer by its user and user agent.
pub fn role(writer: &Writer) -> Role {
    const MANAGER: &str = "system:kube-controller-manager";
    const ACCOUNTS: &str = "system:serviceaccount:kube-system:";
    let Writer { user, user_agent, .. } = writer;
    let account =
        user.strip_prefix(ACCOUNTS).or_else(|| user_agent.split_once(ACCOUNTS).map(|(_, name)| name));
    let program = user_agent.split(['/', ' ']).next().unwrap_or_default();
    // An operator of another user may have such a name.
    let is_system = user.is_empty() || user == MANAGER || user.starts_with(ACCOUNTS);
    let is_named = |name: &str| is_system && (account == Some(name) || user_agent.contains(name));
    match () {
        () if is_named("garbage-collector") || is_named("generic-garbage-collector") => {
            Role::GarbageCollector
        }
        () if is_named("namespace-controller") => Role::NamespaceController,
        () if user == "system:kube-scheduler" || program == "kube-scheduler" => Role::Scheduler,
        () if user.starts_with("system:node:") => {
            Role::Kubelet(user.trim_start_matches("system:node:").to_owned())
        }
        () if is_system && program == "kubelet" => Role::Kubelet(String::new()),
        () => match account
            .filter(|account| account.contains("controller") || account.ends_with("-collector"))
        {
            Some(account) => Role::Controller(account.to_owned()),
            None if user == MANAGER || program == "kube-controller-manager" => Role::ControllerManager,
            None => Role::Client,
        },
    }
}

/// Describes a writer: `alice with kubectl`, `the garbage collector`.
pub fn describe(writer: &Writer) -> String {
    match role(writer) {
        Role::GarbageCollector => "the garbage collector".to_owned(),
        Role::NamespaceController => "the namespace controller".to_owned(),
        Role::Controller(name) => format!("the {}", quoted(&name)),
        Role::ControllerManager => "the controller manager".to_owned(),
        Role::Scheduler => "the scheduler".to_owned(),
        Role::Kubelet(node) if node.is_empty() => "the kubelet".to_owned(),
        Role::Kubelet(node) => format!("the kubelet of node/{}", quoted(&node)),
        Role::Client => {
            let program = writer.user_agent.split(['/', ' ']).next().unwrap_or_default();
            let user = if writer.user.is_empty() { "an unknown user" } else { &writer.user };
            match program {
                "" => quoted(user),
                program => format!("{} with {}", quoted(user), quoted(program)),
            }
        }
    }
}

/// Returns the time at which deletion of an object was requested. The deletion timestamp is later
/// than that by the grace period.
pub fn requested_at(target: Target) -> Option<String> {
    let metadata = &target.object["metadata"];
    let at = text(&metadata["deletionTimestamp"])?;
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let second = time(at).and_then(|time| time.as_second().checked_sub(grace));
    let time = second.and_then(|second| jiff::Timestamp::from_second(second).ok());
    Some(time.map_or_else(|| at.to_owned(), |time| time.to_string()))
}

/// Explains the graceful deletion of a pod: a few words, and the cause. None if its containers have
/// ended or it never had a node.
pub fn grace(ctx: &Context, target: Target) -> Option<(String, Cause)> {
    let metadata = &target.object["metadata"];
    let node = text(&target.spec()["nodeName"]).filter(|_| target.resource == "pods")?;
    let until = text(&metadata["deletionTimestamp"])?;
    let period = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    // A kubelet confirms the end by a deletion without grace period, after which only finalizers
    // hold the pod.
    let is_confirmed = period == 0 && texts(&metadata["finalizers"]).next().is_some();
    if is_confirmed || has_ended(target.status()) {
        return None;
    }
    let field = format!("metadata.deletionGracePeriodSeconds: {period}");
    let cause =
        Cause::of(ctx.reference_of(target)).field(field).since(requested_at(target).unwrap_or_default());
    let force = format!(
        "{} --grace-period=0 --force",
        kubectl::delete(target.resource, target.namespace, target.name)
    );
    let short = ctx.short("nodes", node);
    let Some(object) = ctx.get("nodes", "", node) else {
        let waits_for = format!(
            "{short}, on which it ran, no longer exists, so that no kubelet confirms that its containers ended"
        );
        let remedy = format!("the pod garbage collector deletes it within a minute, or: {force}");
        return Some(("its node is gone".to_owned(), cause.waits_for(waits_for).remedy(remedy)));
    };
    let ready = condition(&object, "Ready");
    if let Some(ready) = ready.filter(|ready| ready["status"] != "True") {
        let status = quoted(text_or_empty(&ready["status"]));
        let since = text(&ready["lastTransitionTime"]).map(|at| format!(" since {}", ctx.moment(at)));
        let waits_for = format!(
            "the kubelet of {short} does not confirm that its containers ended: the node's condition Ready is {status}{}",
            since.unwrap_or_default()
        );
        let remedy = format!("it is deleted once the node reports again, or: {force}");
        return Some(("its node is not ready".to_owned(), cause.waits_for(waits_for).remedy(remedy)));
    }
    let left = time(until).map(|until| until.as_second().saturating_sub(ctx.now.as_second()));
    let (waits_for, remedy) = match left {
        Some(left @ 1..) => (
            format!("its containers have {} to stop, until {}", duration(period), ctx.moment(until)),
            format!("it is deleted when they have stopped, in {} at the latest", duration(left)),
        ),
        _ => (
            format!(
                "its grace period ended at {}, and the kubelet of {short} has not yet confirmed that its containers ended",
                ctx.moment(until)
            ),
            format!("if that lasts: {force}"),
        ),
    };
    Some(("grace period".to_owned(), cause.waits_for(waits_for).remedy(remedy)))
}

/// Returns `true` if a pod has ended, or all its containers have terminated.
fn has_ended(status: &Value) -> bool {
    let phase = text_or_empty(&status["phase"]);
    let mut containers = items(&status["containerStatuses"]).peekable();
    let all_terminated = containers.peek().is_some()
        && containers.all(|container| container["state"].get("terminated").is_some());
    ["Succeeded", "Failed"].contains(&phase) || all_terminated
}
