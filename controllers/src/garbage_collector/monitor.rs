//! Watches of the metadata of all deletable resources, as reported by discovery.

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use coracle_clock::{Activity, Clock, Work};
use coracle_controller_runtime::cache::{Event, Identified, ListScope, follow};
use coracle_controller_runtime::discovery::{Discovery, DiscoverySnapshot, ServedResource};
use coracle_controller_runtime::supervise::Supervisor;
use kube::{Client, Error};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::graph::{Change, Object, Uid};

/// The time after which the collector begins although some kinds could not be listed. Source:
/// `initialSyncTimeout` of upstream.
const INITIAL_SYNC: Duration = Duration::from_secs(30);

/// An event reported by a monitor.
#[derive(Debug)]
pub enum MonitorEvent {
    Change(Change),
    /// A complete list of a kind was reported: all other objects of the kind were deleted.
    Relisted {
        api_version: Arc<str>,
        kind: Arc<str>,
        seen: HashSet<Uid>,
        /// Set to true once the graph has the complete list: a worker that started earlier would
        /// take dependents that are not known yet for absent ones.
        synced: Arc<watch::Sender<bool>>,
    },
}

/// An event that is sent to the graph, which drops the work once it has processed the event.
pub type Reported = (MonitorEvent, Work);

/// The sender of events to the graph, which counts pending events as work.
#[derive(Clone)]
pub struct Reports {
    events: mpsc::UnboundedSender<Reported>,
    activity: Activity,
}

impl Reports {
    pub fn new(activity: Activity) -> (Reports, mpsc::UnboundedReceiver<Reported>) {
        let (events, receiver) = mpsc::unbounded_channel();
        (Reports { events, activity }, receiver)
    }

    pub fn send(&self, event: MonitorEvent) {
        // The receiver ends with the collector, and so do its monitors.
        drop(self.events.send((event, self.activity.begin())));
    }
}

/// The monitors, one a resource.
pub struct Monitors {
    reader: Client,
    clock: Clock,
    reports: Reports,
    running: HashMap<(String, String), Monitor>,
    tasks: JoinSet<()>,
    supervisor: Supervisor,
    /// Whether a kind that cannot be listed is not waited for: the collector of the parent of a fork
    /// did so.
    goes_on: bool,
}

struct Monitor {
    served: Arc<ServedResource>,
    synced: watch::Receiver<bool>,
    task: AbortHandle,
}

impl Monitors {
    pub fn new(
        reader: Client,
        clock: Clock,
        reports: Reports,
        supervisor: Supervisor,
        goes_on: bool,
    ) -> Monitors {
        let (running, tasks) = (HashMap::new(), JoinSet::new());
        Monitors { reader, clock, reports, running, tasks, supervisor, goes_on }
    }

    /// Follows discovery until dropped. `ready` is called once all objects that existed at the
    /// start are known.
    pub async fn run(mut self, resources: &Discovery, ready: impl FnOnce()) {
        let mut snapshots = resources.subscribe();
        let mut ready = Some(ready);
        loop {
            let snapshot = resources.current();
            self.follow(&snapshot);
            // The first snapshot is empty: nothing was fetched yet.
            if !self.running.is_empty()
                && let Some(ready) = ready.take()
            {
                #[expect(clippy::disallowed_methods, reason = "the server's time to respond")]
                if tokio::time::timeout(INITIAL_SYNC, self.synced()).await.is_err() {
                    tracing::warn!(
                        "the garbage collector begins without all objects: some kinds cannot be listed"
                    );
                }
                ready();
            }
            snapshots.changed().await;
        }
    }

    fn follow(&mut self, snapshot: &DiscoverySnapshot) {
        let key = |served: &ServedResource| (served.resource.group.clone(), served.resource.plural.clone());
        let watched: HashMap<_, _> =
            snapshot.preferred().filter(|served| is_monitored(served)).map(|s| (key(s), s)).collect();
        if snapshot.failed.is_empty() {
            // A group that could not be fetched may still be served.
            self.running.retain(|key, monitor| {
                let is_current = watched.get(key).is_some_and(|served| **served == monitor.served);
                if !is_current {
                    monitor.task.abort();
                }
                is_current
            });
        }
        for (key, served) in watched {
            if !self.running.contains_key(&key) {
                let source = (self.reader.clone(), self.clock.clone());
                let (reports, supervisor) = (self.reports.clone(), self.supervisor.clone());
                let (synced_sender, synced) = watch::channel(false);
                let (synced_sender, watched) = (Arc::new(synced_sender), served.clone());
                let first = Arc::new(Mutex::new(Some(reports.activity.begin())));
                let beginning = Beginning { synced: synced_sender, first, goes_on: self.goes_on };
                let start =
                    move || monitor(source.clone(), watched.clone(), reports.clone(), beginning.clone());
                let name = format!("monitor of {}", served.resource.plural);
                let task = self.tasks.spawn(async move { supervisor.run(&name, start).await });
                self.running.insert(key, Monitor { served: served.clone(), synced, task });
            }
        }
    }

    async fn synced(&mut self) {
        for monitor in self.running.values_mut() {
            // A monitor that ended has nothing to wait for.
            let _ = monitor.synced.wait_for(|synced| *synced).await;
        }
    }
}

/// Returns `true` if an error means that the server has no such resource.
fn is_not_served(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// Returns `true` if the collector watches the resource. It does not watch events, which have no
/// owners or dependents and are numerous.
fn is_monitored(served: &ServedResource) -> bool {
    let is_event =
        served.resource.plural == "events" && matches!(&*served.resource.group, "" | "events.k8s.io");
    !is_event && ["delete", "list", "watch"].iter().all(|verb| served.supports(verb))
}

/// The state of a monitor until it has reported the objects that existed at the start.
#[derive(Clone)]
struct Beginning {
    /// Set to true once the graph has them, or is not to wait for them.
    synced: Arc<watch::Sender<bool>>,
    /// The work until they are reported, or cannot be.
    first: Arc<Mutex<Option<Work>>>,
    /// Whether an error ends the wait for them.
    goes_on: bool,
}

/// Watches one resource.
async fn monitor(
    (client, clock): (Client, Clock),
    served: Arc<ServedResource>,
    reports: Reports,
    Beginning { synced, first, goes_on }: Beginning,
) {
    let api_version: Arc<str> = served.resource.api_version.as_str().into();
    let kind: Arc<str> = served.resource.kind.as_str().into();
    let object = |dependent: &Identified| Object::new(&kind, &api_version, dependent.meta());
    let send = |change| reports.send(MonitorEvent::Change(change));
    let mut seen = HashSet::new();
    let handle = |event: Result<Event<Identified>, Error>| {
        match event {
            Ok(Event::Init) => seen.clear(),
            Ok(Event::InitApply(dependent)) => {
                if let Some(object) = object(&dependent) {
                    seen.insert(object.identity.uid.clone());
                    send(Change::Seen(object));
                }
            }
            Ok(Event::InitDone(_)) => {
                let (api_version, kind, synced) = (api_version.clone(), kind.clone(), synced.clone());
                let seen = std::mem::take(&mut seen);
                reports.send(MonitorEvent::Relisted { api_version, kind, seen, synced });
                drop(first.lock().take());
            }
            Ok(Event::Apply(dependent)) => object(&dependent).map(Change::Seen).into_iter().for_each(send),
            Ok(Event::Delete(dependent)) => {
                object(&dependent).map(|object| Change::Deleted(object.identity)).into_iter().for_each(send);
            }
            Ok(Event::Bookmark(_)) => {}
            Err(error) => {
                tracing::debug!(%kind, %error, "a watch has to be started again");
                // A resource that is no longer served has no events; discovery will report that it
                // is removed.
                if goes_on || is_not_served(&error) {
                    synced.send_replace(true);
                }
                drop(first.lock().take());
            }
        }
        ControlFlow::Continue(())
    };
    follow(&client, (&served.resource, ListScope::default()), &clock, None, (Identified::read, handle)).await;
}
