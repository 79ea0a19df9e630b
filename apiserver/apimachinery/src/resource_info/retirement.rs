//! Retirement: the end of a definition's state, by which watches end that began under it.
//!
//! Source: apiextensions-apiserver closes the storage of a custom resource, and with it its
//! watches, when the spec or the names of its definition change, and when the definition is
//! deleted.

use std::sync::Arc;

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::Shared;

/// Resolves when the definition has changed or is deleted.
#[derive(Clone, Debug)]
pub struct Retirement(Shared<oneshot::Receiver<()>>);

/// Keeps the watches of what a definition defines open until its last copy is dropped.
#[derive(Clone, Debug)]
pub struct DefinitionLifetime {
    _sender: Arc<oneshot::Sender<()>>,
    retirement: Retirement,
}

impl DefinitionLifetime {
    /// Begins the lifetime of a definition.
    pub fn begin() -> DefinitionLifetime {
        let (sender, receiver) = oneshot::channel();
        DefinitionLifetime { _sender: Arc::new(sender), retirement: Retirement(receiver.shared()) }
    }

    /// Returns the end of the lifetime.
    pub fn retirement(&self) -> Retirement {
        self.retirement.clone()
    }
}

impl Retirement {
    /// Waits for it. Safe to drop while waiting.
    pub async fn wait(&self) {
        let _ = self.0.clone().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_comes_when_the_last_copy_is_dropped() {
        let lifetime = DefinitionLifetime::begin();
        let (copy, retirement) = (lifetime.clone(), lifetime.retirement());
        drop(lifetime);
        assert!(retirement.wait().now_or_never().is_none());
        drop(copy);
        assert!(retirement.wait().now_or_never().is_some());
    }
}
