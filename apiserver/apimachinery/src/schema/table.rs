//! The table in memory.

use std::sync::OnceLock;

use hashbrown::{HashMap, HashSet};

use super::facts::read_struct;
use super::served::{Group, Resource};
use super::types::{Declaration, FieldSchema, Named, Struct, StructId, Type};

/// All data of the table.
pub struct Schema {
    /// Each is read at its first use.
    pub(super) structs: Vec<(Declaration, OnceLock<Struct>)>,
    /// The names of packages in OpenAPI by their short names.
    pub(super) packages: HashMap<&'static str, &'static str>,
    pub(super) named: HashMap<(&'static str, &'static str), Named>,
    pub(super) kinds: HashMap<(&'static str, &'static str, &'static str), StructId>,
    pub(super) unserved: HashSet<(&'static str, &'static str, &'static str)>,
    pub(super) groups: Vec<Group>,
    pub(super) resources: Vec<Resource>,
}

impl Schema {
    /// Returns the type of a kind; the core group is "". Every group version knows the kinds of
    /// options and `WatchEvent`.
    pub fn kind(&self, group: &str, version: &str, kind: &str) -> Option<StructId> {
        self.kinds.get(&(group, version, kind)).or_else(|| self.kinds.get(&("*", "*", kind))).copied()
    }

    /// Returns `true` if the kind is registered in every group version, as `DeleteOptions` is.
    pub fn is_known_everywhere(&self, kind: &str) -> bool {
        self.kinds.contains_key(&("*", "*", kind))
    }

    /// Returns `true` if the kind is registered in a version that is not served. kube-apiserver
    /// decodes such a body before it rejects its version. Its fields are not in the table.
    pub fn is_unserved(&self, group: &str, version: &str, kind: &str) -> bool {
        self.unserved.contains(&(group, version, kind))
    }

    /// Returns the type of a kind, like [`Schema::kind`], from an `apiVersion`.
    pub fn kind_of(&self, api_version: &str, kind: &str) -> Option<StructId> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.kind(group, version, kind)
    }

    /// Returns the struct with an OpenAPI name, such as `io.k8s.api.core.v1.Container`.
    pub fn named(&self, openapi_name: &str) -> Option<StructId> {
        let (package, name) = openapi_name.rsplit_once('.')?;
        match self.named.get(&(package, name))? {
            Named::Struct(id) => Some(*id),
            Named::Other(_) => None,
        }
    }

    /// Returns the struct with this id.
    pub fn get(&self, id: StructId) -> &Struct {
        let (declaration, read) = &self.structs[id.index()];
        read.get_or_init(|| read_struct(declaration, self))
    }

    /// Iterates over all structs.
    pub fn structs(&self) -> impl Iterator<Item = (StructId, &Struct)> {
        (0..self.structs.len()).map(StructId::new).map(|id| (id, self.get(id)))
    }

    /// Iterates over the kinds and their types, unordered: ((group, version, kind), type). Group
    /// and version are `*` for kinds of every group version.
    pub fn kinds(&self) -> impl Iterator<Item = ((&'static str, &'static str, &'static str), StructId)> {
        self.kinds.iter().map(|(kind, id)| (*kind, *id))
    }

    /// Returns the groups in the order of discovery, each with its preferred version first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Returns the built-in resources in the order of discovery.
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }

    /// Returns the values that a field, or its innermost items, may have; empty if it is not an
    /// enum.
    pub fn enumeration(&self, field: &FieldSchema) -> &[&'static str] {
        match self.lookup(field.package, field.innermost()) {
            Some(Named::Other(other)) => &other.values,
            _ => &[],
        }
    }

    /// Returns `true` if apply treats the member, a map or struct, as one value.
    pub fn is_atomic(&self, field: &FieldSchema) -> bool {
        let by_type = matches!(field.ty, Type::Struct(id) if self.get(id).atomic);
        field.atomic || by_type && !field.granular
    }

    /// Looks up a declared name, as seen from a package: `Container`, `core/v1.Container`.
    pub(super) fn lookup(&self, home: &'static str, declared: &'static str) -> Option<&Named> {
        let name = declared.rsplit_once('.').map_or(declared, |(_, name)| name);
        self.named.get(&(self.home(home, declared), name))
    }

    /// Returns the package of a declared name.
    pub(super) fn home(&self, home: &'static str, declared: &'static str) -> &'static str {
        match declared.rsplit_once('.') {
            None => home,
            Some((short, _)) => self.packages.get(short).copied().unwrap_or_default(),
        }
    }

    /// Returns the type at a path in the form that errors print: `spec.containers[0].env`,
    /// `metadata.labels[key]`.
    pub fn type_at(&self, root: StructId, path: &str) -> Option<Type> {
        self.place_at(root, path).map(|(found, _)| found)
    }

    /// Returns the type at a path, the last field on it, and the number of lists and maps that the
    /// path enters inside of that field.
    pub(super) fn place_at(
        &self,
        root: StructId,
        path: &str,
    ) -> Option<(Type, Option<(&'static FieldSchema, usize)>)> {
        let mut found = Type::Struct(root);
        let mut last = None;
        let mut rest = path;
        while !rest.is_empty() {
            if let Some(inner) = rest.strip_prefix('[') {
                // A key may hold anything; the last `]` that ends the path or stands before a step
                // closes it.
                let close = inner
                    .match_indices(']')
                    .find(|(at, _)| matches!(inner.as_bytes().get(at + 1), None | Some(b'.' | b'[')))?;
                rest = &inner[close.0 + 1..];
                found = match found {
                    Type::List(item) | Type::ListMessage(item) | Type::Map(item) => *item,
                    _ => return None,
                };
                last = last.map(|(field, depth)| (field, depth + 1));
            } else {
                let step = rest.strip_prefix('.').unwrap_or(rest);
                let end = step.find(['.', '[']).unwrap_or(step.len());
                let Type::Struct(id) = found else { return None };
                let field = self.get(id).field(&step[..end])?;
                (found, last) = (field.ty.clone(), Some((field, 0)));
                rest = &step[end..];
            }
        }
        Some((found, last))
    }
}
