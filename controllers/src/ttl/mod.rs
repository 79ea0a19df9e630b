//! ttl-controller: sets an annotation on nodes by which kubelets know for how long they may cache
//! Secrets and ConfigMaps: the more nodes there are, the longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use coracle_object_meta::annotation;
use k8s_openapi::api::core::v1::Node;
use kube::api::Patch;
use parking_lot::Mutex;
use serde_json::json;

use crate::settings::{Context, Settings};

const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";

/// The minimum and maximum number of nodes of each step, and its TTL in seconds.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

pub struct TtlController {
    nodes: Arc<Cache<Node>>,
    /// The step in [`STEPS`], which follows the number of nodes.
    step: Arc<AtomicUsize>,
}

impl Initialize<Settings> for TtlController {
    fn new(context: &Context) -> TtlController {
        TtlController { nodes: context.cache(), step: Arc::default() }
    }
}

impl Controller for TtlController {
    const NAME: &'static str = "ttl-controller";
    const QUEUE_NAME: &'static str = "ttlcontroller";
    /// The name of a node.
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        let (step, count) = (self.step.clone(), Mutex::new(0_usize));
        sources.on(&self.nodes, move |change, queue| {
            let mut count = count.lock();
            match (&change.old, &change.new) {
                (None, Some(_)) => *count += 1,
                (Some(_), None) => *count = count.saturating_sub(1),
                _ => {}
            }
            step.store(next_step(step.load(Ordering::Relaxed), *count), Ordering::Relaxed);
            let live = change.name().filter(|_| change.new.is_some());
            live.into_iter().for_each(|name| queue.add(name.name));
        });
    }

    async fn reconcile(&self, name: &String, ctx: &ReconcileContext) -> Result<Action, Error> {
        let name = NamespacedName::new("", name);
        let Some(node) = self.nodes.get(&name) else { return Ok(Action::AwaitChange) };
        let step = STEPS.get(self.step.load(Ordering::Relaxed));
        let seconds = step.map_or(0, |(_, _, seconds)| *seconds).to_string();
        if annotation(&node.metadata, ANNOTATION) == Some(&seconds) {
            return Ok(Action::AwaitChange);
        }
        let patch = Patch::Strategic(json!({"metadata": {"annotations": {ANNOTATION: seconds}}}));
        ignore_not_found(ctx.api(&self.nodes).patch(&name, patch).await)?;
        Ok(Action::AwaitChange)
    }
}

/// Returns the step for a number of nodes: the previous one, unless the number left its range.
fn next_step(mut step: usize, count: usize) -> usize {
    while STEPS.get(step).is_some_and(|(_, most, _)| count > *most) {
        step += 1;
    }
    while STEPS.get(step).is_some_and(|(least, ..)| count < *least) {
        step -= 1;
    }
    step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        let mut step = 0;
        for (count, want) in
            [(1, 0), (100, 0), (101, 15), (90, 15), (89, 0), (3000, 300), (1800, 300), (950, 60), (0, 0)]
        {
            step = next_step(step, count);
            assert_eq!(STEPS[step].2, want, "{count}");
        }
    }
}
