//! Security contexts: users and groups, seccomp and AppArmor profiles, sysctls, host namespaces,
//! and the fields of one operating system only.

use std::collections::BTreeSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::{content, paths, printed};

use super::container_lists::containers;
use super::options::PodValidationOptions;

const IDS: std::ops::RangeInclusive<i64> = 0..=i32::MAX as i64;

fn validate_id(id: &Field<'_>, errors: &mut Errors) {
    if let Some(number) = id.int() {
        errors.invalid_each(id, content::in_range(number, *IDS.start(), *IDS.end()));
    }
}

/// Validates an optional enum.
fn validate_choice(choice: &Field<'_>, known: &[&str], errors: &mut Errors) {
    errors.push_if(choice.exists() && !known.contains(&choice.str()), || choice.not_supported(known));
}

/// Validates a container's security context.
pub fn validate_container(container: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let context = container.get("securityContext");
    if !context.exists() {
        return;
    }
    validate_id(&context.get("runAsUser"), errors);
    validate_id(&context.get("runAsGroup"), errors);
    let proc_mount = context.get("procMount");
    validate_choice(&proc_mount, &["Default", "Unmasked"], errors);
    errors.push_if(proc_mount.str() == "Unmasked" && has_host_users(spec), || {
        proc_mount.invalid("`hostUsers` must be false to use `Unmasked`")
    });
    validate_seccomp(&context.get("seccompProfile"), errors);
    let escalation = context.get("allowPrivilegeEscalation");
    if escalation.exists() && !escalation.bool() {
        let added = context.walk("capabilities.add");
        let privileged = context.get("privileged").bool().then_some("`privileged` to true");
        let admin = added.items().filter(|capability| capability.str() == "CAP_SYS_ADMIN");
        for what in privileged.into_iter().chain(admin.map(|_| "`capabilities.Add` CAP_SYS_ADMIN")) {
            let detail = format!("cannot set `allowPrivilegeEscalation` to false and {what}");
            errors.push(printed::invalid(&context, "core.SecurityContext", &detail));
        }
    }
    validate_windows_options(&context.get("windowsOptions"), errors);
    validate_app_armor(&context.get("appArmorProfile"), errors);
}

/// Returns `true` if the pod uses the host's user namespace.
fn has_host_users(spec: &Field<'_>) -> bool {
    let host_users = spec.get("hostUsers");
    !host_users.exists() || host_users.bool()
}

/// Validates a pod's security context.
pub fn validate_pod(spec: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let context = spec.get("securityContext");
    for member in ["fsGroup", "runAsUser", "runAsGroup"] {
        validate_id(&context.get(member), errors);
    }
    for group in context.get("supplementalGroups").items() {
        validate_id(&group, errors);
    }
    let share = spec.get("shareProcessNamespace");
    errors.push_if(share.bool() && spec.get("hostPID").bool(), || {
        share
            .with_path(context.path().child("shareProcessNamespace"))
            .invalid("ShareProcessNamespace and HostPID cannot both be enabled")
    });
    validate_sysctls(spec, options, errors);
    validate_choice(&context.get("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], errors);
    validate_seccomp(&context.get("seccompProfile"), errors);
    validate_windows_options(&context.get("windowsOptions"), errors);
    validate_app_armor(&context.get("appArmorProfile"), errors);
    validate_choice(&context.get("supplementalGroupsPolicy"), &["Merge", "Strict"], errors);
    let relabeling: &[&str] =
        if options.any_selinux_change_policy { &["MountOption", "Recursive"] } else { &["Recursive"] };
    validate_choice(&context.get("seLinuxChangePolicy"), relabeling, errors);
}

fn validate_seccomp(profile: &Field<'_>, errors: &mut Errors) {
    const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
    if !profile.exists() {
        return;
    }
    let (kind, file) = (profile.get("type"), profile.get("localhostProfile"));
    if kind.is_empty() {
        errors.push(kind.required("type is required when seccompProfile is set"));
    } else {
        validate_choice(&kind, &TYPES, errors);
    }
    match (kind.str() == "Localhost", file.exists()) {
        (true, false) => errors.push(file.required("must be set when seccomp type is Localhost")),
        (true, true) => errors.invalid_each(&file, paths::descending(file.str())),
        (false, true) => errors.push(
            file.invalid("can only be set when seccomp type is Localhost")
                .with_bad_value_text(printed::internal("core.SeccompProfile", profile.value())),
        ),
        (false, false) => {}
    }
}

/// Validates an AppArmor profile.
pub fn validate_app_armor(profile: &Field<'_>, errors: &mut Errors) {
    const TYPES: [&str; 3] = ["Localhost", "RuntimeDefault", "Unconfined"];
    const MAX_PATH: usize = 4095;
    const MISSING: &str = "must be set when AppArmor type is Localhost";
    if !profile.exists() {
        return;
    }
    let (kind, file) = (profile.get("type"), profile.get("localhostProfile"));
    match kind.str() {
        "Localhost" if !file.exists() => errors.push(file.required(MISSING)),
        "Localhost" => {
            if file.str().trim() != file.str() {
                errors.push(file.invalid("must not be padded with whitespace"));
            } else if file.is_empty() {
                errors.push(file.required(MISSING));
            }
            errors.push_if(file.len() > MAX_PATH, || file.too_long(MAX_PATH));
        }
        "RuntimeDefault" | "Unconfined" => {
            errors.push_if(file.exists(), || file.invalid("can only be set when AppArmor type is Localhost"))
        }
        "" => errors.push(kind.required("type is required when appArmorProfile is set")),
        _ => errors.push(kind.not_supported(&TYPES)),
    }
}

const SYSCTL: &str = "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

fn validate_sysctls(spec: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    let mut seen = BTreeSet::new();
    for sysctl in spec.walk("securityContext.sysctls").items() {
        let name = sysctl.get("name");
        if name.is_empty() {
            errors.push(name.required(""));
        } else if !is_sysctl(name.str()) {
            errors.push(name.invalid(format!("must have at most 253 characters and match regex {SYSCTL}")));
        } else {
            errors.push_if(seen.contains(name.str()), || name.duplicate());
        }
        if !options.allow_sysctls_of_host_namespaces {
            validate_host_sysctl(spec, &name, errors);
        }
        seen.insert(name.str());
    }
}

fn is_sysctl(name: &str) -> bool {
    let edge = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let segment = |segment: &str| {
        let bytes = segment.as_bytes();
        edge(bytes.first())
            && edge(bytes.last())
            && bytes.iter().all(|b| edge(Some(b)) || *b == b'-' || *b == b'_')
    };
    name.len() <= 253 && name.split(['.', '/']).all(segment)
}

/// Rejects a sysctl of a namespace that the pod shares with its host, since it would change the
/// host.
pub fn validate_host_sysctl(spec: &Field<'_>, name: &Field<'_>, errors: &mut Errors) {
    const IPC: [&str; 10] = [
        "kernel.sem",
        "kernel.shmall",
        "kernel.shmmax",
        "kernel.shmmni",
        "kernel.shm_rmid_forced",
        "kernel.shm",
        "kernel.msgmax",
        "kernel.msgmnb",
        "kernel.msgmni",
        "kernel.msg",
    ];
    let dotted = with_dots(name.str());
    let stem = dotted.split('*').next().unwrap_or("");
    let ipc = IPC.contains(&stem) || stem.starts_with("fs.mqueue.");
    let shared = if stem.starts_with("net.") {
        "hostNetwork"
    } else if ipc {
        "hostIPC"
    } else {
        return;
    };
    errors.push_if(spec.get(shared).bool(), || {
        name.invalid(format!("may not be specified when '{shared}' is true"))
    });
}

/// Returns the name of a sysctl with dots. `net/ipv4/conf/eth0.100/x` becomes
/// `net.ipv4.conf.eth0/100.x`: the first separator determines the notation.
fn with_dots(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('/') => {
            let swap = |c| match c {
                '.' => '/',
                '/' => '.',
                c => c,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    }
}

fn validate_windows_options(windows: &Field<'_>, errors: &mut Errors) {
    const MAX_CREDENTIAL: usize = 64 * 1024;
    let (name, credential) = (windows.get("gmsaCredentialSpecName"), windows.get("gmsaCredentialSpec"));
    if name.exists() {
        errors.invalid_each(&name, content::dns1123_subdomain(name.str()));
    }
    if credential.exists() {
        errors.push_if(credential.is_empty(), || {
            credential.invalid("gmsaCredentialSpec cannot be an empty string")
        });
        errors.push_if(credential.len() > MAX_CREDENTIAL, || {
            credential.invalid("gmsaCredentialSpec size must be under 64 KiB")
        });
    }
    let user = windows.get("runAsUserName");
    if user.exists() {
        for error in windows_user(user.str()) {
            errors.push(user.invalid(format!("runAsUserName{error}")));
        }
    }
}

/// Returns the errors in `user` or `DOMAIN\user`.
fn windows_user(text: &str) -> Vec<&'static str> {
    if text.is_empty() {
        return vec![" cannot be an empty string"];
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        return vec![" cannot contain control characters"];
    }
    let (domain, user) = match text.split_once('\\') {
        None => (None, text),
        Some((_, user)) if user.contains('\\') => return vec![" cannot contain more than one backslash"],
        Some((domain, user)) => (Some(domain), user),
    };
    [
        (domain.is_some_and(|domain| domain.len() >= 256), "'s Domain length must be under 256 characters"),
        (
            domain.is_some_and(|domain| !is_netbios_name(domain) && !is_windows_domain(domain)),
            "'s Domain doesn't match the NetBios nor the DNS format",
        ),
        (user.is_empty(), "'s User cannot be empty"),
        (user.len() > 104, "'s User length must not be longer than 104 characters"),
        (
            !user.is_empty() && user.chars().all(|c| c == '.' || c == ' '),
            "'s User cannot contain only periods or spaces",
        ),
        (
            user.contains(|c| "\"/\\:;|=,+*?<>@[]".contains(c)),
            "'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]",
        ),
    ]
    .into_iter()
    .filter_map(|(wrong, error)| wrong.then_some(error))
    .collect()
}

fn is_netbios_name(text: &str) -> bool {
    (1..=15).contains(&text.chars().count())
        && !text.starts_with('.')
        && !text.contains(|c| "\\/:*?\"<>|".contains(c))
}

fn is_windows_domain(text: &str) -> bool {
    text.split('.').all(|label| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    })
}

/// Validates Windows host process containers: all of them or none, and only on the host's network.
pub fn validate_host_processes(spec: &Field<'_>, errors: &mut Errors) {
    const HOST_PROCESS: &str = "securityContext.windowsOptions.hostProcess";
    let of_pod = spec.walk(HOST_PROCESS);
    let (mut all, mut on_host) = (0, 0);
    for container in containers(spec) {
        all += 1;
        let own = container.walk(HOST_PROCESS);
        errors.push_if(of_pod.exists() && own.exists() && of_pod.bool() != own.bool(), || {
            own.invalid(format!(
                "pod hostProcess value must be identical if both are specified, was {}",
                of_pod.bool()
            ))
        });
        on_host += usize::from(if own.exists() { own.bool() } else { of_pod.bool() });
    }
    if on_host == 0 {
        return;
    }
    errors.push_if(on_host != all, || {
        spec.invalid_value(
            "",
            "If pod contains any hostProcess containers then all containers must be HostProcess containers",
        )
    });
    let network = spec.get("hostNetwork");
    errors.push_if(!network.bool(), || {
        network.invalid_value(false, "hostNetwork must be true if pod contains any hostProcess containers")
    });
}

/// Requires that a pod with a user namespace does not share the host's namespaces.
pub fn validate_host_users(spec: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    const DETAIL: &str = "when `hostUsers` is false";
    if has_host_users(spec) {
        return;
    }
    for (member, shown) in [("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")] {
        let shared = spec.get(member);
        errors.push_if(shared.bool(), || shared.with_path(spec.path().child(shown)).forbidden(DETAIL));
    }
    if !options.allow_user_namespaces_with_devices {
        for container in containers(spec) {
            let devices = container.get("volumeDevices");
            errors.push_if(!devices.is_empty(), || devices.forbidden(DETAIL));
        }
    }
}

/// Validates the operating system of a pod, and rejects the fields that pods of that system cannot
/// set.
pub fn validate_os(spec: &Field<'_>, errors: &mut Errors) {
    const NAMES: [&str; 2] = ["linux", "windows"];
    let (os, name) = (spec.get("os"), spec.walk("os.name"));
    match name.str() {
        _ if !os.exists() => {}
        "" => errors.push(name.required("")),
        "linux" => validate_linux(spec, errors),
        "windows" => validate_windows(spec, errors),
        _ => errors.push(name.with_path(os.path().clone()).not_supported(&NAMES)),
    }
}

fn validate_linux(spec: &Field<'_>, errors: &mut Errors) {
    for owner in std::iter::once(spec.clone()).chain(containers(spec)) {
        let windows = owner.walk("securityContext.windowsOptions");
        errors
            .push_if(windows.exists(), || windows.forbidden("windows options cannot be set for a linux pod"));
    }
}

fn validate_windows(spec: &Field<'_>, errors: &mut Errors) {
    const POD: [&str; 15] = [
        "securityContext.appArmorProfile",
        "securityContext.seLinuxOptions",
        "hostUsers",
        "hostPID",
        "hostIPC",
        "securityContext.seccompProfile",
        "securityContext.fsGroup",
        "securityContext.fsGroupChangePolicy",
        "securityContext.sysctls",
        "shareProcessNamespace",
        "securityContext.runAsUser",
        "securityContext.runAsGroup",
        "securityContext.supplementalGroups",
        "securityContext.supplementalGroupsPolicy",
        "securityContext.seLinuxChangePolicy",
    ];
    const CONTAINER: [&str; 10] = [
        "appArmorProfile",
        "seLinuxOptions",
        "seccompProfile",
        "capabilities",
        "readOnlyRootFilesystem",
        "privileged",
        "allowPrivilegeEscalation",
        "procMount",
        "runAsUser",
        "runAsGroup",
    ];
    let of_pod = POD.map(|member| spec.walk(member));
    let of_containers = containers(spec).flat_map(|container| {
        let context = container.get("securityContext");
        CONTAINER.map(|member| context.get(member))
    });
    for member in of_pod.into_iter().chain(of_containers) {
        errors.push_if(member.exists(), || member.forbidden("cannot be set for a windows pod"));
    }
}
