//! Ports for programs that cannot choose one themselves.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::TcpListener;

use anyhow::{Context, Result};

/// Returns a port of 127.0.0.1 that is free. Systems give connections higher ports than these, so
/// that it is still free when a program listens on it.
///
/// # Errors
/// There is none.
pub fn free_port() -> Result<u16> {
    const PORTS: std::ops::Range<u16> = 16_384..32_768;
    let random = RandomState::new().build_hasher().finish();
    let first = u16::try_from(random % u64::from(PORTS.end - PORTS.start))?;
    let ports = (0..100).map(|step| PORTS.start + (first + step) % (PORTS.end - PORTS.start));
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    ports.into_iter().find(is_free).context("no port is free")
}
