//! Forks: control planes that begin with the state of another one, in its process.
//!
//! A control plane and all that were forked from it, or from its forks, share one [`Family`]: the
//! names, and how many there may be. A fork is started as any control plane is (`start/`), with an
//! [`Origin`] that it takes its store, its keys and its time from.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use coracle_apimachinery::{Error, Result};
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::FindBelow;
use coracle_builtin::services::ServiceUrlError;
use coracle_kubeconfig::Name;
use coracle_storage::{Store, StoreError};
use coracle_testing_api::{FORK_PATHS, Fork, ForkRequest, Forks};
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

/// The characters of a name that is made up.
const MADE_UP: usize = 5;

/// A control plane and its forks.
pub struct Family {
    places: Arc<Semaphore>,
    most: usize,
    /// The forks that clients asked for.
    forks: Mutex<Members>,
    workers: Workers,
    recording: OnceLock<Recording>,
}

/// The forks that clients asked for. They end with the original control plane.
#[derive(Default)]
struct Members {
    /// None while one is being started.
    by_name: BTreeMap<String, Option<Member>>,
    has_ended: bool,
}

impl Members {
    /// Ends them. There are no others afterwards.
    fn end(&mut self) -> BTreeMap<String, Option<Member>> {
        self.has_ended = true;
        std::mem::take(&mut self.by_name)
    }

    fn get(&self, name: &str) -> Option<&Member> {
        self.by_name.get(name)?.as_ref()
    }
}

/// A fork that a client asked for.
struct Member {
    fork: Fork,
    control_plane: ControlPlane,
}

/// A place among the forks of a family and on one of its threads, as long as a fork exists.
pub struct Place {
    /// The thread of the fork.
    pub worker: Worker,
    _permit: OwnedSemaphorePermit,
}

impl Family {
    /// Creates a family of one control plane, with at most `most` forks.
    pub fn new(most: usize) -> Arc<Family> {
        let places = Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)));
        Arc::new(Family {
            places,
            most,
            forks: Mutex::default(),
            workers: Workers::default(),
            recording: OnceLock::new(),
        })
    }

    /// Registers a recording that is finished when the family ends.
    pub fn record(&self, recording: Recording) {
        // One member begins it.
        drop(self.recording.set(recording));
    }

    /// Takes a place for another fork.
    ///
    /// # Errors
    /// There are as many forks as there may be, or no thread can be started.
    pub fn place(&self) -> Result<Place, error::Error> {
        let permit = self.places.clone().try_acquire_owned();
        let permit = permit.map_err(|_| error::Error::Forks(self.most))?;
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
            Some((forks.get(name)?.control_plane.api(), FORK_PATHS.len() + name.len()))
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
            let ends = forks.into_values().flatten().map(|member| member.control_plane.shutdown());
            futures::future::join_all(ends).await;
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
    pub origin: Arc<Origin>,
    /// Whether the member itself is a fork. Its clients may have no rights in the other members,
    /// and so see and end only its own descendants.
    pub is_fork: bool,
}

/// A name that is taken while a fork of it is started, which a client that leaves ends.
struct Reserved {
    family: Arc<Family>,
    name: String,
    is_used: bool,
}

impl Reserved {
    /// Puts the fork in its place. Returns it if the family has ended meanwhile.
    fn fill(mut self, member: Member) -> Option<Member> {
        let mut forks = self.family.forks.lock();
        if forks.has_ended {
            return Some(member);
        }
        forks.by_name.insert(self.name.clone(), Some(member));
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
        forks.insert(name.clone(), None);
        Ok(Reserved { family: self.family.clone(), name, is_used: false })
    }

    /// Returns `true` if a fork descends from this member. The chain of parents must still exist.
    fn is_visible(&self, forks: &Members, name: &str) -> bool {
        let mut name = name;
        // Each has begun after its parent, so that this ends.
        while let Some(member) = forks.get(name) {
            if !self.is_fork || (!self.origin.fork.is_empty() && member.fork.parent == self.origin.fork) {
                return true;
            }
            name = &member.fork.parent;
        }
        false
    }

    async fn start(&self, reserved: Reserved, options: ForkOptions) -> Result<Fork> {
        let name = reserved.name.clone();
        let started = ControlPlane::fork_of(&self.origin, &self.family, Some(&name), options).await;
        let control_plane = started.map_err(|error| match error {
            error::Error::Forks(_) => Error::plain(429, "TooManyRequests", error.to_string()),
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
        match reserved.fill(Member { fork: fork.clone(), control_plane }) {
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
        let visible =
            forks.by_name.values().flatten().filter(|member| self.is_visible(&forks, &member.fork.name));
        visible.map(|member| member.fork.clone()).collect()
    }

    fn store(&self, name: &str) -> Option<Store<ObjectIndex>> {
        let forks = self.family.forks.lock();
        Some(forks.get(name).filter(|_| self.is_visible(&forks, name))?.control_plane.store())
    }

    fn delete<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let taken = {
                let mut forks = self.family.forks.lock();
                match forks.by_name.get(name) {
                    Some(Some(_)) if !self.is_visible(&forks, name) => None,
                    Some(Some(_)) => forks.by_name.remove(name).flatten(),
                    Some(None) => {
                        return Err(Error::plain(409, "Conflict", format!("fork {name:?} is being started")));
                    }
                    None => None,
                }
            };
            let Some(member) = taken else {
                return Err(Error::plain(404, "NotFound", format!("fork {name:?} not found")));
            };
            // It goes on if the client leaves, and the place is free once it is done. The fork logs
            // what it cannot stop.
            let _ = tokio::spawn(member.control_plane.shutdown()).await;
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
