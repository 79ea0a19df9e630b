//! kube-apiserver, as envtest starts it: its flags, and the control plane that they describe.
//!
//! The data is in memory: `--etcd-servers` is accepted, and nothing is stored there.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use coracle_apimachinery::validation::ip::Cidr;
use coracle_apiserver::audit::AuditOptions;
use coracle_builtin::admission::PluginSelection;
use coracle_builtin::authorization::Mode;
use coracle_control_plane::options::{self, AdmissionFlags, AuditFlags, Declared, Flag, ShutdownFlags};
use coracle_control_plane::{ControlPlane, Kinds, Options};

use super::environment::ControlPlaneVariables;
use super::flags::Values;
use crate::run::{Signals, stop};

/// The program's name.
pub const NAME: &str = "kube-apiserver";
/// The output of `--version`.
pub const VERSION: &str = "Kubernetes v1.36.2\n";

/// The default of `--secure-port`.
const SECURE_PORT: u16 = 6443;

/// Builds the options of the control plane from the flags and the environment.
///
/// The first flag with a wrong value, in this order, is reported.
///
/// # Errors
/// One line about the flag or variable that is wrong.
fn options(values: &Values) -> Result<Options, String> {
    let ControlPlaneVariables { controllers, nodes, response_latency, clock, seed } =
        ControlPlaneVariables::of_process()?;
    let listen = address(values)?;
    let advertise_address = advertise_address(values)?;
    let mode = authorization(&values.list("authorization-mode"))?;
    let admission_plugins = admission_plugins(values)?;
    Options::flags().filter(|flag| flag.name == "feature-gates").try_for_each(|flag| check(flag, values))?;
    let audit = audit(values)?;
    let others: Options = declared(values)?;
    Ok(Options {
        listen,
        advertise_address,
        identity_lease: true,
        mode,
        admission_plugins,
        tls_san: server_names(values)?,
        service_accounts: declared(values)?,
        controllers,
        nodes,
        audit,
        // kube-apiserver creates none.
        default_storage_class: None,
        response_latency,
        clock,
        seed,
        service_cidr: service_cidr(&values.list("service-cluster-ip-range"))?,
        serving_files: serving_files(values)?,
        ..others
    })
}

/// Parses the declared options from the flags.
fn declared<T: Declared>(values: &Values) -> Result<T, String> {
    let mut options = T::default();
    for flag in T::flags().filter(|flag| flag.usage.drop_in) {
        check(flag, values)?;
        let texts = texts(flag, values);
        if !texts.is_empty() {
            (flag.set)(&mut options, &texts)?;
        }
    }
    Ok(options)
}

/// Checks the values of a declared flag.
fn check<T: 'static>(flag: &Flag<T>, values: &Values) -> Result<(), String> {
    texts(flag, values).iter().try_for_each(|text| {
        (flag.check)(std::slice::from_ref(text)).map_err(|why| match why.starts_with("--") {
            // A message of kube-apiserver itself.
            true => why,
            false => invalid(flag.name, &text.to_string_lossy(), &why),
        })
    })
}

/// Returns the values of a declared flag.
fn texts<T: 'static>(flag: &Flag<T>, values: &Values) -> Vec<OsString> {
    match flag.values {
        options::Values::List { .. } => values.list(flag.name).into_iter().map(OsString::from).collect(),
        options::Values::Each => values.each(flag.name).map(OsString::from).collect(),
        _ => values.text(flag.name).map(OsString::from).into_iter().collect(),
    }
}

/// Returns the audit options of the server.
fn audit(values: &Values) -> Result<AuditOptions, String> {
    let number = |flag: &str| -> Result<i64, String> {
        let text = values.text(flag).unwrap_or("0");
        text.parse().map_err(|_| invalid(flag, text, &"invalid syntax"))
    };
    let text = |flag: &str| values.text(flag).map(str::to_owned);
    let default = AuditFlags::default();
    let flags = AuditFlags {
        policy_file: values.text("audit-policy-file").filter(|file| !file.is_empty()).map(PathBuf::from),
        path: values.text("audit-log-path").map(PathBuf::from),
        format: text("audit-log-format").unwrap_or(default.format),
        mode: text("audit-log-mode").unwrap_or(default.mode),
        max_age: number("audit-log-maxage")?,
        max_backups: number("audit-log-maxbackup")?,
        max_size: number("audit-log-maxsize")?,
        compress: values.boolean("audit-log-compress").unwrap_or(default.compress),
    };
    flags.options()
}

fn invalid(flag: &str, value: &str, why: &dyn std::fmt::Display) -> String {
    format!("invalid argument {value:?} for \"--{flag}\" flag: {why}")
}

/// Returns the address to serve on; all interfaces by default, as for kube-apiserver.
fn address(values: &Values) -> Result<SocketAddr, String> {
    let address = ip_address(values, "bind-address")?.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let port = match values.text("secure-port") {
        Some(port) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
            format!(
                "--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off with 0"
            )
        })?,
        None => SECURE_PORT,
    };
    Ok(SocketAddr::new(address, port))
}

/// Returns the address that is published to clients in the cluster, if a flag has it.
fn advertise_address(values: &Values) -> Result<Option<IpAddr>, String> {
    let [advertised, bound] = ["advertise-address", "bind-address"].map(|flag| ip_address(values, flag));
    let advertised = advertised?.filter(|address| !address.is_unspecified());
    let bound = bound?.filter(|address| !address.is_unspecified() && !address.is_loopback());
    Ok(advertised.or(bound))
}

fn ip_address(values: &Values, flag: &str) -> Result<Option<IpAddr>, String> {
    let parse =
        |text: &str| text.parse().map_err(|_| invalid(flag, text, &format!("failed to parse IP: {text:?}")));
    values.text(flag).map(parse).transpose()
}

/// Returns the addresses for a generated certificate.
fn server_names(values: &Values) -> Result<Vec<String>, String> {
    let flags = ["advertise-address", "bind-address"].map(|flag| ip_address(values, flag));
    let mut names = Vec::new();
    for address in flags {
        names.extend(address?.filter(|address| !address.is_unspecified()).map(|address| address.to_string()));
    }
    Ok(names)
}

/// Returns the certificate and the key to serve with; None for a certificate that Coracle issues
/// itself.
fn serving_files(values: &Values) -> Result<Option<(PathBuf, PathBuf)>, String> {
    let [certificate, key] =
        ["tls-cert-file", "tls-private-key-file"].map(|flag| values.text(flag).map(PathBuf::from));
    match (certificate, key) {
        (Some(certificate), Some(key)) => {
            // Only files in --cert-dir are made.
            for file in [&certificate, &key] {
                file.metadata().map_err(|error| format!("{}: {error}", file.display()))?;
            }
            Ok(Some((certificate, key)))
        }
        (None, None) => {
            let in_directory = |directory: &str| {
                let directory = Path::new(directory);
                (directory.join("apiserver.crt"), directory.join("apiserver.key"))
            };
            Ok(values.text("cert-dir").map(in_directory))
        }
        _ => Err("--tls-cert-file and --tls-private-key-file need each other".to_owned()),
    }
}

/// Returns the mode that includes all the given ones; everything is allowed by default, as by
/// kube-apiserver.
fn authorization(modes: &[String]) -> Result<Mode, String> {
    const MODES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
    if let Some(unknown) = modes.iter().find(|mode| !MODES.contains(&mode.as_str())) {
        return Err(format!("authorization-mode {unknown:?} is not a valid mode"));
    }
    let has = |mode: &str| modes.iter().any(|given| given == mode);
    match modes {
        [] => Ok(Mode::AlwaysAllow),
        _ if has("AlwaysAllow") => Ok(Mode::AlwaysAllow),
        _ if has("RBAC") => Ok(Mode::Rbac),
        _ => {
            Err(format!("--authorization-mode={} needs RBAC or AlwaysAllow beside it here", modes.join(",")))
        }
    }
}

fn admission_plugins(values: &Values) -> Result<PluginSelection, String> {
    let selection = match values.contains("admission-control") {
        true => PluginSelection::only(&values.list("admission-control")),
        false => declared::<AdmissionFlags>(values)?.selection(),
    };
    selection.map_err(|error| error.to_string())
}

/// Returns the first IPv4 block; Services have addresses of one family here.
fn service_cidr(blocks: &[String]) -> Result<Option<Cidr>, String> {
    let parse = |text: &String| {
        Cidr::parse(text).ok_or_else(|| {
            invalid("service-cluster-ip-range", text, &format!("invalid CIDR address: {text}"))
        })
    };
    let parsed: Vec<Cidr> = blocks.iter().map(parse).collect::<Result<_, _>>()?;
    match parsed.iter().find(|block| block.address.is_ipv4()) {
        // kube-apiserver has the same limit for the smallest block.
        Some(block) if block.prefix > 30 => Err(format!("--service-cluster-ip-range={block} is too small")),
        None if !parsed.is_empty() => Err("--service-cluster-ip-range needs an IPv4 block here".to_owned()),
        block => Ok(block.copied()),
    }
}

/// A server that has not been started.
pub struct Server {
    options: Options,
    shutdown: ShutdownFlags,
}

impl Server {
    /// Builds the server that the flags and the environment describe.
    ///
    /// # Errors
    /// One line about the flag or variable that is wrong.
    pub fn new(values: &Values) -> Result<Server, String> {
        Ok(Server { shutdown: declared(values)?, options: options(values)? })
    }

    /// Serves until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The control plane does not start, or the store cannot be closed.
    pub async fn run(self, kinds: Kinds) -> Result<ExitCode> {
        let mut signals = Signals::new()?;
        let control_plane = ControlPlane::start(self.options, kinds).await?;
        tracing::info!(
            url = control_plane.url(),
            version = env!("CARGO_PKG_VERSION"),
            "serving, with all data in memory"
        );
        signals.next().await;
        stop(control_plane, self.shutdown.delay, &mut signals).await?;
        Ok(ExitCode::SUCCESS)
    }
}

#[cfg(test)]
mod tests {
    use super::super::apiserver_flags::flags;
    use super::super::flags::Request;
    use super::*;

    fn values(arguments: &[&str]) -> Values {
        match flags().parse(arguments.iter().copied()) {
            Ok(Request::Run(values)) => values,
            other => panic!("{arguments:?}: {other:?}"),
        }
    }

    #[test]
    fn every_flag_is_listed_once_and_none_of_old_versions() {
        let names: std::collections::BTreeSet<_> = flags().flags.iter().map(|flag| flag.name).collect();
        assert_eq!(names.len(), flags().flags.len());
        // envtest would pass it.
        assert!(!flags().help().contains("--insecure-port"));
    }

    #[test]
    fn the_argument_lists_of_envtest_are_accepted() {
        for arguments in [
            &[
                "--allow-privileged=true",
                "--authorization-mode=RBAC",
                "--bind-address=127.0.0.1",
                "--cert-dir=/tmp/certs",
                "--client-ca-file=/tmp/certs/client-cert-auth-ca.crt",
                "--disable-admission-plugins=ServiceAccount",
                "--etcd-servers=http://127.0.0.1:2379",
                "--secure-port=40001",
                "--service-account-issuer=https://127.0.0.1:40001/",
                "--service-account-key-file=/tmp/certs/sa-signer.crt",
                "--service-account-signing-key-file=/tmp/certs/sa-signer.key",
                "--service-cluster-ip-range=10.0.0.0/24",
            ][..],
            &[
                "--advertise-address=127.0.0.1",
                "--etcd-servers=http://127.0.0.1:2379",
                "--cert-dir=/tmp/certs",
                "",
                "--secure-port=40001",
                "--disable-admission-plugins=ServiceAccount",
                "--service-cluster-ip-range=10.0.0.0/24",
                "--allow-privileged=true",
                "--authorization-mode=RBAC",
            ],
            &[
                "--feature-gates=AllAlpha=false",
                "--runtime-config=api/all=true",
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--enable-admission-plugins=AlwaysPullImages,PodSecurity",
                "--disable-admission-plugins=",
                "--token-auth-file=/tmp/tokens.csv",
                "--authentication-token-webhook-config-file=/tmp/webhook",
                "--audit-policy-file=/tmp/policy",
                "--audit-log-path=-",
                "--audit-log-format=json",
                "--audit-log-maxage=1",
                "--audit-log-maxbackup=1",
                "--audit-log-maxsize=1",
                "--max-requests-inflight=1000",
                "--max-mutating-requests-inflight=1000",
                "--delete-collection-workers=2",
                "--vmodule=httplog=10",
                "-v=4",
            ],
            &["--admission-control=NamespaceLifecycle,LimitRanger"],
        ] {
            assert!(options(&values(arguments)).is_ok(), "{arguments:?}");
        }
    }

    #[test]
    fn wrong_values_are_one_line() {
        for (argument, want) in [
            ("--secure-port=0", "--secure-port 0 must be between 1 and 65535"),
            ("--secure-port=65536", "--secure-port 65536 must be between 1 and 65535"),
            ("--bind-address=x", "failed to parse IP: \"x\""),
            ("--advertise-address=x", "failed to parse IP: \"x\""),
            ("--authorization-mode=Rbac", "authorization-mode \"Rbac\" is not a valid mode"),
            ("--authorization-mode=Webhook", "needs RBAC or AlwaysAllow beside it here"),
            ("--enable-admission-plugins=Nope", "enable-admission-plugins plugin \"Nope\" is unknown"),
            ("--admission-control=Nope", "plugin \"Nope\" is unknown"),
            ("--feature-gates=Nope=true", "for \"--feature-gates\" flag: unrecognized feature gate: Nope"),
            ("--feature-gates=AllAlpha", "missing bool value for AllAlpha"),
            ("--service-cluster-ip-range=10.0.0.0", "invalid CIDR address: 10.0.0.0"),
            ("--service-cluster-ip-range=10.0.0.0/31", "is too small"),
            ("--service-cluster-ip-range=fd00::/108", "needs an IPv4 block here"),
            ("--tls-cert-file=/tmp/x", "--tls-cert-file and --tls-private-key-file need each other"),
            ("--audit-log-maxage=-1", "--audit-log-maxage -1 can't be a negative number"),
            ("--audit-log-format=xml", "invalid audit log format xml, allowed formats are \"legacy,json\""),
            ("--event-ttl=x", "for \"--event-ttl\" flag: "),
            ("--goaway-chance=0.03", "--goaway-chance can not be less than 0 or greater than 0.02"),
        ] {
            let error = options(&values(&[argument])).expect_err(argument);
            assert!(error.contains(want) && !error.contains('\n'), "{argument}: {error}");
        }
    }

    #[test]
    fn of_several_wrong_values_the_first_one_in_the_order_is_reported() {
        let wrong = [
            "--shutdown-delay-duration=x",
            "--bind-address=x",
            "--secure-port=0",
            "--advertise-address=x",
            "--authorization-mode=x",
            "--enable-admission-plugins=x",
            "--feature-gates=x",
            "--audit-log-maxage=-1",
            "--event-ttl=x",
            "--goaway-chance=1",
            "--service-cluster-ip-range=x",
            "--tls-cert-file=/x",
        ];
        let error = |arguments: &[&str]| Server::new(&values(arguments)).err();
        for (at, first) in wrong.iter().enumerate() {
            let alone = error(&[first]);
            assert!(alone.is_some(), "{first}");
            let mut all = wrong[at..].to_vec();
            all.reverse();
            assert_eq!(error(&all), alone, "{first}");
        }
    }

    #[test]
    fn authorization_modes_are_combined() {
        for (modes, want) in [
            (&[][..], Mode::AlwaysAllow),
            (&["RBAC"], Mode::Rbac),
            (&["Node", "RBAC"], Mode::Rbac),
            (&["RBAC", "AlwaysAllow"], Mode::AlwaysAllow),
        ] {
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            assert_eq!(authorization(&modes), Ok(want), "{modes:?}");
        }
    }
}
