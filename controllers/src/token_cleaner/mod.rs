//! token-cleaner-controller: deletes the Secrets of bootstrap tokens that have expired.

use std::sync::Arc;
use std::time::Duration;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_conflict, ignore_not_found,
    uid_precondition,
};
use k8s_openapi::api::core::v1::Secret;

use crate::bootstrap_tokens::{SECRETS, expiration, is_bootstrap_token};
use crate::settings::{Context, Settings};
use crate::timers::BOOTSTRAP_TOKEN_EXPIRATION;

pub struct TokenCleaner {
    clock: Clock,
    secrets: Arc<Cache<Secret>>,
}

impl Initialize<Settings> for TokenCleaner {
    fn new(context: &Context) -> TokenCleaner {
        TokenCleaner { clock: context.clock.clone(), secrets: context.cache_within(SECRETS) }
    }
}

impl Controller for TokenCleaner {
    const NAME: &'static str = "token-cleaner-controller";
    const QUEUE_NAME: &'static str = "token_cleaner";
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        sources.on_each_if(&self.secrets, |change| {
            change.new.as_ref().is_some_and(|secret| is_bootstrap_token(secret))
        });
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(secret) = self.secrets.get(name).filter(|secret| is_bootstrap_token(secret)) else {
            return Ok(Action::AwaitChange);
        };
        let Some(expiration) = expiration(&secret) else { return Ok(Action::AwaitChange) };
        let left = Duration::try_from(expiration.duration_since(self.clock.now())).unwrap_or_default();
        if !left.is_zero() {
            return Ok(Action::Requeue(BOOTSTRAP_TOKEN_EXPIRATION.after(left)));
        }
        let deleted = ctx.api(&self.secrets).delete(&secret, &uid_precondition(secret.as_ref())).await;
        // Deleted by another client, or replaced by another Secret of the name.
        ignore_not_found(ignore_conflict(deleted))?;
        Ok(Action::AwaitChange)
    }
}
