//! The options of each verb, parsed from the query or (for deletes) from the body, and validated.
//!
//! There are two kinds of errors: a value that cannot be parsed is a bad request (400); a value
//! that is parsed and not allowed is an invalid `ListOptions`, `CreateOptions`, ... of group
//! `meta.k8s.io` (422).

use std::time::Duration;

use serde_json::{Value, json};

use crate::field::{ErrorType, Errors, FieldError, Path};
use crate::names::GroupKind;
use crate::selector::{FieldSelector, LabelSelector};
use crate::{Error, Result};

/// A query string, decoded; keys may repeat.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Decodes a query string without its `?`. `+` is a space, and invalid UTF-8 is replaced.
    ///
    /// Pairs with a semicolon or with an invalid escape are dropped, as by Go's `url.ParseQuery`:
    /// an aggregated API server parses the query again, and must not get another result than the
    /// one that was authorized.
    pub fn parse(query: &str) -> Query {
        let pairs = query.split('&').filter(|pair| !pair.contains(';') && has_valid_escapes(pair));
        Query(
            pairs
                .flat_map(|pair| form_urlencoded::parse(pair.as_bytes()))
                .map(|(key, value)| (key.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// Returns the first value of a key.
    pub fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Iterates over all values of a key, in order.
    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(k, _)| k == key).map(|(_, v)| v.as_str())
    }

    /// Returns whether the key is present, with or without a value.
    pub fn has(&self, key: &str) -> bool {
        self.first(key).is_some()
    }

    fn text(&self, key: &str) -> String {
        self.first(key).unwrap_or("").to_owned()
    }

    /// Returns a boolean, with the API's rule: any value except `false` and `0` is true.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.first(key).map(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// Returns the time limit that the client sets for the request with `timeout`; None if it sets
    /// none.
    ///
    /// # Errors
    /// 400 for a text that is not a duration in Go's syntax.
    pub fn timeout(&self) -> Result<Option<Duration>> {
        match self.first("timeout") {
            None | Some("") => Ok(None),
            Some(text) => match coracle_duration::parse(text) {
                // A negative timeout counts as zero.
                Ok(timeout) => Ok(Some(timeout.try_into().unwrap_or(Duration::ZERO))),
                Err(why) => {
                    Err(Error::bad_request(format!("invalid timeout specified in the request URL - {why}")))
                }
            },
        }
    }

    /// Parses an integer of 64 bits.
    pub fn int(&self, key: &str) -> Result<Option<i64>> {
        let Some(text) = self.first(key) else { return Ok(None) };
        parse_int(text).map(Some)
    }
}

/// Returns whether two hexadecimal digits follow each percent sign.
fn has_valid_escapes(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        let mut digits = rest.bytes();
        [digits.next(), digits.next()].iter().all(|byte| byte.is_some_and(|byte| byte.is_ascii_hexdigit()))
    })
}

fn parse_int(text: &str) -> Result<i64> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let numeric = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
        let why = if numeric { "value out of range" } else { "invalid syntax" };
        Error::bad_request(format!("strconv.ParseInt: parsing {}: {why}", crate::field::quote(text)))
    })
}

/// Parses a resourceVersion; `""` is 0. The message of the error is that of Go's
/// `strconv.ParseUint`.
pub fn parse_revision(text: &str) -> Result<u64, NotARevision> {
    if text.is_empty() {
        return Ok(0);
    }
    // Rust's parser accepts a plus sign, Go's does not.
    let is_numeric = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| is_numeric).ok_or_else(|| {
        let why = if is_numeric { "value out of range" } else { "invalid syntax" };
        NotARevision { quoted: crate::field::quote(text), why }
    })
}

/// The error in a resourceVersion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotARevision {
    quoted: String,
    why: &'static str,
}

impl NotARevision {
    /// Returns the message for `resourceVersion` in the query.
    pub fn in_query(self) -> String {
        format!("resourceVersion: Invalid value: {}: {}", self.quoted, self.clone().in_body())
    }

    /// Returns the message for `metadata.resourceVersion` of an object.
    pub fn in_body(self) -> String {
        format!("strconv.ParseUint: parsing {}: {}", self.quoted, self.why)
    }
}

fn reject_invalid(kind: &str, errors: Errors) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Error::invalid(&GroupKind::new("meta.k8s.io", kind), "", errors))
}

fn error(error_type: ErrorType, field: &str, value: Option<Value>, detail: &str) -> FieldError {
    FieldError::new(error_type, &Path::of(field), value, detail)
}

/// `resourceVersionMatch`: how a list relates to the revision that it names (KEP-2523).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionMatch {
    /// Not set, or another value.
    Unset,
    /// The list at exactly that revision.
    Exact,
    /// A list at that revision or a newer one.
    NotOlderThan,
}

/// Options of list, watch and deletecollection.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// `labelSelector`.
    pub labels: LabelSelector,
    /// `fieldSelector`.
    pub fields: FieldSelector,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `resourceVersion` as the client sent it; `""` if it is not set.
    pub resource_version: String,
    /// `resourceVersionMatch`.
    pub version_match: VersionMatch,
    /// `limit`: how many objects a page has at most; 0 is no limit.
    pub limit: usize,
    /// `continue`: where the page starts; empty for the first one.
    pub continue_token: String,
    /// `timeoutSeconds`: how long the watch or list lasts at most.
    pub timeout_seconds: Option<u64>,
    /// `sendInitialEvents`: whether a watch begins with the existing objects (KEP-3157).
    pub send_initial_events: Option<bool>,
}

impl ListOptions {
    /// Parses the options of a watch (`watch`), or of a list or deletecollection.
    ///
    /// # Errors
    /// [`Error::BadRequest`] for selectors and numbers that cannot be parsed, [`Error::Invalid`]
    /// for options that exclude each other.
    pub fn parse(query: &Query, watch: bool) -> Result<ListOptions> {
        let limit = query.int("limit")?.unwrap_or(0);
        let timeout = query.int("timeoutSeconds")?;
        let labels =
            LabelSelector::parse(query.first("labelSelector").unwrap_or("")).map_err(Error::BadRequest)?;
        let fields =
            FieldSelector::parse(query.first("fieldSelector").unwrap_or("")).map_err(Error::BadRequest)?;
        let mut options = ListOptions {
            labels,
            fields,
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or(false),
            resource_version: query.text("resourceVersion"),
            version_match: match query.first("resourceVersionMatch") {
                Some("Exact") => VersionMatch::Exact,
                Some("NotOlderThan") => VersionMatch::NotOlderThan,
                _ => VersionMatch::Unset,
            },
            limit: usize::try_from(limit).unwrap_or(0),
            continue_token: query.text("continue"),
            timeout_seconds: timeout.and_then(|t| u64::try_from(t).ok()),
            send_initial_events: query.flag("sendInitialEvents"),
        };
        let mut errors = Errors::new();
        let mut version_match = query.first("resourceVersionMatch").unwrap_or("");
        // A watch without a revision starts with initial events, so it can mark their end with a
        // bookmark.
        let from_now = matches!(options.resource_version.as_str(), "" | "0")
            && query.flag("watch") == Some(true)
            && options.send_initial_events.is_none();
        if watch && from_now && version_match.is_empty() {
            version_match = "NotOlderThan";
            options.version_match = VersionMatch::NotOlderThan;
            options.send_initial_events = Some(true);
        }
        if watch {
            options.check_watch(version_match, &mut errors);
        } else {
            options.check_list(version_match, &mut errors);
        }
        reject_invalid("ListOptions", errors)?;
        Ok(options)
    }

    fn check_list(&self, version_match: &str, errors: &mut Errors) {
        let forbidden = |detail: &str| error(ErrorType::Forbidden, "resourceVersionMatch", None, detail);
        if !version_match.is_empty() {
            errors.push_if(self.resource_version.is_empty(), || {
                forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
            });
            errors.push_if(!self.continue_token.is_empty(), || {
                forbidden("resourceVersionMatch is forbidden when continue is provided")
            });
            errors.push_if(self.version_match == VersionMatch::Unset, || {
                unsupported("resourceVersionMatch", version_match.into(), &["Exact", "NotOlderThan", ""])
            });
            errors.push_if(self.version_match == VersionMatch::Exact && self.resource_version == "0", || {
                forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
            });
        }
        errors.push_if(self.send_initial_events.is_some(), || {
            error(ErrorType::Forbidden, "sendInitialEvents", None, "sendInitialEvents is forbidden for list")
        });
    }

    fn check_watch(&self, version_match: &str, errors: &mut Errors) {
        let forbidden = |detail: &str| error(ErrorType::Forbidden, "resourceVersionMatch", None, detail);
        let not_older_than = self.version_match == VersionMatch::NotOlderThan;
        errors.push_if(self.send_initial_events.is_some() && !not_older_than, || {
            forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        });
        if !version_match.is_empty() {
            errors.push_if(self.send_initial_events.is_none(), || {
                forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided")
            });
            errors.push_if(!not_older_than, || {
                unsupported("resourceVersionMatch", version_match.into(), &["NotOlderThan"])
            });
            errors.push_if(!self.continue_token.is_empty(), || {
                forbidden("resourceVersionMatch is forbidden when continue is provided")
            });
        }
    }
}

fn unsupported(field: &str, value: Value, supported: &[&str]) -> FieldError {
    let list: Vec<String> = supported.iter().map(|s| crate::field::quote(s)).collect();
    error(ErrorType::NotSupported, field, Some(value), &format!("supported values: {}", list.join(", ")))
}

/// `fieldValidation`: how unknown and repeated fields are treated. The default is kube-apiserver's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Unknown fields are dropped.
    Ignore,
    /// Unknown fields are dropped, with a warning for each.
    #[default]
    Warn,
    /// The request is rejected with 400.
    Strict,
}

/// Options that create, update and patch share.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// `dryRun=All`: nothing is stored.
    pub dry_run: bool,
    /// `fieldValidation` (KEP-2885).
    pub field_validation: FieldValidation,
    /// `fieldManager`: the owner of the written fields; empty if the client does not set it.
    pub field_manager: String,
    /// `force`: whether an apply takes over fields of other managers.
    pub force: Option<bool>,
}

/// The option type of meta/v1 that the options of a write are validated as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteKind {
    /// `CreateOptions`.
    Create,
    /// `UpdateOptions`.
    Update,
    /// `PatchOptions`.
    Patch,
    /// `PatchOptions` of a server-side apply, which need a field manager.
    Apply,
}

impl WriteOptions {
    /// Parses the options of a write.
    ///
    /// # Errors
    /// [`Error::Invalid`] of the kind's options.
    pub fn parse(query: &Query, kind: WriteKind) -> Result<WriteOptions> {
        let mut errors = Errors::new();
        let force = query.flag("force");
        let field_manager = query.text("fieldManager");
        match kind {
            WriteKind::Patch => errors.push_if(force.is_some(), || {
                error(ErrorType::Forbidden, "force", None, "may not be specified for non-apply patch")
            }),
            WriteKind::Apply => errors.push_if(field_manager.is_empty(), || {
                error(ErrorType::Required, "fieldManager", None, "is required for apply patch")
            }),
            WriteKind::Create | WriteKind::Update => {}
        }
        check_field_manager(&field_manager, &mut errors);
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        check_dry_run(&dry_run, &mut errors);
        let field_validation = match query.first("fieldValidation").unwrap_or("") {
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            "" | "Warn" => FieldValidation::Warn,
            other => {
                errors.push(unsupported("fieldValidation", other.into(), &["", "Ignore", "Strict", "Warn"]));
                FieldValidation::Warn
            }
        };
        let name = match kind {
            WriteKind::Create => "CreateOptions",
            WriteKind::Update => "UpdateOptions",
            WriteKind::Patch | WriteKind::Apply => "PatchOptions",
        };
        reject_invalid(name, errors)?;
        Ok(WriteOptions { dry_run: !dry_run.is_empty(), field_validation, field_manager, force })
    }
}

fn check_field_manager(manager: &str, errors: &mut Errors) {
    errors.push_if(manager.len() > 128, || {
        error(ErrorType::TooLong, "fieldManager", None, "may not be more than 128 bytes")
    });
    for (i, c) in manager.char_indices() {
        errors.push_if(c.is_control(), || {
            let detail = format!("invalid character U+{:04X} (at position {i})", u32::from(c));
            error(ErrorType::Invalid, "fieldManager", Some(manager.into()), &detail)
        });
    }
}

fn check_dry_run(values: &[&str], errors: &mut Errors) {
    if values.iter().any(|v| *v != "All") {
        errors.push(unsupported("dryRun", json!(values), &["All"]));
    }
}

/// `propagationPolicy`: how deletion cascades to dependents.
///
/// Source: `metav1.DeletionPropagation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// The owner stays, with finalizer `foregroundDeletion`, until its blocking dependents are
    /// deleted.
    Foreground,
    /// The garbage collector deletes the dependents after the owner.
    Background,
    /// The dependents lose their owner reference and stay.
    Orphan,
}

/// Options of delete and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `preconditions.uid`: the object must have this UID.
    pub uid: Option<String>,
    /// `preconditions.resourceVersion`: the object must have this version.
    pub resource_version: Option<String>,
    /// `propagationPolicy`, or its deprecated form `orphanDependents`.
    pub propagation: Option<Propagation>,
    /// Whether the client sent `orphanDependents: false`.
    pub legacy_background: bool,
    /// `dryRun: [All]`: nothing is stored.
    pub dry_run: bool,
}

impl DeleteOptions {
    /// Returns the options in a query, for a request without a body.
    ///
    /// # Errors
    /// As [`DeleteOptions::from_value`], and [`Error::BadRequest`] for a number that cannot be
    /// parsed.
    pub fn from_query(query: &Query) -> Result<DeleteOptions> {
        let mut options = json!({});
        if let Some(grace) = query.int("gracePeriodSeconds")? {
            options["gracePeriodSeconds"] = grace.into();
        }
        if let Some(orphan) = query.flag("orphanDependents") {
            options["orphanDependents"] = orphan.into();
        }
        if let Some(policy) = query.first("propagationPolicy") {
            options["propagationPolicy"] = policy.into();
        }
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        if !dry_run.is_empty() {
            options["dryRun"] = dry_run.into();
        }
        for (key, member) in [("uid", "uid"), ("resourceVersion", "resourceVersion")] {
            if let Some(value) = query.first(key).filter(|v| !v.is_empty()) {
                options["preconditions"][member] = value.into();
            }
        }
        DeleteOptions::from_value(&options)
    }

    /// Returns the options in a body that has been decoded as `DeleteOptions`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an unknown policy, for options with both `orphanDependents` and
    /// `propagationPolicy`, and for a `dryRun` other than `All`.
    pub fn from_value(options: &Value) -> Result<DeleteOptions> {
        let mut errors = Errors::new();
        let orphan = options.get("orphanDependents").and_then(Value::as_bool);
        let policy = options.get("propagationPolicy").and_then(Value::as_str);
        if let (Some(_), Some(policy)) = (orphan, policy) {
            errors.push(error(
                ErrorType::Invalid,
                "propagationPolicy",
                Some(policy.into()),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        let propagation = match policy {
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(unsupported("propagationPolicy", other.into(), &supported));
                None
            }
            None => orphan.map(|o| if o { Propagation::Orphan } else { Propagation::Background }),
        };
        let dry_run: Vec<&str> = options
            .get("dryRun")
            .and_then(Value::as_array)
            .map_or(vec![], |values| values.iter().filter_map(Value::as_str).collect());
        check_dry_run(&dry_run, &mut errors);
        reject_invalid("DeleteOptions", errors)?;
        let precondition = |name| {
            options.pointer(&format!("/preconditions/{name}")).and_then(Value::as_str).map(str::to_owned)
        };
        Ok(DeleteOptions {
            grace_period_seconds: options.get("gracePeriodSeconds").and_then(Value::as_i64),
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            propagation,
            legacy_background: orphan == Some(false),
            dry_run: !dry_run.is_empty(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message<T>(result: Result<T>) -> String {
        result.err().map(|e| e.to_string()).unwrap_or_default()
    }

    /// Compares with the output of Go 1.26.
    #[test]
    fn a_query_has_the_pairs_that_go_reads() {
        for (query, want) in [
            ("a=1&a=2&b", "a=1 a=2 b="),
            ("a=x+y&b=%2B&&c=%3b", "a=x y b=+ c=;"),
            ("fieldSelector=metadata.name=x,metadata.namespace!=%zz&b=1", "b=1"),
            ("fieldSelector=metadata.name=x;y&b=1", "b=1"),
            ("a=%&b=%4&%zz=1&c=%41", "c=A"),
        ] {
            let pairs: Vec<String> =
                Query::parse(query).0.iter().map(|(key, value)| format!("{key}={value}")).collect();
            assert_eq!(pairs.join(" "), want, "{query}");
        }
    }

    #[test]
    fn revisions_are_parsed_as_go_parses_them() {
        for (text, want) in
            [("", Some(0)), ("5", Some(5)), ("05", Some(5)), ("+5", None), ("-0", None), ("x", None)]
        {
            assert_eq!(parse_revision(text).ok(), want, "{text}");
        }
    }

    #[test]
    fn timeouts_are_parsed_as_go_durations() {
        let invalid = |why: &str| Err(format!("invalid timeout specified in the request URL - time: {why}"));
        for (query, want) in [
            ("", Ok(None)),
            ("timeout=", Ok(None)),
            ("timeout=1m5s", Ok(Some(Duration::from_secs(65)))),
            ("timeout=-1m30.5s", Ok(Some(Duration::ZERO))),
            ("timeout=0", Ok(Some(Duration::ZERO))),
            ("timeout=x", invalid("invalid duration \"x\"")),
            ("timeout=5", invalid("missing unit in duration \"5\"")),
            ("timeout=5d", invalid("unknown unit \"d\" in duration \"5d\"")),
            ("timeout=%2B", invalid("invalid duration \"+\"")),
        ] {
            assert_eq!(Query::parse(query).timeout().map_err(|error| error.to_string()), want, "{query}");
        }
    }

    #[test]
    fn list_options_are_validated() {
        for (query, want) in [
            ("limit=abc", "strconv.ParseInt: parsing \"abc\": invalid syntax"),
            (
                "timeoutSeconds=99999999999999999999",
                "strconv.ParseInt: parsing \"99999999999999999999\": value out of range",
            ),
            (
                "resourceVersionMatch=Exact",
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
            ),
            (
                "watch=1&sendInitialEvents=true",
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
            ("resourceVersion=5&resourceVersionMatch=Exact&limit=1", ""),
        ] {
            let query_parsed = Query::parse(query);
            let watch = query_parsed.flag("watch").unwrap_or(false);
            assert_eq!(message(ListOptions::parse(&query_parsed, watch)), want, "{query}");
        }
    }

    #[test]
    fn write_options_are_validated() {
        for (query, want) in [
            ("dryRun=All&dryRun=All", ""),
            (
                "dryRun=",
                "CreateOptions.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: [\"\"]: supported values: \"All\"",
            ),
            (
                "fieldValidation=strict",
                "CreateOptions.meta.k8s.io \"\" is invalid: fieldValidation: Unsupported value: \"strict\": supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"",
            ),
        ] {
            assert_eq!(
                message(WriteOptions::parse(&Query::parse(query), WriteKind::Create)),
                want,
                "{query}"
            );
        }
    }

    #[test]
    fn delete_options_are_validated() {
        let parsed = DeleteOptions::from_query(&Query::parse("propagationPolicy=Orphan&uid=u&dryRun=All"));
        let parsed = parsed.expect("good options");
        assert_eq!(
            (parsed.propagation, parsed.uid.as_deref(), parsed.dry_run),
            (Some(Propagation::Orphan), Some("u"), true)
        );
        let both = DeleteOptions::from_query(&Query::parse("propagationPolicy=Orphan&orphanDependents=true"));
        assert!(message(both).contains("cannot be both set"));
    }
}
