//! Reads `resources.txt`, which begins with a description of its format.

use super::served::{Group, Resource, Subresource};
use super::table::Schema;

const BROKEN: &str = "the embedded list of resources is well-formed";

/// Every verb of an ordinary resource, sorted.
const ALL_VERBS: &str = "create,delete,deletecollection,get,list,patch,update,watch";

pub(super) fn read(text: &'static str, schema: &Schema) -> (Vec<Group>, Vec<Resource>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut resources: Vec<Resource> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix("group ") {
            groups.push(Group { name: group_name(name), versions: Vec::new(), is_extension: false });
        } else if let Some(name) = line.strip_prefix("extension ") {
            groups.push(Group { name, versions: Vec::new(), is_extension: true });
        } else if let Some(version) = line.strip_prefix("version ") {
            groups.last_mut().expect(BROKEN).versions.push(version);
        } else if let Some(subresource) = line.strip_prefix("  /") {
            let parent = resources.last_mut().expect(BROKEN);
            parent.subresources.push(read_subresource(subresource, parent.group, parent.version, schema));
        } else {
            let group = groups.last().expect(BROKEN);
            let version = group.versions.last().expect(BROKEN);
            resources.push(read_resource(line.trim_start(), group.name, version, schema));
        }
    }
    (groups, resources)
}

fn read_resource(
    line: &'static str,
    group: &'static str,
    version: &'static str,
    schema: &Schema,
) -> Resource {
    let mut words = line.split(' ');
    let (plural, kind) = (words.next().expect(BROKEN), words.next().expect(BROKEN));
    let mut resource = Resource {
        group,
        version,
        kind,
        list_kind: format!("{kind}List"),
        plural,
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced: false,
        verbs: Vec::new(),
        subresources: Vec::new(),
        storage_version: (group, version),
        storage_version_hash: "",
        type_id: schema.kind(group, version, kind).expect(BROKEN),
    };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("namespaced", _) => resource.namespaced = true,
            ("short", names) => resource.short_names = names.split(',').collect(),
            ("categories", names) => resource.categories = names.split(',').collect(),
            ("verbs", verbs) => resource.verbs = read_verbs(verbs),
            // Base64 may end in `=`, of which only the first one splits.
            ("hash", hash) => resource.storage_version_hash = hash,
            ("stored", stored) => {
                let (group, version) = stored.split_once('/').expect(BROKEN);
                resource.storage_version = (group_name(group), version);
            }
            _ => panic!("{BROKEN}: {line}"),
        }
    }
    resource
}

fn read_subresource(
    line: &'static str,
    parent_group: &'static str,
    parent_version: &'static str,
    schema: &Schema,
) -> Subresource {
    let mut words = line.split(' ');
    let (name, kind) = (words.next().expect(BROKEN), words.next().expect(BROKEN));
    let verbs = words.next().and_then(|word| word.strip_prefix("verbs=")).expect(BROKEN);
    let mut parts = kind.rsplitn(3, '/');
    let kind = parts.next().expect(BROKEN);
    let version = parts.next().unwrap_or(parent_version);
    let group = parts.next().unwrap_or(parent_group);
    let type_id = schema.kind(group, version, kind).expect(BROKEN);
    Subresource { name, group, version, kind, verbs: read_verbs(verbs), type_id }
}

fn read_verbs(verbs: &'static str) -> Vec<&'static str> {
    if verbs == "*" { ALL_VERBS } else { verbs }.split(',').collect()
}

fn group_name(name: &'static str) -> &'static str {
    if name == "core" { "" } else { name }
}
