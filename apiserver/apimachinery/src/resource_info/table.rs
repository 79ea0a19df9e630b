//! All resources of one moment: by path, by resource, and in the order of discovery.

use std::cmp::Ordering;
use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use hashbrown::HashMap;
use parking_lot::Mutex;

use super::ResourceInfo;
use crate::names::{GroupResource, Text};
use crate::request::info::ResourceRequest;

/// All resources of one moment.
#[derive(Clone, Debug, Default)]
pub struct ResourceTable {
    /// By plural: few resources share theirs.
    by_plural: HashMap<Text, Vec<Arc<ResourceInfo>>>,
    by_resource: HashMap<GroupResource, Arc<ResourceInfo>>,
    by_bucket: HashMap<Arc<str>, Arc<ResourceInfo>>,
    groups: Vec<Group>,
}

/// An API group.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The name; empty for the core group.
    pub name: Text,
    /// The preferred one first.
    pub versions: Vec<Version>,
    /// Defined by clients.
    pub custom: bool,
}

/// A version of a group.
#[derive(Clone, Debug, PartialEq)]
pub struct Version {
    /// The name.
    pub name: Text,
    /// The resources, in the order of discovery.
    pub resources: Vec<Arc<ResourceInfo>>,
}

impl Group {
    /// Returns the version with this name.
    pub fn version(&self, name: &str) -> Option<&Version> {
        self.versions.iter().find(|version| version.name == name)
    }
}

impl ResourceTable {
    /// Creates the table of these groups and their resources.
    pub fn new(groups: Vec<Group>) -> ResourceTable {
        let mut table = ResourceTable::default();
        let versions = groups.iter().flat_map(|group| &group.versions);
        versions.flat_map(|version| &version.resources).for_each(|info| table.index(info.clone()));
        ResourceTable { groups, ..table }
    }

    /// Returns the table with these custom resources.
    #[must_use]
    pub fn with_custom(&self, custom: impl IntoIterator<Item = ResourceInfo>) -> ResourceTable {
        self.with(custom.into_iter().map(Arc::new))
    }

    /// Returns the table with these custom resources in addition.
    #[must_use]
    pub fn with(&self, custom: impl IntoIterator<Item = Arc<ResourceInfo>>) -> ResourceTable {
        let mut table = self.clone();
        for info in custom {
            table.index(info.clone());
            table.add_to_discovery(info);
        }
        table
    }

    /// Returns the table with a group at its end, unless there is a group of that name.
    #[must_use]
    fn with_group(mut self, group: Group) -> ResourceTable {
        if !self.has_group(&group.name) {
            let versions = group.versions.iter().flat_map(|version| &version.resources);
            versions.for_each(|info| self.index(info.clone()));
            self.groups.push(group);
        }
        self
    }

    fn index(&mut self, info: Arc<ResourceInfo>) {
        self.by_plural.entry(info.plural.clone()).or_default().push(info.clone());
        // Of several versions, the one that is stored speaks for the resource.
        if info.is_storage_version() || !self.by_resource.contains_key(&info.group_resource) {
            self.by_resource.insert(info.group_resource.clone(), info.clone());
        }
        if info.is_storage_version() || !self.by_bucket.contains_key(&info.storage.bucket) {
            self.by_bucket.insert(info.storage.bucket.clone(), info);
        }
    }

    /// Adds a custom resource to a group's version, which are created with their first resource, in
    /// the order of discovery: groups after the built-in ones, by name; versions by [`precedence`],
    /// resources by name.
    fn add_to_discovery(&mut self, info: Arc<ResourceInfo>) {
        let groups = &mut self.groups;
        let custom = groups.iter().position(|g| g.custom).unwrap_or(groups.len());
        let index = match groups.iter().position(|g| g.name == info.group) {
            Some(index) => index,
            None => {
                let after = groups[custom..].partition_point(|g| g.name < info.group);
                let new = Group { name: info.group.clone(), versions: Vec::new(), custom: true };
                groups.insert(custom + after, new);
                custom + after
            }
        };
        let versions = &mut groups[index].versions;
        let index = match versions.iter().position(|v| v.name == info.version) {
            Some(index) => index,
            None => {
                let before = |v: &Version| precedence(&v.name, &info.version) == Ordering::Less;
                let after = versions.partition_point(before);
                versions.insert(after, Version { name: info.version.clone(), resources: Vec::new() });
                after
            }
        };
        let resources = &mut versions[index].resources;
        resources.retain(|r| r.plural != info.plural);
        let after = resources.partition_point(|r| r.plural < info.plural);
        resources.insert(after, info);
    }

    /// Returns the resource at a path.
    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<ResourceInfo>> {
        let same = |info: &&Arc<ResourceInfo>| info.group == group && info.version == version;
        self.by_plural.get(plural)?.iter().find(same)
    }

    /// Returns the resource of a kind, as an object names it.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<ResourceInfo>> {
        self.iter().find(|info| *info.api_version == *api_version && *info.kind == *kind)
    }

    /// Iterates over the other groups and versions in which the objects of a resource are served,
    /// in the order of discovery.
    ///
    /// Source: `runtime.EquivalentResourceMapper`.
    pub fn equivalents<'a>(&'a self, info: &'a ResourceInfo) -> impl Iterator<Item = &'a Arc<ResourceInfo>> {
        let same_plural = self.by_plural.get(&info.plural).into_iter().flatten();
        same_plural.filter(|other| {
            other.storage.bucket == info.storage.bucket && other.api_version != info.api_version
        })
    }

    /// Returns `true` if the resource and subresource of a request are served.
    pub fn serves(&self, request: &ResourceRequest) -> bool {
        let info = self.find(&request.group, &request.version, &request.resource);
        let subresource = &request.subresource;
        info.is_some_and(|info| subresource.is_empty() || info.subresource(subresource).is_some())
    }

    /// Returns a resource in the version in which it is stored; None if that is not served.
    pub fn by_resource(&self, resource: &GroupResource) -> Option<&Arc<ResourceInfo>> {
        self.by_resource.get(resource)
    }

    /// Returns the resource of the objects in a bucket.
    pub fn by_bucket(&self, bucket: &str) -> Option<&Arc<ResourceInfo>> {
        self.by_bucket.get(bucket)
    }

    /// Returns `true` if there is a group of this name.
    pub fn has_group(&self, name: &str) -> bool {
        self.group(name).is_some()
    }

    /// Returns the groups in the order of discovery; the core group, which has no name, is the
    /// first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the group with this name.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Iterates over all resources, each once, in the version in which it is stored.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<ResourceInfo>> {
        self.by_resource.values()
    }
}

/// The table of now, shared by all that work from it.
#[derive(Debug)]
pub struct SharedResourceTable {
    /// The table that it began with.
    built_in: Arc<ResourceTable>,
    table: ArcSwap<ResourceTable>,
    /// The groups that every table gets. Held while the table is replaced.
    extensions: Mutex<Vec<Group>>,
}

impl SharedResourceTable {
    /// Begins with a table.
    pub fn new(table: ResourceTable) -> Arc<SharedResourceTable> {
        let built_in = Arc::new(table);
        let table = ArcSwap::new(built_in.clone());
        Arc::new(SharedResourceTable { built_in, table, extensions: Mutex::default() })
    }

    /// Returns the table of the built-in resources, without custom ones.
    pub fn built_in(&self) -> &Arc<ResourceTable> {
        &self.built_in
    }

    /// Creates an independent table with the current content of this one.
    pub fn fork(&self) -> Arc<SharedResourceTable> {
        let extensions = self.extensions.lock();
        let (table, extensions) = (ArcSwap::new(self.table.load_full()), Mutex::new(extensions.clone()));
        Arc::new(SharedResourceTable { built_in: self.built_in.clone(), table, extensions })
    }

    /// Loads the current table for a short use. To keep it, use [`SharedResourceTable::load_full`].
    pub fn load(&self) -> Guard<Arc<ResourceTable>> {
        self.table.load()
    }

    /// Loads the current table, to keep.
    pub fn load_full(&self) -> Arc<ResourceTable> {
        self.table.load_full()
    }

    /// Replaces the table, but for the groups that were added to it.
    pub fn replace(&self, table: ResourceTable) {
        let extensions = self.extensions.lock();
        self.table.store(Arc::new(extensions.iter().cloned().fold(table, ResourceTable::with_group)));
    }

    /// Adds a group, to every table from now on, unless there is one of its name.
    pub fn add_group(&self, group: Group) {
        let mut extensions = self.extensions.lock();
        if extensions.iter().any(|known| known.name == group.name) {
            return;
        }
        let table = ResourceTable::clone(&self.table.load());
        self.table.store(Arc::new(table.with_group(group.clone())));
        extensions.push(group);
    }
}

/// Compares two versions of a group by priority: `v10`, `v2`, `v1`, `v11beta2`, `v10beta3`,
/// `v3alpha1`, then all others by name.
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

/// Parses a version such as `v1` or `v1beta2` into its stability, major and minor.
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
}
