//! Recorded responses of a real server (v1.36.2) to pods and templates, most of them invalid.
//!
//! `answers.jsonl` contains one new pod a line: `pod` is merged into [`base`], `errors` are the
//! causes of the rejection in their order (`anyOrder`: kube-apiserver has none), `templateErrors`
//! those of the same spec as a template if they differ in more than the path; for accepted pods
//! `spec` is the stored spec.
//!
//! `updates.jsonl` contains one change a line: the pod `old`, changed by `setup` if there is one,
//! then by `new` through the subresource `part` (empty: the pod itself).

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::resource_info::Endpoint;
use coracle_apimachinery::strategy::{Part, Strategy};
use serde_json::{Value, json};

use crate::core::{pod, pod_template};
use crate::recorded::{CONTEXT, cases, causes, merged, set_type};

fn answers() -> Vec<Value> {
    cases(include_str!("answers.jsonl"))
}

fn base() -> Value {
    json!({
        "metadata": {"name": "p"},
        "spec": {"automountServiceAccountToken": false, "containers": [{"name": "c", "image": "i:1"}]},
    })
}

/// Adds the fields that admission adds to every pod: account, priority, tolerations.
fn admit(pod: &mut Value) {
    let toleration =
        |key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    let spec = pod["spec"].as_object_mut().expect("a spec");
    spec.entry("serviceAccountName").or_insert(json!("default"));
    spec.entry("priority").or_insert(json!(0));
    spec.entry("preemptionPolicy").or_insert(json!("PreemptLowerPriority"));
    let tolerations = spec.entry("tolerations").or_insert(json!([])).as_array_mut().expect("a list");
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        if !tolerations.iter().any(|toleration| toleration["key"] == key) {
            tolerations.push(toleration(key));
        }
    }
}

/// Adds the fields that the codec adds: structs that are present even if they are empty.
fn encode(pod: &mut Value) {
    for list in super::ContainerType::ALL.map(super::ContainerType::list) {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().expect("a container").entry("resources").or_insert(json!({}));
        }
    }
    for volume in pod["spec"].get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(template) = volume.pointer_mut("/ephemeral/volumeClaimTemplate") {
            template.as_object_mut().expect("a template").entry("metadata").or_insert(json!({}));
        }
    }
}

fn texts(case: &Value, member: &str) -> Vec<String> {
    let list = case[member].as_array().cloned().unwrap_or_default();
    list.iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
}

fn assert_same(case: &Value, what: &str, mut got: Vec<String>, mut want: Vec<String>, failed: &mut u32) {
    if case["anyOrder"] == true {
        got.sort();
        want.sort();
    }
    if got != want {
        *failed += 1;
        println!("{} ({what}):\n  got  {got:#?}\n  want {want:#?}", case["case"]);
    }
}

fn create(patch: &Value) -> Value {
    let mut pod = base();
    set_type(&mut pod, "", "Pod");
    pod = merged(&pod, patch);
    pod::PodStrategy.default(&mut pod);
    admit(&mut pod);
    pod::PodStrategy.prepare_for_create(&mut pod, &CONTEXT);
    encode(&mut pod);
    pod
}

#[test]
fn pods_are_refused_with_the_real_texts() {
    let mut failed = 0;
    for case in answers() {
        let pod = create(&case["pod"]);
        let mut errors = Errors::new();
        pod::PodStrategy.validate(&Field::root(&pod), &mut errors);
        assert_same(&case, "pod", causes(&errors), texts(&case, "errors"), &mut failed);
    }
    assert_eq!(failed, 0);
}

#[test]
fn templates_are_refused_with_the_real_texts() {
    let mut failed = 0;
    for case in answers() {
        let pod = merged(&base(), &case["pod"]);
        let mut object = json!({"metadata": {"name": "t"}, "template": pod});
        set_type(&mut object, "", "PodTemplate");
        pod_template::PodTemplateStrategy.default(&mut object);
        pod_template::PodTemplateStrategy.prepare_for_create(&mut object, &CONTEXT);
        let mut errors = Errors::new();
        pod_template::PodTemplateStrategy.validate(&Field::root(&object), &mut errors);
        let want = match case.get("templateErrors") {
            Some(_) => texts(&case, "templateErrors"),
            None => texts(&case, "errors").iter().map(|text| in_template(text)).collect(),
        };
        assert_same(&case, "template", causes(&errors), want, &mut failed);
    }
    assert_eq!(failed, 0);
}

fn in_template(text: &str) -> String {
    match text.strip_prefix("metadata.") {
        Some(rest) => format!("template.{rest}"),
        None => format!("template.{text}"),
    }
}

#[test]
fn accepted_pods_match_the_stored_ones() {
    for case in answers().iter().filter(|case| case.get("spec").is_some()) {
        let pod = create(&case["pod"]);
        assert_eq!(pod["spec"], case["spec"], "{}", case["case"]);
        assert_eq!(pod["status"]["qosClass"], case["qosClass"], "{}", case["case"]);
        if let Some(annotations) = case.get("annotations") {
            assert_eq!(&pod["metadata"]["annotations"], annotations, "{}", case["case"]);
        }
    }
}

fn part_named(name: &Value) -> Part {
    match name.as_str().map(|name| (name, Endpoint::named(name))) {
        Some(("", _)) => Part::Main,
        Some((_, Some(Endpoint::Part(part)))) => part,
        _ => panic!("no part {name}"),
    }
}

/// Changes and prepares a pod; returns it with its errors.
fn change(old: &Value, patch: &Value, part: Part) -> (Value, Errors) {
    let mut pod = merged(old, patch);
    pod::PodStrategy.default(&mut pod);
    encode(&mut pod);
    let mut errors = Errors::new();
    match part {
        Part::Main => pod::PodStrategy.prepare_for_update(&mut pod, old, &CONTEXT),
        Part::Status => pod::PodStrategy.prepare_for_status_update(&mut pod, old, &CONTEXT),
        part => pod::PodStrategy.prepare_for_subresource_update(part, &mut pod, old, &CONTEXT),
    }
    let (new, before) = (Field::root(&pod), Field::root(old));
    match part {
        Part::Main => pod::PodStrategy.validate_update(&new, &before, &mut errors),
        Part::Status => pod::PodStrategy.validate_status_update(&new, &before, &mut errors),
        part => pod::PodStrategy.validate_subresource_update(part, &new, &before, &mut errors),
    }
    (pod, errors)
}

#[test]
fn changes_are_refused_with_the_real_texts() {
    let mut failed = 0;
    for case in cases(include_str!("updates.jsonl")) {
        let (mut old, mut generation) = (create(&case["old"]), 1);
        if let Some(setup) = case.get("setup") {
            let (pod, errors) = change(&old, &setup[1], part_named(&setup[0]));
            assert_eq!(causes(&errors), Vec::<String>::new(), "{}", case["case"]);
            generation += i64::from(pod::PodStrategy.is_new_generation(&pod, &old));
            old = pod;
        }
        let (pod, errors) = change(&old, &case["new"], part_named(&case["part"]));
        assert_same(&case, "change", causes(&errors), texts(&case, "errors"), &mut failed);
        if let Some(want) = case.get("generation") {
            generation += i64::from(pod::PodStrategy.is_new_generation(&pod, &old));
            assert_eq!(want, generation, "{}", case["case"]);
        }
    }
    assert_eq!(failed, 0);
}

#[test]
fn warnings_have_the_real_texts() {
    let mut failed = 0;
    for case in answers().iter().filter(|case| case.get("errors").is_none()) {
        let warnings = pod::PodStrategy.warnings(&Field::root(&create(&case["pod"])), None);
        assert_same(case, "warnings", warnings, texts(case, "warnings"), &mut failed);
    }
    assert_eq!(failed, 0);
}
