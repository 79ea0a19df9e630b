//! Controllers that are started by their names, and the caches that each of them waits for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use tokio::runtime::Handle;

use super::lists::Lists;
use crate::cache::Cache;
use crate::supervise::Readiness;
use crate::{
    Action, Context, Controller, ControllerDescriptor, Error, Initialize, ReconcileContext, Sources,
    run_selected,
};

#[derive(Clone)]
struct Settings {
    has_key: bool,
}

/// A controller that needs the cache of ConfigMaps.
struct ConfigMapController(Arc<Cache<ConfigMap>>);

impl Controller for ConfigMapController {
    const NAME: &'static str = "configmap-controller";
    const QUEUE_NAME: &'static str = "configmap";
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        sources.on(&self.0, |_, queue| queue.add("all".to_owned()));
    }

    async fn reconcile(&self, _: &String, _: &ReconcileContext) -> Result<Action, Error> {
        Ok(Action::AwaitChange)
    }
}

impl Initialize<Settings> for ConfigMapController {
    fn new(context: &Context<Settings>) -> ConfigMapController {
        ConfigMapController(context.cache())
    }
}

/// A controller that needs the cache of Secrets, and a key.
struct SecretController(Arc<Cache<Secret>>);

impl Controller for SecretController {
    const NAME: &'static str = "secret-controller";
    const QUEUE_NAME: &'static str = "secret";
    type Key = String;

    fn sources(&self, sources: &mut Sources<String>) {
        sources.on(&self.0, |_, queue| queue.add("all".to_owned()));
    }

    async fn reconcile(&self, _: &String, _: &ReconcileContext) -> Result<Action, Error> {
        Ok(Action::AwaitChange)
    }
}

impl Initialize<Settings> for SecretController {
    fn is_possible(settings: &Settings) -> bool {
        settings.has_key
    }

    fn new(context: &Context<Settings>) -> SecretController {
        SecretController(context.cache())
    }
}

static CONTROLLERS: [ControllerDescriptor<Settings>; 2] =
    [ControllerDescriptor::of::<ConfigMapController>(), ControllerDescriptor::of::<SecretController>()];

/// Lets all tasks work until they wait for something else than each other.
async fn settle() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_controller_waits_for_the_caches_that_it_asked_for() {
    let lists = Lists::default();
    let (context, _clock) = lists.context(());
    let [first, second, third] = [(); 3].map(|()| context.of_controller());
    let (_maps, _secrets) = (first.cache::<ConfigMap>(), second.cache::<Secret>());
    let is_synced = |context: &Context<()>| context.synced().now_or_never().is_some();
    assert!(!is_synced(&first) && !is_synced(&second));
    assert!(is_synced(&third), "it asked for none");
    lists.release("configmaps");
    first.synced().await;
    assert!(!is_synced(&second), "its cache is another one");
    let _maps_of_the_third = third.cache::<ConfigMap>();
    assert!(is_synced(&third) && lists.requested("configmaps") == 1, "the caches are shared");
    let _secrets_of_the_third = third.cache::<Secret>();
    assert!(!is_synced(&third), "it needs both");
    lists.release("secrets");
    second.synced().await;
    third.synced().await;
    assert!(is_synced(&context), "a controller's caches are not needed by the others");
}

#[tokio::test]
async fn selected_controllers_are_expected_at_once_and_ready_once_their_caches_are_synced() {
    let (lists, readiness) = (Lists::default(), Readiness::default());
    let (context, _clock) = lists.context(Settings { has_key: true });
    let running = run_selected(context, &CONTROLLERS, readiness.clone());
    assert_eq!(readiness.missing_for(Duration::ZERO), ["configmap-controller", "secret-controller"]);
    settle().await;
    assert_eq!(lists.requested("configmaps"), 0, "they start when the future is polled");
    let running = tokio::spawn(running);
    settle().await;
    assert_eq!((lists.requested("configmaps"), lists.requested("secrets")), (1, 1));
    assert_eq!(readiness.missing_for(Duration::ZERO), ["configmap-controller", "secret-controller"]);
    lists.release("secrets");
    settle().await;
    assert_eq!(readiness.missing_for(Duration::ZERO), ["configmap-controller"]);
    lists.release("configmaps");
    readiness.complete().await;
    assert!(!running.is_finished());
    running.abort();
    settle().await;
    assert_eq!(
        Handle::current().metrics().num_alive_tasks(),
        0,
        "controllers and caches end with the future"
    );
}

#[tokio::test]
async fn a_controller_that_cannot_do_its_work_is_not_started() {
    let (lists, readiness) = (Lists::default(), Readiness::default());
    let (context, _clock) = lists.context(Settings { has_key: false });
    let running = tokio::spawn(run_selected(context, &CONTROLLERS, readiness.clone()));
    lists.release("configmaps");
    settle().await;
    assert!(readiness.missing_for(Duration::ZERO).is_empty());
    assert_eq!(lists.requested("secrets"), 0);
    running.abort();
}

#[tokio::test]
async fn without_a_controller_there_is_no_end() {
    let (context, _clock) = Lists::default().context(Settings { has_key: false });
    let readiness = Readiness::default();
    let mut running = run_selected(context, [], readiness.clone());
    settle().await;
    assert!((&mut running).now_or_never().is_none());
    readiness.complete().await;
}

static STARTS: AtomicUsize = AtomicUsize::new(0);

static FRAGILE: ControllerDescriptor<Settings> = ControllerDescriptor {
    name: "fragile-controller",
    start: |_, readiness| {
        async move {
            assert!(STARTS.fetch_add(1, Ordering::Relaxed) > 0, "as it does");
            readiness.ready("fragile-controller");
            std::future::pending().await
        }
        .boxed()
    },
    is_possible: |_| true,
};

#[tokio::test]
async fn a_controller_that_panics_is_restarted_and_the_others_continue() {
    let (lists, readiness) = (Lists::default(), Readiness::default());
    let (context, clock) = lists.context(Settings { has_key: true });
    let selected = [&FRAGILE, &CONTROLLERS[0]];
    let running = tokio::spawn(run_selected(context, selected, readiness.clone()));
    lists.release("configmaps");
    settle().await;
    assert_eq!(readiness.missing_for(Duration::ZERO), ["fragile-controller"]);
    clock.advance(Duration::from_secs(1));
    readiness.complete().await;
    assert_eq!((STARTS.load(Ordering::Relaxed), lists.requested("configmaps")), (2, 1));
    running.abort();
}
