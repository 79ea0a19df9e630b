//! Descriptors of controllers: the name and the constructor of each, whether it can work with the
//! settings, and the start of the selected ones.

use futures::future::{BoxFuture, FutureExt, join_all};
use tokio::sync::oneshot;

use super::context::Context;
use super::controller::{Controller, run};
use super::current::for_controller;
use super::supervise::Readiness;

/// A controller that is made from a context with settings of a type.
pub trait Initialize<S>: Controller {
    /// Returns `true` if the controller can work with these settings; otherwise it is not started.
    fn is_possible(_: &S) -> bool {
        true
    }

    /// Makes the controller, with the caches that it needs.
    fn new(context: &Context<S>) -> Self;
}

/// A controller that can be selected and started.
pub struct ControllerDescriptor<S> {
    /// Its name in kube-controller-manager, or that of the program that does the same in a cluster.
    pub name: &'static str,
    /// Runs it until the future is dropped; reports when the caches that it asked for are synced.
    pub start: fn(Context<S>, Readiness) -> BoxFuture<'static, ()>,
    /// Whether the controller can work with these settings; otherwise it is not started.
    pub is_possible: fn(&S) -> bool,
}

impl<S: Clone + Send + Sync + 'static> ControllerDescriptor<S> {
    /// Describes a controller of one loop.
    pub const fn of<C: Initialize<S>>() -> ControllerDescriptor<S> {
        let start = |context: Context<S>, readiness: Readiness| {
            let context = context.of_controller();
            let controller = C::new(&context);
            run(context, controller, move || readiness.ready(C::NAME)).boxed()
        };
        ControllerDescriptor { name: C::NAME, start, is_possible: C::is_possible }
    }
}

/// Makes and runs one of several loops that are started under one name.
pub fn start_part<S, C>(context: Context<S>, synced: oneshot::Sender<()>) -> BoxFuture<'static, ()>
where
    S: Send + Sync + 'static,
    C: Initialize<S>,
{
    let context = context.of_controller();
    let controller = C::new(&context);
    let ready = move || {
        // The receiver may have been dropped.
        let _ = synced.send(());
    };
    run(context, controller, ready).boxed()
}

/// Runs those of the controllers that can do their work, until the future is dropped. All are
/// expected to become ready from the call on, before the future is polled.
pub fn run_selected<S: Clone + Send + Sync + 'static>(
    context: Context<S>,
    selected: impl IntoIterator<Item = &'static ControllerDescriptor<S>>,
    readiness: Readiness,
) -> BoxFuture<'static, ()> {
    let selected = selected.into_iter().filter(|descriptor| (descriptor.is_possible)(&context.settings));
    let selected: Vec<_> = selected.collect();
    selected.iter().for_each(|descriptor| readiness.expect(descriptor.name));
    Box::pin(async move {
        // The time that they take counts from here.
        selected.iter().for_each(|descriptor| readiness.expect(descriptor.name));
        let supervisor = context.supervisor();
        let running = selected.into_iter().map(|descriptor| {
            supervisor.run(descriptor.name, || {
                for_controller(descriptor.name, (descriptor.start)(context.clone(), readiness.clone()))
            })
        });
        join_all(running).await;
        // Without any controller there is nothing to do, for ever.
        std::future::pending().await
    })
}
