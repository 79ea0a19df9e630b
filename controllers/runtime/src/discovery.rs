//! Discovery of the served API, for controllers that work on every kind.
//!
//! A [`DiscoverySnapshot`] is fetched again when a CustomResourceDefinition or an APIService
//! changes, periodically, and on request ([`Discovery::refresh`]) for controllers that must not
//! overlook a kind. A failed request leaves the last snapshot in place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::timers::{DISCOVERY_REFRESH, REDISCOVERY};
use coracle_clock::{Activity, Clock, Work};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Client;
use kube::core::PartialObjectMeta;
use kube::core::discovery::v2::{APIGroupDiscovery, APIResourceDiscovery};
use kube::discovery::ApiResource;
use tokio::sync::{Mutex, mpsc, watch};

use super::cache::{Cache, Cached, Change, Changes};

/// The period of refreshes, as in kube-controller-manager's garbage collector.
const PERIOD: Duration = Duration::from_secs(30);
/// The longest time that discovery may lag behind definitions and APIServices, whose watches report
/// a change first.
const LAG: Duration = Duration::from_secs(1);

/// The label of an APIService of the server itself. Source: kube-aggregator, `autoregister`.
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

/// A resource in one of its versions; subresources are none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// Group, version, kind and plural name.
    pub resource: ApiResource,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// The version to use where any will do: the first of its group that has the resource.
    pub preferred: bool,
    /// The verbs that the server offers for it.
    pub verbs: Vec<String>,
}

impl ServedResource {
    /// Returns `true` if the resource supports a verb.
    pub fn supports(&self, verb: &str) -> bool {
        self.verbs.iter().any(|v| v == verb)
    }
}

/// All that is served at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoverySnapshot {
    /// The resources, in discovery's order.
    pub resources: Vec<Arc<ServedResource>>,
    /// The error of each group version (`g/v`) that is not available.
    pub failed: BTreeMap<String, String>,
}

impl DiscoverySnapshot {
    /// Iterates over the resources, each in its preferred version.
    pub fn preferred(&self) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.resources.iter().filter(|served| served.preferred)
    }

    /// Returns the resource of an object's `apiVersion` and `kind`.
    pub fn of_kind(&self, api_version: &str, kind: &str) -> Option<&ServedResource> {
        let mut resources = self.resources.iter().map(Arc::as_ref);
        resources.find(|s| s.resource.api_version == api_version && s.resource.kind == kind)
    }

    /// Returns client-go's message about groups whose discovery failed, or `None` if discovery is
    /// complete.
    pub fn failure(&self) -> Option<String> {
        let failed: Vec<String> =
            self.failed.iter().map(|(version, why)| format!("{version}: {why}")).collect();
        (!failed.is_empty())
            .then(|| format!("unable to retrieve the complete list of server APIs: {}", failed.join(", ")))
    }

    fn of(groups: impl IntoIterator<Item = APIGroupDiscovery>) -> DiscoverySnapshot {
        let mut snapshot = DiscoverySnapshot::default();
        for group in groups {
            let name = group.metadata.and_then(|m| m.name).unwrap_or_default();
            let first = snapshot.resources.len();
            for version in group.versions {
                let number = version.version.unwrap_or_default();
                let api_version = match name.is_empty() {
                    true => number.clone(),
                    false => format!("{name}/{number}"),
                };
                if version.freshness.as_deref() == Some("Stale") {
                    let why = format!("stale GroupVersion discovery: {api_version}");
                    snapshot.failed.insert(api_version, why);
                    continue;
                }
                for found in version.resources {
                    let mut served = served(&name, &number, &api_version, found);
                    let own = snapshot.resources.get(first..).unwrap_or_default();
                    served.preferred = !own.iter().any(|s| s.resource.plural == served.resource.plural);
                    snapshot.resources.push(Arc::new(served));
                }
            }
        }
        snapshot
    }
}

fn served(group: &str, version: &str, api_version: &str, found: APIResourceDiscovery) -> ServedResource {
    let resource = ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        api_version: api_version.to_owned(),
        kind: found.response_kind.and_then(|kind| kind.kind).unwrap_or_default(),
        plural: found.resource.unwrap_or_default(),
    };
    let namespaced = found.scope.as_deref() == Some("Namespaced");
    ServedResource { resource, namespaced, preferred: false, verbs: found.verbs }
}

/// Discovery of the served API, refreshed by a task and on request.
pub struct Discovery {
    client: Client,
    /// Whether discovery has a custom resource before watches report its definition as established.
    is_prompt: bool,
    current: watch::Sender<Arc<DiscoverySnapshot>>,
    subscribers: parking_lot::Mutex<Vec<mpsc::UnboundedSender<Work>>>,
    activity: Activity,
    /// Held while fetching, so that no response replaces a later one.
    fetching: Mutex<()>,
}

impl Discovery {
    pub(super) fn new(client: Client, is_prompt: bool, activity: Activity) -> Discovery {
        Discovery {
            client,
            is_prompt,
            current: watch::Sender::default(),
            subscribers: parking_lot::Mutex::default(),
            activity,
            fetching: Mutex::default(),
        }
    }

    /// Returns the last snapshot, which is empty before the first refresh.
    pub fn current(&self) -> Arc<DiscoverySnapshot> {
        self.current.borrow().clone()
    }

    /// Notifies of each snapshot that differs from the one before.
    pub fn subscribe(&self) -> Snapshots {
        let (sender, changed) = mpsc::unbounded_channel();
        self.subscribers.lock().push(sender);
        Snapshots { changed, following: None }
    }

    /// Returns the activity in which the work of subscribers is counted.
    pub fn activity(&self) -> &Activity {
        &self.activity
    }

    /// Fetches discovery from the server.
    ///
    /// # Errors
    /// The server cannot be reached, or does not support aggregated discovery (Kubernetes 1.26).
    /// Unavailable single groups are not an error: see [`DiscoverySnapshot::failed`].
    pub async fn refresh(&self) -> kube::Result<Arc<DiscoverySnapshot>> {
        let _fetching = self.fetching.lock().await;
        let core = self.client.list_core_api_versions_aggregated().await?;
        let groups = self.client.list_api_groups_aggregated().await?;
        let snapshot = DiscoverySnapshot::of(core.items.into_iter().chain(groups.items));
        if !snapshot.resources.iter().any(|served| served.resource.group.is_empty()) {
            // A server without aggregated discovery. A controller that deletes objects must not
            // take it for an empty cluster.
            let missing = kube::error::DiscoveryError::MissingApiGroup("v1".to_owned());
            return Err(kube::Error::Discovery(missing));
        }
        self.current.send_if_modified(|current| {
            let is_new = **current != snapshot;
            if is_new {
                *current = Arc::new(snapshot);
                self.subscribers.lock().retain(|subscriber| subscriber.send(self.activity.begin()).is_ok());
            }
            is_new
        });
        Ok(self.current())
    }

    /// Refreshes the snapshot until the future is dropped.
    pub(super) async fn run(
        self: Arc<Discovery>,
        clock: Clock,
        definitions: Arc<Cache<PartialObjectMeta<CustomResourceDefinition>>>,
        services: Arc<Cache<PartialObjectMeta<APIService>>>,
    ) {
        let (mut definitions, mut services) = (definitions.subscribe(), services.subscribe());
        let mut pause = REDISCOVERY.after(Duration::ZERO);
        loop {
            // The work of a change continues during the pause after it.
            let next = clock.sleep(pause);
            let mut _due = None;
            // If discovery is prompt, another refresh finds changes between the watch event and the
            // request, and nothing waits for it.
            let another = if self.is_prompt { &DISCOVERY_REFRESH } else { &REDISCOVERY };
            pause = tokio::select! {
                _ = all(&mut definitions) => another.after(LAG),
                changes = all(&mut services) => match changes.iter().any(is_of_another_server) {
                    true => REDISCOVERY.after(LAG),
                    false => another.after(LAG),
                },
                due = next => {
                    _due = Some(due);
                    DISCOVERY_REFRESH.after(PERIOD)
                }
            };
            if let Err(error) = self.refresh().await {
                tracing::debug!(%error, "no discovery");
            }
        }
    }
}

/// The notifications of new snapshots. A subscriber has followed one when it waits for the next.
pub struct Snapshots {
    changed: mpsc::UnboundedReceiver<Work>,
    following: Option<Work>,
}

impl Snapshots {
    /// Waits for a snapshot after the last one that was waited for.
    pub async fn changed(&mut self) {
        self.following = None;
        self.following = self.changed.recv().await;
        if self.following.is_none() {
            std::future::pending::<()>().await;
        }
        while let Ok(work) = self.changed.try_recv() {
            self.following = Some(work);
        }
    }
}

/// Waits for changes, and returns all that are queued.
async fn all<K: Cached>(changes: &mut Changes<K>) -> Vec<Change<K>> {
    let Some(first) = changes.recv().await else { return std::future::pending().await };
    std::iter::once(first).chain(changes.take_waiting()).collect()
}

/// Returns `true` if a change is of the APIService of an aggregated server. Discovery includes its
/// resources only after a delay.
fn is_of_another_server(change: &Change<PartialObjectMeta<APIService>>) -> bool {
    let labels =
        |service: &Arc<PartialObjectMeta<APIService>>| service.metadata.labels.clone().unwrap_or_default();
    change.states().any(|service| !labels(service).contains_key(AUTOMANAGED))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(groups: serde_json::Value) -> DiscoverySnapshot {
        DiscoverySnapshot::of(serde_json::from_value::<Vec<APIGroupDiscovery>>(groups).unwrap())
    }

    #[test]
    fn each_resource_has_one_preferred_version() {
        let resource = |name: &str, kind: &str| json!({"resource": name, "responseKind": {"kind": kind}, "scope": "Namespaced"});
        let snapshot = snapshot(json!([
            {"versions": [{"version": "v1", "resources": [resource("events", "Event")]}]},
            {"metadata": {"name": "g"}, "versions": [
                {"version": "v3", "freshness": "Stale", "resources": []},
                {"version": "v2", "resources": [resource("events", "Event")]},
                {"version": "v1", "resources": [resource("events", "Event"), resource("olds", "Old")]},
            ]},
        ]));
        let preferred: Vec<_> = snapshot
            .preferred()
            .map(|s| format!("{} {}", s.resource.api_version, s.resource.plural))
            .collect();
        assert_eq!(preferred, ["v1 events", "g/v2 events", "g/v1 olds"]);
        assert_eq!(snapshot.resources.len(), 4);
        let old = snapshot.of_kind("g/v1", "Event").map(|s| (s.preferred, s.namespaced));
        assert_eq!(old, Some((false, true)));
        assert_eq!(snapshot.of_kind("g/v2", "Old"), None);
        assert_eq!(
            snapshot.failure().as_deref(),
            Some(
                "unable to retrieve the complete list of server APIs: g/v3: stale GroupVersion discovery: g/v3"
            )
        );
    }

    #[test]
    fn nothing_failed() {
        assert_eq!(snapshot(json!([])).failure(), None);
    }
}
