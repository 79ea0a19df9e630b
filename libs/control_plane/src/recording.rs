//! The recording of a control plane and its forks in one file.
//!
//! One [`Recorder`] is shared by a control plane and all that are forked from it. It is fed by
//! observers: of the events of each store, of the requests to each server, of the passes of the
//! controllers, and of the steps of manual clocks. Without a recording none of them exists.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_apimachinery::request::info::RequestInfo;
use coracle_apiserver::registry::ObjectIndex;
use coracle_apiserver::serve::{CompletedRequest, ObserveRequests};
use coracle_clock::Clock;
use coracle_controller_runtime::{Action, ObservePasses};
use coracle_record::{
    Author, ClockMode, ClockStep, Entry, Fork, Pass, PassOutcome, Recorder, Request, Run, Version,
};
use coracle_storage::{Event, Object, Revision, Store, StoreError};
use coracle_testing_api::{FORK_PATHS, PAGE};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::error::Error;
use crate::options::Options;

/// The recording of one control plane. Clones are of the same one.
#[derive(Clone)]
pub struct Recording {
    shared: Arc<Shared>,
    /// The name of the fork in the record; empty for the original control plane.
    fork: Arc<str>,
    clock: Clock,
}

struct Shared {
    recorder: Recorder,
    path: PathBuf,
    /// Whether secrets are recorded, too.
    has_secrets: bool,
    /// The names of forks in the record.
    names: Mutex<HashSet<Arc<str>>>,
}

impl Recording {
    /// Creates the file that the options name; None if they name none.
    ///
    /// # Errors
    /// There is something at the path, or the file cannot be created.
    pub fn create(options: &Options, clock: &Clock, is_manual: bool) -> Result<Option<Recording>, Error> {
        let Some(path) = &options.record else { return Ok(None) };
        let run = Run {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: clock.now(),
            command: options.command.clone(),
            clock: if is_manual { ClockMode::Manual } else { ClockMode::Real },
            seed: options.seed.map(|seed| seed.0),
        };
        let record_options = coracle_record::Options {
            max_bytes: options.record_max_bytes,
            redact_secrets: !options.record_secrets,
            ..coracle_record::Options::default()
        };
        let recorder = Recorder::create(path, run, &record_options)?;
        let (path, has_secrets) = (path.clone(), options.record_secrets);
        let shared = Shared { recorder, path, has_secrets, names: Mutex::default() };
        Ok(Some(Recording { shared: Arc::new(shared), fork: "".into(), clock: clock.clone() }))
    }

    /// Creates the recording of a fork.
    ///
    /// - `name`: that of the fork, or empty; the record makes it unique among its forks
    /// - `began_at`: the revision of this control plane that the fork begins with
    pub fn fork(&self, name: &str, began_at: Revision, clock: &Clock) -> Recording {
        let fork = self.shared.unique(name);
        let (parent, revision, time) = (self.fork.clone(), began_at.0, clock.now());
        self.append(Entry::Fork(Box::new(Fork { name: fork.clone(), parent, revision, time })));
        Recording { shared: self.shared.clone(), fork, clock: clock.clone() }
    }

    /// Records the events of a store from now on, and its current objects if this is not a fork.
    ///
    /// # Errors
    /// The store is closed, or its log has failed.
    pub async fn observe(&self, store: &Store<ObjectIndex>) -> Result<(), StoreError> {
        let recording = self.clone();
        let observer = move |event: &Arc<Event<ObjectIndex>>| recording.append(recording.version(event));
        let beginning = store.observe(Box::new(observer)).await?;
        if self.fork.is_empty() {
            for (name, _) in beginning.buckets() {
                beginning.bucket(name).iter().for_each(|object| self.append(self.first_version(object)));
            }
            self.append(Entry::Base { revision: beginning.revision().0 });
        }
        Ok(())
    }

    /// Creates an observer of the requests to the server.
    pub fn requests(&self) -> Arc<dyn ObserveRequests> {
        Arc::new(self.clone())
    }

    /// Creates an observer of the passes of the controllers.
    pub fn passes(&self) -> ObservePasses {
        let recording = self.clone();
        Arc::new(move |pass| {
            recording.append(Entry::Pass(Box::new(Pass {
                fork: recording.fork.clone(),
                controller: pass.controller.into(),
                key: pass.key.as_str().into(),
                started: pass.started,
                duration: pass.took,
                outcome: match pass.outcome {
                    Ok(Action::AwaitChange | Action::Cancel(_)) => PassOutcome::Done,
                    Ok(Action::Requeue(delay)) => PassOutcome::Requeued { after: delay.delay },
                    Err(error) => PassOutcome::Failed { error: error.to_string().into() },
                },
            })));
        })
    }

    /// Creates an observer of the steps of a manual clock.
    pub fn clock_steps(&self) -> impl Fn(Timestamp) + Send + Sync + 'static {
        let (recording, last) = (self.clone(), Mutex::new(self.clock.now()));
        move |to| {
            let from = std::mem::replace(&mut *last.lock(), to);
            recording.append(Entry::ClockStep(ClockStep { fork: recording.fork.clone(), from, to }));
        }
    }

    /// Finishes the file. What happens later is not recorded.
    pub async fn finish(&self) {
        let shared = self.shared.clone();
        let finish = move || {
            let statistics = shared.recorder.finish();
            let path = shared.path.display();
            tracing::info!(%path, ?statistics, "the record is finished");
            if statistics.dropped > 0 {
                let coracle_record::Statistics { dropped, stopped, .. } = statistics;
                tracing::warn!(%path, dropped, ?stopped, "the record lacks entries");
            }
        };
        // A panic there is reported on standard error.
        let _ = tokio::task::spawn_blocking(finish).await;
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    fn append(&self, entry: Entry) {
        self.shared.recorder.append(entry);
    }

    fn version(&self, event: &Event<ObjectIndex>) -> Entry {
        let author = event.author.as_ref().map(|author| Author {
            user: author.request.user.clone(),
            user_agent: author.request.user_agent.clone(),
            verb: author.request.verb.as_str().into(),
            subresource: author.request.subresource.clone(),
        });
        Entry::Version(Box::new(Version {
            fork: self.fork.clone(),
            revision: event.revision.0,
            time: event.author.as_ref().map_or_else(|| self.clock.now(), |author| author.time),
            bucket: event.key.bucket().clone(),
            key: event.key.name().clone(),
            author,
            object: event.after.as_ref().map(|object| object.to_stored()),
        }))
    }

    /// Builds the entry of an object that existed at the beginning.
    fn first_version(&self, object: &Object<ObjectIndex>) -> Entry {
        Entry::Version(Box::new(Version {
            fork: self.fork.clone(),
            revision: object.revision.0,
            time: self.clock.now(),
            bucket: object.key.bucket().clone(),
            key: object.key.name().clone(),
            author: None,
            object: Some(object.to_stored()),
        }))
    }
}

impl ObserveRequests for Recording {
    fn completed(&self, request: &CompletedRequest<'_>) {
        // A request to a fork below this address is recorded by the fork, and one of the page
        // changes nothing.
        if request.path.starts_with(FORK_PATHS) || request.path.starts_with(PAGE) {
            return;
        }
        let status = request.refusal;
        let mut entry = Request {
            fork: self.fork.clone(),
            time: self.clock.now(),
            duration: request.took,
            user: request.user.into(),
            user_agent: request.user_agent.into(),
            is_own: request.is_own,
            verb: "".into(),
            group: "".into(),
            resource: "".into(),
            subresource: "".into(),
            namespace: "".into(),
            name: "".into(),
            path: if self.shared.has_secrets { request.path.into() } else { path_of(request).into() },
            code: request.code,
            reason: status.map_or("", |status| &status.reason).into(),
            message: status.map_or("", |status| &status.message).into(),
            content_type: request.content_type.into(),
            // Requests of the control plane itself are not sent again.
            body: request.body.filter(|body| !body.is_empty() && !is_connection(request.info)).cloned(),
        };
        match request.info {
            RequestInfo::Path { verb, .. } => entry.verb = verb.as_str().into(),
            RequestInfo::Resource(resource) => {
                entry.verb = resource.verb.as_str().into();
                entry.group = resource.group.as_str().into();
                entry.resource = resource.resource.as_str().into();
                entry.subresource = resource.subresource.as_str().into();
                entry.namespace = resource.namespace.as_str().into();
                entry.name = request.name.into();
            }
        }
        self.append(Entry::Request(Box::new(entry)));
    }
}

/// Returns `true` if a request opens a connection to a pod or a Service. Its body and its query
/// belong to the application.
fn is_connection(info: &RequestInfo) -> bool {
    matches!(info, RequestInfo::Resource(request)
        if ["attach", "exec", "portforward", "proxy"].contains(&&*request.subresource))
}

/// Returns the path of a request. It includes the query only of requests for resources, except
/// connections, since the query of others may have secrets.
fn path_of<'a>(request: &'a CompletedRequest<'_>) -> &'a str {
    let has_options = matches!(request.info, RequestInfo::Resource(_)) && !is_connection(request.info);
    if has_options { request.path } else { request.path.split('?').next().unwrap_or_default() }
}

impl Shared {
    /// Returns a name that no other fork has. It is the wanted one, or begins with it.
    fn unique(&self, wanted: &str) -> Arc<str> {
        let mut names = self.names.lock();
        let base = if wanted.is_empty() { "fork" } else { wanted };
        let first = Some(base.to_owned()).filter(|_| !wanted.is_empty());
        let mut candidates = first.into_iter().chain((1..).map(|number| format!("{base}-{number}")));
        let name: Arc<str> = candidates.find(|name| !names.contains(&**name)).unwrap_or_default().into();
        names.insert(name.clone());
        name
    }
}
