//! Reports of a log to its store.

use std::sync::Arc;

use super::error::LogError;

/// Lets a log notify its store of what no call of the store's caused.
#[derive(Clone)]
pub struct Notifier(Arc<dyn Fn(Notification) + Send + Sync>);

/// A report of a log through its [`Notifier`].
#[derive(Debug)]
pub enum Notification {
    /// Another writer's changes can be read from the tail.
    Changed,
    /// Something failed in the background, and appended changes may not be durable.
    Failed(LogError),
}

impl Notifier {
    /// Creates a notifier that calls a function.
    pub fn new(listen: impl Fn(Notification) + Send + Sync + 'static) -> Notifier {
        Notifier(Arc::new(listen))
    }

    /// Notifies the store. Returns at once.
    pub fn notify(&self, notification: Notification) {
        (self.0)(notification);
    }
}
