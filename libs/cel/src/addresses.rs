//! IP addresses and ranges of them, read as Go's `net/netip` reads them.

use std::fmt;
use std::net::IpAddr;

/// Parses an IP address without a zone, and not an IPv4 address in IPv6.
pub fn parse_ip(text: &str) -> Result<IpAddr, String> {
    match read_ip(text) {
        Err(why) => Err(format!("IP Address {text:?} parse error during conversion from string: {why}")),
        Ok((_, true)) => Err(format!("IP address {text:?} with zone value is not allowed")),
        Ok((IpAddr::V6(v6), _)) if v6.to_ipv4_mapped().is_some() => {
            Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"))
        }
        Ok((address, _)) => Ok(address),
    }
}

/// Parses an address. Also returns `true` if it has a zone.
fn read_ip(text: &str) -> Result<(IpAddr, bool), String> {
    let (address, zone) = match text.split_once('%') {
        Some((address, zone)) if address.contains(':') => (address, Some(zone)),
        _ => (text, None),
    };
    match address.parse() {
        Ok(_) if zone == Some("") => Err(format!("ParseAddr({text:?}): zone must be a non-empty string")),
        Ok(address) => Ok((address, zone.is_some())),
        Err(_) => Err(format!("ParseAddr({text:?}): {}", reason(text, address))),
    }
}

/// Returns the reason why a text is not an address.
fn reason(whole: &str, text: &str) -> String {
    match whole.chars().find(|c| ".:%".contains(*c)) {
        Some('.') => v4_reason(whole, 0),
        Some(':') => v6_reason(text).unwrap_or_else(|| "unable to parse IP".to_owned()),
        Some(_) => "missing IPv6 address".to_owned(),
        None => "unable to parse IP".to_owned(),
    }
}

fn at(text: &str, from: usize) -> String {
    format!(" (at {:?})", text.get(from..).unwrap_or(""))
}

fn v4_reason(text: &str, from: usize) -> String {
    let bytes = text.as_bytes();
    let (mut value, mut fields, mut digits) = (0_u32, 0, 0);
    for index in from..bytes.len() {
        match bytes.get(index) {
            Some(digit @ b'0'..=b'9') => {
                if digits == 1 && value == 0 {
                    return "IPv4 field has octet with leading zero".to_owned();
                }
                value = value * 10 + u32::from(digit - b'0');
                digits += 1;
                if value > 255 {
                    return "IPv4 field has value >255".to_owned();
                }
            }
            Some(b'.') => {
                let no_digit = digits == 0 || index + 1 == bytes.len();
                if no_digit {
                    return format!("IPv4 field must have at least one digit{}", at(text, index));
                }
                if fields == 3 {
                    return "IPv4 address too long".to_owned();
                }
                (fields, value, digits) = (fields + 1, 0, 0);
            }
            _ => return format!("unexpected character{}", at(text, index)),
        }
    }
    "IPv4 address too short".to_owned()
}

fn v6_reason(text: &str) -> Option<String> {
    let wrong = |why: &str, rest: &str| Some(format!("{why} (at {rest:?})"));
    let (mut rest, mut fields, mut ellipsis) = (text, 0, false);
    if let Some(after) = rest.strip_prefix("::") {
        (rest, ellipsis) = (after, true);
    }
    while fields < 8 {
        let digits = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if digits > 4 {
            return wrong("each group must have 4 or less digits", rest);
        }
        if digits == 0 {
            return wrong("each colon-separated field must have at least one digit", rest);
        }
        let after = rest.get(digits..)?;
        if after.starts_with('.') {
            if !ellipsis && fields != 6 {
                return wrong("embedded IPv4 address must replace the final 2 fields of the address", rest);
            }
            return Some(v4_reason(text, text.len() - rest.len()));
        }
        fields += 1;
        rest = after;
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return wrong("unexpected character, want colon", rest);
        };
        if after.is_empty() {
            return wrong("colon must be followed by more characters", rest);
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis {
                return wrong("multiple :: in address", rest);
            }
            (rest, ellipsis) = (after, true);
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return wrong("trailing garbage after address", rest);
    }
    Some(match (fields < 8, ellipsis) {
        (true, false) => "address string too short".to_owned(),
        _ => "the :: must expand to at least one field of zeros".to_owned(),
    })
}

/// A range of IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address, with all its bits.
    pub address: IpAddr,
    /// The number of bits that are the same in the range.
    pub prefix: u8,
}

impl Cidr {
    /// Reads `address/prefix`.
    pub fn parse(text: &str) -> Result<Cidr, String> {
        const CONTEXT: &str = "network address parse error during conversion from string: ";
        match Cidr::read(text) {
            Ok(Cidr { address: IpAddr::V6(v6), .. }) if v6.to_ipv4_mapped().is_some() => {
                Err(format!("{CONTEXT}IPv4-mapped IPv6 address {text:?} is not allowed"))
            }
            Ok(range) => Ok(range),
            Err(why) => Err(format!("{CONTEXT}{CONTEXT}netip.ParsePrefix({text:?}): {why}")),
        }
    }

    fn read(text: &str) -> Result<Cidr, String> {
        let (address, bits) = text.rsplit_once('/').ok_or("no '/'")?;
        let (address, has_zone) = read_ip(address)?;
        if has_zone {
            return Err("IPv6 zones cannot be present in a prefix".to_owned());
        }
        let bad = || format!("bad bits after slash: {bits:?}");
        if bits.len() > 1 && !bits.starts_with(|c: char| ('1'..='9').contains(&c)) {
            return Err(bad());
        }
        let prefix: u64 = bits.parse().map_err(|_| bad())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        match u8::try_from(prefix) {
            Ok(prefix) if prefix <= longest => Ok(Cidr { address, prefix }),
            _ => Err("prefix length out of range".to_owned()),
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

    /// Returns `true` if the address is in the range.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.address.is_ipv4()
            && Cidr::bits(address) & self.mask() == Cidr::bits(self.address) & self.mask()
    }

    /// Returns `true` if the whole other range is in the range.
    pub fn contains_cidr(&self, other: &Cidr) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Returns the range with its lowest address.
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
