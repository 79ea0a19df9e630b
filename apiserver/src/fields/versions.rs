//! The versions of a kind, in each of which fields may be owned.
//!
//! An entry of `metadata.managedFields` has the version of its request, so the fields that a write
//! changes are found in that version too. Conversions in this process are done at once. Those that
//! others do, as a conversion webhook does, are collected: [`Versions::resolve`] does the work
//! again once the conversion that it lacked has been done.
//!
//! Source: `versionconverter.go` of apimachinery's `managedfields`; `conversion/converter.go` of
//! apiextensions-apiserver.

use std::borrow::Cow;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;

use super::typed::{self, Duplicates};
use crate::resource_info::ResourceInfo;
use crate::schema::TypeRef;
use crate::{Error, Result};

/// No write takes more conversions by others than this.
const MAX_CONVERSIONS: usize = 100;

/// The versions of a kind, for one write.
pub struct Versions<'a> {
    info: &'a ResourceInfo,
    remote: Mutex<Remote>,
}

/// Conversions that others do.
#[derive(Default)]
struct Remote {
    done: Vec<(Conversion, std::result::Result<Value, String>)>,
    wanted: Option<Conversion>,
}

/// An object, and the version to convert it to.
#[derive(Clone, PartialEq)]
struct Conversion {
    object: Value,
    to: String,
}

/// The reason why there is no object in another version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unconvertible {
    /// There is no such version, so that the fields that are owned in it are dropped.
    NoVersion,
    /// The conversion fails, or its result has not the type of the version.
    Failed(String),
    /// Others have not done the conversion yet.
    Pending,
}

impl Unconvertible {
    /// Adds what failed to the error.
    #[must_use]
    pub fn of(self, what: &str) -> Unconvertible {
        match self {
            Unconvertible::Failed(text) => Unconvertible::Failed(format!("{what}: {text}")),
            other => other,
        }
    }
}

impl std::fmt::Display for Unconvertible {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unconvertible::NoVersion => "there is no such version",
            Unconvertible::Failed(text) => text,
            Unconvertible::Pending => "a conversion is not done yet",
        })
    }
}

impl<'a> Versions<'a> {
    /// Creates the versions of a kind.
    pub fn of(info: &'a ResourceInfo) -> Versions<'a> {
        Versions { info, remote: Mutex::default() }
    }

    /// Returns the kind in the version of the request.
    pub fn info(&self) -> &'a ResourceInfo {
        self.info
    }

    /// Returns the type in a version.
    pub fn type_of(&self, version: &str) -> Option<&'a TypeRef> {
        self.info.versions.iter().find(|(known, _)| known == version).map(|(_, type_ref)| type_ref)
    }

    /// Converts an object to a version; returns it with its type in that version.
    ///
    /// # Errors
    /// [`Unconvertible`].
    pub fn convert<'v>(
        &self,
        object: &'v Value,
        to: &str,
    ) -> std::result::Result<(Cow<'v, Value>, &'a TypeRef), Unconvertible> {
        let info = self.info;
        let Some(type_ref) = self.type_of(to) else {
            return Err(match info.is_custom() {
                true => {
                    Unconvertible::Failed(format!("request to convert CR to an invalid group/version: {to}"))
                }
                false => Unconvertible::NoVersion,
            });
        };
        let is_in = |version: &str| object.get("apiVersion").and_then(Value::as_str) == Some(version);
        if is_in(to) {
            return Ok((Cow::Borrowed(object), type_ref));
        }
        // Every conversion begins or ends in the version of the request.
        let converted = if is_in(&info.api_version) || to == info.api_version {
            self.convert_one(object, to)?
        } else {
            self.convert_one(&self.convert_one(object, &info.api_version)?, to)?
        };
        if info.is_custom() {
            typed::check(&converted, type_ref, Duplicates::Refused).map_err(Unconvertible::Failed)?;
        }
        Ok((Cow::Owned(converted), type_ref))
    }

    fn convert_one(&self, object: &Value, to: &str) -> std::result::Result<Value, Unconvertible> {
        if let Some(converted) = self.info.convert_locally(object, to) {
            return Ok(converted);
        }
        let mut remote = self.remote();
        let wanted = Conversion { object: object.clone(), to: to.to_owned() };
        match remote.done.iter().find(|(conversion, _)| *conversion == wanted) {
            Some((_, outcome)) => outcome.clone().map_err(Unconvertible::Failed),
            None => {
                remote.wanted = Some(wanted);
                Err(Unconvertible::Pending)
            }
        }
    }

    /// Runs work that may need conversions: does the needed conversions and repeats the work until
    /// nothing is missing.
    ///
    /// # Errors
    /// The errors of the work.
    pub async fn resolve<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..=MAX_CONVERSIONS {
            let outcome = work();
            let Some(wanted) = self.remote().wanted.take() else { return outcome };
            drop(outcome);
            let converted = self.convert_remotely(&wanted).await;
            self.remote().done.push((wanted, converted));
        }
        Err(Error::Internal(format!("a write takes more than {MAX_CONVERSIONS} conversions")))
    }

    fn remote(&self) -> MutexGuard<'_, Remote> {
        self.remote.lock()
    }

    fn convert_remotely<'c>(
        &'c self,
        wanted: &'c Conversion,
    ) -> BoxFuture<'c, std::result::Result<Value, String>> {
        Box::pin(async move {
            let converted = self.info.convert_unpruned(wanted.object.clone(), &wanted.to).await;
            converted.map_err(|error| error.status().message)
        })
    }
}
