//! Forks: control planes that begin with the state of another one. Whoever runs control planes
//! makes them ([`Forks`]).

use std::collections::BTreeMap;

use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::ObjectIndex;
use coracle_storage::Store;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::clock::ClockMode;
use crate::read::invalid;

/// The paths of forks, below the address of the original control plane.
pub const FORK_PATHS: &str = "/coracle/forks/";

/// The longest name of a fork, in bytes: that of a DNS label.
const MAX_NAME_LENGTH: usize = 63;

/// Makes forks of a control plane, and ends them.
pub trait Forks: Send + Sync {
    /// Makes a fork, which is ready when this returns.
    ///
    /// # Errors
    /// 409 for a name that a fork has, 429 beyond the limit, 422 for an invalid name.
    fn create(&self, request: ForkRequest) -> BoxFuture<'_, Result<Fork>>;

    /// Lists the forks of all control planes of the process that have one origin, by name.
    fn list(&self) -> Vec<Fork>;

    /// Returns the store of a fork; None if there is no fork of the name.
    fn store(&self, name: &str) -> Option<Store<ObjectIndex>>;

    /// Ends a fork; its own forks go on.
    ///
    /// # Errors
    /// 404 for one that does not exist.
    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>>;
}

/// The body of `POST forks`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ForkRequest {
    /// The name, a DNS label; None for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The mode of its clock; None for that of the control plane. A manual one begins at the time
    /// of the control plane.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockMode>,
    /// The URLs of Services, by NAMESPACE/NAME, that stand for those of webhooks in the fork: where
    /// the test has its own. Others are those of the control plane.
    #[serde(rename = "webhookServiceURLs", skip_serializing_if = "BTreeMap::is_empty")]
    pub webhook_service_urls: BTreeMap<String, String>,
}

impl ForkRequest {
    /// Returns the validated name.
    ///
    /// # Errors
    /// 422 if it is not a DNS label.
    pub fn checked_name(&self) -> Result<Option<&str>> {
        let Some(name) = self.name.as_deref() else { return Ok(None) };
        if is_label(name) { Ok(Some(name)) } else { Err(not_a_name(name)) }
    }
}

/// A fork, as the answer of `POST forks` and in that of `GET forks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Fork {
    /// The name.
    pub name: String,
    /// The name of the control plane that it began with: that of another fork, or "" for the
    /// original one.
    pub parent: String,
    /// The URL of its own address.
    pub server: String,
    /// Its path below the address of the original control plane.
    pub path: String,
    /// A kubeconfig of the server, without a user: the credentials of the caller work there.
    pub kubeconfig: String,
    /// The revision of the parent that it began with.
    pub resource_version: String,
}

/// The answer of `GET forks`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForkList {
    /// The forks, by name.
    pub forks: Vec<Fork>,
}

/// Returns `true` if a text is a DNS label. Source: RFC 1123.
fn is_label(text: &str) -> bool {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=MAX_NAME_LENGTH).contains(&text.len())
        && text.bytes().all(is_inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

fn not_a_name(name: &str) -> Error {
    let shown: String = name.chars().take(MAX_NAME_LENGTH).collect();
    invalid("name", &format!("{shown:?} is no DNS label: at most 63 of a-z, 0-9 and '-', not at an end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_labels() {
        let long = "a".repeat(MAX_NAME_LENGTH + 1);
        for (name, want) in [
            ("a", true),
            ("test-1", true),
            (&long[1..], true),
            (&long, false),
            ("", false),
            ("-a", false),
            ("a-", false),
            ("A", false),
            ("a.b", false),
            ("a/b", false),
            ("é", false),
        ] {
            let request = ForkRequest { name: Some(name.to_owned()), ..ForkRequest::default() };
            assert_eq!(request.checked_name().is_ok(), want, "{name:?}");
        }
        assert_eq!(ForkRequest::default().checked_name().ok(), Some(None));
    }
}
