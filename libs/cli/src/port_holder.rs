//! The Coracle process that holds a port, so that an error can name it.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use anyhow::anyhow;
use coracle_control_plane::Error;

/// The maximum number of processes that are looked at.
const MAX_PROCESSES: usize = 10_000;

/// The maximum length of a command line in a message, in characters.
const MAX_COMMAND: usize = 200;

/// Explains an error of the start, with the next step for a port that is in use.
pub fn explain(error: Error) -> anyhow::Error {
    let Error::Listen { address, cause } = &error else { return error.into() };
    if cause.kind() != std::io::ErrorKind::AddrInUse {
        return error.into();
    }
    let holder = holder(Path::new("/proc"), *address).unwrap_or_else(|| "another process".to_owned());
    let other = SocketAddr::new(address.ip(), 0);
    anyhow!("cannot listen on {address}: {holder} does; stop it, or use --listen {other} for any free port")
}

/// Returns the process of Coracle that listens on a port, as `process 12 (coracle serve)`; None if
/// it is another program, of another user, or unknown.
fn holder(proc: &Path, address: SocketAddr) -> Option<String> {
    let inodes: Vec<String> =
        ["net/tcp", "net/tcp6"].iter().flat_map(|table| listeners(&proc.join(table), address)).collect();
    if inodes.is_empty() {
        return None;
    }
    let processes = fs::read_dir(proc).ok()?.flatten().filter(|entry| {
        entry.file_name().to_str().is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
    });
    for process in processes.take(MAX_PROCESSES) {
        let directory = process.path();
        let Some(command) = command(&directory) else { continue };
        let files = fs::read_dir(directory.join("fd")).into_iter().flatten().flatten();
        let mut targets = files.filter_map(|file| fs::read_link(file.path()).ok());
        if targets.any(|target| inodes.iter().any(|inode| target.as_os_str() == inode.as_str())) {
            return Some(format!("process {} ({command})", process.file_name().display()));
        }
    }
    None
}

/// Returns the listening sockets in one of the kernel's tables that conflict with an address, in
/// the format of links to them.
fn listeners(table: &Path, address: SocketAddr) -> Vec<String> {
    const LISTEN: &str = "0A";
    let text = fs::read_to_string(table).unwrap_or_default();
    let sockets = text.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let (local, state, inode) = (columns.get(1)?, columns.get(3)?, columns.get(9)?);
        let (local, port) = local.rsplit_once(':')?;
        let (local, port) = (ip_address(local)?, u16::from_str_radix(port, 16).ok()?);
        let is_met = local == address.ip() || local.is_unspecified() || address.ip().is_unspecified();
        (is_met && port == address.port() && *state == LISTEN).then(|| format!("socket:[{inode}]"))
    });
    sockets.collect()
}

/// Parses an address of the kernel's tables: words in hexadecimal, each in the order of the
/// machine's bytes.
fn ip_address(text: &str) -> Option<IpAddr> {
    const DIGITS: usize = 8;
    let word = |at: usize| u32::from_str_radix(text.get(at..at + DIGITS)?, 16).ok().map(u32::to_ne_bytes);
    match text.len() {
        DIGITS => word(0).map(|bytes| Ipv4Addr::from(bytes).into()),
        32 => {
            let words = [word(0)?, word(8)?, word(16)?, word(24)?];
            let bytes: [u8; 16] = words.concat().try_into().ok()?;
            Some(Ipv6Addr::from(bytes).to_canonical())
        }
        _ => None,
    }
}

/// Returns the command line of a process that is Coracle's.
fn command(process: &Path) -> Option<String> {
    let line = fs::read(process.join("cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let program = Path::new(line.split('\0').next()?).file_name()?.to_str()?;
    if !["coracle", "kube-apiserver"].contains(&program) {
        return None;
    }
    let words: Vec<&str> = std::iter::once(program).chain(line.split('\0').skip(1)).collect();
    let text: String =
        words.join(" ").trim_end().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    Some(text.chars().take(MAX_COMMAND).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_of_coracle_is_named_and_no_other() {
        let proc = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = proc.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let row = |port: &str, state: &str, inode: &str| {
            format!(
                "   0: 0100007F:{port} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 {inode} 1\n"
            )
        };
        write("net/tcp", &format!("{head}{}{}", row("192B", "0A", "77"), row("192C", "01", "78")));
        for (id, command) in [("11", "/usr/bin/sleep\x001"), ("12", "/opt/coracle\0serve\0--name\0a\n\0")] {
            write(&format!("{id}/cmdline"), command);
            write(&format!("{id}/fd/0"), "");
        }
        for id in ["11", "12"] {
            let link = proc.path().join(id).join("fd/9");
            std::os::unix::fs::symlink("socket:[77]", link).unwrap();
        }
        let at = |port: u16| holder(proc.path(), ([127, 0, 0, 1], port).into());
        assert_eq!(at(6443).as_deref(), Some("process 12 (coracle serve --name a)"));
        assert_eq!(at(6444), None, "it does not listen");
        assert_eq!(at(1), None);
        let holder_of = |address: &str| holder(proc.path(), address.parse().unwrap()).is_some();
        assert_eq!(
            (holder_of("127.0.0.2:6443"), holder_of("0.0.0.0:6443"), holder_of("[::]:6443")),
            (false, true, true)
        );
        fs::remove_file(proc.path().join("12/cmdline")).unwrap();
        assert_eq!(at(6443), None, "another program");
    }
}
