//! bootstrap-signer-controller: signs the kubeconfig in the ConfigMap kube-public/cluster-info with
//! each bootstrap token, so that who has a token can trust what anybody can read.

mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_clock::Clock;
use coracle_controller_runtime::cache::{Cache, ListScope, NamespacedName};
use coracle_controller_runtime::{
    Action, Controller, Error, Initialize, ReconcileContext, Sources, ignore_not_found,
};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};

use crate::bootstrap_tokens::{BootstrapToken, NAMESPACE, SECRETS, expiration, is_bootstrap_token};
use crate::settings::{Context, Settings};
use crate::timers::BOOTSTRAP_TOKEN_EXPIRATION;

const CONFIG_MAP_NAMESPACE: &str = "kube-public";
const CONFIG_MAP: &str = "cluster-info";
const CONFIG_MAPS: ListScope =
    ListScope { namespace: Some(CONFIG_MAP_NAMESPACE), field_selector: Some("metadata.name=cluster-info") };
/// The key of what is signed.
const KUBECONFIG: &str = "kubeconfig";
/// The beginning of the keys of signatures; the id of the token follows.
const SIGNATURE: &str = "jws-kubeconfig-";

pub struct BootstrapSigner {
    clock: Clock,
    config_maps: Arc<Cache<ConfigMap>>,
    secrets: Arc<Cache<Secret>>,
}

impl Initialize<Settings> for BootstrapSigner {
    fn new(context: &Context) -> BootstrapSigner {
        BootstrapSigner {
            clock: context.clock.clone(),
            config_maps: context.cache_within(CONFIG_MAPS),
            secrets: context.cache_within(SECRETS),
        }
    }
}

impl Controller for BootstrapSigner {
    const NAME: &'static str = "bootstrap-signer-controller";
    const QUEUE_NAME: &'static str = "bootstrap_signer_queue";
    const WORKERS: usize = 1;
    type Key = NamespacedName;

    fn sources(&self, sources: &mut Sources<NamespacedName>) {
        let config_map = NamespacedName::new(CONFIG_MAP_NAMESPACE, CONFIG_MAP);
        let of_secrets = config_map.clone();
        sources.on_each_if(&self.config_maps, move |change| change.name().as_ref() == Some(&config_map)).on(
            &self.secrets,
            move |change, queue| {
                if change.states().any(|secret| is_bootstrap_token(secret)) {
                    queue.add(of_secrets.clone());
                }
            },
        );
    }

    async fn reconcile(&self, name: &NamespacedName, ctx: &ReconcileContext) -> Result<Action, Error> {
        let Some(config_map) = self.config_maps.get(name) else { return Ok(Action::AwaitChange) };
        let now = self.clock.now();
        let secrets = self.secrets.in_namespace(NAMESPACE);
        let tokens = secrets.iter().filter_map(|secret| BootstrapToken::of(secret, now));
        let tokens: Vec<BootstrapToken> = tokens.filter(|token| token.signs).collect();
        let data = config_map.data.clone().unwrap_or_default();
        let signed = signed(data.clone(), &tokens);
        if signed != data {
            let changed = ConfigMap { data: Some(signed), ..config_map.as_ref().clone() };
            ignore_not_found(ctx.api(&self.config_maps).replace(&changed).await)?;
        }
        // The signature of a token goes when the token expires.
        let expirations = secrets.iter().filter_map(|secret| expiration(secret)).filter(|time| *time > now);
        let next = expirations.min().and_then(|time| time.duration_since(now).try_into().ok());
        Ok(next.map_or(Action::AwaitChange, |left| Action::Requeue(BOOTSTRAP_TOKEN_EXPIRATION.after(left))))
    }
}

/// Returns the data of the ConfigMap with the signatures of these tokens and no others.
fn signed(mut data: BTreeMap<String, String>, tokens: &[BootstrapToken]) -> BTreeMap<String, String> {
    data.retain(|key, _| !key.starts_with(SIGNATURE));
    let Some(kubeconfig) = data.get(KUBECONFIG).cloned() else { return data };
    let signatures = tokens.iter().map(|token| {
        let signature = signature::detached(&kubeconfig, &token.id, &token.secret);
        (format!("{SIGNATURE}{}", token.id), signature)
    });
    data.extend(signatures);
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_token_signs_and_stale_signatures_go() {
        let token =
            BootstrapToken { id: "abcdef".to_owned(), secret: "0123456789abcdef".to_owned(), signs: true };
        let data = |entries: &[(&str, &str)]| -> BTreeMap<String, String> {
            entries.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect()
        };
        let signed_data = signed(
            data(&[("kubeconfig", "x"), ("jws-kubeconfig-old", "s"), ("other", "o")]),
            std::slice::from_ref(&token),
        );
        let keys: Vec<&str> = signed_data.keys().map(String::as_str).collect();
        assert_eq!(keys, ["jws-kubeconfig-abcdef", "kubeconfig", "other"]);
        assert_eq!(signed(signed_data.clone(), std::slice::from_ref(&token)), signed_data);
        assert_eq!(signed(data(&[("jws-kubeconfig-old", "s")]), &[token]), BTreeMap::new());
    }
}
