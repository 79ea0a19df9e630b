//! A model of a rolling update: ReplicaSets whose pods are created, become available and fail at
//! random, and changes of the Deployment in between. A rolling update keeps its bounds in every
//! state, and always ends.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;
use proptest::prelude::*;
use serde_json::json;

use super::replica_sets::{ReplicaSets, Resize, available, desired_replicas, replicas, total};
use super::rolling::{self, Step, rolling_update};
use super::scale;

/// The next event. Its numbers select among the existing objects.
#[derive(Clone, Debug)]
enum Event {
    /// The controller plans and executes a step.
    Reconcile,
    /// Pods of a ReplicaSet become available.
    BecomeAvailable(usize, i32),
    /// A pod of a ReplicaSet becomes unavailable.
    Fail(usize),
    /// The template changes: the new ReplicaSet is an old one, and another one will be created.
    ChangeTemplate,
    /// The Deployment is rolled back to the template of an old ReplicaSet.
    RollBack(usize),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        6 => Just(Event::Reconcile),
        4 => (any::<usize>(), 1..4).prop_map(|(set, count)| Event::BecomeAvailable(set, count)),
        1 => any::<usize>().prop_map(Event::Fail),
        1 => Just(Event::ChangeTemplate),
        1 => any::<usize>().prop_map(Event::RollBack),
    ];
    prop::collection::vec(event, 0..60)
}

struct World {
    deployment: Deployment,
    sets: ReplicaSets,
    created: u32,
}

impl World {
    fn new(count: i32, surge: &str, unavailable: &str) -> World {
        let rolling = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": rolling});
        let spec = json!({"replicas": count, "selector": {}, "template": {}, "strategy": strategy});
        let deployment = serde_json::from_value(json!({"spec": spec})).unwrap();
        let mut world = World { deployment, sets: ReplicaSets::default(), created: 0 };
        world.sets.new = Some(world.replica_set(count, count));
        world
    }

    fn replica_set(&mut self, size: i32, available: i32) -> Arc<ReplicaSet> {
        self.created += 1;
        let meta = json!({"name": format!("set-{:03}", self.created)});
        let status = json!({"replicas": size, "availableReplicas": available});
        let set = json!({"metadata": meta, "spec": {"replicas": size, "selector": {}}, "status": status});
        Arc::new(serde_json::from_value(set).unwrap())
    }

    fn change(&mut self, name: &str, change: impl Fn(&mut ReplicaSet)) {
        let all = self.sets.old.iter_mut().chain(&mut self.sets.new);
        all.filter(|set| set.name_any() == name).for_each(|set| change(Arc::make_mut(set)));
    }

    /// Resizes a ReplicaSet, and lets its controller delete pods, unavailable ones first.
    fn resize(&mut self, resize: &Resize) {
        self.change(&resize.set.name_any(), |set| {
            set.spec.as_mut().unwrap().replicas = Some(resize.to);
            let status = set.status.as_mut().unwrap();
            status.replicas = resize.to;
            status.available_replicas = Some(status.available_replicas.unwrap_or(0).min(resize.to));
        });
    }

    /// Reconciles the Deployment; returns whether anything changed.
    fn reconcile(&mut self) -> bool {
        match rolling_update(&self.deployment, &self.sets) {
            Step::CreateNew => {
                let size = rolling::new_size(&self.deployment, &self.sets);
                self.sets.new = Some(self.replica_set(size, 0));
                true
            }
            Step::Resize(resizes) => {
                resizes.iter().for_each(|resize| self.resize(resize));
                true
            }
            Step::AwaitOldPods => unreachable!("only of the strategy Recreate"),
            Step::Rest => false,
        }
    }

    fn become_available(&mut self, name: &str, count: i32) {
        self.change(name, |set| {
            let (most, status) = (replicas(set), set.status.as_mut().unwrap());
            status.available_replicas = Some((status.available_replicas.unwrap_or(0) + count).min(most));
        });
    }

    fn apply(&mut self, event: &Event) {
        let names: Vec<String> = self.sets.all().map(|set| set.name_any()).collect();
        let named = |index: usize| names[index % names.len()].clone();
        match event {
            Event::Reconcile => drop(self.reconcile()),
            Event::BecomeAvailable(index, count) => self.become_available(&named(*index), *count),
            Event::Fail(index) => self.change(&named(*index), |set| {
                let status = set.status.as_mut().unwrap();
                status.available_replicas = Some((status.available_replicas.unwrap_or(0) - 1).max(0));
            }),
            Event::ChangeTemplate => self.sets.old.extend(self.sets.new.take()),
            Event::RollBack(index) => {
                let old = self.sets.old.len();
                if old > 0 {
                    let again = self.sets.old.remove(index % old);
                    self.sets.old.extend(self.sets.new.replace(again));
                    replica_sets_by_name(&mut self.sets.old);
                }
            }
        }
    }

    fn available(&self) -> i32 {
        self.sets.all().map(|set| available(set)).sum()
    }
}

fn replica_sets_by_name(sets: &mut [Arc<ReplicaSet>]) {
    sets.sort_by_key(|set| set.name_any());
}

fn bounds() -> impl Strategy<Value = (i32, String, String)> {
    let share = prop_oneof![(0..100u32).prop_map(|share| format!("{share}%")), Just("0%".to_owned())];
    (0..20i32, share.clone(), share)
}

proptest! {
    #[test]
    fn a_rolling_update_keeps_its_bounds_and_ends((count, surge, unavailable) in bounds(), events in events()) {
        let mut world = World::new(count, &surge, &unavailable);
        let most = rolling::max_replicas(&world.deployment);
        let least = rolling::min_available(&world.deployment);
        for event in &events {
            let before = world.available();
            world.apply(event);
            prop_assert!(total(world.sets.all()) <= most, "too many pods after {event:?}");
            if matches!(event, Event::Reconcile) {
                // The controller deletes only pods that are not needed; pods that failed by
                // themselves do not count.
                prop_assert!(world.available() >= least.min(before), "too few available after {event:?}");
            }
        }
        // Everything becomes available: it ends.
        for _ in 0..500 {
            let names: Vec<String> = world.sets.all().map(|set| set.name_any()).collect();
            names.iter().for_each(|name| world.become_available(name, 1));
            world.reconcile();
        }
        prop_assert!(!world.reconcile(), "at rest");
        let new = world.sets.new.as_ref().unwrap();
        prop_assert_eq!((replicas(new), available(new)), (count, count));
        prop_assert_eq!(total(world.sets.old.iter()), 0);
    }

    #[test]
    fn scaling_never_leaves_the_bound((count, surge, unavailable) in bounds(), events in events(), to in 0..30i32) {
        let mut world = World::new(count, &surge, &unavailable);
        events.iter().for_each(|event| world.apply(event));
        world.deployment.spec.as_mut().unwrap().replicas = Some(to);
        let plan = scale::plan(&world.deployment, &world.sets);
        let before = total(world.sets.all());
        let is_rollout = world.sets.active().count() > 1;
        plan.iter().for_each(|resize| world.resize(resize));
        let allowed = if desired_replicas(&world.deployment) == 0 { 0 } else { rolling::max_replicas(&world.deployment) };
        if is_rollout {
            prop_assert!(total(world.sets.all()) <= allowed.max(before));
        }
        prop_assert!(world.sets.all().all(|set| replicas(set) >= 0));
    }
}
