//! Pod templates, and the columns of the kinds with one.

use coracle_apimachinery::field::Field;
use coracle_apimachinery::render::columns::Text::Literal;
use coracle_apimachinery::render::columns::{Column, NAME, Row, Text, string};
use coracle_apimachinery::selector::LabelSelector;

const CONTAINERS_TEXT: Text = Literal("Names of each container in the template.");
const IMAGES_TEXT: coracle_apimachinery::render::columns::Text =
    Literal("Images referenced by each container in the template.");

/// The columns of PodTemplate.
pub const POD_TEMPLATE: &[Column] = &[
    NAME,
    string("Containers", CONTAINERS_TEXT, |row| containers(row, "template", "name").into()),
    string("Images", IMAGES_TEXT, |row| containers(row, "template", "image").into()),
    string("Pod Labels", Literal("The labels for the pod template."), |row| {
        labels(&row.get("template.metadata.labels")).into()
    }),
];

/// The column of container names.
pub const CONTAINERS: Column =
    string("Containers", CONTAINERS_TEXT, |row| containers(row, "spec.template", "name").into()).wide();
/// The column of container images.
pub const IMAGES: Column =
    string("Images", IMAGES_TEXT, |row| containers(row, "spec.template", "image").into()).wide();
/// The column of container names of a CronJob.
pub const CRON_CONTAINERS: Column = string("Containers", CONTAINERS_TEXT, |row| {
    containers(row, "spec.jobTemplate.spec.template", "name").into()
})
.wide();
/// The column of container images of a CronJob.
pub const CRON_IMAGES: Column =
    string("Images", IMAGES_TEXT, |row| containers(row, "spec.jobTemplate.spec.template", "image").into())
        .wide();

/// Joins one member of every container of a template by commas.
fn containers(row: &Row<'_>, template: &str, member: &str) -> String {
    let containers = row.get(template).walk("spec.containers");
    containers.items().map(|c| c.get(member).str()).collect::<Vec<_>>().join(",")
}

/// Formats labels as `a=b,c=d`.
pub fn labels(labels: &Field<'_>) -> String {
    let pairs: Vec<String> = labels.entries().map(|(key, value)| format!("{key}={}", value.str())).collect();
    if pairs.is_empty() { "<none>".into() } else { pairs.join(",") }
}

/// Formats a `metav1.LabelSelector` in its string form.
pub fn selector(selector: &Field<'_>) -> String {
    match LabelSelector::from_object(selector.value()) {
        Some(selector) if !selector.is_empty() => selector.to_string(),
        _ => "<none>".into(),
    }
}
