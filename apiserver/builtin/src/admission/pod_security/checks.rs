//! The checks of the baseline and the restricted level, each with the version in which it was
//! introduced or changed.

use std::collections::BTreeSet;

use coracle_apimachinery::field::quote;
use coracle_apiserver::admission::json::{items, text};
use serde_json::Value;

use super::policy::{Level, LevelVersion, Version};
use crate::pod_spec::{ALL_CONTAINERS, containers};

/// A pod, or a template of one.
pub(super) struct Pod<'a> {
    metadata: &'a Value,
    spec: &'a Value,
}

impl<'a> Pod<'a> {
    pub(super) fn of(object: &'a Value) -> Pod<'a> {
        Pod { metadata: &object["metadata"], spec: &object["spec"] }
    }

    fn containers(&self) -> impl Iterator<Item = &'a Value> {
        containers(self.spec, &ALL_CONTAINERS)
    }

    /// Returns the containers that `bad` matches, as `container "a"` or `containers "a", "b"`; None
    /// if it matches none.
    fn offenders(&self, mut bad: impl FnMut(&'a Value) -> bool) -> Option<Named> {
        let names: Vec<&str> = self.containers().filter(|c| bad(c)).map(|c| text(&c["name"])).collect();
        (!names.is_empty()).then(|| Named::of("container", "containers", &names))
    }

    /// Returns the pod and containers with a security context that `bad` matches: `pod and
    /// container "a"`.
    fn setters(&self, mut bad: impl FnMut(&'a Value) -> bool) -> Option<String> {
        let of_pod = bad(&self.spec["securityContext"]).then(|| "pod".to_owned());
        let of_containers = self.offenders(|c| bad(&c["securityContext"])).map(|n| n.text);
        let setters: Vec<String> = of_pod.into_iter().chain(of_containers).collect();
        (!setters.is_empty()).then(|| setters.join(" and "))
    }

    fn is_windows(&self) -> bool {
        self.spec["os"]["name"] == "windows"
    }

    /// Returns `true` if the pod has a user namespace of its own, so that its root user has no
    /// privileges on the host.
    fn has_own_users(&self) -> bool {
        self.spec["hostUsers"] == false
    }
}

/// Names with their noun, and whether it is in the singular.
struct Named {
    text: String,
    single: bool,
}

impl Named {
    fn of(one: &str, many: &str, names: &[&str]) -> Named {
        let single = names.len() == 1;
        Named { text: format!("{} {}", if single { one } else { many }, quoted(names)), single }
    }

    fn verb(&self) -> &'static str {
        if self.single { "uses" } else { "use" }
    }
}

fn quoted<S: AsRef<str>>(names: &[S]) -> String {
    // In quotes, without escapes.
    names.iter().map(|name| format!("\"{}\"", name.as_ref())).collect::<Vec<_>>().join(", ")
}

fn listed(set: &BTreeSet<&str>) -> String {
    quoted(&set.iter().collect::<Vec<_>>())
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}

/// A violation of a check.
#[derive(Debug, PartialEq)]
pub(super) struct Violation {
    pub(super) reason: String,
    pub(super) detail: String,
}

fn violation(reason: &str, detail: impl Into<String>) -> Violation {
    Violation { reason: reason.to_owned(), detail: detail.into() }
}

type Rule = fn(&Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    level: Level,
    /// The rules, each with the first minor version that it applies to.
    since: &'static [(u32, Rule)],
    /// The baseline check that this one replaces; empty for none.
    replaces: &'static str,
}

const fn baseline(id: &'static str, since: &'static [(u32, Rule)]) -> Check {
    Check { id, level: Level::Baseline, since, replaces: "" }
}

const fn restricted(id: &'static str, since: &'static [(u32, Rule)], replaces: &'static str) -> Check {
    Check { id, level: Level::Restricted, since, replaces }
}

/// All checks, in the order in which violations are listed: baseline first, each level sorted by
/// id.
const CHECKS: [Check; 19] = [
    baseline("appArmorProfile", &[(0, app_armor)]),
    baseline("capabilities_baseline", &[(0, capabilities_baseline)]),
    baseline("hostNamespaces", &[(0, host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host_path_volumes)]),
    baseline("hostPorts", &[(0, host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, probe_hosts)]),
    baseline("privileged", &[(0, privileged)]),
    baseline(
        "procMount",
        &[(0, proc_mount), (35, |pod| if pod.has_own_users() { None } else { proc_mount(pod) })],
    ),
    baseline(
        "seLinuxOptions",
        &[(0, |pod| selinux(pod, &SELINUX_TYPES[..3])), (31, |pod| selinux(pod, &SELINUX_TYPES))],
    ),
    baseline("seccompProfile_baseline", &[(0, seccomp_annotations), (19, seccomp_baseline)]),
    baseline(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, &SYSCTLS[..5])),
            (27, |pod| sysctls(pod, &SYSCTLS[..6])),
            (29, |pod| sysctls(pod, &SYSCTLS[..10])),
            (32, |pod| sysctls(pod, &SYSCTLS)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, windows_host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        &[
            (8, privilege_escalation),
            (25, |pod| if pod.is_windows() { None } else { privilege_escalation(pod) }),
        ],
        "",
    ),
    restricted(
        "capabilities_restricted",
        &[
            (22, capabilities_restricted),
            (25, |pod| if pod.is_windows() { None } else { capabilities_restricted(pod) }),
        ],
        "capabilities_baseline",
    ),
    restricted("procMount_restricted", &[(35, proc_mount)], "procMount"),
    restricted("restrictedVolumes", &[(0, restricted_volumes)], "hostPathVolumes"),
    restricted(
        "runAsNonRoot",
        &[(0, run_as_non_root), (35, |pod| if pod.has_own_users() { None } else { run_as_non_root(pod) })],
        "",
    ),
    restricted(
        "runAsUser",
        &[(23, run_as_user), (35, |pod| if pod.has_own_users() { None } else { run_as_user(pod) })],
        "",
    ),
    restricted(
        "seccompProfile_restricted",
        &[
            (19, seccomp_restricted),
            (25, |pod| if pod.is_windows() { None } else { seccomp_restricted(pod) }),
        ],
        "seccompProfile_baseline",
    ),
];

impl Check {
    fn rule(&self, minor: u32) -> Option<Rule> {
        self.since.iter().rev().find(|(since, _)| *since <= minor).map(|(_, rule)| *rule)
    }
}

/// Evaluates a level; returns the violations, in order.
pub(super) fn evaluate(wanted: LevelVersion, pod: &Pod<'_>) -> Vec<Violation> {
    let minor = match wanted.version {
        Version::Minor(minor) => minor,
        Version::Latest => u32::MAX,
    };
    let applies = |check: &&Check| check.level <= wanted.level && check.rule(minor).is_some();
    let replaced: Vec<&str> = CHECKS.iter().filter(applies).map(|check| check.replaces).collect();
    CHECKS
        .iter()
        .filter(applies)
        .filter(|check| !replaced.contains(&check.id))
        .filter_map(|check| check.rule(minor)?(pod))
        .collect()
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let mut bad = BTreeSet::new();
    let by_field = pod.setters(|context| {
        let profile = &context["appArmorProfile"];
        let wrong = profile.is_object() && !["RuntimeDefault", "Localhost"].contains(&text(&profile["type"]));
        if wrong {
            bad.insert(text(&profile["type"]));
        }
        wrong
    });
    let mut values: Vec<String> = bad.into_iter().map(str::to_owned).collect();
    let annotations = pod.metadata["annotations"].as_object().into_iter().flatten();
    let by_annotation: Vec<String> = annotations
        .filter(|(key, _)| key.starts_with("container.apparmor.security.beta.kubernetes.io/"))
        .map(|(key, value)| (key, text(value)))
        .filter(|(_, v)| !v.is_empty() && *v != "runtime/default" && !v.starts_with("localhost/"))
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    let noun = plural(by_annotation.len(), "annotation", "annotations");
    let setters: Vec<String> =
        by_field.into_iter().chain((!by_annotation.is_empty()).then(|| noun.to_owned())).collect();
    values.extend(by_annotation);
    (!setters.is_empty()).then(|| {
        violation(
            plural(values.len(), "forbidden AppArmor profile", "forbidden AppArmor profiles"),
            format!("{} must not set AppArmor profile type to {}", setters.join(" and "), quoted(&values)),
        )
    })
}

const DEFAULT_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Returns the containers that add other capabilities than these, and the capabilities that they
/// add.
fn added<'a>(pod: &Pod<'a>, allowed: &[&str]) -> Option<(Named, BTreeSet<&'a str>)> {
    let mut bad = BTreeSet::new();
    let offenders = pod.offenders(|container| {
        let added = items(&container["securityContext"]["capabilities"]["add"]).iter().map(text);
        let wrong: Vec<&str> = added.filter(|capability| !allowed.contains(capability)).collect();
        let any = !wrong.is_empty();
        bad.extend(wrong);
        any
    })?;
    Some((offenders, bad))
}

fn must_not_add((offenders, bad): (Named, BTreeSet<&str>)) -> String {
    format!("{} must not include {} in securityContext.capabilities.add", offenders.text, listed(&bad))
}

fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    added(pod, &DEFAULT_CAPABILITIES).map(|bad| violation("non-default capabilities", must_not_add(bad)))
}

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    let keeps = |c: &Value| !items(&c["securityContext"]["capabilities"]["drop"]).iter().any(|d| d == "ALL");
    let keepers = pod
        .offenders(keeps)
        .map(|named| format!(r#"{} must set securityContext.capabilities.drop=["ALL"]"#, named.text));
    let adders = added(pod, &["NET_BIND_SERVICE"]).map(must_not_add);
    let details: Vec<String> = keepers.into_iter().chain(adders).collect();
    (!details.is_empty()).then(|| violation("unrestricted capabilities", details.join("; ")))
}

fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared = ["hostNetwork", "hostPID", "hostIPC"].into_iter().filter(|name| pod.spec[name] == true);
    let shared: Vec<String> = shared.map(|name| format!("{name}=true")).collect();
    (!shared.is_empty()).then(|| violation("host namespaces", shared.join(", ")))
}

fn host_path_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let volumes = items(&pod.spec["volumes"]).iter().filter(|v| v["hostPath"].is_object());
    let names: Vec<&str> = volumes.map(|v| text(&v["name"])).collect();
    (!names.is_empty()).then(|| violation("hostPath volumes", Named::of("volume", "volumes", &names).text))
}

fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    let mut bad = BTreeSet::new();
    let offenders = pod.offenders(|container| {
        let ports = items(&container["ports"]).iter().filter_map(|p| p["hostPort"].as_i64());
        let ports: Vec<String> = ports.filter(|p| *p != 0).map(|p| p.to_string()).collect();
        let any = !ports.is_empty();
        bad.extend(ports);
        any
    })?;
    let noun = plural(bad.len(), "hostPort", "hostPorts");
    let list: Vec<String> = bad.into_iter().collect();
    Some(violation("hostPort", format!("{} {} {noun} {}", offenders.text, offenders.verb(), list.join(", "))))
}

const HANDLERS: [&str; 5] =
    ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];

fn probe_hosts(pod: &Pod<'_>) -> Option<Violation> {
    let mut hosts = BTreeSet::new();
    let mut names = BTreeSet::new();
    for container in pod.containers() {
        let handlers = HANDLERS.iter().filter_map(|path| container.pointer(path));
        let given = handlers.flat_map(|h| [&h["httpGet"]["host"], &h["tcpSocket"]["host"]]).map(text);
        for host in given.filter(|host| !host.is_empty()) {
            hosts.insert(host);
            names.insert(text(&container["name"]));
        }
    }
    let offenders = Named::of("container", "containers", &names.into_iter().collect::<Vec<_>>());
    let noun = plural(hosts.len(), "probe or lifecycle host", "probe or lifecycle hosts");
    let detail = format!("{} {} {noun} {}", offenders.text, offenders.verb(), listed(&hosts));
    (!hosts.is_empty()).then(|| violation("probe or lifecycle host", detail))
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let offenders = pod.offenders(|c| c["securityContext"]["privileged"] == true)?;
    let detail = format!("{} must not set securityContext.privileged=true", offenders.text);
    Some(violation("privileged", detail))
}

fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut bad = BTreeSet::new();
    let offenders = pod.offenders(|container| {
        let kind = container["securityContext"]["procMount"].as_str().filter(|kind| *kind != "Default");
        bad.extend(kind);
        kind.is_some()
    })?;
    let detail = format!("{} must not set securityContext.procMount to {}", offenders.text, listed(&bad));
    Some(violation("procMount", detail))
}

/// The last one came with 1.31.
const SELINUX_TYPES: [&str; 4] = ["container_t", "container_init_t", "container_kvm_t", "container_engine_t"];

fn selinux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let setters = pod.setters(|context| {
        let options = &context["seLinuxOptions"];
        let kind = text(&options["type"]);
        let (bad_type, sets_user, sets_role) = (
            !kind.is_empty() && !allowed.contains(&kind),
            !text(&options["user"]).is_empty(),
            !text(&options["role"]).is_empty(),
        );
        types.extend(bad_type.then_some(kind));
        user |= sets_user;
        role |= sets_role;
        bad_type || sets_user || sets_role
    })?;
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!("{} {}", plural(types.len(), "type", "types"), listed(&types)));
    }
    what.extend(user.then(|| "user may not be set".to_owned()));
    what.extend(role.then(|| "role may not be set".to_owned()));
    let detail = format!("{setters} set forbidden securityContext.seLinuxOptions: {}", what.join("; "));
    Some(violation("seLinuxOptions", detail))
}

/// Checks the seccomp profiles in annotations, as used before Kubernetes 1.19.
fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let keys = pod
        .containers()
        .map(|c| format!("container.seccomp.security.alpha.kubernetes.io/{}", text(&c["name"])));
    let bad: BTreeSet<String> = std::iter::once("seccomp.security.alpha.kubernetes.io/pod".to_owned())
        .chain(keys)
        .filter_map(|key| {
            let value = pod.metadata["annotations"][&key].as_str()?;
            let fine =
                matches!(value, "runtime/default" | "docker/default") || value.starts_with("localhost/");
            (!fine).then(|| format!("{key}={}", quote(value)))
        })
        .collect();
    let noun = plural(bad.len(), "annotation", "annotations");
    let list: Vec<String> = bad.into_iter().collect();
    (!list.is_empty()).then(|| violation("seccompProfile", format!("forbidden {noun} {}", list.join(", "))))
}

fn seccomp_is_good(context: &Value) -> bool {
    ["RuntimeDefault", "Localhost"].contains(&text(&context["seccompProfile"]["type"]))
}

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    let mut bad = BTreeSet::new();
    let setters = pod.setters(|context| {
        let wrong = context["seccompProfile"].is_object() && !seccomp_is_good(context);
        if wrong {
            bad.insert(text(&context["seccompProfile"]["type"]));
        }
        wrong
    })?;
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {}", listed(&bad));
    Some(violation("seccompProfile", detail))
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    seccomp_baseline(pod).or_else(|| {
        if seccomp_is_good(&pod.spec["securityContext"]) {
            return None;
        }
        let silent = pod.offenders(|c| !c["securityContext"]["seccompProfile"].is_object())?;
        let detail = format!(
            r#"pod or {} must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost""#,
            silent.text
        );
        Some(violation("seccompProfile", detail))
    })
}

/// The safe sysctls: the first five, one more since 1.27, four since 1.29, two since 1.32.
const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

fn sysctls(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let names = items(&pod.spec["securityContext"]["sysctls"]).iter().map(|s| text(&s["name"]));
    let bad: Vec<&str> = names.filter(|name| !allowed.contains(name)).collect();
    (!bad.is_empty()).then(|| violation("forbidden sysctls", bad.join(", ")))
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["windowsOptions"]["hostProcess"] == true)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    Some(violation("hostProcess", detail))
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let offenders = pod.offenders(|c| c["securityContext"]["allowPrivilegeEscalation"] != false)?;
    let detail = format!("{} must set securityContext.allowPrivilegeEscalation=false", offenders.text);
    Some(violation("allowPrivilegeEscalation != false", detail))
}

const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut kinds) = (Vec::new(), BTreeSet::new());
    for volume in items(&pod.spec["volumes"]) {
        let has = |kind: &&&str| volume[**kind].is_object();
        if ALLOWED_VOLUMES.iter().any(|kind| has(&kind)) {
            continue;
        }
        names.push(text(&volume["name"]));
        kinds.insert(*OTHER_VOLUMES.iter().find(has).unwrap_or(&"unknown"));
    }
    let offenders = Named::of("volume", "volumes", &names);
    let noun = plural(kinds.len(), "restricted volume type", "restricted volume types");
    let detail = format!("{} {} {noun} {}", offenders.text, offenders.verb(), listed(&kinds));
    (!names.is_empty()).then(|| violation("restricted volume types", detail))
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    if let Some(setters) = pod.setters(|context| context["runAsNonRoot"] == false) {
        return Some(violation(REASON, format!("{setters} must not set securityContext.runAsNonRoot=false")));
    }
    if pod.spec["securityContext"]["runAsNonRoot"] == true {
        return None;
    }
    let silent = pod.offenders(|c| c["securityContext"]["runAsNonRoot"].is_null())?;
    let detail = format!("pod or {} must set securityContext.runAsNonRoot=true", silent.text);
    Some(violation(REASON, detail))
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters(|context| context["runAsUser"] == 0)?;
    Some(violation("runAsUser=0", format!("{setters} must not set runAsUser=0")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn evaluate_at(level: Level, version: Version, pod: &Value) -> String {
        let violations = evaluate(LevelVersion { level, version }, &Pod::of(pod));
        violations.iter().map(|v| format!("{} ({})", v.reason, v.detail)).collect::<Vec<_>>().join(", ")
    }

    /// Creates a container with a security context, in a pod with another one.
    fn pod(context: Value, of_pod: Value) -> Value {
        json!({"spec": {"securityContext": of_pod, "containers": [{"name": "c", "securityContext": context}]}})
    }

    #[test]
    fn the_baseline_level_rejects_each_violation() {
        let volume = json!({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}});
        let ports = json!({"spec": {"containers": [{"name": "a", "ports": [{"hostPort": 80}, {"hostPort": 0}]}, {"name": "b", "ports": [{"hostPort": 8080}]}]}});
        let probe =
            json!({"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "h"}}}]}});
        let armor = json!({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}}});
        for (object, want) in [
            (pod(json!({}), json!({})), ""),
            (
                pod(json!({"capabilities": {"add": ["NET_RAW", "KILL"]}}), json!({})),
                r#"non-default capabilities (container "c" must not include "NET_RAW" in securityContext.capabilities.add)"#,
            ),
            (
                json!({"spec": {"hostNetwork": true, "hostIPC": true}}),
                "host namespaces (hostNetwork=true, hostIPC=true)",
            ),
            (volume, r#"hostPath volumes (volume "v")"#),
            (ports, r#"hostPort (containers "a", "b" use hostPorts 80, 8080)"#),
            (probe, r#"probe or lifecycle host (container "a" uses probe or lifecycle host "h")"#),
            (
                pod(json!({"procMount": "Unmasked"}), json!({})),
                r#"procMount (container "c" must not set securityContext.procMount to "Unmasked")"#,
            ),
            (
                pod(
                    json!({"seLinuxOptions": {"type": "x", "user": "u"}}),
                    json!({"seLinuxOptions": {"role": "r"}}),
                ),
                r#"seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "x"; user may not be set; role may not be set)"#,
            ),
            (
                pod(json!({}), json!({"seccompProfile": {"type": "Unconfined"}})),
                r#"seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")"#,
            ),
            (
                pod(json!({}), json!({"sysctls": [{"name": "kernel.msgmax"}]})),
                "forbidden sysctls (kernel.msgmax)",
            ),
            (
                pod(json!({"windowsOptions": {"hostProcess": true}}), json!({})),
                r#"hostProcess (container "c" must not set securityContext.windowsOptions.hostProcess=true)"#,
            ),
            (
                armor,
                r#"forbidden AppArmor profile (annotation must not set AppArmor profile type to "container.apparmor.security.beta.kubernetes.io/c="unconfined"")"#,
            ),
        ] {
            assert_eq!(evaluate_at(Level::Baseline, Version::Latest, &object), want, "{object}");
        }
    }

    #[test]
    fn all_violations_are_listed() {
        let object = json!({
            "metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/c": "unconfined"}},
            "spec": {
                "hostNetwork": true,
                "securityContext": {"sysctls": [{"name": "kernel.msgmax"}], "seLinuxOptions": {"role": "r"}},
                "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
                "containers": [
                    {"name": "c", "ports": [{"hostPort": 80}], "securityContext": {
                        "appArmorProfile": {"type": "Unconfined"}, "capabilities": {"add": ["NET_RAW"]},
                        "seLinuxOptions": {"type": "x", "user": "u"}}},
                    {"name": "d", "securityContext": {"seccompProfile": {"type": "Unconfined"}},
                     "livenessProbe": {"httpGet": {"host": "h"}}},
                ],
            },
        });
        // As a v1.36.2 server answered.
        let want = concat!(
            r#"forbidden AppArmor profiles (container "c" and annotation must not set AppArmor profile type to "Unconfined", "container.apparmor.security.beta.kubernetes.io/c="unconfined""), "#,
            r#"non-default capabilities (container "c" must not include "NET_RAW" in securityContext.capabilities.add), "#,
            r#"host namespaces (hostNetwork=true), hostPath volumes (volume "v"), hostPort (container "c" uses hostPort 80), "#,
            r#"probe or lifecycle host (container "d" uses probe or lifecycle host "h"), "#,
            r#"seLinuxOptions (pod and container "c" set forbidden securityContext.seLinuxOptions: type "x"; user may not be set; role may not be set), "#,
            r#"seccompProfile (container "d" must not set securityContext.seccompProfile.type to "Unconfined"), forbidden sysctls (kernel.msgmax)"#,
        );
        assert_eq!(evaluate_at(Level::Baseline, Version::Latest, &object), want);
    }

    #[test]
    fn the_restricted_level_rejects_each_violation() {
        let good = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
        let with = |member: &str, value: Value| {
            let mut context = good.clone();
            context[member] = value;
            pod(context, json!({}))
        };
        let everything = concat!(
            r#"allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), "#,
            r#"unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), "#,
            r#"runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), "#,
            r#"seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")"#
        );
        for (object, want) in [
            (pod(good.clone(), json!({})), ""),
            (pod(json!({}), json!({})), everything),
            (
                with("capabilities", json!({"drop": ["ALL"], "add": ["KILL"]})),
                r#"unrestricted capabilities (container "c" must not include "KILL" in securityContext.capabilities.add)"#,
            ),
            (with("runAsUser", json!(0)), r#"runAsUser=0 (container "c" must not set runAsUser=0)"#),
            (
                with("runAsNonRoot", json!(false)),
                r#"runAsNonRoot != true (container "c" must not set securityContext.runAsNonRoot=false)"#,
            ),
            (
                json!({"spec": {"volumes": [{"name": "v", "nfs": {}}, {"name": "w", "emptyDir": {}}]}}),
                r#"restricted volume types (volume "v" uses restricted volume type "nfs")"#,
            ),
        ] {
            assert_eq!(evaluate_at(Level::Restricted, Version::Latest, &object), want, "{object}");
        }
    }

    #[test]
    fn a_version_has_its_own_rules() {
        let probe =
            json!({"spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "h"}}}]}});
        let sysctl = pod(json!({}), json!({"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}));
        let annotated =
            json!({"metadata": {"annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"}}});
        for (minor, object, broken) in [
            (33, &probe, false),
            (34, &probe, true),
            (31, &sysctl, true),
            (32, &sysctl, false),
            (18, &annotated, true),
            (19, &annotated, false),
        ] {
            let got = evaluate_at(Level::Baseline, Version::Minor(minor), object);
            assert_eq!(!got.is_empty(), broken, "v1.{minor} {got}");
        }
    }

    #[test]
    fn checks_are_sorted_by_level_and_id() {
        let ids: Vec<(Level, &str)> = CHECKS.iter().map(|check| (check.level, check.id)).collect();
        assert!(ids.is_sorted(), "{ids:?}");
        let known =
            |id: &str| id.is_empty() || CHECKS.iter().any(|c| c.level == Level::Baseline && c.id == id);
        assert!(CHECKS.iter().all(|check| known(check.replaces)));
    }
}
