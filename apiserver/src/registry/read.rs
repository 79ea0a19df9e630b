//! Reads of one object, or of many at one revision.
//!
//! A list is a scan of a snapshot. The snapshot is determined by resourceVersion, its match and the
//! continue token; a token contains a revision and the key to continue from, so that all pages are
//! from the same revision.
//!
//! Source: API concepts, "Resource versions" and "Retrieving large results sets in chunks".
#![expect(clippy::disallowed_methods, reason = "the wait for a revision is bounded by the life of a request")]

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use base64::alphabet::URL_SAFE;
use base64::engine::general_purpose::{GeneralPurpose, NO_PAD};
use base64::{DecodeError, Engine};
use coracle_storage::{BucketSnapshot, Revision, RevisionError};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{Registry, Stored, parse};
use crate::codec;
use crate::request::options::{ListOptions, VersionMatch, parse_revision};
use crate::resource_info::{Conversion, ResourceInfo};
use crate::selector::{LabelSelector, Selection};
use crate::telemetry::latency::{Phase, measure};
use crate::{Error, Result};

/// The longest time a read waits for a future revision.
const FUTURE_WAIT: Duration = Duration::from_secs(3);

/// The objects that are converted at once to be selected by their fields.
const CONVERTED_AT_ONCE: usize = 100;

/// The longest time a request waits until the writes of other servers are visible.
const LINEARIZE_WAIT: Duration = Duration::from_secs(10);

/// The values of the fields of an object that it can be selected by.
type FieldValues = Box<[Box<str>]>;

/// The selection of a bucket's objects by a list or watch.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// "" is every namespace.
    pub namespace: String,
    /// The label selector.
    pub labels: LabelSelector,
    /// The field selector.
    pub fields: Selection,
    /// The custom resource in whose version fields are read on demand; None for built-in kinds.
    pub custom: Option<Arc<ResourceInfo>>,
    /// The fields of objects that others have converted, by storage name and revision.
    pub(super) converted: HashMap<(Arc<str>, Revision), FieldValues>,
}

impl Filter {
    /// Returns the filter of a request.
    ///
    /// # Errors
    /// 400 for a field by which objects of the kind cannot be selected.
    pub fn new(info: &Arc<ResourceInfo>, namespace: &str, options: &ListOptions) -> Result<Filter> {
        Ok(Filter {
            namespace: if info.namespaced { namespace.to_owned() } else { String::new() },
            labels: options.labels.clone(),
            fields: Selection::resolve(&info.behavior.selectable_fields, &options.fields)?,
            custom: info.is_custom().then(|| info.clone()),
            converted: HashMap::new(),
        })
    }

    /// Returns whether the selected fields need conversion by a webhook: see [`Filter::convert`].
    pub fn needs_conversion(&self) -> bool {
        let is_remote = |info: &ResourceInfo| matches!(info.conversion, Conversion::Remote(_));
        self.fields.has_own_fields() && self.custom.as_deref().is_some_and(is_remote)
    }

    /// Converts the objects to select from by a webhook, if the selection needs that.
    ///
    /// # Errors
    /// The errors of the conversion.
    pub async fn convert(&mut self, objects: Vec<Arc<Stored>>) -> Result<()> {
        self.converted.clear();
        if !self.needs_conversion() {
            return Ok(());
        }
        let Some(info) = &self.custom else { return Ok(()) };
        let fields = &info.behavior.selectable_fields;
        // Earlier versions of objects may be unreadable by now; those are not selected.
        let is_readable = |object: &Arc<Stored>| info.check_stored_version(&object.bytes).is_ok();
        let objects: Vec<Arc<Stored>> = objects.into_iter().filter(is_readable).collect();
        for batch in objects.chunks(CONVERTED_AT_ONCE) {
            let stored = batch.iter().map(|object| parse(object)).collect::<Result<Vec<_>>>()?;
            for (object, shown) in batch.iter().zip(info.show(stored).await?) {
                let key = (object.key.name().clone(), object.revision);
                self.converted.insert(key, fields.values(shown.requested()));
            }
        }
        Ok(())
    }

    /// Returns whether the filter has neither labels nor fields, so that it selects every object in
    /// its namespace.
    pub fn selects_all(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether an object matches the filter.
    pub fn matches(&self, object: &Stored) -> bool {
        let (namespace, name) = split_name(object);
        (self.namespace.is_empty() || namespace == self.namespace) && self.selects(object, namespace, name)
    }

    fn selects(&self, object: &Stored, namespace: &str, name: &str) -> bool {
        (self.labels.is_empty() || self.labels.matches(|key| object.meta.label(key)))
            && (self.fields.is_empty() || self.selects_fields(object, namespace, name))
    }

    fn selects_fields(&self, object: &Stored, namespace: &str, name: &str) -> bool {
        let matches = |values: &[Box<str>]| {
            self.fields.matches(namespace, name, |position| values.get(position).map(|value| &**value))
        };
        let Some(info) = self.custom.as_deref().filter(|_| self.fields.has_own_fields()) else {
            return self.fields.matches(namespace, name, |position| object.meta.field(position));
        };
        if !self.converted.is_empty()
            && let Some(values) = self.converted.get(&(object.key.name().clone(), object.revision))
        {
            return matches(values);
        }
        let shown = parse(object).ok().and_then(|stored| info.show_now(stored));
        shown.is_some_and(|shown| matches(&info.behavior.selectable_fields.values(shown.requested())))
    }

    /// Returns whether a storage name is in the filter's namespace; `true` if the filter has none.
    pub fn is_in_namespace(&self, name: &str) -> bool {
        name.starts_with(&self.prefix())
    }

    /// Returns the prefix that the storage names of the objects share.
    fn prefix(&self) -> String {
        if self.namespace.is_empty() { String::new() } else { format!("{}/", self.namespace) }
    }
}

/// Returns the namespace ("" if there is none) and the name of a stored object.
pub fn split_name(object: &Stored) -> (&str, &str) {
    let name: &str = object.key.name();
    name.split_once('/').unwrap_or(("", name))
}

/// One page of a list.
pub struct Page {
    /// The revision that it shows.
    pub revision: Revision,
    /// The objects.
    pub items: Vec<Arc<Stored>>,
    /// The token for the next page; None on the last one.
    pub continue_token: Option<String>,
    /// The number of remaining objects, if it is known without counting.
    pub remaining: Option<usize>,
}

impl Registry {
    /// Returns the newest version of an object, not older than the requested revision.
    pub async fn get(
        &self,
        info: &ResourceInfo,
        namespace: &str,
        name: &str,
        resource_version: &str,
    ) -> Result<Arc<Stored>> {
        let revision = parse_revision(resource_version).map_err(|e| Error::Unclassified(e.in_query()))?;
        self.wait_for(Revision(revision)).await?;
        let found = self.current(info, namespace, name);
        let found = found.ok_or_else(|| Error::not_found(&info.group_resource, name))?;
        info.check_stored_version(&found.bytes)?;
        Ok(found)
    }

    /// Checks that all objects of a resource can be read, by the beginnings of their bytes: they are
    /// not all in the response.
    ///
    /// # Errors
    /// 429 of a list or watch: in kube-apiserver its cache cannot be filled.
    pub(crate) fn check_readable(&self, info: &ResourceInfo) -> Result<()> {
        if !info.is_custom() {
            return Ok(());
        }
        let bucket = self.store.snapshot().bucket(&info.storage.bucket);
        let checked = bucket.iter().try_for_each(|object| info.check_leading_version(&object.bytes));
        let ResourceInfo { api_version, kind, .. } = info;
        checked.map_err(|error| Error::TooManyRequests {
            message: format!(
                "storage is (re)initializing: failed to list {api_version}, Kind={kind}: {error}"
            ),
            retry_after: 30,
            causes: Vec::new(),
        })
    }

    /// Waits until all earlier writes of any server are visible, for reads that must not be stale.
    /// Returns immediately if no other server writes to the store.
    ///
    /// # Errors
    /// 500 with etcd's message if the store does not reach that revision in time.
    pub async fn linearize(&self) -> Result<()> {
        if !self.store.has_other_writers() {
            return Ok(());
        }
        let _timer = measure(Phase::Store);
        self.store.linearize(Instant::now() + LINEARIZE_WAIT).await.map_err(|error| {
            tracing::warn!(%error, "the store does not show what others wrote");
            Error::Unclassified("etcdserver: request timed out".to_owned())
        })
    }

    /// Waits until the store has reached a revision, for a short time.
    pub(super) async fn wait_for(&self, revision: Revision) -> Result<()> {
        if revision <= self.store.revision() {
            return Ok(());
        }
        let deadline = Instant::now() + FUTURE_WAIT;
        // The revision may be known to another server without a change of an object. If the log
        // does not respond, the deadline decides.
        drop(self.store.linearize(deadline).await);
        self.store.wait_for(revision, deadline).await.map_err(|future| Error::TooLargeResourceVersion {
            asked: future.asked.0,
            current: future.newest.0,
        })
    }

    /// Returns a page of objects.
    ///
    /// # Errors
    /// 400 for an invalid continue token or resourceVersion, 410 for a compacted revision, 504 for
    /// one that is not reached in time.
    pub async fn list(&self, info: &ResourceInfo, filter: &Filter, options: &ListOptions) -> Result<Page> {
        let (snapshot, start) = self.list_from(info, filter, options).await?;
        let prefix = filter.prefix();
        let from = match &start {
            Some(start) => Bound::Included(start.as_str()),
            None => Bound::Included(prefix.as_str()),
        };
        let mut page =
            Page { revision: snapshot.revision(), items: Vec::new(), continue_token: None, remaining: None };
        // A list from the cache is never split into pages.
        let limit = if options.resource_version == "0" { 0 } else { options.limit };
        if limit == 0 {
            self.check_readable(info)?;
        }
        let converting;
        let filter = match filter.needs_conversion() {
            true => {
                let mut with_values = filter.clone();
                with_values.convert(snapshot.prefix_from(from, &prefix).cloned().collect()).await?;
                converting = with_values;
                &converting
            }
            false => filter,
        };
        let mut objects = snapshot.prefix_from(from, &prefix);
        let all = filter.selects_all();
        for object in objects.by_ref() {
            let is_selected = || {
                let (namespace, name) = split_name(object);
                filter.selects(object, namespace, name)
            };
            if all || is_selected() {
                info.check_stored_version(&object.bytes)?;
                page.items.push(object.clone());
                if page.items.len() == limit {
                    break;
                }
            }
        }
        // An object that is listed by its name is a page of its own.
        let is_of_one = options.continue_token.is_empty()
            && options.fields.exact("metadata.name").is_some()
            && (!info.namespaced || !filter.namespace.is_empty());
        if limit > 0
            && !is_of_one
            && page.items.len() == limit
            && objects.next().is_some()
            && let Some(last) = page.items.last()
        {
            let after = &last.key.name()[prefix.len()..];
            page.continue_token = Some(Token::new(page.revision, after).encode());
            page.remaining = all.then(|| snapshot.count_after(last.key.name(), &prefix));
        }
        Ok(page)
    }

    /// Returns the snapshot for a list, and the storage name from which the list starts.
    async fn list_from(
        &self,
        info: &ResourceInfo,
        filter: &Filter,
        options: &ListOptions,
    ) -> Result<(BucketSnapshot<super::ObjectIndex>, Option<String>)> {
        let newest = || self.store.snapshot().bucket(&info.storage.bucket);
        if !options.continue_token.is_empty() {
            let token = Token::decode(&options.continue_token)?;
            if !matches!(options.resource_version.as_str(), "" | "0") {
                return Err(Error::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            let start = Some(format!("{}{}", filter.prefix(), token.start.trim_start_matches('/')));
            // A negative revision is the server's own offer to continue with the current state.
            let Ok(revision) = u64::try_from(token.rv) else { return Ok((newest(), start)) };
            let snapshot = self.exactly(info, Revision(revision)).await.map_err(|e| match e {
                Error::Expired { .. } => Error::Expired {
                    message: CONTINUE_EXPIRED.to_owned(),
                    fresh_continue: Some(Token { rv: -1, ..token }.encode()),
                },
                other => other,
            })?;
            return Ok((snapshot, start));
        }
        let revision = parse_revision(&options.resource_version)
            .map_err(|e| Error::bad_request(format!("invalid resource version: {}", e.in_query())))?;
        // A limit with a bare revision means that very revision: its pages must agree with each
        // other.
        let exact = options.version_match == VersionMatch::Exact
            || options.version_match == VersionMatch::Unset && options.limit > 0;
        if revision > 0 && exact {
            return Ok((self.exactly(info, Revision(revision)).await?, None));
        }
        self.wait_for(Revision(revision)).await?;
        Ok((newest(), None))
    }

    async fn exactly(
        &self,
        info: &ResourceInfo,
        revision: Revision,
    ) -> Result<BucketSnapshot<super::ObjectIndex>> {
        self.wait_for(revision).await?;
        self.store.snapshot_at(&info.storage.bucket, revision).map_err(|e| match e {
            RevisionError::Compacted(_) => Error::Expired {
                message: "The resourceVersion for the provided list is too old.".to_owned(),
                fresh_continue: None,
            },
            RevisionError::Future(future) => {
                Error::TooLargeResourceVersion { asked: future.asked.0, current: future.newest.0 }
            }
        })
    }
}

const CONTINUE_EXPIRED: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted between the time the first chunk was returned and now may show up in the list.";

/// A continue token: opaque to clients, but in kube-apiserver's format, since some clients parse
/// it.
#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(default)]
    v: String,
    #[serde(default)]
    rv: i64,
    #[serde(default)]
    start: String,
}

/// Returns the offset at which Go's decoder would report the error.
fn offset_of(error: &DecodeError, text: &str) -> usize {
    match error {
        DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => *at,
        _ => text.find('=').unwrap_or(text.len().saturating_sub(1)),
    }
}

/// The encoding of tokens. As in Go the bits that are left over may have any value.
const CONTINUE_KEY: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, NO_PAD.with_decode_allow_trailing_bits(true));

impl Token {
    const VERSION: &'static str = "meta.k8s.io/v1";

    /// Creates a token for the position after an object, which is named relative to the prefix of
    /// the list.
    fn new(revision: Revision, after: &str) -> Token {
        Token {
            v: Token::VERSION.to_owned(),
            rv: i64::try_from(revision.0).unwrap_or(i64::MAX),
            start: format!("/{after}\0"),
        }
    }

    fn encode(&self) -> String {
        CONTINUE_KEY.encode(serde_json::json!({"v": self.v, "rv": self.rv, "start": self.start}).to_string())
    }

    fn decode(text: &str) -> Result<Token> {
        let refuse = |why: String| {
            Error::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let illegal = |at| refuse(format!("illegal base64 data at input byte {at}"));
        let bytes = CONTINUE_KEY.decode(text).map_err(|e| illegal(offset_of(&e, text)))?;
        let value = codec::json::decode_value(&bytes).map_err(|e| refuse(e.to_string()))?.value;
        let token: Token = serde_json::from_value(value).map_err(|e| refuse(e.to_string()))?;
        if token.v != Token::VERSION {
            return Err(refuse(format!("server does not recognize this encoded version {}", token.v)));
        }
        if token.rv == 0 {
            return Err(refuse(format!("incorrect encoded start resourceVersion (version {})", token.v)));
        }
        if token.start.is_empty() {
            return Err(refuse(format!("encoded start key empty (version {})", token.v)));
        }
        let key = token.start.trim_start_matches('/');
        if key.split('/').any(|segment| matches!(segment, "." | "..")) {
            return Err(refuse(token.start));
        }
        Ok(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_that_are_none() {
        let invalid = |why: &str| format!("invalid continue token: continue key is not valid: {why}");
        let encoded = |text: &str| CONTINUE_KEY.encode(text);
        for (token, why) in [
            ("x".to_owned(), "illegal base64 data at input byte 0"),
            ("bad".to_owned(), "invalid character 'm' looking for beginning of value"),
            ("abc=".to_owned(), "illegal base64 data at input byte 3"),
            ("ab!d".to_owned(), "illegal base64 data at input byte 2"),
            (encoded(r#"{"v":"v9"}"#), "server does not recognize this encoded version v9"),
            (
                encoded(r#"{"v":"meta.k8s.io/v1"}"#),
                "incorrect encoded start resourceVersion (version meta.k8s.io/v1)",
            ),
            (encoded(r#"{"v":"meta.k8s.io/v1","rv":1}"#), "encoded start key empty (version meta.k8s.io/v1)"),
        ] {
            let error = Token::decode(&token).err().map(|e| e.to_string());
            assert_eq!(error, Some(invalid(why)), "{token}");
        }
    }
}
