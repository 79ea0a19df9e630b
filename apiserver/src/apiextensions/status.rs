//! The status of definitions: who has which names, and what is established. One pure decision about
//! all of them.

use std::collections::HashMap;

use serde_json::Value;

use super::definition::{Definition, Names};
use crate::conditions;

/// Returns the new statuses of the definitions whose status must change, by name. The names of the
/// definitions that were created first have precedence. The time is linear in the number of
/// definitions, which are all those of their groups.
pub(super) fn plan<'d>(definitions: impl Iterator<Item = &'d Definition>, now: &str) -> Vec<(String, Value)> {
    let mut definitions: Vec<&Definition> = definitions.collect();
    definitions.sort_by_key(|definition| definition.created);
    let mut groups: HashMap<&str, Taken> = HashMap::new();
    for definition in &definitions {
        groups.entry(&definition.group).or_default().add(&definition.accepted);
    }
    let mut changed = Vec::new();
    for definition in definitions {
        let others = groups.entry(&definition.group).or_default();
        others.remove(&definition.accepted);
        let status = next(definition, others, now);
        if status == *definition.status {
            others.add(&definition.accepted);
        } else {
            others.add(&Names::read(&status["acceptedNames"]));
            changed.push((definition.name.clone(), status));
        }
    }
    changed
}

/// The names that are taken in a group, and how often.
#[derive(Default)]
struct Taken {
    resources: HashMap<String, usize>,
    kinds: HashMap<String, usize>,
}

impl Taken {
    fn add(&mut self, names: &Names) {
        let add = |taken: &mut HashMap<String, usize>, name: &str| {
            *taken.entry(name.to_owned()).or_default() += 1;
        };
        resource_names(names).for_each(|name| add(&mut self.resources, name));
        kind_names(names).for_each(|name| add(&mut self.kinds, name));
    }

    fn remove(&mut self, names: &Names) {
        let remove = |taken: &mut HashMap<String, usize>, name: &str| {
            if let Some(count) = taken.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    taken.remove(name);
                }
            }
        };
        resource_names(names).for_each(|name| remove(&mut self.resources, name));
        kind_names(names).for_each(|name| remove(&mut self.kinds, name));
    }
}

fn resource_names(names: &Names) -> impl Iterator<Item = &str> {
    let short = names.short_names.iter().map(String::as_str);
    [names.plural.as_str(), names.singular.as_str()].into_iter().chain(short).filter(|name| !name.is_empty())
}

fn kind_names(names: &Names) -> impl Iterator<Item = &str> {
    [names.kind.as_str(), names.list_kind.as_str()].into_iter().filter(|name| !name.is_empty())
}

/// Returns the next status of a definition, given the names that other definitions have taken.
fn next(definition: &Definition, taken: &Taken, now: &str) -> Value {
    let (wanted, had) = (&definition.names, &definition.accepted);
    // The last of several conflicts counts.
    let mut conflict: Conflict = None;
    let plural = accept(&wanted.plural, &had.plural, &taken.resources, "PluralConflict", &mut conflict);
    let singular =
        accept(&wanted.singular, &had.singular, &taken.resources, "SingularConflict", &mut conflict);
    let used: Vec<String> = wanted
        .short_names
        .iter()
        .filter(|name| !had.short_names.contains(name) && taken.resources.contains_key(*name))
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
    let mut status = Value::clone(&definition.status);
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

/// Returns the wanted name; if another definition has it, the former one.
fn accept(
    wanted: &str,
    had: &str,
    taken: &HashMap<String, usize>,
    reason: &'static str,
    conflict: &mut Conflict,
) -> String {
    if wanted == had || !taken.contains_key(wanted) {
        return wanted.to_owned();
    }
    *conflict = Some((reason, in_use(wanted)));
    had.to_owned()
}

fn in_use(name: &str) -> String {
    format!("{name:?} is already in use")
}

/// Returns whether a definition in a protected group has the community's approval, with a reason
/// and a message for the condition; None for other groups.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_storage::Revision;
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn definition(created: u64, plural: &str, kind: &str, short_names: &[&str], status: Value) -> Definition {
        let names = json!({
            "plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List"),
            "shortNames": short_names,
        });
        let object = json!({
            "metadata": {"name": format!("{plural}.example.com")},
            "spec": {"group": "example.com", "names": names, "scope": "Namespaced", "versions": []},
            "status": status,
        });
        let created = Revision(created);
        Definition::read(&object, |_| unreachable!("no webhook"), created, created, None)
    }

    /// Formats each condition as `name type=status reason message`.
    fn conditions(planned: &[(String, Value)]) -> Vec<String> {
        let condition = |name: &str, condition: &Value| {
            let text = |member: &str| condition[member].as_str().unwrap_or("?").to_owned();
            let (name, _) = name.split_once('.').unwrap_or((name, ""));
            format!("{name} {}={} {} {}", text("type"), text("status"), text("reason"), text("message"))
        };
        let of = |(name, status): &(String, Value)| -> Vec<String> {
            status["conditions"].as_array().into_iter().flatten().map(|c| condition(name, c)).collect()
        };
        planned.iter().flat_map(of).collect()
    }

    #[test]
    fn who_comes_first_has_the_names() {
        let first = definition(1, "cars", "Car", &["c"], json!({}));
        let second = definition(2, "autos", "Car", &["c", "au"], json!({}));
        let planned = plan([&second, &first].into_iter(), NOW);
        assert_eq!(
            conditions(&planned),
            [
                "cars NamesAccepted=True NoConflicts no conflicts found",
                "cars Established=True InitialNamesAccepted the initial names have been accepted",
                "autos NamesAccepted=False ListKindConflict \"CarList\" is already in use",
                "autos Established=False NotAccepted not all names are accepted",
            ]
        );
        assert_eq!(planned[1].1["acceptedNames"], json!({"plural": "autos", "kind": ""}));
        // When the first is gone, the second has them.
        let second = definition(2, "autos", "Car", &["c", "au"], planned[1].1.clone());
        let planned = plan([&second].into_iter(), NOW);
        assert_eq!(planned[0].1["acceptedNames"]["shortNames"], json!(["c", "au"]));
        assert!(conditions(&planned)[1].starts_with("autos Established=True"));
    }

    #[test]
    fn what_is_established_stays_established() {
        let first = definition(1, "cars", "Car", &[], json!({}));
        let status = plan([&first].into_iter(), NOW).remove(0).1;
        let settled = definition(1, "cars", "Car", &[], status.clone());
        assert!(plan([&settled].into_iter(), NOW).is_empty());
        let rival = definition(2, "bikes", "Bike", &["b"], json!({}));
        let rival_status = plan([&rival].into_iter(), NOW).remove(0).1;
        let rival = definition(2, "bikes", "Bike", &["b"], rival_status);
        let renamed = definition(1, "cars", "Car", &["b", "c"], status);
        let planned = plan([&renamed, &rival].into_iter(), NOW);
        assert_eq!(
            conditions(&planned),
            [
                "cars NamesAccepted=False ShortNamesConflict \"b\" is already in use",
                "cars Established=True InitialNamesAccepted the initial names have been accepted",
            ]
        );
    }

    #[test]
    fn groups_of_the_community_need_an_approval() {
        for (group, annotation, want) in [
            ("example.com", "", None),
            ("notk8s.io", "", None),
            ("x.k8s.io", "", Some((false, "MissingAnnotation"))),
            ("k8s.io", "https://github.com/x", Some((true, "ApprovedAnnotation"))),
            ("x.kubernetes.io", "unapproved, for now", Some((false, "UnapprovedAnnotation"))),
        ] {
            let mut definition = definition(1, "cars", "Car", &[], json!({}));
            definition.group = group.to_owned();
            definition.annotations = Arc::new(json!({"api-approved.kubernetes.io": annotation}));
            let got = approval(&definition).map(|(approved, reason, _)| (approved, reason));
            assert_eq!(got, want, "{group} {annotation}");
        }
    }
}
