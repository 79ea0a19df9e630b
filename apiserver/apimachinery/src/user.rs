//! Users, as authentication knows them; the counterpart of upstream's
//! `k8s.io/apiserver/pkg/authentication/user`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// Members bypass every authorization check.
pub const MASTERS: &str = "system:masters";
/// The group of all authenticated users.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of anonymous users.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of every node.
pub const NODES: &str = "system:nodes";
/// Key of [`UserInfo::extra`]: the id of the credential that was presented.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Key of [`UserInfo::extra`]: the name of the node that the pod of a service account's token runs
/// on.
pub const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// A user as authentication knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user name.
    pub name: String,
    /// The uid; may be empty.
    pub uid: String,
    /// The groups.
    pub groups: Vec<String>,
    /// Additional attributes.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    /// Creates a user without uid and extra.
    pub fn new(name: &str, groups: &[&str]) -> UserInfo {
        UserInfo {
            name: name.to_owned(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..UserInfo::default()
        }
    }

    /// Returns `true` if the user is a member of a group.
    pub fn is_in(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Adds the user to a group.
    pub fn join(&mut self, group: &str) {
        if !self.is_in(group) {
            self.groups.push(group.to_owned());
        }
    }

    /// Adds the groups of authenticated users, unless the credential set the user's groups already.
    pub fn authenticated(mut self) -> UserInfo {
        if self.name != ANONYMOUS && !self.is_in(UNAUTHENTICATED) {
            self.join(AUTHENTICATED);
        }
        self
    }

    /// Returns the user as `UserInfo` of `authentication.k8s.io/v1`.
    pub fn to_value(&self) -> Value {
        let mut value = Map::new();
        for (key, text) in [("username", &self.name), ("uid", &self.uid)] {
            if !text.is_empty() {
                value.insert(key.into(), text.as_str().into());
            }
        }
        if !self.groups.is_empty() {
            value.insert("groups".into(), self.groups.clone().into());
        }
        if !self.extra.is_empty() {
            let extra = self.extra.iter().map(|(k, v)| (k.clone(), v.clone().into())).collect();
            value.insert("extra".into(), Value::Object(extra));
        }
        Value::Object(value)
    }
}
