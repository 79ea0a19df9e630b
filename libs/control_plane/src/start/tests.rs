//! Starts that fail in each phase, that are canceled, and that succeed: nothing of them runs
//! afterwards.
#![expect(clippy::disallowed_methods, reason = "deadlines of tests")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::{Duration, Instant};

use coracle_apiserver::audit::AuditOptions;
use coracle_storage::log::{Durability, SledLog};
use tempfile::TempDir;
use tokio::runtime::Handle;

use super::*;
use crate::control_plane::ControlPlane;
use crate::maintenance::STORE;
use crate::options::ForkOptions;

const KINDS: Kinds = Kinds {
    built_in: coracle_resources::built_in,
    extension: |_| coracle_resources::metrics_extension(coracle_resources::Measured::Simulated),
};

fn alone() -> Kinship<'static> {
    Kinship { family: Family::new(0, usize::MAX), origin: None, name: "" }
}

/// The time by which what ends in the background has ended.
const DEADLINE: Duration = Duration::from_secs(20);

/// A data directory and a port, which a control plane that has ended leaves to the next one.
struct Place {
    directory: TempDir,
    address: SocketAddr,
}

impl Place {
    fn new() -> Place {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        Place { directory: tempfile::tempdir().unwrap(), address: free.local_addr().unwrap() }
    }

    fn data_dir(&self) -> &Path {
        self.directory.path()
    }

    fn options(&self) -> Options {
        Options {
            data_dir: Some(self.data_dir().to_owned()),
            listen: self.address,
            nodes: 0,
            ..Options::default()
        }
    }

    fn write(&self, name: &str, text: &str) -> std::path::PathBuf {
        let file = self.data_dir().join(name);
        fs::write(&file, text).unwrap();
        file
    }

    fn is_free(&self) -> bool {
        self.store_is_free() && TcpListener::bind(self.address).is_ok()
    }

    fn store_is_free(&self) -> bool {
        SledLog::open(&self.data_dir().join(STORE), Durability::None).is_ok()
    }

    async fn assert_is_free_soon(&self, case: &str) {
        let begun = Instant::now();
        while !self.is_free() {
            assert!(begun.elapsed() < DEADLINE, "{case}: the port or the store is still in use");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// Waits for tasks that end because what they read from was dropped.
async fn assert_no_task_is_left(case: &str) {
    let begun = Instant::now();
    while Handle::current().metrics().num_alive_tasks() > 0 {
        assert!(begun.elapsed() < DEADLINE, "{case}: tasks are left");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

type Change = fn(&Place, &mut Options);

/// An error in each phase that can fail, by the beginning of its text.
const FAILURES: &[(&str, Change, &str)] = &[
    (
        "preparation: a feature gate",
        |_, options| _ = options.feature_gates.insert("Nope".to_owned(), true),
        "unrecognized feature gate: Nope",
    ),
    (
        "preparation: a controller",
        |_, options| options.controllers.push("-nosuch".to_owned()),
        "\"-nosuch\" is not in the list of known controllers",
    ),
    (
        "preparation: the audit policy",
        |place, options| {
            let policy_file = Some(place.write("policy.yaml", "kind: Nope"));
            options.audit = AuditOptions { policy_file, ..AuditOptions::default() };
        },
        "",
    ),
    (
        "preparation: the collector, after the port is bound",
        |place, options| {
            let text = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: '[:'\n";
            options.tracing_config_file = Some(place.write("tracing.yaml", text));
        },
        "",
    ),
    ("storage: a file is in the store's place", |place, _| drop(place.write(STORE, "")), ""),
    (
        "access: the authority of clients",
        |place, options| options.client_ca_file = Some(place.data_dir().join("nope.crt")),
        "",
    ),
    (
        "access: the signing key",
        |place, options| {
            options.service_accounts.signing_key_file = Some(place.data_dir().join("nope.key"));
        },
        "",
    ),
    (
        "access: a directory is in the place of a key",
        |place, _| fs::create_dir_all(place.data_dir().join("pki/apiserver.key")).unwrap(),
        "",
    ),
    (
        "registry: the objects of the start",
        |_, options| options.max_store_bytes = 1,
        "cannot make the first objects: ",
    ),
];

#[tokio::test]
async fn a_phase_that_fails_leaves_nothing_running() {
    for (case, change, want) in FAILURES {
        let place = Place::new();
        let mut options = place.options();
        change(&place, &mut options);
        let Err(error) = start(options, KINDS, alone()).await else { panic!("{case}: it has started") };
        assert!(error.to_string().starts_with(want), "{case}: {error}");
        for name in ["ca", "apiserver", "admin"] {
            let pki = place.data_dir().join("pki");
            let exists = |extension| pki.join(name).with_extension(extension).is_file();
            assert!(exists("key") || !exists("crt"), "{case}: {name}");
        }
        if place.data_dir().join(STORE).is_file() {
            fs::remove_file(place.data_dir().join(STORE)).unwrap();
        }
        place.assert_is_free_soon(case).await;
        assert_no_task_is_left(case).await;
    }
}

#[tokio::test]
async fn keys_are_on_disk_once_it_serves() {
    let place = Place::new();
    let mut running = start(place.options(), KINDS, alone()).await.unwrap();
    let pki = fs::read_dir(place.data_dir().join("pki")).unwrap();
    let mut names: Vec<String> =
        pki.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    let want = "admin.crt admin.key apiserver.crt apiserver.key ca.crt ca.key service-account.key";
    assert_eq!(names.join(" "), want);
    running.started.stop().await.unwrap();
}

#[tokio::test]
async fn a_taken_port_or_store_is_left_to_its_owner() {
    let place = Place::new();
    let owner = TcpListener::bind(place.address).unwrap();
    let outcome = start(place.options(), KINDS, alone()).await;
    assert!(matches!(outcome.err(), Some(Error::Listen { address, .. }) if address == place.address));
    drop(owner);
    assert!(fs::read_dir(place.data_dir()).unwrap().next().is_none(), "no file was created");
    let owner = SledLog::open(&place.data_dir().join(STORE), Durability::None).unwrap();
    let outcome = start(place.options(), KINDS, alone()).await;
    assert!(matches!(outcome.err(), Some(Error::Log(_))));
    drop(owner);
    place.assert_is_free_soon("in use").await;
    assert_no_task_is_left("in use").await;
}

/// Starts with a store that has space for the objects of the start, but not for the identity.
#[tokio::test]
async fn an_identity_that_fails_leaves_nothing_running() {
    let place = Place::new();
    let mut running = start(place.options(), KINDS, alone()).await.unwrap();
    running.started.stop().await.unwrap();
    drop(running);
    let options = Options { identity_lease: true, max_store_bytes: 1, ..place.options() };
    assert!(matches!(start(options, KINDS, alone()).await.err(), Some(Error::Bootstrap(_))));
    place.assert_is_free_soon("identity").await;
    assert_no_task_is_left("identity").await;
}

#[tokio::test]
async fn a_directory_of_volumes_is_removed_when_it_is_stopped() {
    let place = Place::new();
    let mut started = Started::none();
    let options = Options { data_dir: None, ..place.options() };
    let volumes = VolumeDirectories::new(&options, place.data_dir(), None, &mut started);
    let directory = volumes.directories.own;
    assert!(directory.starts_with(place.data_dir()) && !directory.exists(), "the first volume makes it");
    std::fs::create_dir_all(directory.join("volumes/a")).unwrap();
    started.stop().await.unwrap();
    assert!(!directory.exists());
}

#[tokio::test]
async fn forks_keep_the_directory_of_volumes_of_their_parent() {
    let place = Place::new();
    let options = Options { data_dir: None, max_forks: 1, ..place.options() };
    let parent = ControlPlane::start(options, KINDS).await.unwrap();
    let directory = parent.volumes();
    std::fs::create_dir_all(directory.join("volumes/a")).unwrap();
    let fork = parent.fork(ForkOptions::default()).await.unwrap();
    let own = fork.volumes();
    std::fs::create_dir_all(own.join("volumes/b")).unwrap();
    parent.shutdown().await.unwrap();
    assert!(directory.join("volumes/a").exists(), "a pod of the fork may mount it later");
    fork.shutdown().await.unwrap();
    assert!(!directory.exists() && !own.exists());
}

#[tokio::test]
async fn a_shutdown_leaves_nothing_running() {
    let place = Place::new();
    let control_plane = ControlPlane::start(place.options(), KINDS).await.unwrap();
    assert!(!place.is_free());
    control_plane.shutdown().await.unwrap();
    assert!(place.store_is_free(), "when the shutdown returns");
    place.assert_is_free_soon("shut down").await;
    assert_no_task_is_left("shutdown").await;
}

#[tokio::test]
async fn nodes_are_registered_when_it_serves() {
    let place = Place::new();
    let options = Options { nodes: 20, ..place.options() };
    let control_plane = ControlPlane::start(options, KINDS).await.unwrap();
    let list = async |path| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        control_plane.client().request::<serde_json::Value>(request).await.unwrap()["items"].take()
    };
    let nodes = list("/api/v1/nodes").await;
    let is_schedulable = |node: &serde_json::Value| node["spec"]["taints"].is_null();
    assert_eq!(nodes.as_array().unwrap().iter().filter(|node| is_schedulable(node)).count(), 20);
    let leases = list("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases").await;
    assert_eq!(leases.as_array().unwrap().len(), 20);
    control_plane.shutdown().await.unwrap();
    assert_no_task_is_left("shutdown").await;
}

#[tokio::test]
async fn a_dropped_control_plane_leaves_nothing_running() {
    let place = Place::new();
    drop(ControlPlane::start(place.options(), KINDS).await.unwrap());
    place.assert_is_free_soon("dropped").await;
    assert_no_task_is_left("dropped").await;
}

#[tokio::test]
async fn a_start_that_is_cancelled_at_any_time_leaves_nothing_running() {
    let place = Place::new();
    for polls in [1, 2, 3, 5, 10, 20, 50, 100, 200] {
        let mut starting = Box::pin(start(place.options(), KINDS, alone()));
        for _ in 0..polls {
            if futures::poll!(&mut starting).is_ready() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(starting);
        place.assert_is_free_soon("cancelled").await;
        assert_no_task_is_left("cancelled").await;
    }
}

#[tokio::test]
async fn a_start_that_is_cancelled_while_it_writes_keys_leaves_none_in_part() {
    let place = Place::new();
    let keys = place.data_dir().join("pki");
    let entries = || -> Vec<String> {
        let entries = std::fs::read_dir(&keys).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    };
    let mut starting = Box::pin(start(place.options(), KINDS, alone()));
    while entries().is_empty() {
        assert!(!futures::poll!(&mut starting).is_ready(), "keys come before the end of the start");
        tokio::task::yield_now().await;
    }
    drop(starting);
    place.assert_is_free_soon("cancelled").await;
    assert_no_task_is_left("cancelled").await;
    let left = entries();
    assert!(left.iter().all(|name| !name.ends_with(".tmp")), "{left:?}");
    // The keys that are there fit together.
    let control_plane = ControlPlane::start(place.options(), KINDS).await.unwrap();
    assert!(entries().len() >= left.len());
    control_plane.shutdown().await.unwrap();
}
