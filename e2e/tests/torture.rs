//! The process is killed repeatedly at random times, while clients write, controllers work and
//! watches follow.
//!
//! The observations of clients must be explained by one order of their operations over all crashes,
//! with each durability that promises to survive the process. `CORACLE_TORTURE_ROUNDS=300 cargo
//! test -p coracle-e2e --test torture -- --nocapture` runs longer than the few rounds of a plain
//! run; `CORACLE_TORTURE_SEED` repeats the choices of a run, though not its timing.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Builder;
use coracle_e2e::consistency::client::{Client, History, Watch, list, mark};
use coracle_e2e::consistency::register::{self, Input, Output};
use coracle_e2e::consistency::stream::{self, Listed, Objects};
use coracle_e2e::http::Endpoint;
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::random::Rng;
use coracle_e2e::{Cluster, cluster, workloads};
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::sleep;

const CLIENTS: u64 = 4;
const KEYS: usize = 6;

/// The number of crashes over which a history continues.
const LIVES: usize = 4;

const STATEFUL_SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/web";
const NAMESPACES: &str = "/api/v1/namespaces";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// One run: the same data over many starts of the process.
struct Run {
    /// The value of `--durability`.
    durability: &'static str,
    data: TempDir,
    rng: Rng,
    keys: Vec<String>,
    history: History,
    /// The state before the history.
    initial: Objects,
    /// The watch that follows the store over its crashes; None before the first list of a history.
    watch: Option<Watch>,
    /// The newest observed revision: none up to this may be assigned again.
    newest: u64,
    /// Namespaces whose deletion was acknowledged.
    deleted: BTreeSet<String>,
    operations: usize,
    events: usize,
    crashed_starts: usize,
}

impl Run {
    async fn new(durability: &'static str, seed: u64) -> Result<Run> {
        let run = Run {
            durability,
            data: TempDir::new()?,
            rng: Rng(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed) | 1),
            keys: (0..KEYS).map(|key| format!("key-{key}")).collect(),
            history: History::default(),
            initial: Objects::new(),
            watch: None,
            newest: 0,
            deleted: BTreeSet::new(),
            operations: 0,
            events: 0,
            crashed_starts: 0,
        };
        let cluster = run.builder().with_service_account().start().await?;
        let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
        let mut set = workloads::replicated("web", 3);
        set["spec"]["serviceName"] = json!("web");
        client.create("/apis/apps/v1/namespaces/default/statefulsets", set).await?;
        ensure!(cluster.stop().await?.success(), "no clean stop");
        Ok(run)
    }

    fn builder(&self) -> Builder {
        cluster().data_dir(self.data.path()).flag("--durability", self.durability)
    }

    /// Starts the process. Sometimes it is killed while it starts, and started again.
    async fn start(&mut self) -> Result<Cluster> {
        while self.rng.one_in(6) {
            let soon = Duration::from_millis(self.rng.below(400) as u64);
            let served = self.builder().start_and_kill(soon).await?;
            self.crashed_starts += usize::from(!served);
        }
        self.builder().start().await
    }

    /// Runs the process once: checks its state, then generates load until it is killed.
    async fn live(&mut self, round: usize, is_new_history: bool) -> Result<()> {
        let cluster = self.start().await?;
        let endpoint = cluster.endpoint().await?;
        let called = self.history.now();
        let mark = if is_new_history { mark(&endpoint, &format!("round {round}")).await? } else { 0 };
        let found = list(&endpoint).await?;
        ensure!(found.revision >= self.newest, "revision {} after {}", found.revision, self.newest);
        if is_new_history {
            self.end_history(&endpoint, &found, mark).await?;
        } else {
            self.history.observe(&found, &self.keys, called);
        }
        self.newest = self.newest.max(found.revision);
        let before: BTreeSet<u64> = self.history.revisions().into_iter().collect();

        let server_has_exited = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let seed = self.rng.below(1 << 40) as u64;
            let mut client = Client::new(&self.history, &endpoint, seed, &self.keys).await?;
            clients.spawn(async move { client.run(usize::MAX).await });
        }
        let mut watch = self.watch.take().context("a watch")?;
        let (of_watch, exited) = (endpoint.clone(), server_has_exited.clone());
        let watch = tokio::spawn(async move {
            watch.follow(&of_watch, &AtomicU64::new(0), &exited).await?;
            anyhow::Ok(watch)
        });
        let deletions = tokio::spawn(disturb_controllers(endpoint.clone(), round));
        // The load: for as long as this.
        sleep(Duration::from_millis(30 + self.rng.below(700) as u64)).await;
        cluster.kill().await?;
        server_has_exited.store(true, Ordering::SeqCst);
        for client in clients.join_all().await {
            ensure!(!client?, "a client ended by itself");
        }
        self.deleted.extend(deletions.await??);
        let watch = watch.await??;

        let revisions = self.history.revisions();
        let unique: BTreeSet<u64> = revisions.iter().copied().collect();
        ensure!(unique.len() == revisions.len(), "a revision was given twice");
        if let Some(first) = unique.iter().find(|revision| !before.contains(revision)) {
            ensure!(*first > self.newest, "{first} was given after {}", self.newest);
        }
        self.newest = self.newest.max(watch.revision()).max(unique.last().copied().unwrap_or(0));
        self.watch = Some(watch);
        Ok(())
    }

    /// Checks the history so far and begins the next, at a list.
    async fn end_history(&mut self, endpoint: &Endpoint, found: &Listed, mark: u64) -> Result<()> {
        if let Some(mut watch) = self.watch.take() {
            let mut writes = self.history.writes();
            let initial = self.initial.iter().map(|(key, version)| (version.value, key.clone()));
            writes.values.extend(initial);
            let until = AtomicU64::new(mark);
            ensure!(watch.follow(endpoint, &until, &AtomicBool::new(false)).await?, "no end");
            stream::check_list(found, &watch.stream)?;
            stream::check_stream(&watch.stream, &writes, mark)?;
            for (key, mut operations) in self.history.operations() {
                let initial = self.initial.get(&key).copied();
                // The first observation of the next history.
                let output = Output::Read(found.objects.get(&key).copied());
                let now = self.history.now();
                operations.push(register::Operation {
                    input: Input::Read,
                    output,
                    called: now,
                    returned: now,
                });
                register::check(initial, &operations).with_context(|| format!("{key} from {initial:?}"))?;
            }
            self.operations += self.history.len();
            self.events += watch.stream.observed.len();
        }
        self.history = self.history.next();
        self.initial = found.objects.clone();
        let patience = 20 + self.rng.below(100);
        self.watch = Some(Watch::new(found.clone(), self.rng.below(1 << 40) as u64, patience));
        Ok(())
    }

    /// Checks that the controllers complete the work they had begun.
    async fn check_controllers(&mut self) -> Result<()> {
        let cluster = self.builder().start().await?;
        let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
        client
            .until(STATEFUL_SET, |set| {
                let status = &set["status"];
                status["observedGeneration"] == set["metadata"]["generation"]
                    && status["updateRevision"] == status["currentRevision"]
                    && ["replicas", "readyReplicas", "updatedReplicas"].iter().all(|field| status[field] == 3)
            })
            .await?;
        for name in std::mem::take(&mut self.deleted) {
            client.until_deleted(&format!("{NAMESPACES}/{name}")).await?;
        }
        cluster.kill().await
    }
}

/// Causes work for the controllers that takes a while: a rollout, and namespaces with objects that
/// are deleted. Returns the namespaces whose deletion was acknowledged before the server ended.
async fn disturb_controllers(endpoint: Endpoint, round: usize) -> Result<Vec<String>> {
    let mut deleted = Vec::new();
    let Ok(mut client) = JsonClient::new(&endpoint).await else { return Ok(deleted) };
    for number in 0.. {
        let annotations = json!({"round": format!("{round}-{number}")});
        let patch = json!({"spec": {"template": {"metadata": {"annotations": annotations}}}});
        let name = format!("doomed-{round}-{number}");
        let mut requests = vec![
            ("PATCH", STATEFUL_SET.to_owned(), Some(patch)),
            ("POST", NAMESPACES.to_owned(), Some(json!({"metadata": {"name": name}}))),
        ];
        for object in 0..5 {
            let map = json!({"metadata": {"name": format!("m{object}")}});
            requests.push(("POST", format!("{NAMESPACES}/{name}/configmaps"), Some(map)));
        }
        requests.push(("DELETE", format!("{NAMESPACES}/{name}"), None));
        for (method, path, body) in requests {
            let Ok((status, response)) = client.send(method, &path, body).await else { return Ok(deleted) };
            ensure!(status < 300, "{method} {path}: {response}");
        }
        deleted.push(name);
    }
    Ok(deleted)
}

async fn torture(durability: &'static str) -> Result<()> {
    let rounds = usize::try_from(number("CORACLE_TORTURE_ROUNDS", 6))?;
    let seed = number("CORACLE_TORTURE_SEED", u64::from(std::process::id()));
    println!("CORACLE_TORTURE_SEED={seed}, {durability}");
    let mut run = Run::new(durability, seed).await?;
    let began = Instant::now();
    for round in 0..rounds {
        let lived = run.live(round, round % LIVES == 0).await;
        lived.with_context(|| format!("round {round}, {durability}"))?;
        if round % 10 == 9 || round + 1 == rounds {
            run.check_controllers().await.with_context(|| format!("after round {round}, {durability}"))?;
        }
    }
    let cluster = run.builder().with_service_account().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mark = mark(&endpoint, "the end").await?;
    let found = list(&endpoint).await?;
    run.end_history(&endpoint, &found, mark).await?;
    ensure!(cluster.stop().await?.success(), "no clean stop");
    println!(
        "{durability}: {rounds} kills under load and {} during starts in {:?}; {} operations, {} events",
        run.crashed_starts,
        began.elapsed(),
        run.operations,
        run.events
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_sync() -> Result<()> {
    torture("sync").await
}

/// Requires an operating system that identifies its boots.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_interval() -> Result<()> {
    torture("interval=50").await
}
