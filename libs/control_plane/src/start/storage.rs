//! The store: a log of our own, in memory or in the data directory, or an etcd cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::resource_info::SharedResourceTable;
use coracle_apiserver::registry::{Author, ObjectIndex, fork_store, open_recorded_store, open_store};
use coracle_storage::log::{EphemeralLog, FixedLog, Log, SledLog};
use coracle_storage::{History, Limits, Revision, Store, StoreError};
use futures::future::{BoxFuture, FutureExt};

use super::blocking::blocking;
use super::origin::Origin;
use super::phase::{Phase, Started};
use crate::data_dir;
use crate::error::Error;
use crate::maintenance::STORE;
use crate::options::Options;

/// The age of history that is never forgotten.
const FOREVER: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// A store that releases its log when it is stopped.
struct OpenStore(Store<ObjectIndex>);

impl Phase for OpenStore {
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        async move {
            let closed = self.0.close().await;
            if let Err(error) = &closed {
                tracing::error!(%error, "the store did not close");
            }
            closed
        }
        .boxed()
    }
}

/// Prepares the data directory, if there is one, and opens the log in it; None if the objects are
/// elsewhere: in memory or in etcd. Blocks.
///
/// # Errors
/// The directory or the log cannot be used.
pub fn open_log(options: &Options) -> Result<Option<Box<dyn Log>>, Error> {
    if let Some(directory) = &options.data_dir {
        data_dir::prepare(directory).map_err(|cause| Error::File { path: directory.clone(), cause })?;
    }
    Ok(match (&options.etcd, &options.data_dir) {
        (None, Some(directory)) => Some(Box::new(SledLog::open(&directory.join(STORE), options.durability)?)),
        _ => None,
    })
}

/// Opens the store.
///
/// - `log`: that of [`open_log`]
///
/// # Errors
/// The log cannot be used.
pub async fn open(
    options: &Options,
    log: Option<Box<dyn Log>>,
    resources: Arc<SharedResourceTable>,
    started: &mut Started,
) -> Result<Store<ObjectIndex>, Error> {
    let log = match &options.etcd {
        Some(etcd) => Box::new(etcd.log(resources.clone(), options.event_ttl)?),
        None => log.unwrap_or_else(|| Box::new(EphemeralLog::new())),
    };
    let store_options = coracle_storage::Options { limits: limits(options), ..store_options() };
    let store = blocking(move || Ok(open_store(log, resources, store_options)?)).await?;
    started.push(OpenStore(store.clone()));
    Ok(store)
}

/// Forks the store of an origin.
///
/// # Errors
/// The origin is a fork whose store is closed, or the system has no more threads.
pub fn fork(
    origin: &Origin,
    options: &Options,
    resources: Arc<SharedResourceTable>,
    started: &mut Started,
) -> Result<Store<ObjectIndex>, Error> {
    let options = coracle_storage::Options { limits: limits(options), ..Default::default() };
    let store = fork_store(&origin.store, resources, &options)?;
    started.push(OpenStore(store.clone()));
    Ok(store)
}

/// Opens the store of a record.
///
/// # Errors
/// A version of the record cannot be read.
pub async fn open_record(
    log: FixedLog,
    authors: HashMap<Revision, Author>,
    resources: Arc<SharedResourceTable>,
    started: &mut Started,
) -> Result<Store<ObjectIndex>, Error> {
    let open = move || {
        // All of it is there to be looked at.
        let history = History { age: FOREVER, events: usize::MAX, bytes: usize::MAX };
        let limits = Limits { store_bytes: u64::MAX, ..Limits::default() };
        let options = coracle_storage::Options { history, limits, ..store_options() };
        let author = |revision| authors.get(&revision).cloned();
        Ok(open_recorded_store(Box::new(log), resources, options, &author)?)
    };
    let store = blocking(open).await?;
    started.push(OpenStore(store.clone()));
    Ok(store)
}

fn limits(options: &Options) -> Limits {
    Limits { store_bytes: options.store_bytes(), ..Limits::default() }
}

/// Returns the options of a store that reports on standard error when loading takes long.
#[expect(clippy::disallowed_methods, reason = "the time that loading takes is measured")]
fn store_options() -> coracle_storage::Options {
    const QUIET: Duration = Duration::from_secs(1);
    let started = std::time::Instant::now();
    let mut reported = started;
    coracle_storage::Options {
        progress: Some(Box::new(move |versions| {
            if reported.elapsed() > QUIET {
                reported = std::time::Instant::now();
                eprintln!("coracle: loading, {versions} versions so far");
            }
        })),
        ..coracle_storage::Options::default()
    }
}
