//! The values of Kubernetes' libraries: URLs, versions and named formats.

const URL_CONTEXT: &str = "URL parse error during conversion from string: ";

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
            // What has a scheme and no path is not split further.
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
            match rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///")) {
                Some(rest) => {
                    let end = rest.find('/').unwrap_or(rest.len());
                    let (authority, path) = rest.split_at(end);
                    (authority.rsplit_once('@').map_or(authority, |(_, host)| host), path)
                }
                None if rest.starts_with('/') => ("", rest),
                None => return Err(wrong("invalid URI for request")),
            };
        if host.contains([' ', '<', '>', '"']) || (host.starts_with('[') != host.contains(']')) {
            let first = host.chars().find(|c| " <>\"".contains(*c));
            return Err(wrong(&match first {
                Some(c) => format!("invalid character {:?} in host name", c.to_string()),
                None => "missing ']' in host".to_owned(),
            }));
        }
        let port = host
            .rsplit_once(']')
            .map_or(host, |(_, port)| port)
            .rsplit_once(':')
            .map_or("", |(_, port)| port);
        if !port.bytes().all(|c| c.is_ascii_digit()) {
            return Err(wrong(&format!("invalid port {:?} after host", format!(":{port}"))));
        }
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

    /// The host without its port and brackets.
    pub fn hostname(&self) -> String {
        if let Some((address, _)) = self.host.strip_prefix('[').and_then(|host| host.split_once(']')) {
            return address.to_owned();
        }
        self.host.split(':').next().unwrap_or("").to_owned()
    }

    /// The port, or nothing.
    pub fn port(&self) -> String {
        let rest = self.host.rsplit_once(']').map_or(self.host.as_str(), |(_, rest)| rest);
        rest.split_once(':').map_or("", |(_, port)| port).to_owned()
    }

    /// The parameters, decoded, in their order.
    pub fn query(&self) -> Vec<(String, String)> {
        let pairs = self.query.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, true)?, decode(value, true)?))
        });
        decoded.collect()
    }
}

/// The first `%` in a path without two digits, with what follows it.
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

/// A semantic version; leniently also with a leading `v`, zeros in front, and parts left out.
///
/// Source: `github.com/blang/semver`; `k8s.io/apiserver/pkg/cel/library/semverlib.go`.
pub fn parse_semver(text: &str, lenient: bool) -> Result<semver::Version, String> {
    if !lenient {
        return strict_semver(text);
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".into());
    }
    while parts.len() < 3 {
        parts.push("0".into());
    }
    strict_semver(&parts.join("."))
}

/// A number without the zeros in front of it.
fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}

fn strict_semver(text: &str) -> Result<semver::Version, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("No Major.Minor.Patch elements found".into());
    };
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let zeros = |text: &str| text.len() > 1 && text.starts_with('0');
    let number = |part: &str, upper: &str, lower: &str| {
        if part.is_empty() || !digits(part) {
            return Err(format!("Invalid character(s) found in {lower} number {part:?}"));
        }
        if zeros(part) {
            return Err(format!("{upper} number must not contain leading zeroes {part:?}"));
        }
        part.parse::<u64>().map_err(|_| format!("strconv.ParseUint: parsing {part:?}: value out of range"))
    };
    let major = number(major, "Major", "major")?;
    let minor = number(minor, "Minor", "minor")?;
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let mut version = semver::Version::new(major, minor, number(patch, "Patch", "patch")?);
    let plain = |part: &str| part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if part.is_empty() {
            return Err("Prerelease is empty".into());
        }
        if digits(part) && zeros(part) {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {part:?}"));
        }
        if !plain(part) {
            return Err(format!("Invalid character(s) found in prerelease {part:?}"));
        }
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".into());
        }
        if !plain(part) {
            return Err(format!("Invalid character(s) found in build meta data {part:?}"));
        }
    }
    let wrong = |error: semver::Error| error.to_string();
    version.pre = semver::Prerelease::new(pre.unwrap_or("")).map_err(wrong)?;
    version.build = semver::BuildMetadata::new(build.unwrap_or("")).map_err(wrong)?;
    Ok(version)
}

/// A format that texts are validated against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFormat {
    /// `dns1123Label`
    Dns1123Label,
    /// `dns1123Subdomain`
    Dns1123Subdomain,
    /// `dns1035Label`
    Dns1035Label,
    /// `qualifiedName`
    QualifiedName,
    /// `dns1123LabelPrefix`
    Dns1123LabelPrefix,
    /// `dns1123SubdomainPrefix`
    Dns1123SubdomainPrefix,
    /// `dns1035LabelPrefix`
    Dns1035LabelPrefix,
    /// `labelValue`
    LabelValue,
    /// `uri`
    Uri,
    /// `uuid`
    Uuid,
    /// `byte`
    Byte,
    /// `date`
    Date,
    /// `datetime`
    DateTime,
}

const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";
const NAME: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";

impl NamedFormat {
    /// The format of a name.
    pub fn named(name: &str) -> Option<NamedFormat> {
        Some(match name {
            "dns1123Label" => NamedFormat::Dns1123Label,
            "dns1123Subdomain" => NamedFormat::Dns1123Subdomain,
            "dns1035Label" => NamedFormat::Dns1035Label,
            "qualifiedName" => NamedFormat::QualifiedName,
            "dns1123LabelPrefix" => NamedFormat::Dns1123LabelPrefix,
            "dns1123SubdomainPrefix" => NamedFormat::Dns1123SubdomainPrefix,
            "dns1035LabelPrefix" => NamedFormat::Dns1035LabelPrefix,
            "labelValue" => NamedFormat::LabelValue,
            "uri" => NamedFormat::Uri,
            "uuid" => NamedFormat::Uuid,
            "byte" => NamedFormat::Byte,
            "date" => NamedFormat::Date,
            "datetime" => NamedFormat::DateTime,
            _ => return None,
        })
    }

    /// The name that the format is compared by, and the size of the pattern that it costs as much as.
    fn facts(self) -> (&'static str, u64) {
        match self {
            NamedFormat::Dns1123Label => ("DNS1123Label", 30),
            NamedFormat::Dns1123Subdomain => ("DNS1123Subdomain", 60),
            NamedFormat::Dns1035Label => ("DNS1035Label", 30),
            NamedFormat::QualifiedName => ("QualifiedName", 60),
            NamedFormat::Dns1123LabelPrefix => ("DNS1123LabelPrefix", 30),
            NamedFormat::Dns1123SubdomainPrefix => ("DNS1123SubdomainPrefix", 60),
            NamedFormat::Dns1035LabelPrefix => ("DNS1035LabelPrefix", 30),
            NamedFormat::LabelValue => ("LabelValue", 40),
            NamedFormat::Uri => ("URI", 1103),
            NamedFormat::Uuid => ("uuid", 70),
            NamedFormat::Byte => ("byte", 84),
            NamedFormat::Date => ("date", 71),
            NamedFormat::DateTime => ("datetime", 71),
        }
    }

    /// The name, as upstream's value has it.
    pub fn name(self) -> &'static str {
        self.facts().0
    }

    /// The size of the pattern that a validation costs as much as.
    pub fn pattern_size(self) -> u64 {
        self.facts().1
    }

    /// What is wrong with a text; None if nothing is.
    pub fn validate(self, text: &str) -> Option<Vec<String>> {
        let mut errors = Vec::new();
        let mut require = |fits: bool, wrong: String| {
            if !fits {
                errors.push(wrong);
            }
        };
        let long = |max: usize| format!("must be no more than {max} bytes");
        let prefix = |text: &str| match text.strip_suffix('-') {
            Some(stem) => format!("{stem}a"),
            None => text.to_owned(),
        };
        match self {
            NamedFormat::Dns1123Label | NamedFormat::Dns1123LabelPrefix => {
                require(text.len() <= 63, long(63));
                let text = if self == NamedFormat::Dns1123LabelPrefix { prefix(text) } else { text.into() };
                require(is_label(&text), LABEL.into());
            }
            NamedFormat::Dns1123Subdomain | NamedFormat::Dns1123SubdomainPrefix => {
                require(text.len() <= 253, long(253));
                let text =
                    if self == NamedFormat::Dns1123SubdomainPrefix { prefix(text) } else { text.into() };
                require(text.split('.').all(is_label), SUBDOMAIN.into());
            }
            NamedFormat::Dns1035Label | NamedFormat::Dns1035LabelPrefix => {
                require(text.len() <= 63, long(63));
                let text = if self == NamedFormat::Dns1035LabelPrefix { prefix(text) } else { text.into() };
                let fits = is_label(&text) && text.starts_with(|c: char| c.is_ascii_lowercase());
                require(fits, LABEL_1035.into());
            }
            NamedFormat::QualifiedName => {
                let (domain, name) =
                    text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
                if let Some(domain) = domain {
                    require(!domain.is_empty(), "prefix part must be non-empty".into());
                    require(
                        domain.is_empty() || domain.split('.').all(is_label),
                        format!("prefix part {SUBDOMAIN}"),
                    );
                }
                require(!name.is_empty(), "name part must be non-empty".into());
                require(name.len() <= 63, format!("name part {}", long(63)));
                require(is_name(name), NAME.into());
            }
            NamedFormat::LabelValue => {
                require(text.len() <= 63, long(63));
                require(text.is_empty() || is_name(text), VALUE.into());
            }
            NamedFormat::Uri => {
                if let Err(wrong) = Url::parse(text) {
                    require(false, wrong.trim_start_matches(URL_CONTEXT).to_owned());
                }
            }
            NamedFormat::Uuid => require(is_uuid(text), "does not match the UUID format".into()),
            NamedFormat::Byte => {
                use base64::Engine;
                let fits = base64::engine::general_purpose::STANDARD.decode(text).is_ok();
                require(fits, "invalid base64".into());
            }
            NamedFormat::Date => {
                require(text.parse::<jiff::civil::Date>().is_ok() && text.len() == 10, "invalid date".into())
            }
            NamedFormat::DateTime => {
                require(
                    crate::functions::parse_time(text).is_some() && text.len() > 10,
                    "invalid datetime".into(),
                );
            }
        }
        (!errors.is_empty()).then_some(errors)
    }
}

fn is_label(text: &str) -> bool {
    let inner = text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-');
    inner && !text.is_empty() && !text.starts_with('-') && !text.ends_with('-')
}

fn is_name(text: &str) -> bool {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    edge(text.chars().next())
        && edge(text.chars().next_back())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

fn is_uuid(text: &str) -> bool {
    let hyphens = [8, 13, 18, 23];
    let fits = |(at, c): (usize, u8)| if hyphens.contains(&at) { c == b'-' } else { c.is_ascii_hexdigit() };
    text.len() == 36 && text.bytes().enumerate().all(fits)
}
