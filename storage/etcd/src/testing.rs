//! etcd servers for tests: clusters on free ports, with their data in a temporary directory.

use std::{
    env,
    fs::File,
    io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

/// A running cluster. It ends, with its data, when it is dropped.
pub struct EtcdCluster {
    members: Vec<Member>,
    directory: TempDir,
    program: PathBuf,
}

struct Member {
    name: String,
    client_url: String,
    peer_url: String,
    /// None while it is stopped.
    process: Option<Child>,
}

/// Is there an etcd server on this machine? Its path.
pub fn etcd_program() -> Option<PathBuf> {
    let paths = env::var_os("PATH")?;
    env::split_paths(&paths).map(|directory| directory.join("etcd")).find(|program| program.is_file())
}

/// Starts a cluster. Where etcd is not installed this prints that the test is skipped, and returns None.
///
/// # Errors
/// A server cannot be started.
pub fn start_or_skip(members: usize) -> io::Result<Option<EtcdCluster>> {
    match etcd_program() {
        Some(program) => EtcdCluster::start(program, members).map(Some),
        None => {
            eprintln!("SKIPPED: this test needs an etcd server (apt-get install etcd-server)");
            Ok(None)
        }
    }
}

impl EtcdCluster {
    /// Starts a cluster of so many members. They may need a moment until they respond.
    ///
    /// # Errors
    /// A server cannot be started.
    pub fn start(program: PathBuf, members: usize) -> io::Result<EtcdCluster> {
        // Memory, where there is such a directory: a disk's flushes are of no use here.
        let memory = Path::new("/dev/shm");
        let directory = match memory.is_dir() {
            true => tempfile::tempdir_in(memory)?,
            false => tempfile::tempdir()?,
        };
        // All are bound before any is released, so that no port is given twice.
        let listen = |_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listeners = (0..2 * members).map(listen).collect::<io::Result<Vec<_>>>()?;
        let url = |listener: &TcpListener| Ok(format!("http://{}", listener.local_addr()?));
        let urls = listeners.iter().map(url).collect::<io::Result<Vec<String>>>()?;
        drop(listeners);
        let member = |(index, urls): (usize, &[String])| match urls {
            [client_url, peer_url] => Some(Member {
                name: format!("m{index}"),
                client_url: client_url.clone(),
                peer_url: peer_url.clone(),
                process: None,
            }),
            _ => None,
        };
        let members: Vec<_> = urls.chunks(2).enumerate().filter_map(member).collect();
        let mut cluster = EtcdCluster { members, directory, program };
        for index in 0..cluster.members.len() {
            cluster.restart(index)?;
        }
        Ok(cluster)
    }

    /// The URLs of the members.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client_url.clone()).collect()
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

    /// Starts a member that was killed, with its data.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        let peers: Vec<_> =
            self.members.iter().map(|member| format!("{}={}", member.name, member.peer_url)).collect();
        let Some(member) = self.members.get_mut(index) else { return Ok(()) };
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join(format!("{}.log", member.name)))?;
        let process = Command::new(&self.program)
            .args(["--name", &member.name, "--data-dir"])
            .arg(self.directory.path().join(&member.name))
            .args(["--listen-client-urls", &member.client_url, "--advertise-client-urls", &member.client_url])
            .args(["--listen-peer-urls", &member.peer_url, "--initial-advertise-peer-urls", &member.peer_url])
            .args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"])
            // Elections within a test's patience; transactions as large as the contract has them.
            .args(["--heartbeat-interval", "20", "--election-timeout", "200", "--max-txn-ops", "1024"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        member.process = Some(process);
        Ok(())
    }

    /// What the members have logged, for the message of a failed test.
    pub fn logs(&self) -> PathBuf {
        self.directory.path().to_owned()
    }
}

impl Drop for EtcdCluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            // What cannot be killed has ended.
            drop(self.kill(index));
        }
    }
}
