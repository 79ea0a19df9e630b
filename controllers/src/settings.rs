//! Settings of the controllers that the API does not provide.

use std::sync::Arc;
use std::time::Duration;

use coracle_pki::CertificateRequest;
use coracle_volumes::VolumeSettings;
use k8s_openapi::jiff::Timestamp;

/// The context of the controllers of this crate.
pub type Context = coracle_controller_runtime::Context<Settings>;

/// Settings of the controllers that the API does not provide.
#[derive(Clone)]
pub struct Settings {
    /// For how long a terminating namespace is left as it is. What was admitted to it before may
    /// still have to be stored, and not every API server may have observed yet that it is
    /// terminating.
    pub namespace_grace: Duration,
    /// Whether other controllers in the same process did this work until a moment ago. These
    /// controllers continue it, and do not report anything again.
    pub goes_on: bool,
    /// The certificates, in PEM, by which clients know the API server; without them they are not
    /// published.
    pub root_ca: Option<String>,
    /// Signs the claims of a token; without it no tokens are made.
    pub sign: Option<Sign>,
    /// Issues certificates for CertificateSigningRequests; without it none are.
    pub sign_certificate: Option<SignCertificate>,
    /// The interval at which each HorizontalPodAutoscaler is reconciled.
    pub horizontal_pod_autoscaler_sync_period: Duration,
    /// Returns `true` if a feature gate is on, by Kubernetes' name of the gate.
    pub is_enabled: IsEnabled,
    /// Settings that the simulation has, too.
    pub volumes: VolumeSettings,
}

/// Returns `true` if a feature gate is on.
pub type IsEnabled = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Signs the claims of a token and returns it as a JWS. None: it cannot be signed.
pub type Sign = Arc<dyn Fn(&serde_json::Value) -> Option<String> + Send + Sync>;

/// A certificate to be issued for a request.
#[derive(Clone, Debug)]
pub struct CertificateTemplate<'a> {
    /// The request: the subject, the key and the alternative names are taken from it.
    pub request: CertificateRequest,
    /// The usages, by the API's names.
    pub usages: &'a [String],
    /// From when on the certificate is valid.
    pub not_before: Timestamp,
    /// Until when it is valid, unless its authority ends before.
    pub not_after: Timestamp,
}

/// Issues a certificate and returns it in PEM, or why it cannot be issued.
pub type SignCertificate = Arc<dyn Fn(&CertificateTemplate<'_>) -> Result<String, String> + Send + Sync>;

impl Default for Settings {
    /// Returns kube-controller-manager's defaults; settings without a default there are unset.
    fn default() -> Settings {
        Settings {
            namespace_grace: Duration::from_secs(5),
            goes_on: false,
            root_ca: None,
            sign: None,
            sign_certificate: None,
            horizontal_pod_autoscaler_sync_period: Duration::from_secs(15),
            // Of the gates that the controllers read none is off by default.
            is_enabled: Arc::new(|_| true),
            volumes: VolumeSettings::default(),
        }
    }
}

impl AsRef<VolumeSettings> for Settings {
    fn as_ref(&self) -> &VolumeSettings {
        &self.volumes
    }
}
