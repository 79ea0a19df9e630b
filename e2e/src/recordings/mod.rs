//! Recorded conversations with a real control plane, and the comparison of an API server's
//! responses with them.
//!
//! A recording is a list of steps, each with the response of Kubernetes v1.36.
//! `recordings/AREA/NAME.json` are copies that are never edited; the comparison is that of the
//! `replay.py` that belongs to them, step by step.
//!
//! Start at [`play`](player::play). [`names`] replaces what may differ between two runs, [`score`]
//! has the expected scores.

mod body;
pub mod names;
pub mod path;
pub mod player;
pub mod score;
mod watch;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::binary::workspace;
use crate::cluster::Builder;

/// The token of the administrator, the user of most requests.
pub const ADMIN_TOKEN: &str = "admintoken";

/// Returns the directory of the recordings.
pub fn directory() -> PathBuf {
    workspace().join("e2e/recordings")
}

/// Returns the directories of the areas.
pub fn areas() -> Result<Vec<PathBuf>> {
    let mut areas = Vec::new();
    for entry in fs::read_dir(directory())? {
        areas.extend(Some(entry?.path()).filter(|path| path.is_dir()));
    }
    areas.sort();
    Ok(areas)
}

/// Returns a builder of a control plane with the flags that the recordings expect.
pub fn server(builder: Builder) -> Builder {
    builder
        .flag("--token-auth-file", directory().join("tokens.csv"))
        .flag("--authorization-mode", "RBAC")
        .flag("--default-storage-class", "none")
        .flag("--nodes", "1")
        // A kubelet that only starts and stops pods was beside kube-apiserver when they were made.
        .flag("--simulation-profile", "inert")
}

/// A recording.
#[derive(Debug, Deserialize)]
pub struct Recording {
    /// The path of the file.
    #[serde(skip)]
    pub file: PathBuf,
    /// The steps in their original text: a namespace is created if `$NS` occurs in them.
    steps: Vec<Box<RawValue>>,
    #[serde(default, rename = "noNamespace")]
    no_namespace: bool,
    #[serde(default = "yes", rename = "defaultServiceAccount")]
    default_service_account: bool,
    #[serde(default, rename = "managedFields")]
    managed_fields: bool,
    #[serde(default)]
    ignore: Vec<String>,
    #[serde(default)]
    cleanup: Vec<String>,
}

/// One step: exactly one of `sleep`, `watch`, `collect`, `req` and `wait` is set.
#[derive(Debug, Deserialize)]
pub struct Step {
    sleep: Option<f64>,
    watch: Option<String>,
    #[serde(rename = "as")]
    name: Option<String>,
    collect: Option<String>,
    #[serde(default)]
    count: usize,
    req: Option<String>,
    wait: Option<String>,
    #[serde(default)]
    until: BTreeMap<String, Value>,
    timeout: Option<f64>,
    body: Option<Box<RawValue>>,
    raw: Option<String>,
    base64: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, Option<String>>,
    #[serde(default, deserialize_with = "in_order")]
    save: Vec<(String, String)>,
    pick: Option<Vec<String>>,
    #[serde(default)]
    ignore: Vec<String>,
    #[serde(default, rename = "managedFields")]
    managed_fields: bool,
    #[serde(default, rename = "pickHeaders")]
    pick_headers: Vec<String>,
    expect: Option<Value>,
}

impl Step {
    /// Returns `true` if the recording has all events that the step collects.
    fn expects_events(&self) -> bool {
        let events = self.expect.as_ref().and_then(|expect| expect["events"].as_array());
        events.is_some_and(|events| events.len() == self.count)
    }
}

impl Recording {
    /// Reads a recording.
    pub fn read(file: &Path) -> Result<Recording> {
        let name = || file.display().to_string();
        let text = fs::read_to_string(file).with_context(name)?;
        let mut recording: Recording = serde_json::from_str(&text).with_context(name)?;
        file.clone_into(&mut recording.file);
        Ok(recording)
    }

    /// Reads the recordings of an area, in the order of their names.
    pub fn read_area(area: &Path) -> Result<Vec<Recording>> {
        let mut files = fs::read_dir(area)
            .with_context(|| area.display().to_string())?
            .map(|entry| Ok(entry?.path()))
            .collect::<Result<Vec<_>>>()?;
        files.retain(|file| file.extension().is_some_and(|e| e == "json"));
        files.sort();
        files.iter().map(|file| Recording::read(file)).collect()
    }

    /// Returns the name as `area/name`.
    pub fn name(&self) -> String {
        let area = self.file.parent().and_then(Path::file_name).unwrap_or_default();
        let name = self.file.file_stem().unwrap_or_default();
        format!("{}/{}", area.to_string_lossy(), name.to_string_lossy())
    }

    /// Returns `true` if the recording changes the state of the whole cluster, so that no other one
    /// may be played at the same time.
    pub fn runs_alone(&self) -> bool {
        self.name().starts_with("volumes/default-class-")
    }

    /// Returns the steps, in order.
    pub fn steps(&self) -> Result<Vec<Step>> {
        let steps = self.steps.iter().map(|step| serde_json::from_str(step.get()));
        steps.collect::<Result<_, _>>().with_context(|| self.file.display().to_string())
    }

    fn needs_namespace(&self) -> bool {
        !self.no_namespace && self.steps.iter().any(|step| step.get().contains("$NS"))
    }
}

impl Step {
    /// Returns `true` if the step has a response to compare.
    pub fn is_compared(&self) -> bool {
        self.expect.is_some()
    }

    /// Returns `true` if it waits for an action of the server.
    pub fn is_wait(&self) -> bool {
        self.wait.is_some()
    }
}

/// The request, as in the recording.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.req, &self.wait, &self.collect) {
            (Some(request), ..) => f.write_str(request),
            (_, Some(request), _) => f.write_str(request),
            (.., Some(watch)) => write!(f, "collect {watch}"),
            _ => f.write_str("no response"),
        }
    }
}

fn yes() -> bool {
    true
}

/// Deserializes the members of an object in their order.
fn in_order<'de, D: Deserializer<'de>>(source: D) -> Result<Vec<(String, String)>, D::Error> {
    struct Members;
    impl<'de> Visitor<'de> for Members {
        type Value = Vec<(String, String)>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut members = Vec::new();
            while let Some(member) = map.next_entry()? {
                members.push(member);
            }
            Ok(members)
        }
    }
    source.deserialize_map(Members)
}
