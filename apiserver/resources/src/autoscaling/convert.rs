//! Conversion of a HorizontalPodAutoscaler between autoscaling/v1 and v2.
//!
//! Version 1 has one number for CPU utilization; everything else of version 2 is stored in
//! annotations: metrics, current metrics and conditions in the format of version 1's Go types,
//! behavior in that of the internal type. Annotations that cannot be parsed are dropped, as in
//! kube-apiserver.
//!
//! Start at [`to_v2`] and [`to_v1`].

use coracle_apimachinery::codec::limits;
use coracle_apimachinery::strategy::defaulting::{Object, member};
use coracle_apimachinery::validation::printed;
use coracle_quantity::Quantity;
use serde_json::{Map, Value, json};

use super::metrics::{DEFAULT_UTILIZATION, cpu_utilization};

/// The group and version with all fields.
pub const VERSION_2: &str = "autoscaling/v2";
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
/// The maximum depth of an annotation's content, so that the object stays within the depth limit
/// when it becomes part of the spec.
const MAX_ANNOTATION_DEPTH: usize = limits::MAX_DEPTH - 10;
/// The annotations of the conversion; the last two belonged to removed versions.
const ROUND_TRIP: [&str; 6] = [
    METRICS,
    CURRENT_METRICS,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

/// Converts the object to version 2 from any version.
pub fn to_v2(mut object: Value) -> Value {
    if object["apiVersion"] == VERSION_2 {
        return object;
    }
    object["apiVersion"] = VERSION_2.into();
    let Some(members) = object.as_object_mut() else { return object };
    let annotations = take_annotations(members);
    let input = |key: &str| {
        let value = serde_json::from_str::<Value>(annotations.get(key)?.as_str()?).ok()?;
        (limits::measure(&value).depth < MAX_ANNOTATION_DEPTH).then_some(value)
    };
    let list = |key: &str, convert: fn(&Value) -> Option<Value>| -> Option<Vec<Value>> {
        input(key)?.as_array()?.iter().map(convert).collect()
    };

    if let Some(spec) = member(members, "spec").as_object_mut() {
        let mut metrics = list(METRICS, |metric| metric_to_v2(metric, false)).unwrap_or_default();
        metrics.extend(spec.remove("targetCPUUtilizationPercentage").map(cpu_utilization));
        if metrics.is_empty() {
            metrics.push(cpu_utilization(DEFAULT_UTILIZATION));
        }
        spec.insert("metrics".into(), metrics.into());
        if let Some(behavior) = input(BEHAVIOR).as_ref().and_then(behavior_to_v2) {
            spec.insert("behavior".into(), behavior);
        }
    }
    if let Some(status) = members.get_mut("status").and_then(Value::as_object_mut) {
        let cpu = status.remove("currentCPUUtilizationPercentage").map(|percent| {
            vec![json!({
                "type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": percent}},
            })]
        });
        let current = list(CURRENT_METRICS, |metric| metric_to_v2(metric, true)).or(cpu);
        status.extend(current.map(|metrics| ("currentMetrics".to_owned(), metrics.into())));
        let conditions = list(CONDITIONS, |condition| Some(without_nulls(condition)));
        status.extend(conditions.map(|conditions| ("conditions".to_owned(), conditions.into())));
    }
    object
}

/// Converts the object to version 1 from any version.
pub fn to_v1(mut object: Value) -> Value {
    if object["apiVersion"] == "autoscaling/v1" {
        return object;
    }
    object["apiVersion"] = "autoscaling/v1".into();
    let Some(members) = object.as_object_mut() else { return object };
    take_annotations(members);
    let mut annotations: Vec<(&str, String)> = Vec::new();

    if let Some(spec) = members.get_mut("spec").and_then(Value::as_object_mut) {
        let metrics = spec.remove("metrics").unwrap_or_default();
        let metrics = metrics.as_array().map_or(&[][..], Vec::as_slice);
        if let Some(percent) = metrics.iter().find_map(cpu_target) {
            spec.insert("targetCPUUtilizationPercentage".into(), percent.clone());
        }
        let others: Vec<String> = metrics
            .iter()
            .filter(|metric| cpu_target(metric).is_none())
            .map(|metric| metric_to_v1(metric, false))
            .collect();
        if !others.is_empty() {
            annotations.push((METRICS, array(&others)));
        }
        if let Some(behavior) = spec.remove("behavior") {
            let text = printed::internal("autoscaling.HorizontalPodAutoscalerBehavior", Some(&behavior));
            annotations.push((BEHAVIOR, text));
        }
    }
    if let Some(status) = members.get_mut("status").and_then(Value::as_object_mut) {
        let current = status.remove("currentMetrics").unwrap_or_default();
        let current = current.as_array().map_or(&[][..], Vec::as_slice);
        let mut percent = current
            .iter()
            .filter(|metric| metric["resource"]["name"] == "cpu")
            .filter_map(|metric| metric.pointer("/resource/current/averageUtilization"));
        if let Some(percent) = percent.next_back() {
            status.insert("currentCPUUtilizationPercentage".into(), percent.clone());
        }
        if !current.is_empty() {
            let current: Vec<String> = current.iter().map(|metric| metric_to_v1(metric, true)).collect();
            annotations.push((CURRENT_METRICS, array(&current)));
        }
        let conditions = status.remove("conditions").unwrap_or_default();
        if let Some(conditions) = conditions.as_array().filter(|conditions| !conditions.is_empty()) {
            let conditions: Vec<String> = conditions.iter().map(condition_to_v1).collect();
            annotations.push((CONDITIONS, array(&conditions)));
        }
    }
    if !annotations.is_empty()
        && let Some(metadata) = member(members, "metadata").as_object_mut()
        && let Some(input) = member(metadata, "annotations").as_object_mut()
    {
        input.extend(annotations.into_iter().map(|(key, text)| (key.to_owned(), text.into())));
    }
    object
}

/// Removes the annotations of the conversion from an object of version 2, which has fields instead.
///
/// Source: `DropRoundTripHorizontalPodAutoscalerAnnotations` in `pkg/apis/autoscaling`.
pub fn drop_annotations(object: &mut Value) {
    if let Some(members) = object.as_object_mut() {
        take_annotations(members);
    }
}

/// Removes the annotations of the conversion.
fn take_annotations(object: &mut Object) -> Object {
    let mut taken = Map::new();
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else { return taken };
    let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) else {
        return taken;
    };
    for key in ROUND_TRIP {
        taken.extend(annotations.remove(key).map(|value| (key.to_owned(), value)));
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
    taken
}

fn cpu_target(metric: &Value) -> Option<&Value> {
    let cpu = metric["type"] == "Resource" && metric["resource"]["name"] == "cpu";
    metric.pointer("/resource/target/averageUtilization").filter(|_| cpu)
}

/// Each source: its member, and whether it has a metric or a resource.
const SOURCES: [(&str, bool); 5] =
    [("object", true), ("pods", true), ("resource", false), ("containerResource", false), ("external", true)];

/// The names of a source's members in version 1, of a target or (`current`) of a status.
struct Names {
    value: &'static str,
    average: &'static str,
    utilization: &'static str,
    selector: &'static str,
}

impl Names {
    fn of(source: &str, current: bool) -> Names {
        let (value, average) = if current {
            ("currentValue", "currentAverageValue")
        } else {
            ("targetValue", "targetAverageValue")
        };
        Names {
            value,
            average: if source == "object" { "averageValue" } else { average },
            utilization: if current { "currentAverageUtilization" } else { "targetAverageUtilization" },
            selector: if source == "external" { "metricSelector" } else { "selector" },
        }
    }
}

/// Converts one metric of version 1's annotation; returns None if it cannot be parsed.
fn metric_to_v2(metric: &Value, current: bool) -> Option<Value> {
    let mut out = json!({"type": metric.get("type").map_or(Some(""), Value::as_str)?});
    for (source, by_metric) in SOURCES {
        if let Some(input) = metric.get(source).filter(|input| !input.is_null()) {
            input.as_object()?;
            out[source] = source_to_v2(source, by_metric, input, current)?;
        }
    }
    Some(out)
}

fn source_to_v2(source: &str, by_metric: bool, input: &Value, current: bool) -> Option<Value> {
    let names = Names::of(source, current);
    let (value, average) = (quantity(&input[names.value]).ok()?, quantity(&input[names.average]).ok()?);
    let utilization = input.get(names.utilization).filter(|percent| !percent.is_null()).cloned();
    let zero = || Some(json!("0"));
    let (kind, value, average) = match (source, current) {
        ("object", false) if average.is_none() => ("Value", value.or_else(zero), None),
        ("object", false) => ("AverageValue", value.filter(|value| value != "0"), average),
        ("external", false) => (if value.is_none() { "AverageValue" } else { "Value" }, value, average),
        ("pods", false) => ("AverageValue", None, average.or_else(zero)),
        (_, false) if utilization.is_some() => ("Utilization", None, average),
        (_, false) => ("AverageValue", None, average),
        ("object" | "external", true) => ("", value.or_else(zero), average),
        (_, true) => ("", None, average.or_else(zero)),
    };
    let measure = members([
        ("type", Some(json!(kind)).filter(|_| !current)),
        ("value", value),
        ("averageValue", average),
        ("averageUtilization", utilization.filter(|_| !by_metric)),
    ]);
    let metric = members([
        ("name", Some(text(&input["metricName"]))),
        ("selector", input.get(names.selector).filter(|selector| !selector.is_null()).cloned()),
    ]);
    Some(members([
        ("describedObject", (source == "object").then(|| without_nulls(&input["target"]))),
        ("metric", by_metric.then_some(metric)),
        ("name", (!by_metric).then(|| text(&input["name"]))),
        ("container", (source == "containerResource").then(|| text(&input["container"]))),
        (if current { "current" } else { "target" }, Some(measure)),
    ]))
}

/// The error for an invalid quantity.
struct NotAQuantity;

/// Parses a quantity; None if it is absent.
fn quantity(input: &Value) -> Result<Option<Value>, NotAQuantity> {
    let text = match input {
        Value::Null => return Ok(None),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        _ => return Err(NotAQuantity),
    };
    let quantity: Quantity = text.parse().map_err(|_| NotAQuantity)?;
    Ok(Some(quantity.to_string().into()))
}

fn text(input: &Value) -> Value {
    if input.is_string() { input.clone() } else { json!("") }
}

fn members<const N: usize>(members: [(&str, Option<Value>); N]) -> Value {
    members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

fn without_nulls(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten();
    members.filter(|(_, value)| !value.is_null()).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// Converts a behavior to version 2. The internal type's fields have no JSON tags, so they have
/// Go's names, in any case.
fn behavior_to_v2(input: &Value) -> Option<Value> {
    let input = named_like(
        input,
        &[
            "scaleUp",
            "scaleDown",
            "stabilizationWindowSeconds",
            "selectPolicy",
            "policies",
            "tolerance",
            "type",
            "value",
            "periodSeconds",
        ],
    );
    input.as_object().is_some_and(|input| !input.is_empty()).then_some(input)
}

fn named_like(value: &Value, names: &[&str]) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .filter(|(_, value)| !value.is_null())
            .filter_map(|(key, value)| {
                let name = names.iter().find(|name| name.eq_ignore_ascii_case(key))?;
                Some(((*name).to_owned(), named_like(value, names)))
            })
            .collect(),
        Value::Array(items) => items.iter().map(|item| named_like(item, names)).collect(),
        scalar => scalar.clone(),
    }
}

/// Converts one metric to version 1's annotation. Its members have the order of the Go type.
fn metric_to_v1(metric: &Value, current: bool) -> String {
    let mut input = vec![("type", Some(metric["type"].to_string()))];
    for (source, by_metric) in SOURCES {
        let given = metric.get(source).filter(|given| !given.is_null());
        input.push((source, given.map(|given| source_to_v1(source, by_metric, given, current))));
    }
    object(&input)
}

fn source_to_v1(source: &str, by_metric: bool, given: &Value, current: bool) -> String {
    let names = Names::of(source, current);
    let measure = &given[if current { "current" } else { "target" }];
    let json = |value: Option<&Value>| value.map(Value::to_string);
    let value = json(measure.get("value"));
    let average = json(measure.get("averageValue"));
    let utilization = json(measure.get("averageUtilization"));
    let name = json(
        given
            .get(if by_metric { "metric" } else { "name" })
            .and_then(|named| if by_metric { named.get("name") } else { Some(named) }),
    );
    let selector =
        given.pointer("/metric/selector").map(|s| printed::internal("meta.LabelSelector", Some(s)));
    let zero = || Some("\"0\"".to_owned());
    match source {
        "object" => object(&[
            ("target", Some(reference_to_v1(&given["describedObject"]))),
            ("metricName", name),
            (names.value, value.or_else(zero)),
            (names.selector, selector),
            (names.average, average),
        ]),
        "pods" => object(&[
            ("metricName", name),
            (names.average, average.or_else(zero)),
            (names.selector, selector),
        ]),
        "external" => object(&[
            ("metricName", name),
            (names.selector, selector),
            (names.value, if current { value.or_else(zero) } else { value }),
            (names.average, average),
        ]),
        _ => object(&[
            ("name", name),
            (names.utilization, utilization),
            (names.average, if current { average.or_else(zero) } else { average }),
            ("container", given.get("container").map(Value::to_string)),
        ]),
    }
}

fn reference_to_v1(reference: &Value) -> String {
    let input = |name: &str| reference.get(name).map(Value::to_string);
    let required = |name: &str| input(name).or_else(|| Some("\"\"".to_owned()));
    object(&[("kind", required("kind")), ("name", required("name")), ("apiVersion", input("apiVersion"))])
}

fn condition_to_v1(condition: &Value) -> String {
    let input = |name: &str| condition.get(name).map(Value::to_string);
    let since = input("lastTransitionTime").or_else(|| Some("null".to_owned()));
    object(&[
        ("type", input("type")),
        ("status", input("status")),
        ("lastTransitionTime", since),
        ("reason", input("reason")),
        ("message", input("message")),
    ])
}

/// Builds a JSON object with its members in this order.
fn object(members: &[(&str, Option<String>)]) -> String {
    let input = members.iter().filter_map(|(name, value)| Some(format!("\"{name}\":{}", value.as_ref()?)));
    format!("{{{}}}", input.collect::<Vec<_>>().join(","))
}

fn array(items: &[String]) -> String {
    format!("[{}]", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v2() -> Value {
        json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "annotations": {"mine": "1"}},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 50}}},
                    {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1500m"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}},
                ],
                "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}], "tolerance": "100m"}},
            },
            "status": {"desiredReplicas": 0},
        })
    }

    #[test]
    fn fields_without_a_version_1_form_are_stored_in_annotations() {
        let v1 = to_v1(v2());
        assert_eq!(v1["spec"]["targetCPUUtilizationPercentage"], 70);
        assert_eq!(
            v1["metadata"]["annotations"],
            json!({
                "mine": "1",
                METRICS: r#"[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":50}},{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1500m"}}]"#,
                BEHAVIOR: r#"{"ScaleUp":null,"ScaleDown":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":[{"Type":"Percent","Value":100,"PeriodSeconds":15}],"Tolerance":"100m"}}"#,
            })
        );
        assert_eq!(to_v2(v1), v2());
    }

    #[test]
    fn a_version_1_without_metrics_gets_the_processor() {
        let v1 = json!({"apiVersion": "autoscaling/v1", "metadata": {"annotations": {METRICS: "nonsense"}}, "spec": {}});
        let v2 = to_v2(v1);
        assert_eq!(v2["spec"]["metrics"], json!([cpu_utilization(80)]));
        assert_eq!(v2["metadata"], json!({}));
    }

    #[test]
    fn every_source_round_trips() {
        for (source, value) in [
            (
                "Object",
                json!({"describedObject": {"kind": "K", "name": "n", "apiVersion": "v1"}, "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "5"}}),
            ),
            (
                "External",
                json!({"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}),
            ),
            (
                "ContainerResource",
                json!({"name": "cpu", "container": "c", "target": {"type": "AverageValue", "averageValue": "5"}}),
            ),
        ] {
            let member = source[..1].to_lowercase() + &source[1..];
            let mut object = v2();
            object["spec"]["metrics"] = json!([{"type": source, (member): value}]);
            let mut back = to_v2(to_v1(object.clone()));
            assert_eq!(back["spec"]["metrics"].take(), object["spec"]["metrics"].take(), "{source}");
        }
    }
}
