//! IP addresses, ranges of them, and URLs.
//!
//! Source: `k8s.io/apiserver/pkg/cel/library`: `ip.go`, `cidr.go`, `urls.go`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::failure::{Result, error, no_overload};
use super::function::Line;
use crate::addresses::{Cidr, parse_ip};
use crate::library::Url;
use crate::meter::Meter;
use crate::value::{Key, Value};

pub const TABLE: &[Line] = &[
    ("ip", "(string)->ip cidr.()->ip", |args, _| match args {
        [Value::String(text)] => parse_ip(text).map_or_else(error, |address| Ok(Value::Ip(address))),
        [Value::Cidr(cidr)] => Ok(Value::Ip(cidr.address)),
        _ => no_overload(),
    }),
    ("isIP", "(string)->bool", |args, _| match args {
        [Value::String(text)] => Ok(Value::Bool(parse_ip(text).is_ok())),
        _ => no_overload(),
    }),
    ("ip.isCanonical", "(string)->bool", |args, _| match args {
        [Value::String(text)] => match parse_ip(text) {
            Ok(address) => Ok(Value::Bool(address.to_string() == **text)),
            Err(wrong) => error(wrong),
        },
        _ => no_overload(),
    }),
    ("family", "ip.()->int", |args, _| match args {
        [Value::Ip(address)] => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        _ => no_overload(),
    }),
    ("isUnspecified", "ip.()->bool", |args, _| address(args, |address| address.is_unspecified())),
    ("isLoopback", "ip.()->bool", |args, _| address(args, |address| address.is_loopback())),
    ("isLinkLocalMulticast", "ip.()->bool", |args, _| address(args, is_link_local_multicast)),
    ("isLinkLocalUnicast", "ip.()->bool", |args, _| address(args, is_link_local_unicast)),
    ("isGlobalUnicast", "ip.()->bool", |args, _| address(args, is_global_unicast)),
    ("cidr", "(string)->cidr", |args, _| match args {
        [Value::String(text)] => Cidr::parse(text).map_or_else(error, |cidr| Ok(Value::Cidr(cidr))),
        _ => no_overload(),
    }),
    ("isCIDR", "(string)->bool", |args, _| match args {
        [Value::String(text)] => Ok(Value::Bool(Cidr::parse(text).is_ok())),
        _ => no_overload(),
    }),
    ("containsIP", "cidr.(string)->bool cidr.(ip)->bool", |args, _| match args {
        [Value::Cidr(cidr), Value::Ip(address)] => Ok(Value::Bool(cidr.contains(*address))),
        [Value::Cidr(cidr), Value::String(text)] => {
            parse_ip(text).map_or_else(|_| no_overload(), |address| Ok(Value::Bool(cidr.contains(address))))
        }
        _ => no_overload(),
    }),
    ("containsCIDR", "cidr.(string)->bool cidr.(cidr)->bool", |args, _| match args {
        [Value::Cidr(cidr), Value::Cidr(other)] => Ok(Value::Bool(cidr.contains_cidr(other))),
        [Value::Cidr(cidr), Value::String(text)] => Cidr::parse(text)
            .map_or_else(|_| no_overload(), |other| Ok(Value::Bool(cidr.contains_cidr(&other)))),
        _ => no_overload(),
    }),
    ("masked", "cidr.()->cidr", |args, _| match args {
        [Value::Cidr(cidr)] => Ok(Value::Cidr(cidr.masked())),
        _ => no_overload(),
    }),
    ("prefixLength", "cidr.()->int", |args, _| match args {
        [Value::Cidr(cidr)] => Ok(Value::Int(cidr.prefix.into())),
        _ => no_overload(),
    }),
    ("url", "(string)->url", |args, meter| match args {
        [Value::String(text)] => {
            meter.make(text.len().saturating_mul(2))?;
            Url::parse(text).map_or_else(error, |url| Ok(Value::Url(Arc::new(url))))
        }
        _ => no_overload(),
    }),
    ("isURL", "(string)->bool", |args, _| match args {
        [Value::String(text)] => Ok(Value::Bool(Url::parse(text).is_ok())),
        _ => no_overload(),
    }),
    ("getScheme", "url.()->string", |args, meter| part(args, meter, |url| url.scheme.clone())),
    ("getHost", "url.()->string", |args, meter| part(args, meter, |url| url.host.clone())),
    ("getHostname", "url.()->string", |args, meter| part(args, meter, Url::hostname)),
    ("getPort", "url.()->string", |args, meter| part(args, meter, Url::port)),
    ("getEscapedPath", "url.()->string", |args, meter| part(args, meter, |url| url.path.clone())),
    ("getQuery", "url.()->map<string,list<string>>", |args, meter| match args {
        [Value::Url(url)] => {
            meter.make(url.text.len())?;
            // A parameter is a list in a map.
            meter.make_items(3 * (1 + url.text.matches('&').count()))?;
            let mut entries: BTreeMap<Key, Vec<Value<'_>>> = BTreeMap::new();
            for (name, value) in url.query() {
                entries.entry(Key::String(name.into())).or_default().push(Value::text(value));
            }
            let entries = entries.into_iter().map(|(key, values)| (key, Value::list(values))).collect();
            Ok(Value::map(entries))
        }
        _ => no_overload(),
    }),
];

fn address<'a>(args: &[Value<'a>], meaning: fn(&IpAddr) -> bool) -> Result<Value<'a>> {
    match args {
        [Value::Ip(address)] => Ok(Value::Bool(meaning(address))),
        _ => no_overload(),
    }
}

fn part<'a>(args: &[Value<'a>], meter: &Meter, meaning: fn(&Url) -> String) -> Result<Value<'a>> {
    match args {
        [Value::Url(url)] => meter.text(meaning(url)),
        _ => no_overload(),
    }
}

fn is_link_local_multicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => matches!(address.octets(), [224, 0, 0, _]),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xff0f == 0xff02),
    }
}

fn is_link_local_unicast(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.segments().first().is_some_and(|first| first & 0xffc0 == 0xfe80),
    }
}

fn is_global_unicast(address: &IpAddr) -> bool {
    let broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    !(broadcast
        || address.is_unspecified()
        || address.is_loopback()
        || address.is_multicast()
        || is_link_local_unicast(address))
}
