//! The status of definitions: who has which names, and what is established. One pure decision about all of them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::definition::{Definition, Names};
use crate::conditions;

/// The new statuses of those definitions whose status has to change, by name. Definitions that came first have their names
/// first.
pub(super) fn plan<'d>(definitions: impl Iterator<Item = &'d Definition>, now: &str) -> Vec<(String, Value)> {
    let mut definitions: Vec<(&Definition, Names)> =
        definitions.map(|definition| (definition, definition.accepted.clone())).collect();
    definitions.sort_by_key(|(definition, _)| definition.created);
    let mut changed = Vec::new();
    for index in 0..definitions.len() {
        let definition = definitions[index].0;
        let others = definitions
            .iter()
            .enumerate()
            .filter(|(other, (sibling, _))| *other != index && sibling.group == definition.group);
        let taken = Taken::of(others.map(|(_, (_, accepted))| accepted));
        let status = next(definition, &taken, now);
        if status != definition.status {
            definitions[index].1 = Names::read(&status["acceptedNames"]);
            changed.push((definition.name.clone(), status));
        }
    }
    changed
}

/// The names that others in a group have.
struct Taken<'n> {
    resources: BTreeSet<&'n str>,
    kinds: BTreeSet<&'n str>,
}

impl<'n> Taken<'n> {
    fn of(others: impl Iterator<Item = &'n Names>) -> Taken<'n> {
        let mut taken = Taken { resources: BTreeSet::new(), kinds: BTreeSet::new() };
        for names in others {
            taken.resources.extend([names.plural.as_str(), names.singular.as_str()]);
            taken.resources.extend(names.short_names.iter().map(String::as_str));
            taken.kinds.extend([names.kind.as_str(), names.list_kind.as_str()]);
        }
        taken.resources.remove("");
        taken.kinds.remove("");
        taken
    }
}

/// The status of a definition beside others.
fn next(definition: &Definition, taken: &Taken<'_>, now: &str) -> Value {
    let (wanted, had) = (&definition.names, &definition.accepted);
    // The last of several conflicts counts.
    let mut conflict: Conflict = None;
    let plural = accept(&wanted.plural, &had.plural, &taken.resources, "PluralConflict", &mut conflict);
    let singular =
        accept(&wanted.singular, &had.singular, &taken.resources, "SingularConflict", &mut conflict);
    let used: Vec<String> = wanted
        .short_names
        .iter()
        .filter(|name| !had.short_names.contains(name) && taken.resources.contains(name.as_str()))
        .map(|name| in_use(name))
        .collect();
    let short_names = if used.is_empty() { wanted } else { had }.short_names.clone();
    match used.as_slice() {
        [] => {}
        [one] => conflict = Some(("ShortNamesConflict", one.clone())),
        several => conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
    let kind = accept(&wanted.kind, &had.kind, &taken.kinds, "KindConflict", &mut conflict);
    let list_kind =
        accept(&wanted.list_kind, &had.list_kind, &taken.kinds, "ListKindConflict", &mut conflict);
    let names =
        Names { plural, singular, short_names, kind, list_kind, categories: wanted.categories.clone() };
    let accepted = conflict.is_none();
    let mut status = definition.status.clone();
    if !status.is_object() {
        status = Value::Object(Default::default());
    }
    status["acceptedNames"] = names.to_value();
    let mut set = |condition_type: &str, is_true: bool, reason: &str, message: &str| {
        conditions::set(&mut status, condition_type, is_true, reason, message, now);
    };
    let (reason, message) = conflict.unwrap_or(("NoConflicts", "no conflicts found".to_owned()));
    set("NamesAccepted", accepted, reason, &message);
    match (definition.established, accepted) {
        // Once established, always established.
        (true, _) => {}
        (false, true) => {
            set("Established", true, "InitialNamesAccepted", "the initial names have been accepted");
        }
        (false, false) => set("Established", false, "NotAccepted", "not all names are accepted"),
    }
    if let Some((approved, reason, message)) = approval(definition) {
        set("KubernetesAPIApprovalPolicyConformant", approved, reason, &message);
    }
    status
}

/// Reason and message of a conflict.
type Conflict = Option<(&'static str, String)>;

/// The wanted name, or where others have it the one that it had.
fn accept(
    wanted: &str,
    had: &str,
    taken: &BTreeSet<&str>,
    reason: &'static str,
    conflict: &mut Conflict,
) -> String {
    if wanted == had || !taken.contains(wanted) {
        return wanted.to_owned();
    }
    *conflict = Some((reason, in_use(wanted)));
    had.to_owned()
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

/// Whether a definition in a group of the community has its approval; None for other groups.
fn approval(definition: &Definition) -> Option<(bool, &'static str, String)> {
    const ANNOTATION: &str = "api-approved.kubernetes.io";
    const HELP: &str = "see https://github.com/kubernetes/enhancements/pull/1111";
    let group = definition.group.as_str();
    let is_protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')));
    if !is_protected {
        return None;
    }
    Some(match definition.annotations.get(ANNOTATION).and_then(Value::as_str).unwrap_or_default() {
        "" => {
            let message = format!("protected groups must have approval annotation \"{ANNOTATION}\", {HELP}");
            (false, "MissingAnnotation", message)
        }
        value if value.starts_with("unapproved") => {
            (false, "UnapprovedAnnotation", format!("not approved: {value:?}"))
        }
        url => (true, "ApprovedAnnotation", format!("approved in {url}")),
    })
}
