//! Forks: control planes that begin with the state of another one, in its process.
//!
//! A control plane and all that were forked from it, or from its forks, share one [`Family`]: the
//! names, and how many there may be. A fork is started as any control plane is (`start/`), with an
//! [`Origin`] that it takes its store, its keys and its time from.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::FindBelow;
use coracle_builtin::services::ServiceUrlError;
use coracle_kubeconfig::Name;
use coracle_storage::log::LogError;
use coracle_storage::{Store, StoreError};
use coracle_testing_api::{FORK_PATHS, Fork, ForkRequest, Forks, no_fork};
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::control_plane::ControlPlane;
use crate::error;
use crate::options::ForkOptions;
use crate::recording::Recording;
use crate::start::{Origin, Phase};
use crate::workers::{Worker, Workers};

/// The maximum number of Services of a fork that a client gives a URL.
const MAX_URLS: usize = 1000;

/// The maximum number of generations of a family, the original control plane included. Each fork
/// keeps an address and an authority for each generation before it.
pub const MAX_GENERATIONS: usize = 64;

/// The open files that are left to others than forks and their clients, or half of all.
const OTHER_FILES: usize = 256;
/// The open files of a fork: the listener, and the connection of a client.
const FILES_OF_FORK: usize = 2;

/// The characters of a name that is made up.
const MADE_UP: usize = 5;

/// A control plane and its forks.
pub struct Family {
    places: Arc<Semaphore>,
    most: usize,
    /// The number of forks that the open files suffice for.
    most_by_files: usize,
    /// The forks that clients asked for.
    forks: Mutex<Members>,
    workers: Workers,
    recording: OnceLock<Recording>,
    /// The number of control planes so far.
    begun: AtomicU64,
}

/// The forks that clients asked for. They end with the original control plane.
#[derive(Default)]
struct Members {
    by_name: BTreeMap<String, Member>,
    has_ended: bool,
}

impl Members {
    /// Ends them. There are no others afterwards.
    fn end(&mut self) -> BTreeMap<String, Member> {
        self.has_ended = true;
        std::mem::take(&mut self.by_name)
    }

    fn started(&self, name: &str) -> Option<&Started> {
        self.by_name.get(name)?.started.as_ref()
    }
}

/// A fork that a client asked for.
struct Member {
    /// The control planes from which it descends.
    ancestors: Lineage,
    /// None while it is being started.
    started: Option<Started>,
}

struct Started {
    fork: Fork,
    control_plane: ControlPlane,
}

/// A control plane and those from which it descends, also those that have ended, the original one
/// first. Names do not identify them: a name is free again when its fork ends.
#[derive(Clone, Debug)]
pub struct Lineage(Arc<[u64]>);

impl Lineage {
    /// Returns `true` if it is that of a fork.
    pub fn is_of_fork(&self) -> bool {
        self.0.len() > 1
    }

    /// Returns `true` if it contains the control plane of another lineage.
    fn contains_last_of(&self, other: &Lineage) -> bool {
        other.0.last().is_some_and(|last| self.0.contains(last))
    }
}

/// A place among the forks of a family and on one of its threads, as long as a fork exists.
pub struct Place {
    /// The thread of the fork.
    pub worker: Worker,
    _permit: OwnedSemaphorePermit,
}

impl Family {
    /// Creates a family of one control plane.
    ///
    /// - `most`: the maximum number of forks
    /// - `open_files`: the number of files that the process may have open
    pub fn new(most: usize, open_files: usize) -> Arc<Family> {
        let most_by_files = (open_files - OTHER_FILES.min(open_files / 2)) / FILES_OF_FORK;
        let places = most.min(most_by_files).min(Semaphore::MAX_PERMITS);
        Arc::new(Family {
            places: Arc::new(Semaphore::new(places)),
            most,
            most_by_files,
            forks: Mutex::default(),
            workers: Workers::default(),
            recording: OnceLock::new(),
            begun: AtomicU64::new(0),
        })
    }

    /// Returns the lineage of another control plane.
    ///
    /// - `ancestors`: those of a fork, with its parent
    pub fn lineage(&self, ancestors: Option<&Lineage>) -> Lineage {
        let own = self.begun.fetch_add(1, Ordering::Relaxed);
        let ancestors = ancestors.into_iter().flat_map(|ancestors| ancestors.0.iter().copied());
        Lineage(ancestors.chain([own]).collect())
    }

    /// Registers a recording that is finished when the family ends.
    pub fn record(&self, recording: Recording) {
        // One member begins it.
        drop(self.recording.set(recording));
    }

    /// Takes a place for another fork.
    ///
    /// - `ancestors`: its parent, and those from which that descends
    ///
    /// # Errors
    /// There are as many forks as there may be, or as many generations, or no thread can be
    /// started.
    pub fn place(&self, ancestors: &Lineage) -> Result<Place, error::Error> {
        if ancestors.0.len() >= MAX_GENERATIONS {
            return Err(error::Error::Generations(MAX_GENERATIONS));
        }
        let permit = self.places.clone().try_acquire_owned();
        let permit = permit.map_err(|_| match self.most <= self.most_by_files {
            true => error::Error::Forks(self.most),
            false => error::Error::OpenFiles(self.most_by_files),
        })?;
        let worker = self.workers.take().map_err(error::Error::Workers)?;
        Ok(Place { worker, _permit: permit })
    }

    /// Finds the fork that a path leads to below the address of the original control plane.
    pub fn below(self: &Arc<Family>) -> FindBelow {
        let family = self.clone();
        Arc::new(move |path| {
            let rest = path.strip_prefix(FORK_PATHS)?;
            let name = rest.split('/').next().unwrap_or_default();
            let forks = family.forks.lock();
            Some((forks.started(name)?.control_plane.api(), FORK_PATHS.len() + name.len()))
        })
    }
}

/// The end of a family: the forks that clients asked for end with the original control plane.
pub struct EndOfFamily(pub Arc<Family>);

impl Phase for EndOfFamily {
    fn abort(&mut self) {
        let forks = self.0.forks.lock().end();
        // Dropped forks end in the background.
        drop(forks);
    }

    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        let forks = self.0.forks.lock().end();
        Box::pin(async move {
            let started = forks.into_values().filter_map(|member| member.started);
            futures::future::join_all(started.map(|started| started.control_plane.shutdown())).await;
            if let Some(recording) = self.0.recording.get() {
                recording.finish().await;
            }
            Ok(())
        })
    }
}

/// Keeps the family of a fork, which owns its threads, until the fork has stopped.
pub struct OfFamily(pub Arc<Family>);

impl Phase for OfFamily {
    fn stop(self: Box<Self>) -> BoxFuture<'static, Result<(), StoreError>> {
        Box::pin(async move {
            drop(self.0);
            Ok(())
        })
    }
}

/// The forks of one member of a family, for clients.
pub struct ForksOf {
    pub family: Arc<Family>,
    /// The member itself. Its clients may have no rights in the other members, and so see and end
    /// only its descendants.
    pub origin: Arc<Origin>,
}

/// A name that is taken while a fork of it is started, which a client that leaves ends.
struct Reserved {
    family: Arc<Family>,
    name: String,
    is_used: bool,
}

impl Reserved {
    /// Puts the fork in its place. Returns it if the family has ended meanwhile.
    fn fill(mut self, started: Started) -> Option<Started> {
        let mut forks = self.family.forks.lock();
        // Only the end of the family takes it away meanwhile.
        let Some(member) = forks.by_name.get_mut(&self.name) else { return Some(started) };
        member.started = Some(started);
        drop(forks);
        self.is_used = true;
        None
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if !self.is_used {
            self.family.forks.lock().by_name.remove(&self.name);
        }
    }
}

impl ForksOf {
    /// Takes a name, or makes one up.
    fn reserve(&self, wanted: Option<&str>) -> Result<Reserved> {
        let mut forks = self.family.forks.lock();
        if forks.has_ended {
            return Err(ended());
        }
        let forks = &mut forks.by_name;
        let made_up = || {
            let id = uuid::Uuid::new_v4().simple().to_string();
            format!("fork-{}", &id[..MADE_UP])
        };
        let name = match wanted {
            Some(name) if forks.contains_key(name) => {
                return Err(Error::plain(409, "AlreadyExists", format!("fork {name:?} already exists")));
            }
            Some(name) => name.to_owned(),
            None => loop {
                let name = made_up();
                if !forks.contains_key(&name) {
                    break name;
                }
            },
        };
        forks.insert(name.clone(), Member { ancestors: self.origin.lineage.clone(), started: None });
        Ok(Reserved { family: self.family.clone(), name, is_used: false })
    }

    /// Returns `true` if a fork descends from this member.
    fn is_visible(&self, member: &Member) -> bool {
        member.ancestors.contains_last_of(&self.origin.lineage)
    }

    async fn start(&self, reserved: Reserved, options: ForkOptions) -> Result<Fork> {
        let name = reserved.name.clone();
        let started = ControlPlane::fork_of(&self.origin, &self.family, Some(&name), options).await;
        let control_plane = started.map_err(|error| match error {
            error::Error::Forks(_)
            | error::Error::OpenFiles(_)
            | error::Error::SpaceOfForks(_)
            | error::Error::Generations(_) => Error::plain(429, "TooManyRequests", error.to_string()),
            error::Error::Log(LogError::Closed) => no_fork(&self.origin.fork),
            error => Error::Internal(error.to_string()),
        })?;
        let fork = Fork {
            path: format!("{FORK_PATHS}{name}"),
            parent: self.origin.fork.clone(),
            server: control_plane.url(),
            kubeconfig: control_plane.kubeconfig_of_server(),
            resource_version: control_plane.began_at().to_string(),
            name,
        };
        match reserved.fill(Started { fork: fork.clone(), control_plane }) {
            None => Ok(fork),
            Some(late) => {
                // It logs what it cannot stop.
                let _ = late.control_plane.shutdown().await;
                Err(ended())
            }
        }
    }
}

impl Forks for ForksOf {
    fn create(&self, request: ForkRequest) -> BoxFuture<'_, Result<Fork>> {
        Box::pin(async move {
            let options = options(&request)?;
            let reserved = self.reserve(request.checked_name()?)?;
            self.start(reserved, options).await
        })
    }

    fn list(&self) -> Vec<Fork> {
        let forks = self.family.forks.lock();
        let visible = forks.by_name.values().filter(|member| self.is_visible(member));
        visible.filter_map(|member| Some(member.started.as_ref()?.fork.clone())).collect()
    }

    fn store(&self, name: &str) -> Option<Store<ObjectIndex>> {
        let forks = self.family.forks.lock();
        let member = forks.by_name.get(name).filter(|member| self.is_visible(member))?;
        Some(member.started.as_ref()?.control_plane.store())
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let taken = {
                let mut forks = self.family.forks.lock();
                match forks.by_name.get(name).filter(|member| self.is_visible(member)) {
                    None => None,
                    Some(Member { started: Some(_), .. }) => forks.by_name.remove(name),
                    Some(Member { started: None, .. }) => {
                        return Err(Error::plain(409, "Conflict", format!("fork {name:?} is being started")));
                    }
                }
            };
            let Some(started) = taken.and_then(|member| member.started) else {
                return Err(no_fork(name));
            };
            // It goes on if the client leaves, and the place is free once it is done. The fork logs
            // what it cannot stop.
            let _ = tokio::spawn(started.control_plane.shutdown()).await;
            Ok(())
        })
    }
}

/// Parses the options that a client requests.
///
/// # Errors
/// 422 for an invalid NAMESPACE/NAME, for a URL without `https`, and for too many of them.
fn options(request: &ForkRequest) -> Result<ForkOptions> {
    let invalid = |detail: String| Error::plain(422, "Invalid", format!("webhookServiceURLs: {detail}"));
    if request.webhook_service_urls.len() > MAX_URLS {
        return Err(invalid(format!("there are more than {MAX_URLS}")));
    }
    let parse = |(service, url): (&String, &String)| {
        format!("{service}={url}").parse().map_err(|error: ServiceUrlError| invalid(error.to_string()))
    };
    let webhook_service_urls = request.webhook_service_urls.iter().map(parse).collect::<Result<_>>()?;
    Ok(ForkOptions { clock: request.clock, webhook_service_urls })
}

fn ended() -> Error {
    Error::plain(
        503,
        "ServiceUnavailable",
        "the original control plane has ended, and with it all forks of clients",
    )
}

/// Returns the name of a fork in kubeconfigs.
pub fn context(origin: &Name, fork: &str) -> Name {
    format!("{origin}-{fork}").parse().unwrap_or_else(|_| origin.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lineage_is_that_of_control_planes_and_not_of_names() {
        let family = Family::new(0, usize::MAX);
        let original = family.lineage(None);
        let (a, other) = (family.lineage(Some(&original)), family.lineage(Some(&original)));
        let b = family.lineage(Some(&a));
        assert!(!original.is_of_fork() && a.is_of_fork() && b.is_of_fork());
        for (ancestors, member, want) in
            [(&original, &original, true), (&a, &original, true), (&b, &a, true), (&b, &other, false)]
        {
            assert_eq!(ancestors.contains_last_of(member), want, "{ancestors:?} {member:?}");
        }
    }

    #[test]
    fn generations_have_a_limit() {
        let family = Family::new(1, usize::MAX);
        let mut last = family.lineage(None);
        for _ in 1..MAX_GENERATIONS {
            drop(family.place(&last).unwrap());
            last = family.lineage(Some(&last));
        }
        let refused = family.place(&last).err();
        assert!(matches!(refused, Some(error::Error::Generations(MAX_GENERATIONS))), "{refused:?}");
    }

    #[test]
    fn forks_need_open_files() {
        let family = Family::new(1000, 2 * 2 * FILES_OF_FORK);
        let lineage = family.lineage(None);
        let places = [family.place(&lineage).unwrap(), family.place(&lineage).unwrap()];
        assert!(matches!(family.place(&lineage).err(), Some(error::Error::OpenFiles(2))));
        drop(places);
        assert!(family.place(&lineage).is_ok());
        let family = Family::new(0, usize::MAX);
        assert!(matches!(family.place(&family.lineage(None)).err(), Some(error::Error::Forks(0))));
    }
}
