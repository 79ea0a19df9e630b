//! etcd servers for tests: clusters on free ports, with their data in a temporary directory.

use std::{
    env,
    fs::{self, File},
    io::{self, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::Endpoints;

/// The range of ports of the test servers. It is below the ports that systems assign to outgoing
/// connections, since one of those could take the port of a member that is down.
const FIRST_PORT: u16 = 12_000;
const PORTS: u16 = 20_000;

/// Timeouts for a member to serve and for a health check, and the pause between polls.
const START_TIMEOUT: Duration = Duration::from_secs(60);
const HEALTH_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// The number of bytes of a member's log that an error shows.
const LOG_TAIL: usize = 4096;

/// A running cluster. It ends, with its data, when it is dropped.
pub struct EtcdCluster {
    members: Vec<Member>,
    directory: TempDir,
    program: PathBuf,
    tls: Option<EtcdTls>,
}

/// The files of a cluster that is reached by TLS, and by clients with a certificate alone.
#[derive(Clone, Debug)]
pub struct EtcdTls {
    /// The authority of all certificates.
    pub ca_file: PathBuf,
    /// The members' certificate, for `127.0.0.1`.
    pub cert_file: PathBuf,
    /// The key of the members' certificate.
    pub key_file: PathBuf,
}

struct Member {
    name: String,
    client: SocketAddr,
    peer: SocketAddr,
    /// Serves the health without TLS.
    metrics: SocketAddr,
    /// None while it is stopped.
    process: Option<Child>,
}

/// Returns the path of an etcd server on this machine; None if there is none.
pub fn etcd_program() -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|directory| directory.join("etcd")).find(|program| program.is_file())
}

/// Starts a cluster. Where etcd is not installed this prints that the test is skipped, and returns
/// None.
///
/// # Errors
/// A server cannot be started.
pub fn start_or_skip(members: usize) -> io::Result<Option<EtcdCluster>> {
    start_or_skip_with(members, None)
}

/// Starts a cluster like [`start_or_skip`], with TLS for its clients.
///
/// # Errors
/// A server cannot be started.
pub fn start_or_skip_with(members: usize, tls: Option<EtcdTls>) -> io::Result<Option<EtcdCluster>> {
    match etcd_program() {
        Some(program) => EtcdCluster::start(program, members, tls).map(Some),
        None => {
            // `eprintln` is captured in tests that pass.
            let _ = writeln!(
                io::stderr(),
                "SKIPPED: this test needs an etcd server (apt-get install etcd-server)"
            );
            Ok(None)
        }
    }
}

impl EtcdCluster {
    /// Starts a cluster of `members` members, and waits until they serve.
    ///
    /// - `tls`: for the clients; None for plain HTTP.
    ///
    /// # Errors
    /// A server cannot be started.
    pub fn start(program: PathBuf, members: usize, tls: Option<EtcdTls>) -> io::Result<EtcdCluster> {
        // A directory in memory where there is one: the tests do not depend on flushes to disk.
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        let member = |index| {
            Ok(Member {
                name: format!("m{index}"),
                client: free_address()?,
                peer: free_address()?,
                metrics: free_address()?,
                process: None,
            })
        };
        let members = (0..members).map(member).collect::<io::Result<_>>()?;
        let mut cluster = EtcdCluster { members, directory, program, tls };
        // A single member does not serve alone, so all are started before the wait.
        for index in 0..cluster.members.len() {
            cluster.spawn(index)?;
        }
        for index in 0..cluster.members.len() {
            cluster.until_healthy(index)?;
        }
        Ok(cluster)
    }

    /// Returns the URLs of the members.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| self.client_url(member)).collect()
    }

    /// Returns the cluster's endpoints, for clients without TLS.
    pub fn endpoints(&self) -> Endpoints {
        Endpoints { servers: self.urls(), ..Endpoints::default() }
    }

    fn client_url(&self, member: &Member) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", member.client)
    }

    /// Kills a member, without a warning.
    ///
    /// # Errors
    /// It cannot be killed.
    pub fn kill(&mut self, index: usize) -> io::Result<()> {
        let Some(mut process) = self.members.get_mut(index).and_then(|member| member.process.take()) else {
            return Ok(());
        };
        process.kill()?;
        process.wait().map(drop)
    }

    /// Starts a member that was killed, with its data, and waits until it serves: then another may
    /// be killed.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        self.spawn(index)?;
        self.until_healthy(index)
    }

    fn spawn(&mut self, index: usize) -> io::Result<()> {
        let Some(member) = self.members.get(index) else { return Ok(()) };
        let log = File::options().create(true).append(true).open(self.log(member))?;
        let client_url = self.client_url(member);
        let peer_url = |member: &Member| format!("http://{}", member.peer);
        let peers: Vec<_> =
            self.members.iter().map(|member| format!("{}={}", member.name, peer_url(member))).collect();
        let mut command = Command::new(&self.program);
        command
            .args(["--name", &member.name, "--data-dir"])
            .arg(self.directory.path().join(&member.name))
            .args(["--listen-client-urls", &client_url, "--advertise-client-urls", &client_url])
            .args(["--listen-peer-urls", &peer_url(member)])
            .args(["--initial-advertise-peer-urls", &peer_url(member)])
            .args(["--listen-metrics-urls", &format!("http://{}", member.metrics)])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"])
            // Elections within a test's patience; transactions as large as the contract has them.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200", "--max-txn-ops", "1024"]);
        if let Some(tls) = &self.tls {
            command.arg("--client-cert-auth");
            command.arg("--trusted-ca-file").arg(&tls.ca_file);
            command.arg("--cert-file").arg(&tls.cert_file);
            command.arg("--key-file").arg(&tls.key_file);
        }
        let process = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        if let Some(member) = self.members.get_mut(index) {
            member.process = Some(process);
        }
        Ok(())
    }

    /// Waits until a member reads with the agreement of the others.
    fn until_healthy(&mut self, index: usize) -> io::Result<()> {
        let began = Instant::now();
        loop {
            let Some(member) = self.members.get_mut(index) else { return Ok(()) };
            if is_healthy(member.metrics).unwrap_or(false) {
                return Ok(());
            }
            let exit = member.process.as_mut().map_or(Ok(None), Child::try_wait)?;
            if exit.is_some() || began.elapsed() > START_TIMEOUT {
                let log = fs::read(self.log(&self.members[index]))?;
                let tail = String::from_utf8_lossy(&log[log.len().saturating_sub(LOG_TAIL)..]).into_owned();
                return Err(io::Error::other(format!("etcd does not serve ({exit:?}): {tail}")));
            }
            thread::sleep(POLL_PERIOD);
        }
    }

    fn log(&self, member: &Member) -> PathBuf {
        self.directory.path().join(format!("{}.log", member.name))
    }
}

/// Returns an unused address of this machine. Processes that run at the same time begin their
/// search at different ports.
fn free_address() -> io::Result<SocketAddr> {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = (process::id() % u32::from(PORTS)) * 97;
    for _ in 0..PORTS {
        let offset = (start + u32::from(NEXT.fetch_add(1, Ordering::Relaxed))) % u32::from(PORTS);
        let port = FIRST_PORT + u16::try_from(offset).map_err(io::Error::other)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return Ok(address);
        }
    }
    Err(io::Error::other("no port is free"))
}

fn is_healthy(address: SocketAddr) -> io::Result<bool> {
    let mut stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    stream.write_all(b"GET /health HTTP/1.0\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response.contains(r#""health":"true""#))
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            // The kill fails only for a process that has ended.
            drop(self.kill(index));
        }
    }
}
