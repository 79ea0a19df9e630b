//! `coracle controllers`: the controllers of a control plane, in a process of their own and against
//! any cluster.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use coracle_apiserver::access::jwt::SigningKey;
use coracle_clock::Clock;
use coracle_controller_runtime as runtime;
use coracle_controller_runtime::metrics::Metrics;
use coracle_controller_runtime::supervise::Readiness;
use coracle_controllers::{Settings, Sign};
use coracle_seed::Identities;
use coracle_volumes::VolumeSettings;
use http::header::{HeaderValue, USER_AGENT};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::cli::Controllers;
use crate::process::unreachable;
use crate::run::Signals;

/// Timeout for the first response of the server, as kube-controller-manager's.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Runs the selected controllers until SIGTERM or SIGINT.
///
/// # Errors
/// The kubeconfig or the key cannot be read, the server cannot be reached, or the leader election
/// is lost.
pub async fn run(flags: &Controllers) -> Result<()> {
    let mut signals = Signals::new()?;
    let file = flags.cluster.kubeconfig.display().to_string();
    let kubeconfig = Kubeconfig::read_from(&flags.cluster.kubeconfig).with_context(|| file.clone())?;
    let features = flags.features()?;
    let settings = Settings {
        root_ca: root_ca(&kubeconfig).with_context(|| file.clone())?,
        sign: flags.manager.service_account_private_key_file.as_deref().map(sign).transpose()?,
        horizontal_pod_autoscaler_sync_period: flags.options.horizontal_pod_autoscaler_sync_period,
        volumes: VolumeSettings::new(VolumeSettings::default().data, |gate| features.is_enabled(gate)),
        is_enabled: Arc::new(move |gate| features.is_enabled(gate)),
        ..Settings::default()
    };
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.with_context(|| file.clone())?;
    config.headers.push((USER_AGENT, HeaderValue::from_static(coracle_controllers::USER_AGENT)));
    let url = config.cluster_url.to_string();
    let url = url.trim_end_matches('/');
    let client = Client::try_from(config).context(file)?;
    match tokio::time::timeout(CONNECT_TIMEOUT, client.apiserver_version()).await {
        Ok(version) => drop(version.map_err(|error| unreachable(url, error))?),
        Err(_) => bail!("cannot reach {url}: no answer in {CONNECT_TIMEOUT:?}"),
    }
    eprintln!("coracle {} runs controllers of {url}", env!("CARGO_PKG_VERSION"));
    // A context of its own, so that the watches of the controllers end before the lease is
    // released.
    let clock = Clock::system();
    let election = runtime::Context::new(client.clone(), clock.clone(), Metrics::default(), ());
    let context = runtime::Context::new(client, clock, Metrics::default(), settings);
    let is_selected =
        |name: &str| coracle_control_plane::controllers::is_selected(&flags.options.controllers, name);
    let selected = coracle_controllers::CONTROLLERS.iter().filter(|known| is_selected(known.name));
    let selected: Vec<_> = selected.collect();
    let stop = Box::pin(async {
        let _ = signals.next().await;
    });
    let work = Box::pin(async move { runtime::run_selected(context, selected, Readiness::default()).await });
    if flags.manager.leader_elect {
        let identity = coracle_control_plane::controllers::identity(&Identities::default());
        runtime::leader::run_elected(&election, identity, work, stop).await?;
    } else {
        tokio::select! {
            () = work => {}
            () = stop => {}
        }
    }
    Ok(())
}

/// Returns the server's CA certificates in the kubeconfig's current context, in PEM, unchanged;
/// None if there are none.
fn root_ca(kubeconfig: &Kubeconfig) -> Result<Option<String>> {
    let context =
        kubeconfig.contexts.iter().find(|context| Some(&context.name) == kubeconfig.current_context.as_ref());
    let Some(context) = context.and_then(|named| named.context.as_ref()) else { return Ok(None) };
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster);
    let Some(cluster) = cluster.and_then(|named| named.cluster.as_ref()) else { return Ok(None) };
    let bytes = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => STANDARD.decode(data)?,
        (None, Some(path)) => std::fs::read(path).with_context(|| path.clone())?,
        (None, None) => return Ok(None),
    };
    Ok(Some(String::from_utf8(bytes)?))
}

/// Returns the signer of the tokens in secrets.
fn sign(file: &Path) -> Result<Sign> {
    let key = SigningKey::in_file(file)?;
    Ok(Arc::new(move |claims| key.sign(claims)))
}
