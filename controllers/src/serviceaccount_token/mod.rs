//! serviceaccount-token-controller: fills the secrets that a client created to hold a token of a
//! service account without expiry.
//!
//! A secret is reconciled when it changes and when its account does; then:
//! 1. the reference to a deleted secret is removed from its account;
//! 2. the secret of a deleted account is deleted;
//! 3. one that lacks its token, the certificates or the namespace is given them.
//!
//! Only the metadata of secrets is watched, where the name of the account is an annotation; what is
//! decided on is read from the server. So no secret is kept in memory.

mod plan;

use std::fmt;
use std::sync::Arc;

use coracle_controller_runtime::cache::{Cache, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, RecordedApi, Sources, ignore_conflict,
    ignore_not_found, uid_precondition,
};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::PartialObjectMeta;

use crate::settings::{Context, Settings, Sign};

/// The annotation that names a secret's account.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

/// A secret, and the account that its annotation names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token {
    secret: NamespacedName,
    account: String,
    /// Empty until it was filled.
    account_uid: String,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.secret, self.account)
    }
}

impl Token {
    fn of(secret: &PartialObjectMeta<Secret>) -> Option<Token> {
        let annotations = secret.metadata.annotations.as_ref()?;
        let account = annotations.get(ACCOUNT_NAME)?.clone();
        let account_uid = annotations.get(ACCOUNT_UID).cloned().unwrap_or_default();
        Some(Token { secret: NamespacedName::of(secret), account, account_uid })
    }

    fn is_of(&self, account: &ServiceAccount) -> bool {
        self.account_uid.is_empty() || account.metadata.uid.as_deref() == Some(&self.account_uid)
    }
}

pub struct TokenController {
    settings: Arc<Settings>,
    accounts: Arc<Cache<ServiceAccount>>,
    secrets: Arc<Cache<PartialObjectMeta<Secret>>>,
}

impl Initialize<Settings> for TokenController {
    fn is_possible(settings: &Settings) -> bool {
        settings.sign.is_some()
    }

    fn new(context: &Context) -> TokenController {
        TokenController {
            settings: context.settings.clone(),
            accounts: context.cache(),
            secrets: context.cache(),
        }
    }
}

impl Controller for TokenController {
    const NAME: &'static str = "serviceaccount-token-controller";
    const QUEUE_NAME: &'static str = "serviceaccount_tokens_service";
    type Key = Token;

    fn sources(&self, sources: &mut Sources<Token>) {
        let secrets = self.secrets.clone();
        sources
            .on(&self.secrets, |change, queue| {
                change
                    .object()
                    .and_then(|secret| Token::of(secret))
                    .into_iter()
                    .for_each(|key| queue.add(key));
            })
            .on(&self.accounts, move |change, queue| {
                let Some(account) = change.name().filter(|_| change.new.is_none()) else { return };
                let tokens = secrets.in_namespace(&account.namespace);
                let tokens = tokens.iter().filter_map(|secret| Token::of(secret));
                tokens.filter(|token| token.account == account.name).for_each(|key| queue.add(key));
            });
    }

    async fn reconcile(&self, token: &Token, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(sign) = &self.settings.sign else { return Ok(Action::AwaitChange) };
        let secrets = ctx.api_of_metadata(&self.secrets);
        let secret = secrets.get(&token.secret).await?;
        match (secret, self.account(token, ctx).await?) {
            (None, None) => {}
            (None, Some(account)) => self.forget(token, &account, ctx).await?,
            (Some(secret), _) if !plan::is_token(&secret, &token.account) => {}
            (Some(secret), None) => delete(secrets, &secret).await?,
            (Some(secret), Some(account)) => self.fill(secrets, &secret, &account, sign).await?,
        }
        Ok(Action::AwaitChange)
    }
}

impl TokenController {
    /// Returns the account of a token, read from the server if it is not cached: its secret may
    /// have been observed first.
    async fn account(&self, token: &Token, ctx: &ReconcileContext) -> Result<Option<ServiceAccount>, Error> {
        let name = NamespacedName::new(&token.secret.namespace, &token.account);
        if let Some(known) = self.accounts.get(&name).filter(|account| token.is_of(account)) {
            return Ok(Some(known.as_ref().clone()));
        }
        Ok(ctx.api(&self.accounts).get(&name).await?.filter(|account| token.is_of(account)))
    }

    async fn fill(
        &self,
        secrets: RecordedApi<'_, Secret>,
        secret: &Secret,
        account: &ServiceAccount,
        sign: &Sign,
    ) -> Result<(), Error> {
        let Some(filled) = plan::fill(secret, account, self.settings.root_ca.as_deref(), sign.as_ref())
        else {
            return Ok(());
        };
        // A conflicting write or delete enqueues the key again.
        ignore_conflict(ignore_not_found(secrets.replace(&filled).await))?;
        Ok(())
    }

    async fn forget(
        &self,
        token: &Token,
        account: &ServiceAccount,
        ctx: &ReconcileContext,
    ) -> Result<(), Error> {
        let Some(without) = plan::without_reference(account, &token.secret.name) else { return Ok(()) };
        ignore_not_found(ctx.api(&self.accounts).replace(&without).await)?;
        Ok(())
    }
}

async fn delete(secrets: RecordedApi<'_, Secret>, secret: &Secret) -> Result<(), Error> {
    ignore_conflict(ignore_not_found(secrets.delete(secret, &uid_precondition(secret)).await))?;
    Ok(())
}
