//! Fuzz targets: what holds for any bytes that a client sends, or that a damaged disk holds.
//!
//! A target is a function of bytes. It panics where its property does not hold, and returns whether
//! the bytes were valid enough for the property to be tested: a target that refuses all of its
//! inputs tests nothing, and `tests/corpus.rs` fails for it.
//!
//! | file | targets |
//! | --- | --- |
//! | `requests.rs` | request lines with their options; whole requests through the server |
//! | `selectors.rs` | label and field selectors |
//! | `bodies.rs` | JSON, YAML and protobuf |
//! | `responses.rs` | reviews of webhooks, documents of aggregated servers |
//! | `patches.rs` | JSON patch, merge patch, strategic merge patch |
//! | `apply.rs` | server-side apply, `managedFields` |
//! | `expressions.rs` | CEL |
//! | `schemas.rs` | schemas of CustomResourceDefinitions, and objects by them |
//! | `lists.rs` | options of lists, continue tokens |
//! | `recovery.rs` | backups, and stores with damaged files |
//!
//! They run in three ways: over the kept inputs in `corpus/` and mutations of these in
//! `cargo test`, for longer with `FUZZ_SECONDS`, and guided by coverage with `cargo fuzz` (the
//! folder `e2e/fuzz/` has a program for each target). `docs/reliability.md` has the commands and
//! what was found.
//!
//! Inputs of several parts, such as an object and a patch, have a line `%%` between them.

#![warn(missing_docs)]

mod apply;
mod bodies;
mod expressions;
mod lists;
mod patches;
mod recovery;
mod requests;
mod responses;
mod schemas;
mod selectors;
mod server;

use coracle_apimachinery::codec::json;
use coracle_apimachinery::codec::limits::{MAX_COLLECTIONS, MAX_DEPTH, measure};
use coracle_apimachinery::schema::{StructId, schema};
use serde_json::Value;

/// A property of any bytes.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of its program in `../fuzz/` and of its folder in `corpus/`.
    pub name: &'static str,
    /// Panics where the property does not hold. Whether the input was valid, so that the property
    /// was tested.
    pub run: fn(&[u8]) -> bool,
}

/// All targets.
pub const TARGETS: [Target; 18] = [
    Target { name: "request_line", run: requests::request_line },
    Target { name: "request", run: requests::request },
    Target { name: "label_selector", run: selectors::label_selector },
    Target { name: "field_selector", run: selectors::field_selector },
    Target { name: "json_body", run: bodies::json_body },
    Target { name: "yaml_body", run: bodies::yaml_body },
    Target { name: "protobuf_body", run: bodies::protobuf_body },
    Target { name: "server_response", run: responses::server_response },
    Target { name: "json_patch", run: patches::json_patch },
    Target { name: "merge_patch", run: patches::merge_patch },
    Target { name: "strategic_merge_patch", run: patches::strategic_merge_patch },
    Target { name: "server_side_apply", run: apply::server_side_apply },
    Target { name: "managed_fields", run: apply::managed_fields },
    Target { name: "cel_expression", run: expressions::cel_expression },
    Target { name: "crd_schema", run: schemas::crd_schema },
    Target { name: "list_options", run: lists::list_options },
    Target { name: "backup", run: recovery::backup },
    Target { name: "store_recovery", run: recovery::store_recovery },
];

/// Runs a target by its name.
///
/// # Panics
/// If its property does not hold, or there is no such target.
pub fn run(name: &str, data: &[u8]) -> bool {
    let target = TARGETS.iter().find(|target| target.name == name).expect("the name of a target");
    (target.run)(data)
}

/// Returns the first parts of an input, which are separated by lines of `%%`.
fn parts<const N: usize>(data: &[u8]) -> Option<[&[u8]; N]> {
    const SEPARATOR: &[u8] = b"\n%%\n";
    let mut rest = data;
    let mut parts = [&b""[..]; N];
    let (last, all_but_last) = parts.split_last_mut()?;
    for part in all_but_last {
        let end = rest.windows(SEPARATOR.len()).position(|window| window == SEPARATOR)?;
        (*part, rest) = (&rest[..end], &rest[end + SEPARATOR.len()..]);
    }
    *last = rest;
    Some(parts)
}

/// Decodes a document of a type that is not known yet, as the server does.
fn document(text: &[u8]) -> Option<Value> {
    json::decode_value(text).ok().map(|decoded| decoded.value)
}

/// Returns the built-in type that a document says it has.
fn type_of(document: &Value) -> Option<StructId> {
    let text = |member: &str| document.get(member).and_then(Value::as_str);
    let id = schema().kind_of(text("apiVersion")?, text("kind")?)?;
    // The kinds of options have no metadata.
    schema().get(id).field("metadata").map(|_| id)
}

/// Fails for a value beyond the limits of documents.
fn assert_within_limits(value: &Value) {
    let size = measure(value);
    assert!(size.depth <= MAX_DEPTH, "{} levels", size.depth);
    assert!(size.collections <= MAX_COLLECTIONS, "{} objects and lists", size.collections);
}
