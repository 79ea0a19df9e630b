//! IP addresses and CIDR blocks in fields: validation and warnings.
//!
//! Older fields accept leading zeros (as Go did before 1.17); since 1.36 such values are rejected
//! when they are new, and tolerated where an object already has them. Non-canonical IPv6 only gets
//! a warning.
//!
//! Source: KEP-4858.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::field::{Field, quote};

const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
const NOT_A_CIDR: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Parses an address, accepting leading zeros in IPv4. Zones are rejected.
pub fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Some((head, tail)) = text.rsplit_once(':') {
        let tail = parse_v4(tail)?;
        return format!("{head}:{tail}").parse::<Ipv6Addr>().ok().map(IpAddr::V6);
    }
    parse_v4(text).map(IpAddr::V4)
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        *octet = u8::try_from(parse_decimal(parts.next()?)?).ok()?;
    }
    parts.next().is_none().then(|| octets.into())
}

/// Parses a text of digits only, with any number of leading zeros.
fn parse_decimal(text: &str) -> Option<u32> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok()).flatten()
}

/// Formats an address canonically; an IPv4-mapped IPv6 address is written as IPv4.
fn canonical(address: IpAddr) -> String {
    address.to_canonical().to_string()
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Returns the error in a value of an older field; None if it is valid.
pub fn legacy_address(text: &str) -> Option<&'static str> {
    let Some(address) = parse(text) else { return Some(NOT_AN_IP) };
    if text.parse::<IpAddr>().is_err() {
        return Some("must not have leading 0s");
    }
    is_mapped(address).then_some("must not be an IPv4-mapped IPv6 address")
}

/// Returns the error in a value of a field that requires canonical addresses; None if it is valid.
pub fn address(text: &str) -> Option<String> {
    if let Some(error) = legacy_address(text) {
        return Some(error.to_owned());
    }
    let canonical = canonical(parse(text)?);
    (text != canonical).then(|| format!("must be in canonical form ({})", quote(&canonical)))
}

/// Returns the errors in the address of an endpoint.
pub fn endpoint_address(text: &str) -> Vec<String> {
    let Some(address) = parse(text) else { return vec!["must be a valid IP address".to_owned()] };
    let (link_local, link_local_multicast) = match address.to_canonical() {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets()[..3] == [224, 0, 0]),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let address = address.to_canonical();
    [
        (address.is_unspecified(), format!("may not be unspecified ({text})")),
        (address.is_loopback(), "may not be in the loopback range (127.0.0.0/8, ::1/128)".to_owned()),
        (link_local, "may not be in the link-local range (169.254.0.0/16, fe80::/10)".to_owned()),
        (
            link_local_multicast,
            "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)".to_owned(),
        ),
    ]
    .into_iter()
    .filter_map(|(wrong, mistake)| wrong.then_some(mistake))
    .collect()
}

/// Returns the warning for an address that is valid but not canonical.
pub fn address_warning(field: &Field<'_>) -> Option<String> {
    let (path, text) = (field.path(), field.str());
    let address = parse(text)?;
    if text.parse::<IpAddr>().is_err() || is_mapped(address) {
        let usual = canonical(address);
        return Some(format!(
            "{path}: non-standard IP address {} is invalid: use {}",
            quote(text),
            quote(&usual)
        ));
    }
    (address.is_ipv6() && address.to_string() != text).then(|| {
        format!(
            "{path}: IPv6 address {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&address.to_string())
        )
    })
}

/// An address and the number of leading bits that are the network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, including bits beyond the prefix.
    pub address: IpAddr,
    /// The number of leading bits that name the network.
    pub prefix: u8,
}

impl Cidr {
    /// Parses a block, accepting leading zeros and bits beyond the prefix.
    pub fn parse(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/')?;
        let cidr = Cidr { address: parse(address)?, prefix: u8::try_from(parse_decimal(prefix)?).ok()? };
        (cidr.prefix <= cidr.width()).then_some(cidr)
    }

    /// Parses a block like [`Cidr::parse`], but rejects leading zeros.
    fn parse_strict(text: &str) -> Option<Cidr> {
        let (address, prefix) = text.split_once('/')?;
        let leading_zero = prefix.len() > 1 && prefix.starts_with('0');
        (address.parse::<IpAddr>().is_ok() && !leading_zero).then(|| Cidr::parse(text)).flatten()
    }

    fn width(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// Returns the block with all bits beyond the prefix cleared.
    pub fn network(&self) -> Cidr {
        let host_bits = u32::from(self.width() - self.prefix);
        let address = match self.address {
            IpAddr::V4(v4) => {
                IpAddr::V4((u32::from(v4) & u32::MAX.checked_shl(host_bits).unwrap_or(0)).into())
            }
            IpAddr::V6(v6) => {
                IpAddr::V6((u128::from(v6) & u128::MAX.checked_shl(host_bits).unwrap_or(0)).into())
            }
        };
        Cidr { address, prefix: self.prefix }
    }

    /// Returns the first address after that of the network.
    pub fn first_host(&self) -> IpAddr {
        match self.network().address {
            IpAddr::V4(v4) => IpAddr::V4(u32::from(v4).saturating_add(1).into()),
            IpAddr::V6(v6) => IpAddr::V6(u128::from(v6).saturating_add(1).into()),
        }
    }

    /// Returns `true` if the block contains an address.
    pub fn contains(&self, address: IpAddr) -> bool {
        let other = Cidr { address, prefix: self.prefix };
        address.is_ipv4() == self.address.is_ipv4() && other.network().address == self.network().address
    }
}

/// `10.0.0.0/24`; IPv4-mapped IPv6 is written as IPv4, with its prefix.
impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = if is_mapped(self.address) { self.prefix.saturating_sub(96) } else { self.prefix };
        write!(f, "{}/{prefix}", canonical(self.address))
    }
}

/// Returns the error in a block in an older field; None if it is valid.
pub fn legacy_cidr(text: &str) -> Option<&'static str> {
    if Cidr::parse(text).is_none() {
        return Some(NOT_A_CIDR);
    }
    let Some(strict) = Cidr::parse_strict(text) else {
        return Some("must not have leading 0s in IP or prefix length");
    };
    if is_mapped(strict.address) {
        return Some("must not have an IPv4-mapped IPv6 address");
    }
    (strict != strict.network()).then_some("must not have bits set beyond the prefix length")
}

/// Returns the error in a block in a field that requires canonical blocks; None if it is valid.
pub fn cidr(text: &str) -> Option<String> {
    if let Some(error) = legacy_cidr(text) {
        return Some(error.to_owned());
    }
    let canonical = Cidr::parse(text)?.network().to_string();
    (text != canonical).then(|| format!("must be in canonical form ({})", quote(&canonical)))
}

/// Returns the warnings for a block that is valid but not canonical.
pub fn cidr_warnings(field: &Field<'_>) -> Vec<String> {
    let (path, text) = (field.path(), field.str());
    let Some(cidr) = Cidr::parse(text) else { return Vec::new() };
    let network = cidr.network();
    let mut warnings = Vec::new();
    if cidr.address != network.address {
        warnings.push(format!(
            "{path}: CIDR value {} is ambiguous in this context (should be {} or {}?)",
            quote(text),
            quote(&network.to_string()),
            quote(&format!("{}/{}", canonical(cidr.address), cidr.width()))
        ));
    }
    if Cidr::parse_strict(text).is_none() || is_mapped(cidr.address) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {} is invalid: use {}",
            quote(text),
            quote(&network.to_string())
        ));
    }
    if warnings.is_empty() && cidr.address.is_ipv6() && cidr.to_string() != text {
        warnings.push(format!(
            "{path}: IPv6 CIDR value {} should be in RFC 5952 canonical format ({})",
            quote(text),
            quote(&cidr.to_string())
        ));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn addresses_are_parsed_and_validated() {
        for (text, legacy, strict) in [
            ("10.0.0.1", None, None),
            ("10.0.0.01", Some("must not have leading 0s"), Some("must not have leading 0s")),
            ("10.0.0", Some(NOT_AN_IP), Some(NOT_AN_IP)),
            ("10.0.0.256", Some(NOT_AN_IP), Some(NOT_AN_IP)),
            ("fe80::1%eth0", Some(NOT_AN_IP), Some(NOT_AN_IP)),
            (
                "::ffff:1.2.3.4",
                Some("must not be an IPv4-mapped IPv6 address"),
                Some("must not be an IPv4-mapped IPv6 address"),
            ),
            ("FE80::0ABC", None, Some("must be in canonical form (\"fe80::abc\")")),
        ] {
            assert_eq!((legacy_address(text), address(text).as_deref()), (legacy, strict), "{text}");
        }
    }

    #[test]
    fn cidr_blocks_are_parsed_and_validated() {
        for (text, error) in [
            ("10.0.0.0/24", None),
            ("10.0.0.0/33", Some(NOT_A_CIDR)),
            ("10.0.0.0", Some(NOT_A_CIDR)),
            ("10.0.0.1/24", Some("must not have bits set beyond the prefix length")),
            ("10.00.0.0/24", Some("must not have leading 0s in IP or prefix length")),
            ("10.0.0.0/024", Some("must not have leading 0s in IP or prefix length")),
            ("::ffff:10.0.0.0/120", Some("must not have an IPv4-mapped IPv6 address")),
            ("::/0", None),
        ] {
            assert_eq!(legacy_cidr(text), error, "{text}");
        }
        assert_eq!(cidr("2001:DB8::/32").as_deref(), Some("must be in canonical form (\"2001:db8::/32\")"));
    }

    #[test]
    fn non_canonical_values_get_warnings() {
        let warned = |text: &str| {
            let value = json!({"cidr": text});
            cidr_warnings(&Field::root(&value).get("cidr"))
        };
        assert_eq!(warned("10.0.0.0/8"), Vec::<String>::new());
        assert_eq!(
            warned("10.1.0.0/8"),
            [
                "cidr: CIDR value \"10.1.0.0/8\" is ambiguous in this context (should be \"10.0.0.0/8\" or \"10.1.0.0/32\"?)"
            ]
        );
        assert_eq!(
            warned("2001:DB8::/32"),
            [
                "cidr: IPv6 CIDR value \"2001:DB8::/32\" should be in RFC 5952 canonical format (\"2001:db8::/32\")"
            ]
        );
    }
}
