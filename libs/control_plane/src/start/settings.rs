//! The settings of the controllers that cannot be read from the API.

use std::sync::Arc;
use std::time::Duration;

use coracle_apimachinery::features::FeatureGates;
use coracle_apiserver::access::certificate_signer::CertificateSigner;
use coracle_controllers::{CertificateTemplate, Settings, SignCertificate};
use coracle_volumes::{DataDirectories, VolumeSettings};

use super::access::Access;
use crate::options::Options;

/// Returns the settings of controllers that work with this server.
///
/// - `volumes`: the directories of the volumes
/// - `is_fork`: whether they continue the work of another server's controllers
pub fn settings(
    options: &Options,
    access: &Access,
    volumes: DataDirectories,
    features: Arc<FeatureGates>,
    is_fork: bool,
) -> Settings {
    let key = access.signing_key.clone();
    Settings {
        // There is one server and one store: whatever was admitted is stored within this time. It
        // is no shorter because clients see a terminating namespace for a while in a real cluster,
        // and rely on it.
        namespace_grace: Duration::from_secs(2),
        goes_on: is_fork,
        root_ca: Some(access.certificates.ca_pem().to_owned()),
        sign: Some(Arc::new(move |claims| key.sign(claims))),
        sign_certificate: Some(sign_certificate(access.certificates.signer())),
        horizontal_pod_autoscaler_sync_period: options.horizontal_pod_autoscaler_sync_period,
        volumes: VolumeSettings::new(volumes, |gate| features.is_enabled(gate)),
        is_enabled: Arc::new(move |gate| features.is_enabled(gate)),
    }
}

/// Issues the certificates of CertificateSigningRequests by the authority of our own client
/// certificates.
fn sign_certificate(signer: CertificateSigner) -> SignCertificate {
    Arc::new(move |template| {
        let CertificateTemplate { request, usages, not_before, not_after } = template;
        signer.sign(request, usages, *not_before..*not_after).map_err(|error| error.to_string())
    })
}
