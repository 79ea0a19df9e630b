//! Autoscalers and the scale subresource.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::NAME;
use coracle_apimachinery::render::columns::Text::Field as Described;
use coracle_apimachinery::render::columns::{AGE, Column, Row, string};
use serde_json::Value;

/// The columns of HorizontalPodAutoscaler.
pub const HORIZONTAL_POD_AUTOSCALER: &[Column] = &[
    NAME,
    string("Reference", Described("autoscaling.v2.HorizontalPodAutoscalerSpec.scaleTargetRef"), |row| {
        let target = row.get("spec.scaleTargetRef");
        format!("{}/{}", target.get("kind").str(), target.get("name").str()).into()
    }),
    string("Targets", Described("autoscaling.v2.HorizontalPodAutoscalerSpec.metrics"), targets),
    string("MinPods", Described("autoscaling.v2.HorizontalPodAutoscalerSpec.minReplicas"), |row| {
        row.get("spec.minReplicas").int().map_or_else(|| "<unset>".into(), |min| min.to_string().into())
    }),
    string("MaxPods", Described("autoscaling.v2.HorizontalPodAutoscalerSpec.maxReplicas"), |row| {
        row.integer("spec.maxReplicas")
    }),
    string("Replicas", Described("autoscaling.v2.HorizontalPodAutoscalerStatus.currentReplicas"), |row| {
        row.integer("status.currentReplicas")
    }),
    AGE,
];

/// Formats the first two metrics: current and target value.
fn targets(row: &Row<'_>) -> Value {
    const SHOWN: usize = 2;
    let specs = row.get("spec.metrics");
    if specs.is_empty() {
        return "<none>".into();
    }
    let statuses: Vec<Field<'_>> = row.get("status.currentMetrics").items().collect();
    let targets: Vec<String> =
        specs.items().enumerate().map(|(i, spec)| target(&spec, statuses.get(i))).collect();
    let shown = targets.get(..SHOWN).unwrap_or(&targets).join(", ");
    match targets.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
    .into()
}

fn target(spec: &Field<'_>, status: Option<&Field<'_>>) -> String {
    let source = match spec.get("type").str() {
        "External" => "external",
        "Pods" => "pods",
        "Object" => "object",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".into(),
    };
    let wanted = spec.get(source).get("target");
    let current = |member: &str| {
        let source = status?.get(source);
        let value = source.get("current").get(member);
        // A missing quantity prints as zero if the metric itself exists.
        source.exists().then(|| quantity(&value))
    };
    let by_average = wanted.get("averageValue").exists();
    match source {
        "pods" => {
            format!("{}/{}", or_unknown(current("averageValue")), quantity(&wanted.get("averageValue")))
        }
        "external" | "object" if by_average => {
            let known = status.is_some_and(|s| s.get(source).walk("current.averageValue").exists());
            let current = current("averageValue").filter(|_| known);
            format!("{}/{} (avg)", or_unknown(current), quantity(&wanted.get("averageValue")))
        }
        "external" | "object" => {
            format!("{}/{}", or_unknown(current("value")), quantity(&wanted.get("value")))
        }
        _ => {
            let name = spec.get(source).get("name").str();
            if by_average {
                let current = or_unknown(current("averageValue"));
                return format!("{name}: {current}/{}", quantity(&wanted.get("averageValue")));
            }
            let percent = |field: Field<'_>| field.int().map(|percent| format!("{percent}%"));
            let current = status.and_then(|s| percent(s.get(source).walk("current.averageUtilization")));
            let wanted = percent(wanted.get("averageUtilization")).unwrap_or_else(|| "<auto>".into());
            format!("{name}: {}/{wanted}", or_unknown(current))
        }
    }
}

fn quantity(field: &Field<'_>) -> String {
    if field.exists() { field.str().to_owned() } else { "0".into() }
}

fn or_unknown(current: Option<String>) -> String {
    current.unwrap_or_else(|| "<unknown>".into())
}
