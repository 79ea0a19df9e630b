//! namespace-controller: deletes the content of a terminating namespace, then removes its
//! finalizer.
//!
//! A namespace is reconciled some time after its deletion (see [`Settings::namespace_grace`]), after
//! its finalizers change, and when its last pod is deleted; then:
//! 1. one that is not terminating, or has none of its own finalizers left, is left alone;
//! 2. its pods are deleted, and while one remains nothing else is: what they use stays as long as
//!    they run (KEP-5080);
//! 3. then everything else that can be deleted, in no order; what remains is counted;
//! 4. what was found is written into its conditions;
//! 5. once nothing remains, the finalizer `kubernetes` is dropped.
//!
//! [`Settings::namespace_grace`]: crate::Settings::namespace_grace

mod content;
mod plan;

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::discovery::Discovery;
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
};
use k8s_openapi::api::core::v1::{Namespace, NamespaceSpec, Pod};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Client;

use crate::settings::{Context, Settings};
use crate::timers::{NAMESPACE_CONTENT, NAMESPACE_DELETION};
use content::Content;

const FINALIZER: &str = "kubernetes";

pub struct NamespaceController {
    /// Deletes the content, objects of any kind. There is no cache of them: the server counts what
    /// remains.
    unrecorded: Client,
    clock: Clock,
    grace: Duration,
    resources: Arc<Discovery>,
    namespaces: Arc<Cache<Namespace>>,
    pods: Arc<Cache<Pod>>,
}

impl Initialize<Settings> for NamespaceController {
    fn new(context: &Context) -> NamespaceController {
        NamespaceController {
            unrecorded: context.unrecorded.clone(),
            clock: context.clock.clone(),
            grace: context.settings.namespace_grace,
            resources: context.discovery(),
            namespaces: context.cache(),
            pods: context.cache(),
        }
    }
}

impl Controller for NamespaceController {
    const NAME: &'static str = "namespace-controller";
    const QUEUE_NAME: &'static str = "namespace";
    const WORKERS: usize = 10;
    const MAX_RETRY: Duration = Duration::from_secs(60);
    /// The name of a namespace.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let grace = self.grace;
        let (clock, namespaces, pods) = (self.clock.clone(), self.namespaces.clone(), self.pods.clone());
        let time = self.clock.clone();
        sources
            .on(&self.namespaces, move |change, queue| {
                let Some(namespace) = &change.new else { return };
                let Some(at) = deleted(namespace) else { return };
                let name = NamespacedName::of(namespace.as_ref()).name;
                match change.old.as_ref().filter(|old| deleted(old).is_some()) {
                    None => queue.add_after(name, NAMESPACE_DELETION.after(grace)),
                    // kube-controller-manager waits for the grace period again, after its own
                    // changes of the status, too.
                    Some(old) if finalizers(old) == finalizers(namespace) => {}
                    Some(_) if is_over(grace, at, time.now()) => queue.add(name),
                    Some(_) => queue.add_after(name, NAMESPACE_DELETION.after(grace)),
                }
            })
            // kube-controller-manager waits for its next retry instead.
            .on(&self.pods, move |change, queue| {
                let Some(name) = change.name().filter(|_| change.new.is_none()) else { return };
                let namespace = namespaces.get(&NamespacedName::new("", &name.namespace));
                let deleted = namespace.and_then(|namespace| deleted(&namespace));
                if deleted.is_some_and(|at| is_over(grace, at, clock.now())) && !pods.any_in(&name.namespace)
                {
                    queue.add(name.namespace);
                }
            });
    }

    async fn reconcile(&self, name: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let api = ctx.api(&self.namespaces);
        let live = api.get(&NamespacedName::new("", name)).await?;
        let Some(mut namespace) = live else { return Ok(Action::AwaitChange) };
        let Some(deleted) = deleted(&namespace) else { return Ok(Action::AwaitChange) };
        if finalizers(&namespace).is_empty() {
            return Ok(Action::AwaitChange);
        }
        let content = Content { unrecorded: &self.unrecorded, namespace: name, resources: &self.resources };
        let pods = self.pods.in_namespace(name);
        let now = self.clock.now();
        let result = content.delete(plan::grace(pods.iter().map(Arc::as_ref), deleted, now)).await?;

        let mut status = namespace.status.clone().unwrap_or_default();
        let old = status.conditions.take().unwrap_or_default();
        if let Some(conditions) = result.findings.conditions(&old, self.clock.now()) {
            status.phase = Some("Terminating".to_owned());
            status.conditions = Some(conditions);
            namespace.status = Some(status);
            match api.replace_status(&namespace).await {
                Ok(replaced) => namespace = replaced,
                // Another client wrote meanwhile; its change enqueues the namespace again.
                Err(error) => tracing::debug!(namespace = %name, %error, "the conditions are not written"),
            }
        }
        if let Some(error) = result.errors {
            return Err(Error::Unfinished(error));
        }
        if result.estimate > 0 {
            return Ok(Action::Requeue(NAMESPACE_CONTENT.after(plan::pause(result.estimate))));
        }
        self.finalize(namespace, ctx).await?;
        Ok(Action::AwaitChange)
    }
}

impl NamespaceController {
    async fn finalize(&self, mut namespace: Namespace, ctx: &ReconcileContext) -> Result<(), Error> {
        let (api, name) = (ctx.api(&self.namespaces), NamespacedName::of(&namespace));
        loop {
            let mut others = finalizers(&namespace).to_vec();
            others.retain(|finalizer| finalizer != FINALIZER);
            others.sort_unstable();
            let spec = NamespaceSpec { finalizers: Some(others) };
            let finalized = Namespace { metadata: namespace.metadata, spec: Some(spec), status: None };
            let answer = api.replace_subresource("finalize", &finalized).await;
            // None: another client wrote meanwhile, or the namespace is deleted.
            let answer = ignore_conflict(ignore_not_found(answer))?;
            if answer.is_some() {
                return Ok(());
            }
            match api.get(&name).await? {
                Some(current) if current.metadata.uid == finalized.metadata.uid => namespace = current,
                _ => return Ok(()),
            }
        }
    }
}

/// Returns the time since which the namespace has been terminating.
fn deleted(namespace: &Namespace) -> Option<Timestamp> {
    namespace.metadata.deletion_timestamp.as_ref().map(|time| time.0)
}

fn finalizers(namespace: &Namespace) -> &[String] {
    namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_deref()).unwrap_or_default()
}

fn is_over(grace: Duration, deleted: Timestamp, now: Timestamp) -> bool {
    now.duration_since(deleted) >= SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX)
}
