//! The controller that the current task works for, by which the user agent of its requests names
//! it: all controllers share one client.

use std::future::Future;

tokio::task_local! {
    static CONTROLLER: &'static str;
}

/// Returns the name of the controller that the current task works for, as in its descriptor.
pub fn current_controller() -> Option<&'static str> {
    CONTROLLER.try_with(|name| *name).ok()
}

/// Runs a future as work of the named controller.
pub(super) fn for_controller<F: Future>(name: &'static str, work: F) -> impl Future<Output = F::Output> {
    CONTROLLER.scope(name, work)
}

/// Runs a future as work of the calling task's controller, for a task of its own.
pub(super) fn inherited<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let name = current_controller();
    async move {
        match name {
            Some(name) => CONTROLLER.scope(name, work).await,
            None => work.await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn tasks_inherit_their_controller() {
        let seen = for_controller("one", async {
            let spawned = tokio::spawn(inherited(async { current_controller() }));
            let other = tokio::spawn(async { current_controller() });
            (current_controller(), spawned.await.unwrap(), other.await.unwrap())
        });
        assert_eq!(seen.await, (Some("one"), Some("one"), None));
        assert_eq!((current_controller(), inherited(async { current_controller() }).await), (None, None));
    }
}
