//! Containers: the rules of all containers, and those of init, app and ephemeral ones.
//!
//! Start at [`validate`].

use std::collections::{BTreeMap, BTreeSet};

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::{content, paths};
use serde_json::Value;

use super::container_lists::{ContainerType, is_sidecar};
use super::options::PodValidationOptions;
use super::volumes::{Mountable, pull_policy};
use super::{env, probes, resources, security};

/// The pod of the validated containers.
pub struct Pod<'a> {
    /// The spec of the pod.
    pub spec: &'a Field<'a>,
    /// The volumes that containers can mount.
    pub volumes: &'a Mountable<'a>,
    /// The names of the pod's resource claims.
    pub claims: &'a BTreeSet<&'a str>,
    /// The relaxed rules.
    pub options: &'a PodValidationOptions,
}

impl Pod<'_> {
    fn grace(&self) -> Option<i64> {
        self.spec.get("terminationGracePeriodSeconds").int()
    }
}

/// Validates all containers of the pod.
pub fn validate(pod: &Pod<'_>, errors: &mut Errors) {
    validate_app_containers(pod, errors);
    validate_init_containers(pod, errors);
    validate_ephemeral_containers(pod, errors);
}

fn validate_app_containers(pod: &Pod<'_>, errors: &mut Errors) {
    let containers = pod.spec.get("containers");
    if containers.is_empty() {
        errors.push(containers.required(""));
        return;
    }
    let mut names = BTreeSet::new();
    for container in containers.items() {
        if errors.is_full() {
            break;
        }
        validate_common(&container, pod, errors);
        let name = container.get("name");
        errors.push_if(!names.insert(name.str()), || name.duplicate());
        probes::validate_lifecycle(&container, pod.grace(), errors);
        probes::validate_probes(&container, errors);
        validate_restart_policy(&container, ContainerType::App, errors);
    }
    validate_host_ports(containers.items(), errors);
}

fn validate_init_containers(pod: &Pod<'_>, errors: &mut Errors) {
    let mut names = names_of(&pod.spec.get("containers"));
    for container in pod.spec.get("initContainers").items() {
        if errors.is_full() {
            break;
        }
        validate_common(&container, pod, errors);
        validate_restart_policy(&container, ContainerType::Init, errors);
        let name = container.get("name");
        if names.contains(name.str()) {
            errors.push(name.duplicate());
        } else if !name.is_empty() {
            names.insert(name.str());
        }
        // kube-apiserver validates the ports of each init container separately, and reports it as
        // the first.
        let alone = container.with_path(pod.spec.path().child("initContainers").index(0));
        validate_host_ports(std::iter::once(alone), errors);
        if is_sidecar(&container) {
            probes::validate_lifecycle(&container, pod.grace(), errors);
            probes::validate_probes(&container, errors);
        } else {
            for member in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                let member = container.get(member);
                errors.push_if(member.exists(), || {
                    member.forbidden("may not be set for init containers without restartPolicy=Always")
                });
            }
            validate_no_restart_on_resize(&container, pod.options, errors);
        }
    }
}

fn validate_no_restart_on_resize(container: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    for policy in container.get("resizePolicy").items() {
        let restart = policy.get("restartPolicy");
        errors
            .push_if(restart.str() == "RestartContainer" && !options.allow_restarting_init_on_resize, || {
                restart.invalid("must not be set to 'RestartContainer' for non-sidecar initContainers")
            });
    }
}

/// Fields that ephemeral containers, which are added to running pods, cannot have.
const NOT_EPHEMERAL: [&str; 9] = [
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

fn validate_ephemeral_containers(pod: &Pod<'_>, errors: &mut Errors) {
    let mut names = names_of(&pod.spec.get("containers"));
    names.extend(names_of(&pod.spec.get("initContainers")));
    let targets = names.clone();
    for container in pod.spec.get("ephemeralContainers").items() {
        validate_common(&container, pod, errors);
        validate_image_is_trimmed(&container, errors);
        let (name, target) = (container.get("name"), container.get("targetContainerName"));
        errors.push_if(!names.insert(name.str()), || name.duplicate());
        errors.push_if(!target.is_empty() && !targets.contains(target.str()), || target.not_found());
        for name in NOT_EPHEMERAL {
            let member = container.get(name);
            // Every container has `resources: {}`, which has no meaning.
            let is_bare =
                name == "resources" && member.is_empty() && member.value().is_some_and(Value::is_object);
            errors.push_if(member.exists() && !is_bare, || {
                member.forbidden("cannot be set for an Ephemeral Container")
            });
        }
        for mount in container.get("volumeMounts").items() {
            for member in ["subPath", "subPathExpr"] {
                let member = mount.get(member);
                errors.push_if(!member.is_empty(), || {
                    member.forbidden("cannot be set for an Ephemeral Container")
                });
            }
        }
    }
}

fn names_of<'a>(containers: &Field<'a>) -> BTreeSet<&'a str> {
    containers.items().map(|container| container.get("name").str()).collect()
}

/// Validates that the image has no leading or trailing spaces. This applies to a pod's containers,
/// not to a template's.
pub fn validate_image_is_trimmed(container: &Field<'_>, errors: &mut Errors) {
    let image = container.get("image");
    errors.push_if(image.str().trim() != image.str(), || {
        image.invalid("must not have leading or trailing whitespace")
    });
}

fn validate_common(container: &Field<'_>, pod: &Pod<'_>, errors: &mut Errors) {
    const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
    let (name, image) = (container.get("name"), container.get("image"));
    if name.is_empty() {
        errors.push(name.required(""));
    } else {
        errors.invalid_each(&name, content::dns1123_label(name.str()));
    }
    errors.push_if(image.is_empty(), || image.required(""));
    let policy = container.get("terminationMessagePolicy");
    if policy.is_empty() {
        errors.push(policy.required(""));
    } else {
        errors.push_if(!MESSAGE_POLICIES.contains(&policy.str()), || policy.not_supported(&MESSAGE_POLICIES));
    }
    validate_ports(&container.get("ports"), errors);
    env::validate_env(&container.get("env"), errors);
    env::validate_env_from(&container.get("envFrom"), errors);
    validate_mounts(container, pod.volumes, errors);
    validate_devices(container, pod.volumes, errors);
    pull_policy(&container.get("imagePullPolicy"), errors);
    resources::validate_container(&container.get("resources"), pod.claims, pod.options, errors);
    validate_resize_policy(&container.get("resizePolicy"), pod.spec.get("restartPolicy").str(), errors);
    security::validate_container(container, pod.spec, errors);
}

fn validate_ports(ports: &Field<'_>, errors: &mut Errors) {
    const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
    let mut names = BTreeSet::new();
    for port in ports.items() {
        let (name, number) = (port.get("name"), port.get("containerPort"));
        let (host, protocol) = (port.get("hostPort"), port.get("protocol"));
        if !name.is_empty() {
            let found = content::port_name(name.str());
            if found.is_empty() {
                errors.push_if(!names.insert(name.str()), || name.duplicate());
            }
            errors.invalid_each(&name, found);
        }
        match number.int().unwrap_or(0) {
            0 => errors.push(number.required("")),
            n => errors.invalid_each(&number, content::port_number(n)),
        }
        if let Some(n) = host.int().filter(|n| *n != 0) {
            errors.invalid_each(&host, content::port_number(n));
        }
        if protocol.is_empty() {
            errors.push(protocol.required(""));
        } else {
            errors.push_if(!PROTOCOLS.contains(&protocol.str()), || protocol.not_supported(&PROTOCOLS));
        }
    }
}

/// Validates that no two containers have the same host port.
fn validate_host_ports<'a>(containers: impl Iterator<Item = Field<'a>>, errors: &mut Errors) {
    let mut taken = BTreeSet::new();
    for port in containers.flat_map(|container| container.get("ports").items()) {
        let host = port.get("hostPort");
        let Some(number) = host.int().filter(|n| *n != 0) else { continue };
        let key = format!("{}/{}/{number}", port.get("protocol").str(), port.get("hostIP").str());
        if taken.contains(&key) {
            errors.push(host.duplicate_value(key));
        } else {
            taken.insert(key);
        }
    }
}

/// Maps names to paths of the entries of a list; the last entry wins for duplicate names.
fn by_name<'a>(list: &Field<'a>, path: &'a str) -> BTreeMap<&'a str, &'a str> {
    list.items().map(|entry| (entry.get("name").str(), entry.get(path).str())).collect()
}

fn validate_mounts(container: &Field<'_>, volumes: &Mountable<'_>, errors: &mut Errors) {
    let devices = by_name(&container.get("volumeDevices"), "devicePath");
    let device_paths: BTreeSet<&str> = devices.values().copied().collect();
    let mounts = container.get("volumeMounts");
    let mut paths_taken = BTreeSet::new();
    for mount in mounts.items() {
        let (name, path) = (mount.get("name"), mount.get("mountPath"));
        errors.push_if(name.is_empty(), || name.required(""));
        errors.push_if(!volumes.contains_key(name.str()), || name.not_found());
        errors.push_if(path.is_empty(), || path.required(""));
        errors.push_if(!paths_taken.insert(path.str()), || path.invalid("must be unique"));
        errors.push_if(devices.contains_key(name.str()), || {
            name.invalid("must not already exist in volumeDevices")
        });
        errors.push_if(device_paths.contains(path.str()), || {
            path.invalid("must not already exist as a path in volumeDevices")
        });
        let (sub, expression) = (mount.get("subPath"), mount.get("subPathExpr"));
        // From here on kube-apiserver does not report the index of the mount.
        let blurred = |field: &Field<'_>, member| field.with_path(mounts.path().child(member)).path().clone();
        if !sub.is_empty() {
            let sub = sub.with_path(blurred(&sub, "subPath"));
            errors.invalid_each(&sub, paths::descending(sub.str()));
        }
        if !expression.is_empty() {
            errors.push_if(!sub.is_empty(), || {
                expression.invalid("subPathExpr and subPath are mutually exclusive")
            });
            let expression = expression.with_path(blurred(&expression, "subPathExpr"));
            errors.invalid_each(&expression, paths::descending(expression.str()));
        }
        let mount = mount.with_path(mounts.path().clone());
        validate_propagation(&mount.get("mountPropagation"), container, errors);
        validate_recursive_read_only(&mount, errors);
    }
}

fn validate_propagation(propagation: &Field<'_>, container: &Field<'_>, errors: &mut Errors) {
    const MODES: [&str; 3] = ["Bidirectional", "HostToContainer", "None"];
    if !propagation.exists() {
        return;
    }
    errors.push_if(!MODES.contains(&propagation.str()), || propagation.not_supported(&MODES));
    let privileged = container.walk("securityContext.privileged").bool();
    errors.push_if(propagation.str() == "Bidirectional" && !privileged, || {
        propagation.forbidden("Bidirectional mount propagation is available only to privileged containers")
    });
}

fn validate_recursive_read_only(mount: &Field<'_>, errors: &mut Errors) {
    let recursive = mount.get("recursiveReadOnly");
    match recursive.str() {
        _ if !recursive.exists() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            errors.push_if(!mount.get("readOnly").bool(), || {
                recursive.forbidden("may only be specified when readOnly is true")
            });
            let propagation = mount.get("mountPropagation");
            errors.push_if(propagation.exists() && propagation.str() != "None", || {
                recursive.forbidden("may only be specified when mountPropagation is None or not specified")
            });
        }
        _ => errors.push(recursive.not_supported(&["Disabled", "Enabled", "IfPossible"])),
    }
}

fn validate_devices(container: &Field<'_>, volumes: &Mountable<'_>, errors: &mut Errors) {
    let mounts = by_name(&container.get("volumeMounts"), "mountPath");
    let mount_paths: BTreeSet<&str> = mounts.values().copied().collect();
    let (mut names, mut devices) = (BTreeSet::new(), BTreeSet::new());
    for device in container.get("volumeDevices").items() {
        let (name, path) = (device.get("name"), device.get("devicePath"));
        errors.push_if(name.is_empty(), || name.required(""));
        errors.push_if(names.contains(name.str()), || name.invalid("must be unique"));
        match volumes.get(name.str()) {
            None => errors.push(name.not_found()),
            Some(volume) => {
                let claimed =
                    volume.get("persistentVolumeClaim").exists() || volume.get("ephemeral").exists();
                errors.push_if(!claimed, || {
                    name.invalid(
                        "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                    )
                });
            }
        }
        errors.push_if(path.is_empty(), || path.required(""));
        errors.push_if(devices.contains(path.str()), || path.invalid("must be unique"));
        if paths::no_backsteps(path.str()).is_empty() {
            devices.insert(path.str());
        } else {
            errors.push(path.invalid("can not contain backsteps ('..')"));
        }
        errors.push_if(mounts.contains_key(name.str()), || {
            name.invalid("must not already exist in volumeMounts")
        });
        errors.push_if(mount_paths.contains(path.str()), || {
            path.invalid("must not already exist as a path in volumeMounts")
        });
        if !name.is_empty() {
            names.insert(name.str());
        }
    }
}

fn validate_resize_policy(policies: &Field<'_>, pod_restart_policy: &str, errors: &mut Errors) {
    const RESOURCES: [&str; 2] = ["cpu", "memory"];
    const POLICIES: [&str; 2] = ["NotRequired", "RestartContainer"];
    let mut seen = BTreeSet::new();
    for policy in policies.items() {
        let resource = policy.get("resourceName");
        errors.push_if(!seen.insert(resource.str()), || policy.duplicate_value(resource.str()));
        // Errors in an entry are reported for the list.
        let resource = resource.with_path(policies.path().clone());
        let restart = policy.get("restartPolicy").with_path(policies.path().clone());
        for (field, known) in [(&resource, RESOURCES), (&restart, POLICIES)] {
            if field.is_empty() {
                errors.push(field.required(""));
            } else {
                errors.push_if(!known.contains(&field.str()), || field.not_supported(&known));
            }
        }
        errors.push_if(pod_restart_policy == "Never" && restart.str() != "NotRequired", || {
            restart.invalid("must be 'NotRequired' when pod `restartPolicy` is 'Never'")
        });
    }
}

/// Validates the restart policy of a container, and its restart rules by exit code.
fn validate_restart_policy(container: &Field<'_>, container_type: ContainerType, errors: &mut Errors) {
    const POLICIES: [&str; 3] = ["Always", "Never", "OnFailure"];
    const ACTIONS: [&str; 2] = ["Restart", "RestartAllContainers"];
    const OPERATORS: [&str; 2] = ["In", "NotIn"];
    let (policy, rules) = (container.get("restartPolicy"), container.get("restartPolicyRules"));
    if policy.exists() {
        errors.push_if(!POLICIES.contains(&policy.str()), || policy.not_supported(&POLICIES));
    } else if !rules.is_empty() {
        errors.push(policy.required("must specify restartPolicy when restart rules are used"));
        // Init containers are not validated further.
        if container_type == ContainerType::Init {
            return;
        }
    }
    errors.push_if(rules.len() > 20, || rules.too_many(rules.len(), 20));
    for rule in rules.items() {
        let (action, codes) = (rule.get("action"), rule.get("exitCodes"));
        errors.push_if(!ACTIONS.contains(&action.str()), || action.not_supported(&ACTIONS));
        if !codes.exists() {
            errors.push(codes.required("must be specified"));
            continue;
        }
        let (operator, values) = (codes.get("operator"), codes.get("values"));
        errors.push_if(!OPERATORS.contains(&operator.str()), || operator.not_supported(&OPERATORS));
        errors.push_if(values.len() > 255, || values.too_many(values.len(), 255));
    }
}
