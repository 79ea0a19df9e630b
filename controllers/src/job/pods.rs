//! The pods of a Job, as they are created.

use coracle_kinds::jobs::{COMPLETION_INDEX, TRACKING_FINALIZER};
use coracle_kinds::pods::from_template;
use coracle_object_meta::{set_annotation, set_finalizer};
use k8s_openapi::api::batch::v1::{Job, JobSpec};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use kube::ResourceExt;

use super::manage::Creation;
use super::pod_counts::{FailureCounts, INDEX_FAILURE_COUNT, INDEX_IGNORED_FAILURE_COUNT};

const INDEX_VARIABLE: &str = "JOB_COMPLETION_INDEX";
/// The longest prefix that the API server makes a name of; the rest of a name is random.
const MAX_PREFIX_LENGTH: usize = 58;

/// Builds the pods to create.
pub fn new_pods(job: &Job, spec: &JobSpec, creation: &Creation) -> Vec<Pod> {
    let mut pod = from_template(&spec.template, job);
    set_finalizer(&mut pod.metadata, TRACKING_FINALIZER, true);
    match creation {
        Creation::Plain(count) => vec![pod; *count],
        Creation::Indexed(indexes) => {
            add_index_variable(&mut pod);
            indexes.iter().map(|(index, failures)| indexed(pod.clone(), job, *index, *failures)).collect()
        }
    }
}

/// Adds the environment variable with the index to the containers that have none of its name.
fn add_index_variable(pod: &mut Pod) {
    let Some(spec) = &mut pod.spec else { return };
    let field = ObjectFieldSelector {
        api_version: None,
        field_path: format!("metadata.labels['{COMPLETION_INDEX}']"),
    };
    let source = EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() };
    let variable = EnvVar { name: INDEX_VARIABLE.to_owned(), value: None, value_from: Some(source) };
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        let variables = container.env.get_or_insert_default();
        if !variables.iter().any(|known| known.name == INDEX_VARIABLE) {
            variables.push(variable.clone());
        }
    }
}

fn indexed(mut pod: Pod, job: &Job, index: i32, failures: Option<FailureCounts>) -> Pod {
    let (name, index) = (job.name_any(), index.to_string());
    set_annotation(&mut pod.metadata, COMPLETION_INDEX, &index);
    pod.metadata.labels.get_or_insert_default().insert(COMPLETION_INDEX.to_owned(), index.clone());
    if let Some(failures) = failures {
        set_annotation(&mut pod.metadata, INDEX_FAILURE_COUNT, &failures.counted.to_string());
        if failures.ignored > 0 {
            set_annotation(&mut pod.metadata, INDEX_IGNORED_FAILURE_COUNT, &failures.ignored.to_string());
        }
    }
    let suffix = format!("-{index}-");
    let room = MAX_PREFIX_LENGTH.saturating_sub(suffix.len());
    pod.metadata.generate_name = Some(format!("{}{suffix}", name.get(..room).unwrap_or(&name)));
    if let Some(spec) = &mut pod.spec {
        spec.hostname = Some(format!("{name}-{index}"));
    }
    pod
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn job(name: &str) -> Job {
        let init = json!([{"name": "i", "image": "x", "env": [{"name": INDEX_VARIABLE, "value": "mine"}]}]);
        let spec = json!({"initContainers": init, "containers": [{"name": "c", "image": "x"}]});
        let template = json!({"metadata": {"labels": {"app": "x"}, "finalizers": ["a.io/b"]}, "spec": spec});
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "n", "uid": "u"},
            "spec": {"completionMode": "Indexed", "template": template},
        }))
        .unwrap()
    }

    #[test]
    fn pods_carry_finalizer_owner_and_index() {
        let job = job("j");
        let spec = job.spec.as_ref().unwrap();
        let plain = new_pods(&job, spec, &Creation::Plain(2));
        assert_eq!(plain.len(), 2);
        let finalizers = ["a.io/b", TRACKING_FINALIZER].map(str::to_owned).to_vec();
        assert_eq!(plain[0].metadata.finalizers, Some(finalizers));
        assert_eq!(plain[0].metadata.generate_name.as_deref(), Some("j-"));
        let failures = FailureCounts { counted: 1, ignored: 2 };
        let indexed = new_pods(&job, spec, &Creation::Indexed(vec![(0, None), (3, Some(failures))]));
        let annotations = |pod: &Pod| json!(pod.metadata.annotations);
        assert_eq!(annotations(&indexed[0]), json!({COMPLETION_INDEX: "0"}));
        assert_eq!(
            annotations(&indexed[1]),
            json!({COMPLETION_INDEX: "3", INDEX_FAILURE_COUNT: "1", INDEX_IGNORED_FAILURE_COUNT: "2"})
        );
        assert_eq!(json!(indexed[1].metadata.labels), json!({"app": "x", COMPLETION_INDEX: "3"}));
        let spec = indexed[1].spec.as_ref().unwrap();
        assert_eq!(spec.hostname.as_deref(), Some("j-3"));
        let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
        let variable = json!([{"name": INDEX_VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": path}}}]);
        assert_eq!(json!(spec.containers[0].env), variable);
        let own = json!([{"name": INDEX_VARIABLE, "value": "mine"}]);
        assert_eq!(json!(spec.init_containers.as_ref().unwrap()[0].env), own);
    }

    #[test]
    fn long_names_leave_room_for_the_index() {
        let name = "x".repeat(61);
        let job = job(&name);
        let pods = new_pods(&job, job.spec.as_ref().unwrap(), &Creation::Indexed(vec![(12, None)]));
        assert_eq!(pods[0].metadata.generate_name, Some(format!("{}-12-", "x".repeat(54))));
        assert_eq!(pods[0].spec.as_ref().unwrap().hostname, Some(format!("{name}-12")));
    }
}
