//! Warnings: fields that are accepted, but probably not intended.
//!
//! Start at [`pod_warnings`] and [`pod_template_warnings`].

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::field::{Field, quote};
use coracle_apimachinery::validation::node_selector::{self, deprecated_label};
use coracle_apimachinery::validation::{content, ip};
use coracle_quantity::Quantity;

use super::annotations;
use super::container_lists::containers;
use super::scheduling::{PREFERRED, REQUIRED};
use crate::claim_spec::claim_spec_warnings;

const DEPRECATED_ANNOTATIONS: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        r#"non-functional in v1.16+; use the "priorityClassName" field instead"#,
    ),
    ("security.alpha.kubernetes.io/sysctls", r#"non-functional in v1.11+; use the "sysctls" field instead"#),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        r#"non-functional in v1.11+; use the "sysctls" field instead"#,
    ),
];

/// Volume sources that no longer work: member, name in the warning, since when.
const DEPRECATED_VOLUMES: [(&str, &str, &str); 9] = [
    ("photonPersistentDisk", "photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("gitRepo", "gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    ("scaleIO", "scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("flocker", "flocker", "deprecated in v1.22, non-functional in v1.25+"),
    ("storageos", "storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    ("quobyte", "quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("cephfs", "cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("rbd", "rbd", "deprecated in v1.28, non-functional in v1.31+"),
];

/// Returns warnings for a new Pod.
pub fn pod_warnings(pod: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    app_armor_warnings(pod, true, &mut warnings);
    let found = content::dns1123_label(pod.walk("metadata.name").str());
    if !found.is_empty() {
        warnings.push(format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            found.join(" ")
        ));
    }
    common_warnings(pod, &mut warnings);
    warnings
}

/// Returns warnings for a template.
pub fn pod_template_warnings(template: &Field<'_>) -> Vec<String> {
    let mut warnings = Vec::new();
    if template.exists() {
        app_armor_warnings(template, false, &mut warnings);
        common_warnings(template, &mut warnings);
    }
    warnings
}

fn common_warnings(owner: &Field<'_>, warnings: &mut Vec<String>) {
    let (spec, metadata) = (owner.get("spec"), owner.get("metadata"));
    node_label_warnings(&spec, warnings);
    let entry = |key: &str| metadata.get("annotations").path().key(key);
    for (key, message) in DEPRECATED_ANNOTATIONS {
        if metadata.get("annotations").get(key).exists() {
            warnings.push(format!("{}: {message}", entry(key)));
        }
    }
    volume_warnings(&spec, warnings);
    duplicate_warnings(&spec, warnings);
    for resource in ["memory", "ephemeral-storage"] {
        fraction_warning(&spec.get("overhead"), resource, warnings);
    }
    seccomp_warnings(owner, warnings);
    for container in containers(&spec) {
        container_warnings(&container, warnings);
    }
    port_warnings(&spec, warnings);
    let grace = spec.get("terminationGracePeriodSeconds");
    if grace.int().is_some_and(|seconds| seconds < 0) {
        warnings.push(format!(
            "{}: must be >= 0; negative values are invalid and will be treated as 1",
            grace.path()
        ));
    }
    selector_warnings(&spec, warnings);
    let servers = spec.walk("dnsConfig.nameservers");
    let aliases = spec.get("hostAliases");
    let addresses = servers.items().chain(aliases.items().map(|alias| alias.get("ip")));
    warnings.extend(addresses.filter_map(|address| ip::address_warning(&address)));
}

fn node_label_warnings(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for (key, entry) in spec.get("nodeSelector").entries() {
        warnings.extend(deprecated_label(key).map(|message| format!("{}: {message}", entry.path())));
    }
    let node = spec.walk("affinity.nodeAffinity");
    for term in node.get(REQUIRED).get("nodeSelectorTerms").items() {
        warnings.extend(node_selector::expression_warnings(&term));
    }
    for term in node.get(PREFERRED).items() {
        let term = term.get("preference");
        warnings.extend(node_selector::expression_warnings(&term));
        value_warnings(&term, warnings);
    }
    for constraint in spec.get("topologySpreadConstraints").items() {
        let (key, selector) = (constraint.get("topologyKey"), constraint.get("labelSelector"));
        warnings.extend(
            deprecated_label(key.str()).map(|message| format!("{}: {} is {message}", key.path(), key.str())),
        );
        if !selector.exists() {
            warnings.push(matches_no_pod(&selector));
        }
    }
}

fn matches_no_pod(selector: &Field<'_>) -> String {
    format!("{}: a null labelSelector results in matching no pod", selector.path())
}

/// Warns about invalid values, which are accepted where they only express a preference.
fn value_warnings(term: &Field<'_>, warnings: &mut Vec<String>) {
    for requirement in term.get("matchExpressions").items() {
        for value in requirement.get("values").items() {
            for error in content::label_value(value.str()) {
                warnings.push(format!("{}: {} is invalid, {error}", value.path(), value.str()));
            }
        }
    }
}

fn volume_warnings(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for volume in spec.get("volumes").items() {
        for (member, shown, message) in DEPRECATED_VOLUMES {
            if volume.get(member).exists() {
                warnings.push(format!("{}: {message}", volume.path().child(shown)));
            }
        }
        let claim = volume.walk("ephemeral.volumeClaimTemplate.spec");
        if claim.exists() {
            warnings.extend(claim_spec_warnings(&claim));
        }
    }
    for volume in spec.get("volumes").items() {
        overlap_warnings(&volume, warnings);
    }
}

/// A path inside of a volume and, in a projected one, its source.
#[derive(Clone, PartialEq)]
struct Placed<'a> {
    path: &'a str,
    source: String,
}

impl std::fmt::Display for Placed<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&quote(self.path))?;
        if self.source.is_empty() { Ok(()) } else { write!(f, " ({})", self.source) }
    }
}

fn placed<'a>(items: &Field<'a>, source: &str) -> Vec<Placed<'a>> {
    items.items().map(|item| Placed { path: item.get("path").str(), source: source.to_owned() }).collect()
}

/// Warns about files of one volume with overlapping paths.
fn overlap_warnings(volume: &Field<'_>, warnings: &mut Vec<String>) {
    let name = quote(volume.get("name").str());
    let mut warn = |paths: Vec<Placed<'_>>, kind: String| {
        warnings.extend(
            overlaps(paths).into_iter().map(|o| format!("volume {name} ({kind}): overlapping paths: {o}")),
        );
    };
    let (config, secret) = (volume.get("configMap"), volume.get("secret"));
    warn(placed(&config.get("items"), ""), format!("ConfigMap {}", quote(config.get("name").str())));
    warn(placed(&secret.get("items"), ""), format!("Secret {}", quote(secret.get("secretName").str())));
    warn(placed(&volume.walk("downwardAPI.items"), ""), "DownwardAPI".to_owned());
    let mut projected = Vec::new();
    let mut empty = 0;
    for source in volume.walk("projected.sources").items() {
        let (config, secret) = (source.get("configMap"), source.get("secret"));
        let (downward, token) = (source.get("downwardAPI"), source.get("serviceAccountToken"));
        empty += usize::from(source.is_empty());
        if config.get("items").exists() {
            let from = format!("ConfigMap {}", quote(config.get("name").str()));
            projected.extend(placed(&config.get("items"), &from));
        } else if secret.get("items").exists() {
            let from = format!("Secret {}", quote(secret.get("name").str()));
            projected.extend(placed(&secret.get("items"), &from));
        } else if downward.get("items").exists() {
            projected.extend(placed(&downward.get("items"), "DownwardAPI"));
        } else if token.exists() {
            let source = "ServiceAccountToken".to_owned();
            projected.push(Placed { path: token.get("path").str(), source });
        }
    }
    warn(projected, "Projected".to_owned());
    warnings.extend(std::iter::repeat_n(format!("volume {name} (Projected) has no sources provided"), empty));
}

fn overlaps(paths: Vec<Placed<'_>>) -> Vec<String> {
    let inside = |inner: &str, outer: &str| format!("{inner}/").starts_with(&format!("{outer}/"));
    let mut found = Vec::new();
    let mut before: Vec<Placed<'_>> = Vec::new();
    for mut path in paths {
        path.path = path.path.trim_end_matches('/');
        for other in before.iter().filter(|other| !other.path.is_empty() && !path.path.is_empty()) {
            if inside(other.path, path.path) || inside(path.path, other.path) {
                found.push(format!("{path} with {other}"));
            }
        }
        before.push(path);
    }
    found
}

/// Warns about entries that should be unique.
fn duplicate_warnings(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for (list, member) in [("hostAliases", "ip"), ("imagePullSecrets", "name")] {
        let mut seen = BTreeSet::new();
        for item in spec.get(list).items() {
            let key = item.get(member);
            if !seen.insert(key.str()) {
                warnings.push(format!("{}: duplicate {member} {}", key.path(), quote(key.str())));
            }
        }
    }
    for name in spec.get("imagePullSecrets").items().map(|secret| secret.get("name")) {
        if name.is_empty() {
            warnings.push(format!("{}: invalid empty name \"\"", name.path()));
        }
    }
}

fn fraction_warning(list: &Field<'_>, resource: &str, warnings: &mut Vec<String>) {
    let quantity = list.get(resource);
    let fraction = quantity.str().parse::<Quantity>().is_ok_and(|q| q.milli_value() % 1000 != 0);
    if fraction {
        let (path, text) = (list.path().key(resource), quote(quantity.str()));
        warnings.push(format!("{path}: fractional byte value {text} is invalid, must be an integer"));
    }
}

/// Warns about seccomp annotations without the field, which have no effect.
fn seccomp_warnings(owner: &Field<'_>, warnings: &mut Vec<String>) {
    let all = owner.walk("metadata.annotations");
    let mut warn = |key: &str, context: Field<'_>| {
        if all.get(key).exists() && !context.get("seccompProfile").exists() {
            warnings.push(format!(
                r#"{}: non-functional in v1.27+; use the "seccompProfile" field instead"#,
                all.path().key(key)
            ));
        }
    };
    let spec = owner.get("spec");
    warn(annotations::SECCOMP_POD, spec.get("securityContext"));
    for container in containers(&spec) {
        let key = format!("{}{}", annotations::SECCOMP_CONTAINER, container.get("name").str());
        warn(&key, container.get("securityContext"));
    }
}

/// Warns about AppArmor annotations, which still work but are deprecated.
///
/// In a Pod they have been copied to the field already (`copied`): only where the field has the
/// same value can the annotation have been its source.
fn app_armor_warnings(owner: &Field<'_>, copied: bool, warnings: &mut Vec<String>) {
    let (spec, all) = (owner.get("spec"), owner.walk("metadata.annotations"));
    if copied && spec.walk("os.name").str() == "windows" {
        return;
    }
    let of_pod = spec.walk("securityContext.appArmorProfile");
    for container in containers(&spec) {
        let key = format!("{}{}", annotations::APP_ARMOR, container.get("name").str());
        let annotation = all.get(&key);
        if !annotation.exists() {
            continue;
        }
        let own = container.walk("securityContext.appArmorProfile");
        let meant = annotations::app_armor_profile(annotation.str());
        let set_by_field = if own.exists() {
            !copied || own.value() != meant.as_ref()
        } else {
            of_pod.exists() && of_pod.value() == meant.as_ref()
        };
        if !set_by_field {
            warnings.push(format!(
                r#"{}: deprecated since v1.30; use the "appArmorProfile" field instead"#,
                all.path().key(&key)
            ));
        }
    }
}

fn container_warnings(container: &Field<'_>, warnings: &mut Vec<String>) {
    let requirements = container.get("resources");
    for resource in ["memory", "ephemeral-storage"] {
        for list in ["limits", "requests"] {
            fraction_warning(&requirements.get(list), resource, warnings);
        }
    }
    let mut defined = BTreeSet::new();
    for variable in container.get("env").items() {
        let (name, value) = (variable.get("name").str(), variable.get("value").str());
        if defined.insert(name) {
            continue;
        }
        // A reference to the earlier value is fine, repeating or replacing it is not.
        let reference = format!("$({name})");
        if variable.get("valueFrom").exists() || value == reference || !value.contains(&reference) {
            warnings.push(format!(
                "{}: hides previous definition of {}, which may be dropped when using apply",
                variable.path(),
                quote(name)
            ));
        }
    }
}

fn port_warnings(spec: &Field<'_>, warnings: &mut Vec<String>) {
    let ports: Vec<Field<'_>> =
        containers(spec).flat_map(|container| container.get("ports").items()).collect();
    let number = |port: &Field<'_>, member: &str| port.get(member).int().unwrap_or(0);
    let mut by_number: BTreeMap<(i64, &str), Vec<&Field<'_>>> = BTreeMap::new();
    for port in &ports {
        let (address, host) = (port.get("hostIP").str(), number(port, "hostPort"));
        let (own, protocol) = (number(port, "containerPort"), port.get("protocol").str());
        if !address.is_empty() && host == 0 {
            warnings.push(format!(
                "{}: hostIP set without hostPort: {{Name:{} HostPort:{host} ContainerPort:{own} Protocol:{protocol} HostIP:{address}}}",
                port.path(),
                port.get("name").str()
            ));
        }
        let others = by_number.entry((own, protocol)).or_default();
        for other in others.iter() {
            let (other_address, other_host) = (other.get("hostIP").str(), number(other, "hostPort"));
            let what = if address == other_address && host == other_host {
                "duplicate"
            } else if host == 0 || other_host == 0 {
                "overlapping"
            } else if host == other_host && address.is_empty() != other_address.is_empty() {
                "dangerously ambiguous"
            } else {
                continue;
            };
            warnings.push(format!("{}: {what} port definition with {}", port.path(), other.path()));
        }
        others.push(port);
    }
    let mut names: BTreeMap<&str, &Field<'_>> = BTreeMap::new();
    for port in ports.iter().filter(|port| !port.get("name").is_empty()) {
        let name = port.get("name").str();
        match names.get(name) {
            Some(first) => warnings.push(format!(
                "{}: duplicate port name {} with {first}, services and probes that select ports by name will use {first}",
                port.path(),
                quote(name),
                first = first.path()
            )),
            None => {
                names.insert(name, port);
            }
        }
    }
}

fn selector_warnings(spec: &Field<'_>, warnings: &mut Vec<String>) {
    for kind in ["podAffinity", "podAntiAffinity"] {
        let pods = spec.get("affinity").get(kind);
        let preferred = pods.get(PREFERRED);
        let preferred = preferred.items().map(|term| term.get("podAffinityTerm"));
        for term in pods.get(REQUIRED).items().chain(preferred) {
            let selector = term.get("labelSelector");
            if !selector.exists() {
                warnings.push(matches_no_pod(&selector));
            }
        }
    }
}
