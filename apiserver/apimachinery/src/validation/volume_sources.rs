//! Volume sources of both pods and PersistentVolumes, and the rules in which those two differ.
//!
//! Start at [`validate_source`].

use super::{content, member, paths};
use crate::field::{Errors, Field, Path};

/// The kind of object that has the source.
#[derive(Clone, Copy)]
pub enum SourceOwner<'a> {
    /// A pod.
    Pod,
    /// A PersistentVolume, with its name.
    PersistentVolume(&'a str),
}

/// Required members, in the order in which they are checked.
const REQUIRED: [(&str, &[&str]); 14] = [
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("glusterfs", &["endpoints", "path"]),
    ("nfs", &["server", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("rbd", &["monitors", "image"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

/// Validates one source, `kind` being its member's name (`nfs`). Sources that only pods have are
/// ignored.
pub fn validate_source(kind: &str, source: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    let source = &source.with_path(reported_path(kind, source));
    for (_, members) in REQUIRED.iter().filter(|(required_by, _)| *required_by == kind) {
        member::all_required(source, members, errors);
    }
    match kind {
        "awsElasticBlockStore" | "gcePersistentDisk" => validate_partition(&source.get("partition"), errors),
        "azureDisk" => validate_azure_disk(source, errors),
        "azureFile" => validate_azure_file(source, errors),
        "cinder" => validate_secret_reference(&source.get("secretRef"), owner, errors),
        "csi" => validate_csi(source, owner, errors),
        "fc" => validate_fibre_channel(source, errors),
        "flexVolume" => validate_flex_options(&source.get("options"), errors),
        "flocker" => validate_flocker(source, errors),
        "glusterfs" => validate_glusterfs(source, owner, errors),
        "hostPath" => validate_host_path(source, errors),
        "iscsi" => validate_iscsi(source, owner, errors),
        "local" => validate_path(&source.get("path"), errors),
        "nfs" => validate_absolute(&source.get("path"), errors),
        "quobyte" => validate_quobyte(source, errors),
        "storageos" => validate_storageos(source, owner, errors),
        _ => {}
    }
}

/// Returns the path in errors about a volume source. One source is reported under another name.
fn reported_path(kind: &str, source: &Field<'_>) -> Path {
    match kind {
        "gcePersistentDisk" => source.path().parent().child("persistentDisk"),
        _ => source.path().clone(),
    }
}

fn validate_partition(partition: &Field<'_>, errors: &mut Errors) {
    if !(0..=255).contains(&partition.int().unwrap_or(0)) {
        errors.push(partition.invalid("must be between 1 and 255, inclusive"));
    }
}

fn validate_azure_disk(source: &Field<'_>, errors: &mut Errors) {
    const KINDS: [&str; 3] = ["Dedicated", "Managed", "Shared"];
    const CACHING: [&str; 3] = ["None", "ReadOnly", "ReadWrite"];
    let (caching, kind, uri) = (source.get("cachingMode"), source.get("kind"), source.get("diskURI"));
    member::one_of(&caching, &CACHING, errors);
    member::one_of(&kind, &KINDS, errors);
    let (prefix, supported) = match kind.str() {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
    };
    errors.push_if(kind.exists() && !uri.str().starts_with(prefix), || uri.not_supported(&[supported]));
}

fn validate_azure_file(source: &Field<'_>, errors: &mut Errors) {
    let namespace = source.get_if_declared("secretNamespace");
    errors.push_if(namespace.exists() && namespace.is_empty(), || namespace.required(""));
}

/// Validates a reference to a secret; in PersistentVolumes it has a namespace too.
fn validate_secret_reference(reference: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    if reference.exists() {
        match owner {
            SourceOwner::Pod => member::all_required(reference, &["name"], errors),
            SourceOwner::PersistentVolume(_) => {
                member::all_required(reference, &["name", "namespace"], errors)
            }
        }
    }
}

/// Validates the name of a CSI driver: a subdomain of at most 63 characters, of any case.
pub fn validate_csi_driver_name(name: &Field<'_>, errors: &mut Errors) {
    if name.is_empty() {
        errors.push(name.required(""));
        return;
    }
    errors.push_if(name.len() > 63, || name.too_long(63));
    errors.invalid_each(name, content::dns1123_subdomain(&name.str().to_lowercase()));
}

fn validate_csi(source: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    validate_csi_driver_name(&source.get("driver"), errors);
    if let SourceOwner::Pod = owner {
        let name = source.walk("nodePublishSecretRef.name");
        if source.get("nodePublishSecretRef").exists() {
            errors.push_if(name.is_empty(), || name.required(""));
            let reported = name.with_path(source.path().child("name"));
            if !name.is_empty() {
                errors.invalid_each(&reported, content::dns1123_subdomain(name.str()));
            }
        }
        return;
    }
    member::all_required(source, &["volumeHandle"], errors);
    for member in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let reference = source.get(member);
        if !reference.exists() {
            continue;
        }
        let (name, namespace) = (reference.get("name"), reference.get("namespace"));
        member::required_and(&name, content::dns1123_subdomain, errors);
        member::required_and(&namespace, content::dns1123_label, errors);
    }
}

fn validate_fibre_channel(source: &Field<'_>, errors: &mut Errors) {
    let (targets, ids, lun) = (source.get("targetWWNs"), source.get("wwids"), source.get("lun"));
    errors.push_if(targets.is_empty() && ids.is_empty(), || {
        targets.required("must specify either targetWWNs or wwids, but not both")
    });
    errors.push_if(!targets.is_empty() && !ids.is_empty(), || {
        targets.invalid("targetWWNs and wwids can not be specified simultaneously")
    });
    if targets.is_empty() {
        return;
    }
    match lun.int() {
        None => errors.push(lun.required("lun is required if targetWWNs is specified")),
        Some(number) => errors.invalid_each(&lun, content::in_range(number, 0, 255)),
    }
}

fn validate_flex_options(options: &Field<'_>, errors: &mut Errors) {
    for (key, option) in options.entries() {
        let namespace = format!(".{}", key.split('/').next().unwrap_or(key).to_lowercase());
        errors.push_if(namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io"), || {
            option.invalid_value(key, "kubernetes.io and k8s.io namespaces are reserved")
        });
    }
}

fn validate_flocker(source: &Field<'_>, errors: &mut Errors) {
    let (name, uuid) = (source.get("datasetName"), source.get("datasetUUID"));
    errors.push_if(name.is_empty() && uuid.is_empty(), || {
        source.required("one of datasetName and datasetUUID is required")
    });
    errors.push_if(!name.is_empty() && !uuid.is_empty(), || {
        source.invalid_value("resource", "datasetName and datasetUUID can not be specified simultaneously")
    });
    errors.push_if(name.str().contains('/'), || name.invalid("must not contain '/'"));
}

fn validate_glusterfs(source: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    if matches!(owner, SourceOwner::Pod) {
        return;
    }
    let namespace = source.get("endpointsNamespace");
    if !namespace.exists() {
        return;
    }
    if namespace.is_empty() {
        errors.push(namespace.invalid("if the endpointnamespace is set, it must be a valid namespace name"));
    } else {
        errors.invalid_each(&namespace, content::dns1123_label(namespace.str()));
    }
}

fn validate_host_path(source: &Field<'_>, errors: &mut Errors) {
    const TYPES: [&str; 8] =
        ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    if source.get("path").is_empty() {
        errors.push(source.get("path").required(""));
        return;
    }
    validate_no_backsteps(&source.get("path"), errors);
    let kind = source.get("type");
    errors.push_if(!TYPES.contains(&kind.str()), || kind.not_supported(&TYPES));
}

fn validate_path(path: &Field<'_>, errors: &mut Errors) {
    if path.is_empty() {
        errors.push(path.required(""));
    } else {
        validate_no_backsteps(path, errors);
    }
}

/// Validates a path without the element `..`.
pub fn validate_no_backsteps(path: &Field<'_>, errors: &mut Errors) {
    errors.invalid_each(path, paths::no_backsteps(path.str()));
}

fn validate_absolute(path: &Field<'_>, errors: &mut Errors) {
    errors.push_if(!path.str().starts_with('/'), || path.invalid("must be an absolute path"));
}

fn validate_iscsi(source: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    let (portal, iqn, lun) = (source.get("targetPortal"), source.get("iqn"), source.get("lun"));
    let (secret, initiator) = (source.get("secretRef"), source.get("initiatorName"));
    errors.push_if(portal.is_empty(), || portal.required(""));
    if let SourceOwner::PersistentVolume(name) = owner
        && initiator.exists()
        && name.len() + 1 + portal.len() > 64
    {
        errors.push(portal.with_path(source.path().child("targetportal")).invalid(
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        ));
    }
    if iqn.is_empty() {
        errors.push(iqn.required(""));
    } else {
        errors.extend(iscsi_name_error(iqn.str(), owner).map(|e| iqn.invalid(e)));
    }
    errors.invalid_each(&lun, content::in_range(lun.int().unwrap_or(0), 0, 255));
    let authenticated = source.get("chapAuthDiscovery").bool() || source.get("chapAuthSession").bool();
    errors.push_if(authenticated && !secret.exists(), || secret.required(""));
    if let SourceOwner::PersistentVolume(_) = owner
        && secret.exists()
    {
        member::all_required(&secret, &["name"], errors);
    }
    if initiator.exists() {
        let reported = initiator.with_path(source.path().child("initiatorname"));
        errors.extend(iscsi_name_error(initiator.str(), owner).map(|e| reported.invalid(e)));
    }
}

fn iscsi_name_error(name: &str, owner: SourceOwner<'_>) -> Option<&'static str> {
    let valid = match name.get(..3) {
        Some("iqn") => is_iscsi_qualified_name(name),
        Some("eui") => is_iscsi_hex_name(name, 16),
        Some("naa") => is_iscsi_hex_name(name, 32),
        _ if matches!(owner, SourceOwner::Pod) => {
            return Some("must be valid format starting with iqn, eui, or naa");
        }
        _ => false,
    };
    (!valid).then_some("must be valid format")
}

/// Returns `true` for a name like `iqn.2001-04.com.example:storage`.
fn is_iscsi_qualified_name(name: &str) -> bool {
    let Some((authority, target)) = name.strip_prefix("iqn.").and_then(|rest| rest.split_once(':')) else {
        return false;
    };
    let mut parts = authority.splitn(2, '.');
    let (date, domain) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let dated = date.split_once('-').is_some_and(|(year, month)| digits(year, 4) && digits(month, 2));
    let named = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let bad = |c: char| ",;*&$|".contains(c) || c.is_ascii_whitespace();
    dated && !domain.is_empty() && domain.chars().all(named) && !target.is_empty() && !target.contains(bad)
}

/// Returns `true` for a name of three letters, any character, and then `count` letters and digits.
fn is_iscsi_hex_name(name: &str, count: usize) -> bool {
    let rest: Vec<char> = name.chars().skip(4).collect();
    rest.len() == count && rest.iter().all(char::is_ascii_alphanumeric)
}

fn validate_quobyte(source: &Field<'_>, errors: &mut Errors) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let (registry, tenant) = (source.get("registry"), source.get("tenant"));
    if registry.is_empty() {
        errors.push(registry.required(PAIRS));
    } else if tenant.len() >= 65 {
        errors.push(tenant.required("must be a UUID and may not exceed a length of 64 characters"));
    } else {
        for pair in registry.str().split(',') {
            errors.push_if(!is_host_and_port(pair), || registry.invalid(PAIRS));
        }
    }
    member::all_required(source, &["volume"], errors);
}

/// Returns `true` for `host:port` or `[v6]:port`. Either part may be empty.
fn is_host_and_port(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let bare = match host.strip_prefix('[') {
        Some(inner) => match inner.strip_suffix(']') {
            Some(inner) => inner,
            None => return false,
        },
        None if host.contains(':') => return false,
        None => host,
    };
    !bare.contains(['[', ']']) && !port.contains(['[', ']'])
}

fn validate_storageos(source: &Field<'_>, owner: SourceOwner<'_>, errors: &mut Errors) {
    member::required_and(&source.get("volumeName"), content::dns1123_label, errors);
    member::if_any(&source.get("volumeNamespace"), content::dns1123_label, errors);
    validate_secret_reference(&source.get("secretRef"), owner, errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iscsi_names_are_validated() {
        for (name, valid) in [
            ("iqn.2001-04.com.example:storage.disk2.sys1.xyz", true),
            ("iqn.2001-04.com.example", false),
            ("iqn.2001-4.com.example:x", false),
            ("iqn.2001-04.com.example:x y", false),
            ("eui.0123456789abcdef", true),
            ("eui.0123456789abcde", false),
            ("naa.62004567BA64678D0123456789ABCDEF", true),
            ("nah.1", false),
        ] {
            assert_eq!(iscsi_name_error(name, SourceOwner::PersistentVolume("v")).is_none(), valid, "{name}");
        }
    }

    #[test]
    fn hosts_with_ports_are_recognized() {
        for (text, valid) in
            [("a:1", true), (":", true), ("a", false), ("a:b:1", false), ("[::1]:1", true), ("[::1", false)]
        {
            assert_eq!(is_host_and_port(text), valid, "{text}");
        }
    }
}
