//! Conversion between the versions of an object.
//!
//! An object has one of three versions: that of the request, that in which it is stored, and the
//! internal one of the pipeline. Built-in kinds are processed in their storage version, as
//! kube-apiserver does in its internal version; custom resources in the version of the request. So
//! the first step of a write, and the last step of its response, never leave this process, while
//! loading and storing an object may call a conversion webhook, and fail.
//!
//! Source: "Versions in CustomResourceDefinitions"; `conversion.Factory` of
//! apiextensions-apiserver.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::Value;

use super::ResourceInfo;
use crate::codec;
use crate::names::GroupKind;
use crate::schema::TypeRef;
use crate::{Error, Result};

/// The conversion between the versions of a kind.
#[derive(Clone)]
pub enum Conversion {
    /// Conversion within this process.
    Local(LocalConverter),
    /// Elsewhere, which takes time and may fail.
    Remote(Arc<dyn Converter>),
}

/// Converts an object of a kind to an `apiVersion`.
pub type LocalConverter = fn(&GroupKind, &str, Value) -> Value;

/// Converts objects elsewhere, as a conversion webhook does.
pub trait Converter: Send + Sync {
    /// Converts objects to the version `to`, keeping their order.
    fn convert<'a>(&'a self, objects: Vec<Value>, to: &'a str) -> BoxFuture<'a, Result<Vec<Value>>>;
}

/// A stored object for a response.
pub struct Shown {
    /// The object in its storage version; None if that is the version of the request.
    stored: Option<Value>,
    requested: Value,
}

impl Shown {
    /// Creates one from an object that is in the version of the request already.
    pub fn of(object: Value) -> Shown {
        Shown { stored: None, requested: object }
    }

    /// Returns the object in the storage version, from which the cells of tables are computed.
    pub fn stored(&self) -> &Value {
        self.stored.as_ref().unwrap_or(&self.requested)
    }

    /// Returns the object in the version of the request.
    pub fn requested(&self) -> &Value {
        &self.requested
    }

    /// Returns the object in the version of the request.
    pub fn into_requested(self) -> Value {
        self.requested
    }
}

/// Converts between versions that differ only in their names: the strategy `None`.
pub fn rename(_: &GroupKind, to: &str, mut object: Value) -> Value {
    object["apiVersion"] = to.into();
    object
}

/// Returns the version at the beginning of a stored custom resource; None if another member comes
/// first.
fn leading_version(stored: &[u8]) -> Option<&str> {
    /// Longer than any version: a group has 253 bytes at most, a name 63.
    const MAX_LENGTH: usize = 512;
    let rest = stored.strip_prefix(b"{\"apiVersion\":\"")?;
    let end = rest.iter().take(MAX_LENGTH).position(|byte| *byte == b'"')?;
    std::str::from_utf8(&rest[..end]).ok()
}

fn version_of(object: &Value) -> &str {
    object.get("apiVersion").and_then(Value::as_str).unwrap_or_default()
}

impl ResourceInfo {
    /// Converts from the version of the request to the internal one.
    pub fn to_internal(&self, object: Value) -> Value {
        self.convert_built_in(object, &self.storage.api_version)
    }

    /// Converts from the internal version to that of the request.
    pub fn from_internal(&self, object: Value) -> Value {
        self.convert_built_in(object, &self.api_version)
    }

    /// Returns the internal version, in which the pipeline processes objects.
    pub fn internal_version(&self) -> &str {
        if self.is_custom() { &self.api_version } else { &self.storage.api_version }
    }

    /// Checks that a stored custom resource is in a version that its definition still has.
    ///
    /// # Errors
    /// 500, as of kube-apiserver: without the version there is nothing to convert from.
    pub fn check_stored_version(&self, stored: &[u8]) -> Result<()> {
        if !self.is_custom() {
            return Ok(());
        }
        match leading_version(stored) {
            Some(version) => self.check_version(version),
            // Whoever reads all of it reports that it is unreadable.
            None => codec::json::parse_own_sparse(stored, vec!["/apiVersion"])
                .map_or(Ok(()), |head| self.check_version(version_of(&head))),
        }
    }

    /// Checks the version of a stored custom resource, like
    /// [`check_stored_version`](Self::check_stored_version), if it is at the beginning. The cost does
    /// not depend on the object, so that many can be checked that are not read.
    ///
    /// # Errors
    /// As of `check_stored_version`.
    pub fn check_leading_version(&self, stored: &[u8]) -> Result<()> {
        leading_version(stored).map_or(Ok(()), |version| self.check_version(version))
    }

    fn check_version(&self, version: &str) -> Result<()> {
        if !self.is_custom() || self.versions.iter().any(|(known, _)| known == version) {
            return Ok(());
        }
        let refusal = "request to convert CR from an invalid group/version";
        Err(Error::Unclassified(format!("{refusal}: {version}")))
    }

    /// Converts from the storage version to the internal one.
    ///
    /// # Errors
    /// The errors of the conversion.
    pub async fn load(&self, mut stored: Value) -> Result<Value> {
        self.check_version(version_of(&stored))?;
        self.restore(&mut stored);
        let is_converted = stored["apiVersion"] != self.internal_version();
        let mut loaded = self.convert_one(stored, self.internal_version()).await?;
        if is_converted {
            prune(&mut loaded, &self.type_ref);
        }
        Ok(loaded)
    }

    /// Converts from the internal version to the storage version.
    ///
    /// # Errors
    /// The errors of the conversion.
    pub async fn store(&self, object: Value) -> Result<Value> {
        let is_converted = !self.is_storage_version();
        let mut stored = self.convert_one(object, &self.storage.api_version).await?;
        if is_converted {
            prune(&mut stored, &self.storage.type_ref);
        }
        Ok(stored)
    }

    /// Returns whether responses contain the stored bytes unchanged, because the type neither adds
    /// nor removes anything.
    pub fn shows_stored_bytes(&self) -> bool {
        self.is_storage_version()
            && match &self.type_ref {
                TypeRef::Struct(_) => true,
                TypeRef::Structural(schema) => schema.is_open() && self.versions.len() == 1,
            }
    }

    /// Prunes an object in the version of the request to what will be stored.
    pub fn prune(&self, object: &mut Value) {
        prune(object, &self.type_ref);
    }

    /// Applies the current schema of its storage version to a stored custom resource.
    fn restore(&self, stored: &mut Value) {
        let stored_version = stored.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let known = self.versions.iter().find(|(version, _)| version == stored_version);
        if let Some((_, type_ref)) = known {
            prune(stored, type_ref);
            if let TypeRef::Structural(schema) = type_ref {
                codec::structural::default(stored, schema);
            }
        }
    }

    /// Converts an object of any version to this one.
    pub async fn show_one(&self, object: Value) -> Result<Value> {
        self.convert_one(object, &self.api_version).await
    }

    /// Converts a stored object for a response, if that needs no webhook; otherwise returns None.
    pub fn show_now(&self, mut stored: Value) -> Option<Shown> {
        if self.is_custom() {
            self.restore(&mut stored);
            if stored["apiVersion"] == self.api_version {
                return Some(Shown::of(stored));
            }
            let Conversion::Local(convert) = &self.conversion else { return None };
            let mut shown = convert(&self.group_kind, &self.api_version, stored);
            prune(&mut shown, &self.type_ref);
            return Some(Shown::of(shown));
        }
        match &self.conversion {
            _ if self.is_storage_version() => Some(Shown { stored: None, requested: stored }),
            Conversion::Local(convert) => {
                let requested = convert(&self.group_kind, &self.api_version, stored.clone());
                Some(Shown { stored: Some(stored), requested })
            }
            Conversion::Remote(_) => None,
        }
    }

    /// Converts stored objects for a response.
    pub async fn show(&self, stored: Vec<Value>) -> Result<Vec<Shown>> {
        stored.iter().try_for_each(|object| self.check_version(version_of(object)))?;
        if matches!(self.conversion, Conversion::Local(_)) || !self.is_custom() && self.is_storage_version() {
            return Ok(stored.into_iter().filter_map(|stored| self.show_now(stored)).collect());
        }
        if self.is_custom() {
            return self.show_converted(stored).await;
        }
        let requested = self.convert(stored.clone(), &self.api_version).await?;
        if requested.len() != stored.len() {
            return Err(Error::Internal(format!("the conversion to {} lost an object", self.api_version)));
        }
        let shown = |(stored, requested)| Shown { stored: Some(stored), requested };
        Ok(stored.into_iter().zip(requested).map(shown).collect())
    }

    /// Converts custom resources by a webhook, for a response.
    async fn show_converted(&self, mut stored: Vec<Value>) -> Result<Vec<Shown>> {
        let count = stored.len();
        stored.iter_mut().for_each(|object| self.restore(object));
        let mut shown = self.convert(stored, &self.api_version).await?;
        if shown.len() != count {
            return Err(Error::Internal(format!("the conversion to {} lost an object", self.api_version)));
        }
        shown.iter_mut().for_each(|object| prune(object, &self.type_ref));
        Ok(shown.into_iter().map(Shown::of).collect())
    }

    /// Converts an object to another version of the kind, if that needs no webhook; otherwise
    /// returns None.
    pub fn convert_locally(&self, object: &Value, to: &str) -> Option<Value> {
        match &self.conversion {
            Conversion::Local(convert) => Some(convert(&self.group_kind, to, object.clone())),
            Conversion::Remote(_) => None,
        }
    }

    /// Converts an object to another version, without pruning the result.
    pub async fn convert_unpruned(&self, object: Value, to: &str) -> Result<Value> {
        match &self.conversion {
            Conversion::Local(convert) => Ok(convert(&self.group_kind, to, object)),
            Conversion::Remote(converter) => {
                let lost = || Error::Internal(format!("the conversion to {to} lost an object"));
                converter.convert(vec![object], to).await?.pop().ok_or_else(lost)
            }
        }
    }

    fn convert_built_in(&self, object: Value, to: &str) -> Value {
        match &self.conversion {
            Conversion::Local(convert) if !self.is_custom() && !self.is_storage_version() => {
                convert(&self.group_kind, to, object)
            }
            _ => object,
        }
    }

    /// Removes the fields of a webhook's result that the schema of the version does not have.
    fn conform(&self, object: Value, to: &str) -> Value {
        let found = self.versions.iter().find(|(version, _)| version == to);
        let Some((_, TypeRef::Structural(schema))) = found else { return object };
        let decoded = codec::Decoded { value: object.clone(), strict: Vec::new() };
        codec::structural::conform(decoded, schema).map_or(object, |conforming| conforming.value)
    }

    async fn convert_one(&self, object: Value, to: &str) -> Result<Value> {
        let lost = || Error::Internal(format!("the conversion to {to} lost an object"));
        self.convert(vec![object], to).await?.pop().ok_or_else(lost)
    }

    async fn convert(&self, objects: Vec<Value>, to: &str) -> Result<Vec<Value>> {
        if objects.iter().all(|object| object["apiVersion"] == to) {
            return Ok(objects);
        }
        match &self.conversion {
            Conversion::Local(convert) => {
                Ok(objects.into_iter().map(|object| convert(&self.group_kind, to, object)).collect())
            }
            Conversion::Remote(converter) => {
                let converted = converter.convert(objects, to).await?;
                Ok(converted.into_iter().map(|object| self.conform(object, to)).collect())
            }
        }
    }
}

/// Removes the fields of a custom resource that the schema of the version does not have.
fn prune(object: &mut Value, type_ref: &TypeRef) {
    if let TypeRef::Structural(schema) = type_ref
        && !schema.is_open()
    {
        codec::structural::prune_stored(object, schema);
    }
}
