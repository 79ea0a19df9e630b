//! The paths within volumes that a pod's containers mount, as far as they are known before the
//! volumes are: a container with a wrong one is not made.

use std::collections::BTreeSet;

use coracle_behavior::Environment;
use k8s_openapi::api::core::v1::{Container, Pod, VolumeMount};

/// Returns the containers with a wrong path, with the kubelet's message.
pub fn problems(pod: &Pod) -> impl Iterator<Item = (String, String)> {
    let init = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten());
    let containers = init.chain(pod.spec.iter().flat_map(|spec| &spec.containers));
    containers.filter_map(|container| Some((container.name.clone(), problem(pod, container)?)))
}

fn problem(pod: &Pod, container: &Container) -> Option<String> {
    let mounts = container.volume_mounts.iter().flatten();
    let mut expanded = mounts.filter(|mount| !expression(mount).is_empty()).peekable();
    expanded.peek()?;
    let environment = Environment::at_start(pod, container);
    expanded.find_map(|mount| problem_of_mount(expression(mount), &environment))
}

fn expression(mount: &VolumeMount) -> &str {
    mount.sub_path_expr.as_deref().unwrap_or_default()
}

fn problem_of_mount(expression: &str, environment: &Environment) -> Option<String> {
    let mut missing = BTreeSet::new();
    let path = environment.expand_with(expression, |name| {
        missing.insert(name.to_owned());
    });
    if !missing.is_empty() {
        let missing: Vec<String> = missing.into_iter().collect();
        return Some(format!("missing value for {}", missing.join(", ")));
    }
    let path = path?;
    if path.starts_with('/') {
        return Some(format!("error SubPath `{path}` must not be an absolute path"));
    }
    path.split('/')
        .any(|part| part == "..")
        .then(|| format!("unable to provision SubPath `{path}`: must not contain '..'"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_paths_are_named() {
        for (expression, want) in [
            ("$(NAME)/$(NAME)", None),
            ("plain", None),
            ("$(SECRET)/x", None),
            ("$(TIER)", None),
            ("$(ZONE)", Some("missing value for ZONE")),
            ("$$(OTHER)", None),
            ("$(UP)", Some("unable to provision SubPath `..`: must not contain '..'")),
            ("$(ROOT)", Some("error SubPath `/tmp` must not be an absolute path")),
            ("$(OTHER)/$(EMPTY)/$(OTHER)", Some("missing value for EMPTY, OTHER")),
        ] {
            let variable = |name: &str, value: &str| json!({"name": name, "value": value});
            let secret = json!({"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}});
            let label = |name: &str, label: &str| {
                let path = format!("metadata.labels['{label}']");
                json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}})
            };
            let env = [
                label("TIER", "tier"),
                label("ZONE", "zone"),
                variable("NAME", "a"),
                variable("UP", ".."),
                variable("ROOT", "/tmp"),
                variable("EMPTY", ""),
                secret,
            ];
            let mounts = [
                json!({"name": "v", "mountPath": "/v", "subPath": ".."}),
                json!({"name": "v", "mountPath": "/w", "subPathExpr": expression}),
            ];
            let pod = json!({"metadata": {"labels": {"tier": "web"}}, "spec": {"containers": [{"name": "c", "env": env, "volumeMounts": mounts}]}});
            let pod: Pod = serde_json::from_value(pod).unwrap();
            let found: Vec<_> = problems(&pod).collect();
            let want = want.map(|problem| ("c".to_owned(), problem.to_owned()));
            assert_eq!(found, want.into_iter().collect::<Vec<_>>(), "{expression}");
        }
    }
}
