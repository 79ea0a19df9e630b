//! The flags of auditing, by kube-apiserver's names: those of `serve`, and those of kube-apiserver's own command line.

use std::path::PathBuf;

use coracle_apiserver::audit::{AuditOptions, Format, LogOptions, Mode, Rotation};

use super::declare::{BOTH, options};
use super::form::{File, Parsed, Switch};
use super::range::{self, Range, check};

options! {
    /// The flags of auditing. Format and mode stay texts until all is known, so that errors are those of kube-apiserver.
    #[derive(Clone, Debug)]
    pub struct AuditFlags, docs audit_doc {
        /// The audit policy: which requests are audited, and how much of them is recorded.
        policy_file: Option<PathBuf> = None,
            "audit-policy-file" "FILE" as File, BOTH;
        /// The file of audit events; `-` is standard output. Needs --audit-policy-file.
        path: Option<PathBuf> = None,
            "audit-log-path" "FILE" as File, BOTH.needs("audit-policy-file");
        /// The format of audit events: json, or legacy for lines of text.
        format: String = "json".to_owned(),
            "audit-log-format" "FORMAT" as Parsed, BOTH;
        /// Whether responses wait for their audit events: batch, blocking or blocking-strict.
        mode: String = "blocking".to_owned(),
            "audit-log-mode" "MODE" as Parsed, BOTH;
        /// The maximum age of old audit logs in days; 0 keeps them forever.
        max_age: i64 = 0,
            "audit-log-maxage" "DAYS" as range::AUDIT_LOG_AGE, BOTH;
        /// The maximum number of old audit logs; 0 keeps all.
        max_backups: i64 = 0,
            "audit-log-maxbackup" "N" as range::AUDIT_LOG_BACKUPS, BOTH;
        /// The size in megabytes at which the audit log is rotated; 0 for 100.
        max_size: i64 = 0,
            "audit-log-maxsize" "MB" as range::AUDIT_LOG_MEGABYTES, BOTH;
        /// Compress old audit logs.
        compress: bool = false,
            "audit-log-compress" "" as Switch, BOTH;
    }
}

impl AuditFlags {
    /// Returns the audit options of the server.
    ///
    /// # Errors
    /// One line about the invalid flag, in kube-apiserver's words.
    pub fn options(&self) -> Result<AuditOptions, String> {
        let mode = Mode::parse(&self.mode)?;
        let format = Format::parse(&self.format)?;
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
                AuditFlags { mode: "x".into(), ..flags.clone() },
                "invalid audit log mode x, allowed modes are \"batch,blocking,blocking-strict\"",
            ),
            (
                AuditFlags { format: "x".into(), ..flags.clone() },
                "invalid audit log format x, allowed formats are \"legacy,json\"",
            ),
        ] {
            assert_eq!(flags.options().err().as_deref(), Some(want));
        }
        let log = flags.options().ok().and_then(|options| options.log);
        let defaults = LogOptions { path: "/log".into(), ..LogOptions::default() };
        assert_eq!(log, Some(defaults));
        let none = AuditFlags::default().options();
        assert_eq!(none.as_ref().map(|options| options.log.is_some()), Ok(false));
    }

    #[test]
    fn a_number_out_of_range_is_refused_with_its_range() {
        let checked = check(range::AUDIT_LOG_AGE, "audit-log-maxage", 99_999);
        let want =
            "invalid value '99999' for '--audit-log-maxage': it must be 0, or a whole number from 1 to 36500";
        assert_eq!(checked, Err(want.to_owned()));
    }
}
