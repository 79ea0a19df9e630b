//! Token file: kube-apiserver's `--token-auth-file`.
//!
//! CSV without a header: `token,user,uid[,"group1,group2"]`. Read once, at start.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use csv::StringRecord;

use super::authenticate::{TokenAuthenticator, TokenOutcome, UserInfo, own_audiences};

const NEWLINES: [char; 2] = ['\r', '\n'];

/// The tokens of a file.
#[derive(Clone, Debug, Default)]
pub struct TokenFile {
    // Looked up by a keyed hash, so that the time of a miss reveals nothing about the tokens.
    users: Arc<HashMap<String, Arc<UserInfo>>>,
    audiences: Vec<String>,
}

/// The reason why a token file cannot be used: one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("token file {path}: {source}")]
    Unreadable {
        /// The file.
        path: String,
        /// The cause.
        source: std::io::Error,
    },
    #[error(
        "token file {path}, line {line}: expected token,user,uid[,\"group1,group2\"], found {found} columns"
    )]
    /// A line has too few columns.
    Columns {
        /// The file.
        path: String,
        /// The number of the line.
        line: u64,
        /// The number of columns.
        found: usize,
    },
    /// A line is quoted incorrectly.
    #[error("token file {path}, line {line}: quotes enclose a whole column, and are doubled inside of it")]
    Quoting {
        /// The file.
        path: String,
        /// The number of the line.
        line: u64,
    },
    /// The file cannot be parsed.
    #[error("token file {path}: {source}")]
    Malformed {
        /// The file.
        path: String,
        /// The cause.
        source: csv::Error,
    },
}

impl TokenFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<TokenFile, TokenFileError> {
        let shown = path.display().to_string();
        match std::fs::read_to_string(path) {
            Ok(text) => TokenFile::parse(&shown, &text),
            Err(source) => Err(TokenFileError::Unreadable { path: shown, source }),
        }
    }

    /// Replaces the audiences of tokens for this server.
    pub fn with_audiences(mut self, audiences: Vec<String>) -> TokenFile {
        self.audiences = audiences;
        self
    }

    /// Parses `text`; `path` is used in messages only. As in kube-apiserver a later line overrides
    /// an earlier one with the same token, and a line with an empty token gives no access.
    pub fn parse(path: &str, text: &str) -> Result<TokenFile, TokenFileError> {
        // The `csv` crate skips a byte order mark too, but counts it.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut users = HashMap::new();
        let mut reader =
            csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
        let mut columns = StringRecord::new();
        loop {
            let start = reader.position().clone();
            let is_record = reader.read_record(&mut columns);
            if !is_record.map_err(|source| TokenFileError::Malformed { path: path.to_owned(), source })? {
                return Ok(TokenFile { users: Arc::new(users), audiences: own_audiences().into() });
            }
            // Empty lines before a record, which are skipped, are part of it here, and so is its
            // end.
            let range = start.byte() as usize..reader.position().byte() as usize;
            let lines = text.get(range).unwrap_or_default();
            let record = lines.trim_start_matches(NEWLINES);
            let skipped = lines.strip_suffix(record).unwrap_or_default();
            let line = start.line() + skipped.matches('\n').count() as u64;
            if !is_well_formed(record.trim_end_matches(NEWLINES), &columns) {
                return Err(TokenFileError::Quoting { path: path.to_owned(), line });
            }
            let (Some(token), Some(name), Some(uid)) = (columns.get(0), columns.get(1), columns.get(2))
            else {
                let found = columns.len();
                return Err(TokenFileError::Columns { path: path.to_owned(), line, found });
            };
            if token.is_empty() {
                tracing::warn!(path, line, "empty token in the token file");
                continue;
            }
            let groups =
                columns.get(3).map(|g| g.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = UserInfo { name: name.into(), uid: uid.into(), groups, ..UserInfo::default() };
            if users.insert(token.to_owned(), Arc::new(user.authenticated())).is_some() {
                tracing::warn!(path, line, "duplicate token in the token file");
            }
        }
    }
}

impl TokenAuthenticator for TokenFile {
    fn authenticate(&self, token: &str, audiences: &[String]) -> TokenOutcome {
        match self.users.get(token) {
            // These tokens have no audience of their own: they are intended for this server.
            Some(user) if self.audiences.iter().any(|own| audiences.contains(own)) => {
                TokenOutcome::Authenticated { user: user.clone(), audiences: self.audiences.clone() }
            }
            _ => TokenOutcome::Unrecognized,
        }
    }
}

/// Returns `true` if a record consists of exactly these columns, each either bare or in quotes. The
/// `csv` crate also reads what Go's parser rejects: quotes inside a bare column, text after a
/// closing quote, and a quote that is never closed.
fn is_well_formed(record: &str, columns: &StringRecord) -> bool {
    let mut rest = record;
    for (index, column) in columns.iter().enumerate() {
        let after_comma = if index == 0 { Some(rest) } else { rest.strip_prefix(',') };
        let after_column = after_comma.and_then(|rest| match rest.strip_prefix('"') {
            Some(quoted) => quoted.strip_prefix(&*column.replace('"', "\"\""))?.strip_prefix('"'),
            None => rest.strip_prefix(column).filter(|_| !column.contains('"')),
        });
        let Some(after_column) = after_column else { return false };
        rest = after_column;
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_files_are_parsed() {
        for (case, text, token, want) in [
            ("three columns", "t,u,id", "t", Some("u id [system:authenticated]")),
            ("groups", "t,u,id,\"a,b\"\n", "t", Some("u id [a,b,system:authenticated]")),
            ("one group needs no quotes", "t,u,id,a", "t", Some("u id [a,system:authenticated]")),
            ("windows ends", "s,v,i\r\nt,u,id,\"a\"\r\n", "t", Some("u id [a,system:authenticated]")),
            ("empty lines", "\n\nt,u,id\n\n", "t", Some("u id [system:authenticated]")),
            ("a quote in quotes", "t,\"a \"\"b\"\"\",id", "t", Some("a \"b\" id [system:authenticated]")),
            (
                "a comma and an end of line in quotes",
                "t,\"a,\nb\",id",
                "t",
                Some("a,\nb id [system:authenticated]"),
            ),
            ("empty columns", "t,,\"\",", "t", Some("  [,system:authenticated]")),
            ("spaces count", "t, u ,id", "t", Some(" u  id [system:authenticated]")),
            ("a number sign starts no comment", "#t,u,id", "#t", Some("u id [system:authenticated]")),
            ("more columns are ignored", "t,u,id,a,b", "t", Some("u id [a,system:authenticated]")),
            ("a byte order mark", "\u{feff}t,u,id", "t", Some("u id [system:authenticated]")),
            ("the last one wins", "t,u,id\nt,v,id", "t", Some("v id [system:authenticated]")),
            ("an empty token is nobody's", ",u,id", "", None),
            ("unknown", "t,u,id", "T", None),
        ] {
            let file = TokenFile::parse("f", text).expect(case);
            let got = match file.authenticate(token, &own_audiences()) {
                TokenOutcome::Authenticated { user: u, .. } => {
                    Some(format!("{} {} [{}]", u.name, u.uid, u.groups.join(",")))
                }
                _ => None,
            };
            assert_eq!(got.as_deref(), want, "{case}");
        }
    }

    #[test]
    fn tokens_are_meant_for_this_server() {
        let file = TokenFile::parse("f", "t,u,id").expect("a file");
        let own = own_audiences();
        for (requested, want) in
            [(vec![own[0].clone(), "other".to_owned()], Some(own.to_vec())), (vec!["other".to_owned()], None)]
        {
            let got = match file.authenticate("t", &requested) {
                TokenOutcome::Authenticated { audiences, .. } => Some(audiences),
                _ => None,
            };
            assert_eq!(got, want, "{requested:?}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let columns = "expected token,user,uid[,\"group1,group2\"], found 2 columns";
        let quoting = "quotes enclose a whole column, and are doubled inside of it";
        for (text, line, want) in [
            ("t,u,id\nx,y", 2, columns),
            ("\r\n\r\nt,\"u\r\n\",id\r\n\r\nx,\"y\"\r\n", 6, columns),
            ("t,u,\"id", 1, quoting),
            ("t,u,\"id\n\nx,y,z\n", 1, quoting),
            ("\nt,u,\"id\"x", 2, quoting),
            ("t,u,i\"d", 1, quoting),
            ("t,u,i\"\"d", 1, quoting),
            ("t,u,id\nt,\"u\" ,id", 2, quoting),
        ] {
            let want = format!("token file f, line {line}: {want}");
            assert_eq!(TokenFile::parse("f", text).expect_err(text).to_string(), want);
        }
        let missing = TokenFile::read(Path::new("/no/such/file")).expect_err("no file").to_string();
        assert!(missing.starts_with("token file /no/such/file: No such file"), "{missing}");
    }
}
