//! The errors of a control plane's start and maintenance.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use coracle_apimachinery::features::GateError;
use coracle_apiserver::access::certificates::CertificateError;
use coracle_apiserver::access::jwt::KeyError;
use coracle_apiserver::access::token_file::TokenFileError;
use coracle_apiserver::audit::AuditError;
use coracle_apiserver::telemetry::tracer::TracingError;
use coracle_storage::backup::{BackupError, RestoreError};
use coracle_storage::log::LogError;
use coracle_storage_etcd::EtcdError;

use crate::controllers::UnknownController;

/// The reasons for which a control plane does not start. Each is one line for the operator.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address is not available.
    #[error("cannot listen on {address}: {cause}")]
    Listen {
        /// The address to serve on.
        address: SocketAddr,
        /// The error of the operating system.
        cause: io::Error,
    },
    /// The log cannot be opened: it is in use, damaged, or not readable.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The etcd servers or their TLS options cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// A manual clock was requested with an etcd cluster.
    #[error("there is no manual clock for an etcd cluster, whose leases go by its own time")]
    ManualClock,
    /// A seed was requested with an etcd cluster.
    #[error("there is no seed for an etcd cluster, whose other servers would make up the same UIDs")]
    Seed,
    /// The file with the time of a manual clock cannot be used.
    #[error("{path}: {why}", path = .path.display())]
    ClockFile {
        /// The path.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The CA or the serving certificate cannot be read or created.
    #[error(transparent)]
    Certificates(#[from] CertificateError),
    /// The key that signs service account tokens cannot be read or created.
    #[error(transparent)]
    SigningKey(#[from] KeyError),
    /// The file of bearer tokens cannot be read.
    #[error(transparent)]
    TokenFile(#[from] TokenFileError),
    /// The audit policy or the audit log cannot be used.
    #[error(transparent)]
    Audit(#[from] AuditError),
    /// The tracing configuration cannot be used.
    #[error(transparent)]
    Tracing(#[from] TracingError),
    /// A feature gate is unknown or locked.
    #[error(transparent)]
    FeatureGate(#[from] GateError),
    /// A controller to select or to exclude is unknown.
    #[error(transparent)]
    Controller(#[from] UnknownController),
    /// The record cannot be created or read.
    #[error(transparent)]
    Record(#[from] coracle_record::Error),
    /// A record has nothing up to a moment.
    #[error("{path}: the record has nothing up to {at}; it begins with revision {base}", path = .path.display())]
    EmptyRecord {
        /// The file.
        path: PathBuf,
        /// The moment.
        at: String,
        /// The revision that it begins with.
        base: u64,
    },
    /// A record ends before a revision.
    #[error("{path}: the record has no revision {at}; it ends with revision {last}", path = .path.display())]
    LateRevision {
        /// The file.
        path: PathBuf,
        /// The revision.
        at: u64,
        /// The revision that it ends with.
        last: u64,
    },
    /// A record has no fork of a name.
    #[error("{path}: the record has no fork {fork:?}; it has {}", if .known.is_empty() { "none".to_owned() } else { .known.join(", ") }, path = .path.display())]
    NoForkInRecord {
        /// The file.
        path: PathBuf,
        /// The name.
        fork: String,
        /// The names of all forks.
        known: Vec<String>,
    },
    /// A record has more versions than are held in memory.
    #[error("{path}: the versions take more than {limit} bytes of memory; open an earlier moment (--at)", path = .path.display())]
    LargeRecord {
        /// The file.
        path: PathBuf,
        /// The limit in bytes.
        limit: usize,
    },
    /// The limit of forks is reached.
    #[error("there are {0} forks, and there may be no more (--max-forks)")]
    Forks(usize),
    /// The limit of forks by the files that the process may have open is reached.
    #[error("there are {0} forks, and the system allows too few open files for more (ulimit -n)")]
    OpenFiles(usize),
    /// The limit of the bytes that forks do not share is reached.
    #[error(
        "forks have {0} bytes of objects beside those that they share, and may have no more (--max-store-bytes)"
    )]
    SpaceOfForks(u64),
    /// The limit of generations is reached.
    #[error("this fork is of generation {0} of its family, and there may be no more generations")]
    Generations(usize),
    /// The threads of forks cannot be started.
    #[error("cannot start the threads of forks: {0}")]
    Workers(io::Error),
    /// The bootstrap objects cannot be stored.
    #[error("cannot make the first objects: {0}")]
    Bootstrap(String),
    /// A file is not a sound backup.
    #[error("{path}: {cause}", path = .path.display())]
    Backup {
        /// The file.
        path: PathBuf,
        /// The defect of the file.
        cause: BackupError,
    },
    /// A backup cannot be restored.
    #[error(transparent)]
    Restore(#[from] RestoreError),
    /// A data directory has a store already.
    #[error("{path} has a store already", path = .0.display())]
    HasStore(PathBuf),
    /// A file or directory cannot be used.
    #[error("{path}: {cause}", path = .path.display())]
    File {
        /// The path.
        path: PathBuf,
        /// The error of the operating system.
        cause: io::Error,
    },
}
