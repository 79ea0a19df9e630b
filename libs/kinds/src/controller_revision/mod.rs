//! ControllerRevisions: the templates that a workload had, each under a name derived from its
//! content.
//!
//! Names, hashes and numbers are those of kube-controller-manager, so that a history continues when
//! a cluster is migrated.

pub mod daemon_set;

use std::cmp::Ordering;
use std::sync::Arc;

use coracle_object_meta::controller_ref;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};

const HASH_LABEL: &str = "controller.kubernetes.io/hash";
/// A name has 253 bytes; this leaves enough for the hash.
const MAX_PREFIX_LENGTH: usize = 223;

/// Returns the content of a revision: a strategic merge patch that restores the template.
pub fn data(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// Returns the template of a revision.
///
/// # Errors
/// The revision has no valid template.
pub fn template(revision: &ControllerRevision) -> serde_json::Result<PodTemplateSpec> {
    let template = revision.data.as_ref().and_then(|data| data.0.pointer("/spec/template"));
    serde_json::from_str(&template.unwrap_or(&Value::Null).to_string())
}

/// Returns the hash of a revision's content: FNV-1 over the JSON text in Go's format and the number
/// of collisions so far.
fn hash(data: &Value, collisions: i32) -> String {
    let text = go_json(data) + &collisions.to_string();
    let sum =
        text.bytes().fold(2_166_136_261_u32, |sum, byte| sum.wrapping_mul(16_777_619) ^ u32::from(byte));
    safe_encode(sum)
}

/// Encodes a hash in letters that form no words, for names and labels.
///
/// Source: apimachinery's `SafeEncodeString`.
pub(crate) fn safe_encode(sum: u32) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |digit: u8| char::from(LETTERS[usize::from(digit) % LETTERS.len()]);
    sum.to_string().bytes().map(letter).collect()
}

/// Encodes JSON as Go does, which escapes characters in strings that a browser could take for HTML
/// or for the end of a line. Outside of strings they do not occur.
fn go_json(value: &Value) -> String {
    let mut text = String::new();
    for character in value.to_string().chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => text += &format!("\\u{:04x}", u32::from(character)),
            character => text.push(character),
        }
    }
    text
}

fn name(owner: &str, hash: &str) -> String {
    format!("{}-{hash}", owner.get(..MAX_PREFIX_LENGTH).unwrap_or(owner))
}

/// Returns the name of a revision, which is derived from its content.
///
/// - `collisions`: the number of names so far that other revisions had
pub fn revision_name(owner: &str, revision: &ControllerRevision, collisions: i32) -> String {
    let data = revision.data.as_ref().map_or(&Value::Null, |data| &data.0);
    name(owner, &hash(data, collisions))
}

/// Sorts revisions from the oldest to the newest.
pub fn sort(revisions: &mut [Arc<ControllerRevision>]) {
    let age = |revision: &ControllerRevision| revision.metadata.creation_timestamp.clone();
    revisions.sort_by(|a, b| -> Ordering {
        let by_number = a.revision.cmp(&b.revision);
        by_number.then_with(|| age(a).cmp(&age(b))).then_with(|| a.metadata.name.cmp(&b.metadata.name))
    });
}

/// Returns `true` if a revision contains this template.
pub fn contains_template(revision: &ControllerRevision, template: &PodTemplateSpec) -> bool {
    revision.data.as_ref().is_some_and(|held| held.0 == data(template))
}

/// The position of the wanted template in the history.
#[derive(Debug)]
pub enum RevisionMatch {
    /// It is the latest revision.
    Latest(Arc<ControllerRevision>),
    /// It is an earlier revision, and becomes the latest one by this number.
    Earlier(Arc<ControllerRevision>, i64),
    /// It is new, with the name it gets unless that is taken.
    New(Box<ControllerRevision>),
}

/// Finds the template of `owner` among its revisions, which are sorted.
pub fn match_template(
    owner: &impl Resource<DynamicType = ()>,
    template: &PodTemplateSpec,
    revisions: &[Arc<ControllerRevision>],
    collisions: i32,
) -> RevisionMatch {
    let data = data(template);
    let number = revisions.last().map_or(1, |last| last.revision + 1);
    let contains = |revision: &&Arc<ControllerRevision>| revision.data.as_ref().is_some_and(|d| d.0 == data);
    match (revisions.last(), revisions.iter().rev().find(contains)) {
        (Some(last), Some(_)) if contains(&last) => RevisionMatch::Latest(last.clone()),
        (_, Some(earlier)) => RevisionMatch::Earlier(earlier.clone(), number),
        (_, None) => RevisionMatch::New(Box::new(new(owner, template, data, number, collisions))),
    }
}

fn new(
    owner: &impl Resource<DynamicType = ()>,
    template: &PodTemplateSpec,
    data: Value,
    revision: i64,
    collisions: i32,
) -> ControllerRevision {
    let hash = hash(&data, collisions);
    let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone()).unwrap_or_default();
    labels.insert(HASH_LABEL.to_owned(), hash.clone());
    let metadata = ObjectMeta {
        name: Some(name(&owner.name_any(), &hash)),
        namespace: owner.namespace(),
        labels: Some(labels),
        annotations: owner.meta().annotations.clone(),
        owner_references: Some(vec![controller_ref(owner)]),
        ..ObjectMeta::default()
    };
    ControllerRevision { metadata, data: Some(RawExtension(data)), revision }
}

/// Returns the oldest revisions beyond a limit, without the live ones. A negative limit means no
/// limit.
///
/// - `revisions`: sorted, the oldest first
pub fn excess(
    revisions: &[Arc<ControllerRevision>],
    is_live: impl Fn(&str) -> bool,
    limit: i32,
) -> impl Iterator<Item = &Arc<ControllerRevision>> {
    let is_history =
        |revision: &&Arc<ControllerRevision>| !is_live(revision.metadata.name.as_deref().unwrap_or_default());
    let history: Vec<_> = revisions.iter().filter(is_history).collect();
    let kept = usize::try_from(limit).unwrap_or(usize::MAX);
    let excess = history.len().saturating_sub(kept);
    history.into_iter().take(excess)
}

#[cfg(test)]
mod tests;
