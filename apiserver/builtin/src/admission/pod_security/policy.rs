//! The policy in a namespace's `pod-security.kubernetes.io/*` labels.

use std::fmt;

use coracle_apimachinery::field::{Errors, Field, Path};
use serde_json::Value;

/// The levels of the Pod Security Standards, ordered by strictness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The version of the standards: that of a minor version of Kubernetes 1, or the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Version {
    Minor(u32),
    Latest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LevelVersion {
    pub(super) level: Level,
    pub(super) version: Version,
}

impl LevelVersion {
    const PRIVILEGED: LevelVersion = LevelVersion { level: Level::Privileged, version: Version::Latest };
}

impl fmt::Display for LevelVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        };
        match self.version {
            Version::Latest => write!(f, "{level}:latest"),
            Version::Minor(minor) => write!(f, "{level}:v1.{minor}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Policy {
    pub(super) enforce: LevelVersion,
    pub(super) audit: LevelVersion,
    pub(super) warn: LevelVersion,
}

impl Policy {
    /// Parses the labels. Where they are invalid, `enforce` falls back to the restricted level and
    /// `warn` to the privileged one.
    pub(super) fn of_labels(labels: &Value) -> (Policy, Errors) {
        let labels = Field::at(Some(labels), Path::of("metadata.labels"));
        let mut reader = Reader { labels, errors: Errors::new() };
        let enforce = reader.mode("enforce", Level::Restricted);
        let audit = reader.mode("audit", Level::Privileged);
        let mut warn = reader.mode("warn", Level::Privileged);
        // The enforced level is also that of the warnings, which templates get.
        if let (Some(level), None) = (enforce.readable_level, warn.level)
            && level > Level::Privileged
        {
            warn.level = Some(level);
            warn.version = warn.version.or(enforce.version);
        }
        let whole = |mode: Mode| LevelVersion {
            level: mode.level.unwrap_or(LevelVersion::PRIVILEGED.level),
            version: mode.version.unwrap_or(LevelVersion::PRIVILEGED.version),
        };
        (Policy { enforce: whole(enforce), audit: whole(audit), warn: whole(warn) }, reader.errors)
    }
}

/// One mode's labels; None where there is no label.
#[derive(Clone, Copy)]
struct Mode {
    level: Option<Level>,
    readable_level: Option<Level>,
    version: Option<Version>,
}

struct Reader<'a> {
    labels: Field<'a>,
    errors: Errors,
}

impl<'a> Reader<'a> {
    fn mode(&mut self, mode: &str, unreadable: Level) -> Mode {
        let level = self.label(&format!("pod-security.kubernetes.io/{mode}"));
        let readable_level = level
            .as_ref()
            .and_then(|l| self.read(l, level_of, "must be one of privileged, baseline, restricted"));
        let version = self.label(&format!("pod-security.kubernetes.io/{mode}-version"));
        let version_label = version.is_some();
        let version = version.and_then(|v| self.read(&v, version_of, r#"must be "latest" or "v1.x""#));
        Mode {
            level: level.map(|_| readable_level.unwrap_or(unreadable)),
            readable_level,
            version: version_label.then(|| version.unwrap_or(Version::Latest)),
        }
    }

    fn label(&self, name: &str) -> Option<Field<'a>> {
        let value = self.labels.value()?.get(name)?;
        Some(Field::at(Some(value), self.labels.path().key(name)))
    }

    fn read<T>(&mut self, label: &Field<'_>, parse: fn(&str) -> Option<T>, rule: &str) -> Option<T> {
        let parsed = parse(label.str());
        self.errors.push_if(parsed.is_none(), || label.invalid(rule));
        parsed
    }
}

fn level_of(text: &str) -> Option<Level> {
    match text {
        "privileged" => Some(Level::Privileged),
        "baseline" => Some(Level::Baseline),
        "restricted" => Some(Level::Restricted),
        _ => None,
    }
}

fn version_of(text: &str) -> Option<Version> {
    if text == "latest" {
        return Some(Version::Latest);
    }
    let minor = text.strip_prefix("v1.")?;
    let canonical = minor == "0" || !minor.starts_with(['0', '+']);
    minor.parse().ok().filter(|_| canonical).map(Version::Minor)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn labels_select_levels_and_versions() {
        let name = |suffix: &str| format!("pod-security.kubernetes.io/{suffix}");
        for (labels, want, mistakes) in [
            (json!({}), "privileged:latest privileged:latest", 0),
            (json!({name("enforce"): "baseline"}), "baseline:latest baseline:latest", 0),
            (
                json!({name("enforce"): "restricted", name("enforce-version"): "v1.20"}),
                "restricted:v1.20 restricted:v1.20",
                0,
            ),
            (
                json!({name("enforce"): "restricted", name("warn"): "privileged"}),
                "restricted:latest privileged:latest",
                0,
            ),
            (
                json!({name("enforce"): "baseline", name("enforce-version"): "v1.2", name("warn-version"): "v1.3"}),
                "baseline:v1.2 baseline:v1.3",
                0,
            ),
            (
                json!({name("enforce"): "x", name("enforce-version"): "v1.02"}),
                "restricted:latest privileged:latest",
                2,
            ),
            (
                json!({name("audit"): "x", name("warn"): "y", name("warn-version"): "v2.1"}),
                "privileged:latest privileged:latest",
                3,
            ),
        ] {
            let (policy, errors) = Policy::of_labels(&labels);
            assert_eq!(
                (format!("{} {}", policy.enforce, policy.warn).as_str(), errors.len()),
                (want, mistakes),
                "{labels}"
            );
        }
    }
}
