//! The table of kube-apiserver's flags: those of declared options, those that only the drop-in
//! reads, and those without effect.

use std::sync::LazyLock;

use coracle_control_plane::options::{AdmissionFlags, AuditFlags, Declared, ShutdownFlags, Values};
use coracle_control_plane::{Options, ServiceAccountIssuer};

use super::apiserver::NAME;
use super::flags::{Dialect, Flag, FlagSet, Kind};

/// The flags that envtest and its users pass, and those that a test server is most likely to get,
/// by their names.
static TABLE: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let mut table: Vec<Flag> = OWN.iter().map(|(name, kind, _)| used(name, *kind)).collect();
    table.extend(declared::<Options>());
    table.extend(declared::<ServiceAccountIssuer>());
    table.extend(declared::<AdmissionFlags>());
    table.extend(declared::<AuditFlags>());
    table.extend(declared::<ShutdownFlags>());
    let without_effect = WITHOUT_EFFECT.iter().flat_map(|(kind, names)| {
        names.split_whitespace().map(|name| Flag { name, kind: *kind, is_used: false })
    });
    table.extend(without_effect);
    table.sort_by_key(|flag| flag.name);
    table
});

/// Returns kube-apiserver's flags.
pub fn flags() -> FlagSet {
    FlagSet { program: NAME, dialect: Dialect::Pflag, flags: &TABLE }
}

const fn used(name: &'static str, kind: Kind) -> Flag {
    Flag { name, kind, is_used: true }
}

/// Iterates over the flags of declared options.
fn declared<T: Declared>() -> impl Iterator<Item = Flag> {
    T::flags().filter(|flag| flag.usage.drop_in).map(|flag| {
        let kind = match flag.values {
            // Its form reads the texts of Go's ParseBool.
            Values::Switch => Kind::Bool,
            Values::Number { .. } => Kind::Int,
            Values::Text | Values::File | Values::Choice(_) | Values::Each => Kind::Text,
            Values::List { .. } => Kind::List,
        };
        used(flag.name, kind)
    })
}

/// The flags with another meaning or default than the options of `coracle serve`, with their
/// documentation.
pub const OWN: &[(&str, Kind, &str)] = &[
    ("admission-control", Kind::List, "The admission plugins to run, and no others."),
    (
        "advertise-address",
        Kind::Text,
        "The address that is published to clients in the cluster, and in a certificate that has to be made; \
      the host's own by default.",
    ),
    (
        "allow-privileged",
        Kind::Bool,
        "Accepted for envtest, which passes it; privileged containers are always allowed.",
    ),
    (
        "authorization-mode",
        Kind::List,
        "The authorization modes: RBAC or AlwaysAllow, and others only beside one of them; AlwaysAllow by default.",
    ),
    ("bind-address", Kind::Text, "The address to serve on; all interfaces by default."),
    (
        "cert-dir",
        Kind::Text,
        "The directory of the certificate, which is made if it is missing; without it the certificate is in memory.",
    ),
    ("secure-port", Kind::Int, "The port to serve on, from 1 to 65535; 6443 by default."),
    (
        "service-cluster-ip-range",
        Kind::List,
        "The block of the cluster IPs of Services; of several the first IPv4 block.",
    ),
    ("tls-cert-file", Kind::Text, "The certificate to serve with."),
    ("tls-private-key-file", Kind::Text, "The key of the certificate."),
];

/// The flags that are accepted and have no effect.
pub const WITHOUT_EFFECT: &[(Kind, &str)] = &[
    (
        Kind::Bool,
        "\
         contention-profiling enable-aggregator-routing enable-bootstrap-token-auth \
         enable-garbage-collector enable-priority-and-fairness permit-address-sharing \
         permit-port-sharing profiling service-account-extend-token-expiration service-account-lookup \
         shutdown-send-retry-after watch-cache",
    ),
    (
        Kind::Int,
        "\
         audit-log-batch-buffer-size default-not-ready-toleration-seconds \
         default-unreachable-toleration-seconds default-watch-cache-size delete-collection-workers \
         http2-max-streams-per-connection max-mutating-requests-inflight max-requests-inflight \
         min-request-timeout v",
    ),
    (
        Kind::Text,
        "\
         admission-control-config-file audit-log-version audit-webhook-config-file audit-webhook-mode \
         authentication-config authentication-token-webhook-cache-ttl \
         authentication-token-webhook-config-file authentication-token-webhook-version \
         authorization-config authorization-policy-file authorization-webhook-config-file \
         authorization-webhook-version encryption-provider-config endpoint-reconciler-type etcd-cafile \
         etcd-certfile etcd-compaction-interval etcd-keyfile etcd-prefix external-hostname \
         kubelet-certificate-authority kubelet-client-certificate kubelet-client-key livez-grace-period \
         log-flush-frequency logging-format oidc-ca-file oidc-client-id oidc-groups-claim \
         oidc-groups-prefix oidc-issuer-url oidc-required-claim oidc-username-claim oidc-username-prefix \
         proxy-client-cert-file proxy-client-key-file request-timeout requestheader-client-ca-file \
         service-account-jwks-uri service-account-max-token-expiration service-node-port-range \
         storage-backend storage-media-type tls-min-version tls-sni-cert-key vmodule",
    ),
    (
        Kind::List,
        "\
         api-audiences cors-allowed-origins emulated-version etcd-servers etcd-servers-overrides \
         kubelet-preferred-address-types oidc-signing-algs requestheader-allowed-names \
         requestheader-extra-headers-prefix requestheader-group-headers requestheader-uid-headers \
         requestheader-username-headers runtime-config strict-transport-security-directives \
         tls-cipher-suites watch-cache-sizes",
    ),
];
