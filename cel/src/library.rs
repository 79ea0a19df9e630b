//! The values of Kubernetes' libraries: address ranges, URLs, versions and named formats.

use std::fmt;
use std::net::IpAddr;

/// An IP address: no zone, and no IPv4 address in IPv6.
pub fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let wrong = |why: &str| format!("IP Address {text:?} parse error during conversion from string: {why}");
    if text.contains('%') {
        return Err(format!("IP address {text:?} with zone value is not allowed"));
    }
    let address: IpAddr =
        text.parse().map_err(|_| wrong(&format!("ParseAddr({text:?}): unable to parse IP")))?;
    match address {
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        address => Ok(address),
    }
}

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, with all its bits.
    pub address: IpAddr,
    /// How many bits are the same in the range.
    pub prefix: u8,
}

impl Cidr {
    /// Reads `address/prefix`.
    pub fn parse(text: &str) -> Result<Cidr, String> {
        let wrong = || {
            format!(
                "network address parse error during conversion from string: netip.ParsePrefix({text:?}): invalid CIDR"
            )
        };
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let address = parse_ip(address).map_err(|_| wrong())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let plain = prefix.bytes().all(|c| c.is_ascii_digit()) && (prefix == "0" || !prefix.starts_with('0'));
        match prefix.parse::<u8>() {
            Ok(prefix) if prefix <= longest && plain => Ok(Cidr { address, prefix }),
            _ => Err(wrong()),
        }
    }

    fn bits(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    fn mask(&self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0)
    }

    /// Whether the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Cidr::bits(address) & self.mask() == Cidr::bits(self.address) & self.mask()
    }

    /// Whether the whole other range is in the range.
    pub fn contains_cidr(&self, other: &Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// The range with the least address of it.
    pub fn masked(&self) -> Cidr {
        let bits = Cidr::bits(self.address) & self.mask();
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::from(u32::try_from(bits >> 96).unwrap_or(0).to_be_bytes()),
            IpAddr::V6(_) => IpAddr::from(bits.to_be_bytes()),
        };
        Cidr { address, prefix: self.prefix }
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

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
        let wrong =
            |why: &str| format!("URL parse error during conversion from string: parse {text:?}: {why}");
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
            _ => return Err(wrong("invalid URI for request")),
        };
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
        let port = host
            .rsplit_once(']')
            .map_or(host, |(_, port)| port)
            .rsplit_once(':')
            .map_or("", |(_, port)| port);
        if !port.bytes().all(|c| c.is_ascii_digit()) {
            return Err(wrong(&format!("invalid port {:?} after host", format!(":{port}"))));
        }
        if host.contains([' ', '<', '>', '"']) || (host.starts_with('[') != host.contains(']')) {
            return Err(wrong(&format!("invalid character in host name: {host:?}")));
        }
        if decode(path, false).is_none() {
            return Err(wrong("invalid URL escape"));
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
pub fn parse_semver(text: &str, lenient: bool) -> Result<semver::Version, String> {
    let wrong = |why: String| format!("parse error during conversion from string: {why}");
    if !lenient {
        return semver::Version::parse(text).map_err(|error| wrong(error.to_string()));
    }
    let text = text.trim();
    let text = text.strip_prefix('v').unwrap_or(text);
    let end = text.find(['-', '+']).unwrap_or(text.len());
    let (numbers, rest) = text.split_at(end);
    let mut parts: Vec<String> = Vec::new();
    for part in numbers.split('.') {
        let trimmed = part.trim_start_matches('0');
        parts.push(if trimmed.is_empty() && !part.is_empty() { "0".into() } else { trimmed.into() });
    }
    if parts.len() < 3 && !rest.is_empty() {
        return Err(wrong("Short version cannot contain PreRelease/Build meta data".into()));
    }
    while parts.len() < 3 {
        parts.push("0".into());
    }
    semver::Version::parse(&format!("{}{rest}", parts.join("."))).map_err(|error| wrong(error.to_string()))
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
                    require(false, wrong);
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
