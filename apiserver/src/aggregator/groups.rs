//! The groups and resources of aggregated servers, for the documents of discovery.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use serde_json::Value;

use super::metrics::Unavailabilities;
use crate::codec::limits::Limits;
use crate::codec::{self, DecodeError};
use crate::resource_info::precedence;
use crate::schema::schema;

/// A group and version of another server.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoteVersion {
    /// The group.
    pub group: String,
    /// The version.
    pub version: String,
    /// `groupPriorityMinimum` and `versionPriority`, which determine the order.
    pub priorities: (i64, i64),
    /// The resources in its APIResourceList; None while it is not available.
    pub resources: Option<Arc<[RemoteResource]>>,
}

/// A resource of an aggregated server, as shown by discovery.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteResource {
    /// The plural, and behind a slash the subresource.
    pub name: String,
    /// `singularName`
    pub singular: String,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The group of its kind; the list's if it is empty.
    pub group: String,
    /// The version of its kind; the list's if it is empty.
    pub version: String,
    /// The kind of its objects.
    pub kind: String,
    /// Its verbs.
    pub verbs: Vec<String>,
    /// Its short names.
    pub short_names: Vec<String>,
    /// Its categories.
    pub categories: Vec<String>,
}

impl RemoteResource {
    /// Reads an APIResourceList within the limits of responses.
    ///
    /// # Errors
    /// It is no APIResourceList.
    pub fn read_list(bytes: &[u8]) -> Result<Arc<[RemoteResource]>, DecodeError> {
        let Some(id) = schema().kind("", "v1", "APIResourceList") else { return Ok(Arc::default()) };
        let mut list = codec::json::decode_response(bytes, id, &[], Limits::RESPONSE)?;
        Ok(match list["resources"].take() {
            Value::Array(resources) => resources.into_iter().map(RemoteResource::read).collect(),
            _ => Arc::default(),
        })
    }

    fn read(mut resource: Value) -> RemoteResource {
        fn text(value: Value) -> String {
            if let Value::String(text) = value { text } else { String::new() }
        }
        fn texts(value: Value) -> Vec<String> {
            if let Value::Array(texts) = value { texts.into_iter().map(text).collect() } else { Vec::new() }
        }
        let namespaced = resource["namespaced"] == true;
        let mut take = |name: &str| resource.get_mut(name).map(Value::take).unwrap_or_default();
        RemoteResource {
            name: text(take("name")),
            singular: text(take("singularName")),
            namespaced,
            group: text(take("group")),
            version: text(take("version")),
            kind: text(take("kind")),
            verbs: texts(take("verbs")),
            short_names: texts(take("shortNames")),
            categories: texts(take("categories")),
        }
    }
}

/// All of them, in the order of discovery.
#[derive(Debug, Default)]
pub struct RemoteGroups {
    versions: ArcSwap<Vec<RemoteVersion>>,
    /// Counted beside them, since the same controller keeps both.
    pub(super) unavailabilities: Unavailabilities,
}

impl RemoteGroups {
    /// Returns those that a fork begins with.
    pub fn fork(&self) -> RemoteGroups {
        RemoteGroups { versions: ArcSwap::new(self.load()), ..RemoteGroups::default() }
    }

    /// Returns the current versions.
    pub fn load(&self) -> Arc<Vec<RemoteVersion>> {
        self.versions.load_full()
    }

    /// Replaces them, if they changed.
    pub fn replace(&self, mut versions: Vec<RemoteVersion>) {
        sort_for_discovery(&mut versions);
        if *self.versions.load_full() != versions {
            self.versions.store(Arc::new(versions));
        }
    }
}

/// Sorts groups by the highest priority of their versions, then by the name of that APIService, and
/// the versions of each by their priority, then by their precedence.
fn sort_for_discovery(versions: &mut [RemoteVersion]) {
    let mut first: HashMap<String, (i64, String)> = HashMap::new();
    for version in versions.iter() {
        let rank = (-version.priorities.0, format!("{}.{}", version.version, version.group));
        let known = first.entry(version.group.clone()).or_insert_with(|| rank.clone());
        if rank < *known {
            *known = rank;
        }
    }
    versions.sort_by(|a, b| {
        (&first[&a.group], -a.priorities.1)
            .cmp(&(&first[&b.group], -b.priorities.1))
            .then_with(|| precedence(&a.version, &b.version))
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_a_group_stay_together() {
        let version = |name: &str, priorities: (i64, i64)| {
            let (version, group) = name.split_once('.').unwrap();
            RemoteVersion { group: group.into(), version: version.into(), priorities, resources: None }
        };
        let groups = RemoteGroups::default();
        groups.replace(vec![
            version("v1.b", (100, 10)),
            version("v1beta1.b", (100, 10)),
            version("v2.b", (50, 99)),
            version("v10.b", (10, 10)),
            version("v1.a", (70, 10)),
            version("v1.c", (100, 10)),
        ]);
        let order: Vec<String> = groups.load().iter().map(|v| format!("{}.{}", v.version, v.group)).collect();
        assert_eq!(order, ["v2.b", "v10.b", "v1.b", "v1beta1.b", "v1.c", "v1.a"]);
    }

    #[test]
    fn resource_lists_are_read_within_limits() {
        let list = br#"{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"g/v1","unknown":[{"":[]}],"resources":[
            {"name":"things","singularName":"thing","namespaced":true,"kind":"Thing","verbs":["get","list"],
             "shortNames":null,"categories":["all"],"unknown":{"a":1}}]}"#;
        let resources = RemoteResource::read_list(list).expect("readable");
        let want = RemoteResource {
            name: "things".into(),
            singular: "thing".into(),
            namespaced: true,
            kind: "Thing".into(),
            verbs: vec!["get".into(), "list".into()],
            categories: vec!["all".into()],
            ..RemoteResource::default()
        };
        assert_eq!(*resources, [want]);
        let many = vec![r#"{"name":"a"}"#; Limits::RESPONSE.collections].join(",");
        let list = format!(r#"{{"resources":[{many}]}}"#);
        assert!(RemoteResource::read_list(list.as_bytes()).is_err());
    }
}
