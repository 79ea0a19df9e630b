//! URLs.

/// The beginning of the errors of URLs.
pub const URL_CONTEXT: &str = "URL parse error during conversion from string: ";

/// A URL as Go splits it: nothing is normalized.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// As it is written.
    pub text: String,
    /// Without the colon.
    pub scheme: String,
    /// With the port.
    pub host: String,
    /// With its escapes.
    pub path: String,
    query: String,
}

impl Url {
    /// Reads an absolute URL, or an absolute path.
    pub fn parse(text: &str) -> Result<Url, String> {
        let wrong = |why: &str| format!("{URL_CONTEXT}parse {text:?}: {why}");
        if text.is_empty() {
            return Err(wrong("empty url"));
        }
        if text.chars().any(char::is_control) {
            return Err(wrong("net/url: invalid control character in URL"));
        }
        let (scheme, rest) = match text.split_once(':') {
            _ if text.starts_with('/') => ("", text),
            Some((scheme, rest))
                if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                    && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
            {
                (scheme, rest)
            }
            _ if text.starts_with(':') => return Err(wrong("missing protocol scheme")),
            _ => return Err(wrong("invalid URI for request")),
        };
        if !scheme.is_empty() && !rest.starts_with('/') {
            // A URL with a scheme and no path is not split further.
            let rest = rest.split_once('?').map_or("", |(_, query)| query);
            return Ok(Url {
                text: text.to_owned(),
                scheme: scheme.to_ascii_lowercase(),
                host: String::new(),
                path: String::new(),
                query: rest.to_owned(),
            });
        }
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, path) =
            split_host(rest, !scheme.is_empty()).ok_or_else(|| wrong("invalid URI for request"))?;
        check_host(host).map_err(|reason| wrong(&reason))?;
        if let Some(escape) = wrong_escape(path) {
            return Err(wrong(&format!("invalid URL escape {escape:?}")));
        }
        let escaped: String =
            path.chars().map(|c| if c == ' ' { "%20".to_owned() } else { c.to_string() }).collect();
        Ok(Url {
            text: text.to_owned(),
            scheme: scheme.to_ascii_lowercase(),
            host: host.to_owned(),
            path: escaped,
            query: query.to_owned(),
        })
    }

    /// Returns the host without its port and brackets.
    pub fn hostname(&self) -> String {
        if let Some((address, _)) = self.host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            return address.to_owned();
        }
        self.host.split(':').next().unwrap_or("").to_owned()
    }

    /// Returns the port; empty if there is none.
    pub fn port(&self) -> String {
        let rest = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, rest)| rest);
        rest.split_once(':').map_or("", |(_, port)| port).to_owned()
    }

    /// Returns the decoded parameters in their order.
    pub fn query(&self) -> Vec<(String, String)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        });
        decoded.collect()
    }
}

/// Splits the rest of a URL into the host and the path; None if there is no absolute path.
fn split_host(rest: &str, has_scheme: bool) -> Option<(&str, &str)> {
    match rest.strip_prefix("//").filter(|_| has_scheme || !rest.starts_with("///")) {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, path) = rest.split_at(end);
            Some((authority.rsplit_once('@').map_or(authority, |(_, host)| host), path))
        }
        None => rest.starts_with('/').then_some(("", rest)),
    }
}

/// Fails for an invalid host or port.
fn check_host(host: &str) -> Result<(), String> {
    if host.contains([' ', '<', '>', '"']) || (host.starts_with('[') != host.contains(']')) {
        let first = host.chars().find(|c| " <>\"".contains(*c));
        return Err(match first {
            Some(c) => format!("invalid character {:?} in host name", c.to_string()),
            None => "missing ']' in host".to_owned(),
        });
    }
    let after_brackets = host.rsplit_once(']').map_or(host, |(_, port)| port);
    let port = after_brackets.rsplit_once(':').map_or("", |(_, port)| port);
    if !port.bytes().all(|c| c.is_ascii_digit()) {
        return Err(format!("invalid port {:?} after host", format!(":{port}")));
    }
    Ok(())
}

/// Returns the first `%` in a path without two digits, with the characters after it.
fn wrong_escape(path: &str) -> Option<String> {
    let is_escape = |rest: &str| rest.bytes().skip(1).take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    let mut escapes = path.match_indices('%').filter_map(|(at, _)| path.get(at..));
    escapes.find(|rest| !is_escape(rest)).map(|rest| rest.chars().take(3).collect())
}

/// Resolves `%hh`, and in queries `+`.
fn decode(text: &str, plus_is_space: bool) -> Option<String> {
    let bytes = text.as_bytes();
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'%' => {
                let code = std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok()?;
                found.push(u8::from_str_radix(code, 16).ok()?);
                at += 2;
            }
            b'+' if plus_is_space => found.push(b' '),
            other => found.push(*other),
        }
        at += 1;
    }
    Some(String::from_utf8_lossy(&found).into_owned())
}
