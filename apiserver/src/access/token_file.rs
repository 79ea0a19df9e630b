//! Token file: kube-apiserver's `--token-auth-file`.
//!
//! CSV without a header: `token,user,uid[,"group1,group2"]`. Read once, at start.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::authenticate::{TokenAuthenticator, TokenOutcome, UserInfo, own_audiences};

/// The tokens of a file.
#[derive(Debug, Default)]
pub struct TokenFile {
    // Looked up by a keyed hash, so that the time of a miss reveals nothing about the tokens.
    users: HashMap<String, Arc<UserInfo>>,
}

/// Why a token file cannot be used; one line for the operator.
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
        line: usize,
        /// The number of columns.
        found: usize,
    },
    /// A line is quoted incorrectly.
    #[error("token file {path}, line {line}: {what}")]
    Quoting {
        /// The file.
        path: String,
        /// The number of the line.
        line: usize,
        /// The error.
        what: &'static str,
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

    /// Parses `text`; `path` is used in messages only. As in kube-apiserver a later line overrides an earlier one with
    /// the same token, and a line with an empty token gives nobody access.
    pub fn parse(path: &str, text: &str) -> Result<TokenFile, TokenFileError> {
        let mut users = HashMap::new();
        for record in Records::of(text) {
            let (line, columns) = record.map_err(|(line, what)| TokenFileError::Quoting {
                path: path.to_owned(),
                line,
                what,
            })?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                let found = columns.len();
                return Err(TokenFileError::Columns { path: path.to_owned(), line, found });
            };
            if token.is_empty() {
                tracing::warn!(path, line, "empty token in the token file");
                continue;
            }
            let groups = rest.first().map(|g| g.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = UserInfo { name: name.clone(), uid: uid.clone(), groups, ..UserInfo::default() };
            if users.insert(token.clone(), Arc::new(user.authenticated())).is_some() {
                tracing::warn!(path, line, "duplicate token in the token file");
            }
        }
        Ok(TokenFile { users })
    }
}

impl TokenAuthenticator for TokenFile {
    fn authenticate(&self, token: &str, audiences: &[String]) -> TokenOutcome {
        match self.users.get(token) {
            // These tokens have no audience of their own: they are intended for this server.
            Some(user) if own_audiences().iter().any(|own| audiences.contains(own)) => {
                TokenOutcome::Authenticated { user: user.clone(), audiences: own_audiences().into() }
            }
            _ => TokenOutcome::Unrecognized,
        }
    }
}

/// The records of a CSV text (RFC 4180), each with the line on which it starts. Empty lines are no records.
struct Records<'a> {
    rest: &'a str,
    line: usize,
}

type Record = (usize, Vec<String>);

impl<'a> Records<'a> {
    fn of(text: &'a str) -> Records<'a> {
        Records { rest: text, line: 1 }
    }

    /// Reads one column; the character after it decides whether the record continues.
    fn column(&mut self) -> Result<String, (usize, &'static str)> {
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', '\n']).unwrap_or(self.rest.len());
            let (column, rest) = self.rest.split_at(end);
            self.rest = rest;
            let column = if rest.is_empty() || rest.starts_with('\n') {
                column.strip_suffix('\r').unwrap_or(column)
            } else {
                column
            };
            return if column.contains('"') {
                Err((self.line, "a bare \" in a column"))
            } else {
                Ok(column.into())
            };
        };
        let start = self.line;
        let mut column = String::new();
        let mut rest = quoted;
        loop {
            let Some((text, after)) = rest.split_once('"') else {
                return Err((start, "a quote is not closed"));
            };
            self.line += text.matches('\n').count();
            column.push_str(text);
            match after.strip_prefix('"') {
                Some(after_escaped) => {
                    column.push('"');
                    rest = after_escaped;
                }
                None => {
                    self.rest = after.strip_prefix('\r').filter(|r| r.starts_with('\n')).unwrap_or(after);
                    break;
                }
            }
        }
        if self.rest.is_empty() || self.rest.starts_with([',', '\n']) {
            Ok(column)
        } else {
            Err((self.line, "text after a closing quote"))
        }
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Record, (usize, &'static str)>;

    fn next(&mut self) -> Option<Self::Item> {
        while let Some(rest) = self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
            self.rest = rest;
            self.line += 1;
        }
        if self.rest.is_empty() {
            return None;
        }
        let line = self.line;
        let mut columns = Vec::new();
        loop {
            match self.column() {
                Ok(column) => columns.push(column),
                Err(error) => {
                    self.rest = "";
                    return Some(Err(error));
                }
            }
            match self.rest.strip_prefix(',') {
                Some(rest) => self.rest = rest,
                None => return Some(Ok((line, columns))),
            }
        }
    }
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
        for (text, want) in [
            (
                "t,u,id\nx,y",
                "token file f, line 2: expected token,user,uid[,\"group1,group2\"], found 2 columns",
            ),
            ("t,u,\"id", "token file f, line 1: a quote is not closed"),
            ("\nt,u,\"id\"x", "token file f, line 2: text after a closing quote"),
            ("t,u,i\"d", "token file f, line 1: a bare \" in a column"),
        ] {
            assert_eq!(TokenFile::parse("f", text).expect_err(text).to_string(), want);
        }
        let missing = TokenFile::read(Path::new("/no/such/file")).expect_err("no file").to_string();
        assert!(missing.starts_with("token file /no/such/file: No such file"), "{missing}");
    }
}
