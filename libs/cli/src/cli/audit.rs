//! The flags of auditing, by kube-apiserver's names: those of `serve`, and those of kube-apiserver's own command line.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use coracle_apiserver::audit::{AuditOptions, Format, LogOptions, Mode, Rotation};
use coracle_control_plane::range::{self, Range};

use crate::range::{check, within};

/// The flags of auditing. Numbers stay texts until all is known, so that errors are those of kube-apiserver.
#[derive(Clone, Debug, Default, Args)]
pub struct AuditFlags {
    /// The audit policy: which requests are audited, and how much of them is recorded.
    #[arg(long = "audit-policy-file", value_name = "FILE")]
    pub policy_file: Option<PathBuf>,
    /// The file of audit events; `-` is standard output. Needs --audit-policy-file.
    #[arg(long = "audit-log-path", value_name = "FILE")]
    pub path: Option<PathBuf>,
    /// The format of audit events: json, or legacy for lines of text [default: json].
    #[arg(long = "audit-log-format", value_name = "FORMAT")]
    pub format: Option<String>,
    /// Whether responses wait for their audit events: batch, blocking or blocking-strict [default: blocking].
    #[arg(long = "audit-log-mode", value_name = "MODE")]
    pub mode: Option<String>,
    /// How many days old audit logs are kept; 0 for ever.
    #[arg(long = "audit-log-maxage", value_name = "DAYS", default_value_t = 0, allow_hyphen_values = true,
          value_parser = within(range::AUDIT_LOG_AGE))]
    pub max_age: i64,
    /// How many old audit logs are kept; 0 for all.
    #[arg(long = "audit-log-maxbackup", value_name = "N", default_value_t = 0, allow_hyphen_values = true,
          value_parser = within(range::AUDIT_LOG_BACKUPS))]
    pub max_backups: i64,
    /// From how many megabytes on a new audit log is begun; 0 for 100.
    #[arg(long = "audit-log-maxsize", value_name = "MB", default_value_t = 0, allow_hyphen_values = true,
          value_parser = within(range::AUDIT_LOG_MEGABYTES))]
    pub max_size: i64,
    /// Compress old audit logs.
    #[arg(long = "audit-log-compress", action = ArgAction::SetTrue)]
    pub compress: bool,
}

impl AuditFlags {
    /// How the server audits.
    ///
    /// # Errors
    /// One line about the flag that is wrong, in kube-apiserver's words.
    pub fn options(&self) -> Result<AuditOptions, String> {
        let mode = self.mode.as_deref().map_or(Ok(Mode::default()), Mode::parse)?;
        let format = self.format.as_deref().map_or(Ok(Format::default()), Format::parse)?;
        let rotation = Rotation {
            max_age: natural(range::AUDIT_LOG_AGE, "audit-log-maxage", self.max_age)?,
            max_backups: natural(range::AUDIT_LOG_BACKUPS, "audit-log-maxbackup", self.max_backups)?,
            max_size: natural(range::AUDIT_LOG_MEGABYTES, "audit-log-maxsize", self.max_size)?,
            compress: self.compress,
        };
        let log = |path: &PathBuf| LogOptions { path: path.clone(), mode, format, rotation };
        let path = self.path.as_ref().filter(|path| !path.as_os_str().is_empty());
        Ok(AuditOptions { policy_file: self.policy_file.clone(), log: path.map(log) })
    }
}

fn natural<T: TryFrom<i64>>(range: Range<i64>, flag: &str, number: i64) -> Result<T, String> {
    let negative = || format!("--{flag} {number} can't be a negative number");
    if number < 0 {
        return Err(negative());
    }
    T::try_from(check(range, flag, number)?).map_err(|_| negative())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_checked_as_kube_apiserver_checks_them() {
        let flags = AuditFlags { path: Some("/log".into()), ..AuditFlags::default() };
        for (flags, want) in [
            (AuditFlags { max_age: -1, ..flags.clone() }, "--audit-log-maxage -1 can't be a negative number"),
            (
                AuditFlags { max_size: -2, ..flags.clone() },
                "--audit-log-maxsize -2 can't be a negative number",
            ),
            (
                AuditFlags { mode: Some("x".into()), ..flags.clone() },
                "invalid audit log mode x, allowed modes are \"batch,blocking,blocking-strict\"",
            ),
            (
                AuditFlags { format: Some("x".into()), ..flags.clone() },
                "invalid audit log format x, allowed formats are \"legacy,json\"",
            ),
        ] {
            assert_eq!(flags.options().err().as_deref(), Some(want));
        }
        let log = flags.options().ok().and_then(|options| options.log);
        assert_eq!(log.map(|log| log.path), Some("/log".into()));
        let none = AuditFlags::default().options();
        assert_eq!(none.as_ref().map(|options| options.log.is_some()), Ok(false));
    }
}
