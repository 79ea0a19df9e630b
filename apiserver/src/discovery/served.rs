//! The served groups, versions and resources, from which all documents are generated.
//!
//! The built-in part comes from the schema table; custom groups are added and removed while the server runs. The list
//! is small and replaced as a whole, so that a document is always generated from one state of it.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use serde_json::Value;

use crate::schema;

/// A name or text of a built-in or custom resource.
pub type Text = Cow<'static, str>;

/// The groups in the order of discovery; the core group, which has no name, is the first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Served {
    /// The groups.
    pub groups: Vec<Group>,
}

/// An API group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: Text,
    /// The preferred one first.
    pub versions: Vec<Version>,
    /// Defined by clients: its paths have a handler of their own, with fewer methods and media types.
    pub custom: bool,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The name.
    pub name: Text,
    /// The resources, in the order of discovery.
    pub resources: Vec<Resource>,
}

/// A resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// The plural name.
    pub plural: Text,
    /// The singular name.
    pub singular: Text,
    /// The kind.
    pub kind: Text,
    /// The kind of its lists.
    pub list_kind: Text,
    /// Whether objects have a namespace.
    pub namespaced: bool,
    /// The verbs.
    pub verbs: Vec<Text>,
    /// The short names.
    pub short_names: Vec<Text>,
    /// The categories, such as `all`.
    pub categories: Vec<Text>,
    /// Empty if the resource is not stored.
    pub storage_version_hash: Text,
    /// The subresources.
    pub subresources: Vec<Subresource>,
    /// The OpenAPI v3 schema of a custom kind; those of built-in kinds are in the schema table.
    pub schema: Option<Arc<Value>>,
}

/// A subresource.
#[derive(Clone, Debug, PartialEq)]
pub struct Subresource {
    /// The name, such as `status`.
    pub name: Text,
    /// The kind.
    pub kind: Text,
    /// Those of the kind, if they are not the resource's.
    pub group_version: Option<(Text, Text)>,
    /// The verbs.
    pub verbs: Vec<Text>,
}

impl Served {
    /// The built-in groups.
    pub fn built_in() -> Served {
        let table = schema::schema();
        let resources = |group: &str, version: &str| {
            let all = table.resources().iter();
            all.filter(|r| (r.group, r.version) == (group, version)).map(Resource::from).collect()
        };
        let groups = table.groups().iter().map(|group| Group {
            name: group.name.into(),
            versions: group
                .versions
                .iter()
                .map(|version| Version { name: (*version).into(), resources: resources(group.name, version) })
                .collect(),
            custom: false,
        });
        Served { groups: groups.collect() }
    }

    /// The group with this name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Adds a custom resource to a group's version, which are created with their first resource, in the order of
    /// discovery: groups after the built-in ones, by name; versions by [`precedence`], resources by name.
    pub fn add_custom(&mut self, group: &str, version: &str, resource: Resource) {
        let custom = self.groups.iter().position(|g| g.custom).unwrap_or(self.groups.len());
        let index = match self.groups.iter().position(|g| g.name == group) {
            Some(index) => index,
            None => {
                let after = self.groups[custom..].partition_point(|g| *g.name < *group);
                let new = Group { name: group.to_owned().into(), versions: Vec::new(), custom: true };
                self.groups.insert(custom + after, new);
                custom + after
            }
        };
        let versions = &mut self.groups[index].versions;
        let index = match versions.iter().position(|v| v.name == version) {
            Some(index) => index,
            None => {
                let after = versions.partition_point(|v| precedence(&v.name, version) == Ordering::Less);
                versions.insert(after, Version { name: version.to_owned().into(), resources: Vec::new() });
                after
            }
        };
        let resources = &mut versions[index].resources;
        resources.retain(|r| r.plural != resource.plural);
        let after = resources.partition_point(|r| r.plural < resource.plural);
        resources.insert(after, resource);
    }
}

impl Group {
    /// The version with this name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }
}

impl From<&schema::Resource> for Resource {
    fn from(built_in: &schema::Resource) -> Resource {
        let texts = |list: &[&'static str]| list.iter().map(|text| Text::from(*text)).collect();
        let own = (built_in.group, built_in.version);
        let subresources = built_in.subresources.iter().map(|sub| Subresource {
            name: sub.name.into(),
            kind: sub.kind.into(),
            group_version: (own != (sub.group, sub.version)).then(|| (sub.group.into(), sub.version.into())),
            verbs: texts(&sub.verbs),
        });
        Resource {
            plural: built_in.plural.into(),
            singular: built_in.singular.clone().into(),
            kind: built_in.kind.into(),
            list_kind: built_in.list_kind.clone().into(),
            namespaced: built_in.namespaced,
            verbs: texts(&built_in.verbs),
            short_names: texts(&built_in.short_names),
            categories: texts(&built_in.categories),
            storage_version_hash: built_in.storage_version_hash.into(),
            subresources: subresources.collect(),
            schema: None,
        }
    }
}

/// The order of versions in a group: `v10`, `v2`, `v1`, `v11beta2`, `v10beta3`, `v3alpha1`, then all others by name.
///
/// Source: CustomResourceDefinition versioning, "Version priority".
pub fn precedence(a: &str, b: &str) -> Ordering {
    match (stability(a), stability(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// The stability, major and minor of a version such as `v1`, `v1beta2`.
fn stability(version: &str) -> Option<(u8, u32, u32)> {
    let number = |digits: &str| {
        let plain = digits.bytes().all(|b| b.is_ascii_digit());
        plain.then(|| digits.parse::<u32>().ok()).flatten()
    };
    let rest = version.strip_prefix('v')?;
    for (level, word) in [(1, "beta"), (0, "alpha")] {
        if let Some((major, minor)) = rest.split_once(word) {
            return Some((level, number(major)?, number(minor)?));
        }
    }
    Some((2, number(rest)?, 0))
}

/// The hash by which clients detect a change of a kind's storage version.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    use base64::Engine;
    let hashed = format!("{group}/{version}/{kind}");
    let digest = ring::digest::digest(&ring::digest::SHA256, hashed.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_by_precedence() {
        let want = [
            "v10",
            "v2",
            "v1",
            "v0",
            "v11beta2",
            "v10beta3",
            "v3beta1",
            "v12alpha1",
            "foo1",
            "foo10",
            "v",
            "v1gamma1",
        ];
        let mut got = want;
        got.reverse();
        got.sort_by(|a, b| precedence(a, b));
        assert_eq!(got, want);
    }

    #[test]
    fn storage_version_hashes_match_the_real_servers() {
        let stored = schema::schema().resources().iter().filter(|r| !r.storage_version_hash.is_empty());
        for resource in stored {
            let (group, mut version) = resource.storage_version;
            let kind = resource.kind;
            // The real server still hashes the version in which it once stored them.
            if kind == "CustomResourceDefinition" {
                version = "v1beta1";
            }
            let want = resource.storage_version_hash;
            assert_eq!(storage_version_hash(group, version, kind), want, "{group}/{version}/{kind}");
        }
        assert_eq!(storage_version_hash("stable.discovery.example.com", "v1", "Widget"), "f+X3NPQ7fio=");
    }

    #[test]
    fn custom_groups_follow_the_built_in_ones() {
        let mut served = Served::built_in();
        let pods = served.groups[0].versions[0].resources[0].clone();
        let built_in = served.groups.len();
        for (group, version, plural) in [
            ("z.example.com", "v1alpha1", "b"),
            ("a.example.com", "v1", "a"),
            ("z.example.com", "v1", "b"),
            ("z.example.com", "v1", "a"),
            ("z.example.com", "v1", "b"),
        ] {
            served.add_custom(group, version, Resource { plural: plural.into(), ..pods.clone() });
        }
        let mut names: Vec<String> = Vec::new();
        for group in &served.groups[built_in..] {
            for version in &group.versions {
                let plurals: Vec<&str> = version.resources.iter().map(|r| &*r.plural).collect();
                names.push(format!("{}/{} {}", group.name, version.name, plurals.join(" ")));
            }
        }
        assert_eq!(names, ["a.example.com/v1 a", "z.example.com/v1 a b", "z.example.com/v1alpha1 b"]);
    }
}
