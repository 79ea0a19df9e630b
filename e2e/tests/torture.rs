//! The process is killed at random moments, again and again, while clients write, controllers work and watches follow.
//!
//! What clients saw must be explained by one order of their operations, over all crashes (`sync`), or up to each of them but
//! for the last interval (`interval`). `CORACLE_TORTURE_ROUNDS=300 cargo test -p coracle-e2e --test torture -- --nocapture` for
//! longer than the few rounds of a plain run; `CORACLE_TORTURE_SEED` repeats the choices of a run, though not its timing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use coracle_e2e::cluster::Builder;
use coracle_e2e::consistency::client::{Acknowledged, COLLECTION, Client, History, Watch, list, mark};
use coracle_e2e::consistency::register::{self, Input, Output};
use coracle_e2e::consistency::stream::{self, Listed, Objects, Writes};
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

/// The crashes over which a history goes on in `sync`.
const LIVES: usize = 4;

/// What a flush may take on a slow disk, beyond the interval.
const FLUSH: Duration = Duration::from_secs(1);

const STATEFUL_SET: &str = "/apis/apps/v1/namespaces/default/statefulsets/web";
const NAMESPACES: &str = "/api/v1/namespaces";

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// What becomes of a process that is killed.
#[derive(Clone, Copy, Debug)]
enum Mode {
    Sync,
    Interval(Duration),
}

impl Mode {
    fn start(self, data: &Path) -> Builder {
        let durability = match self {
            Mode::Sync => "sync".to_owned(),
            Mode::Interval(interval) => format!("interval={}", interval.as_millis()),
        };
        cluster().data_dir(data).flag("--durability", durability)
    }
}

/// One run: the same data through many lives of the process.
struct Run {
    mode: Mode,
    data: TempDir,
    rng: Rng,
    keys: Vec<String>,
    history: History,
    /// The state before the history.
    initial: Objects,
    /// What follows the store over its crashes. None before the first list of a history.
    watch: Option<Watch>,
    /// No revision up to this is given again.
    newest: u64,
    /// Namespaces whose deletion was acknowledged.
    deleted: BTreeSet<String>,
    /// The oldest acknowledged write that was lost, by its age at the crash.
    lost: Option<Duration>,
    lost_writes: usize,
    operations: usize,
    events: usize,
    crashed_starts: usize,
}

impl Run {
    async fn new(mode: Mode, seed: u64) -> Result<Run> {
        let run = Run {
            mode,
            data: TempDir::new()?,
            rng: Rng(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed) | 1),
            keys: (0..KEYS).map(|key| format!("key-{key}")).collect(),
            history: History::default(),
            initial: Objects::new(),
            watch: None,
            newest: 0,
            deleted: BTreeSet::new(),
            lost: None,
            lost_writes: 0,
            operations: 0,
            events: 0,
            crashed_starts: 0,
        };
        let cluster = mode.start(run.data.path()).with_service_account().start().await?;
        let mut client = JsonClient::new(&cluster.endpoint().await?).await?;
        let mut set = workloads::replicated("web", 3);
        set["spec"]["serviceName"] = json!("web");
        client.create("/apis/apps/v1/namespaces/default/statefulsets", set).await?;
        ensure!(cluster.stop().await?.success(), "no clean stop");
        Ok(run)
    }

    /// Starts the process. Sometimes it is killed while it starts, and started again.
    async fn start(&mut self) -> Result<Cluster> {
        while self.rng.one_in(6) {
            let soon = Duration::from_millis(self.rng.below(400) as u64);
            let served = self.mode.start(self.data.path()).start_and_kill(soon).await?;
            self.crashed_starts += usize::from(!served);
        }
        self.mode.start(self.data.path()).start().await
    }

    /// One life of the process: what is there is checked, then there is load until it is killed.
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
        let before: BTreeSet<u64> = self.history.writes().acknowledged.into_keys().collect();

        let is_gone = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            let seed = self.rng.below(1 << 40) as u64;
            let mut client = Client::new(&self.history, &endpoint, seed, &self.keys).await?;
            clients.spawn(async move { client.run(usize::MAX).await });
        }
        let mut watch = self.watch.take().context("a watch")?;
        let (of_watch, gone) = (endpoint.clone(), is_gone.clone());
        let watch = tokio::spawn(async move {
            watch.follow(&of_watch, &AtomicU64::new(0), &gone).await?;
            anyhow::Ok(watch)
        });
        let deletions = tokio::spawn(disturb_controllers(endpoint.clone(), round));
        // The load: for as long as this.
        sleep(Duration::from_millis(30 + self.rng.below(700) as u64)).await;
        cluster.kill().await?;
        let killed = Instant::now();
        is_gone.store(true, Ordering::SeqCst);
        for client in clients.join_all().await {
            ensure!(!client?, "a client ended by itself");
        }
        self.deleted.extend(deletions.await??);
        let watch = watch.await??;

        let acknowledged = self.history.acknowledged();
        let revisions: Vec<u64> = acknowledged.iter().filter_map(revision).collect();
        let unique: BTreeSet<u64> = revisions.iter().copied().collect();
        ensure!(unique.len() == revisions.len(), "a revision was given twice");
        if let Some(first) = unique.iter().find(|revision| !before.contains(revision)) {
            ensure!(*first > self.newest, "{first} was given after {}", self.newest);
        }
        self.newest = self.newest.max(watch.revision()).max(unique.last().copied().unwrap_or(0));
        self.watch = Some(watch);
        if let Mode::Interval(interval) = self.mode {
            self.check_loss(&acknowledged, killed, interval).await?;
        }
        Ok(())
    }

    /// Checks the history so far and begins the next, at a list.
    async fn end_history(&mut self, endpoint: &Endpoint, found: &Listed, mark: u64) -> Result<()> {
        if let Some(mut watch) = self.watch.take() {
            let mut writes = self.history.writes();
            let initial = self.initial.iter().map(|(key, version)| (version.value, key.clone()));
            writes.values.extend(initial);
            let complete_to = match self.mode {
                Mode::Sync => {
                    let until = AtomicU64::new(mark);
                    ensure!(watch.follow(endpoint, &until, &AtomicBool::new(false)).await?, "no end");
                    stream::check_list(found, &watch.stream)?;
                    mark
                }
                // What was lost in the crash may have been seen before it.
                Mode::Interval(_) => {
                    check_expired(endpoint, watch.revision()).await?;
                    let seen = watch.revision();
                    // The response to a deletion has no revision: it was before `seen` if the object was there again by then.
                    let Writes { deleted, acknowledged, .. } = &mut writes;
                    deleted.retain(|(key, revision)| {
                        let mut later = acknowledged.range(revision + 1..).take_while(|(at, _)| **at <= seen);
                        later.any(|(_, (written, _))| written == key)
                    });
                    seen
                }
            };
            stream::check_stream(&watch.stream, &writes, complete_to)?;
            for (key, mut operations) in self.history.operations() {
                let initial = self.initial.get(&key).copied();
                if matches!(self.mode, Mode::Sync) {
                    // The first thing that the next history sees.
                    let output = Output::Read(found.objects.get(&key).copied());
                    let now = self.history.now();
                    operations.push(register::Operation {
                        input: Input::Read,
                        output,
                        called: now,
                        returned: now,
                    });
                }
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

    /// Checks that only writes of the last interval are lost, and that what is left is the state at some revision.
    async fn check_loss(
        &mut self,
        acknowledged: &[Acknowledged],
        killed: Instant,
        interval: Duration,
    ) -> Result<()> {
        let cluster = self.mode.start(self.data.path()).start().await?;
        let found = list(&cluster.endpoint().await?).await?;
        cluster.kill().await?;
        let mut of_key: BTreeMap<&str, Vec<&Acknowledged>> = BTreeMap::new();
        for write in acknowledged {
            of_key.entry(&write.key).or_default().push(write);
        }
        let unacknowledged = self.history.operations();
        let mut lost: Vec<&Acknowledged> = Vec::new();
        for (key, mut writes) in of_key {
            // A deletion follows the version that it deleted.
            writes.sort_by_key(|write| (order(write), revision(write).is_none()));
            let kept = match found.objects.get(key) {
                Some(version) => {
                    let kept = |write: &&Acknowledged| match revision(write) {
                        Some(revision) => revision <= version.revision,
                        None => order(write) < version.revision,
                    };
                    writes.iter().take_while(|write| kept(write)).count()
                }
                None => {
                    let deleted =
                        writes.iter().rposition(|write| revision(write).is_none()).map_or(0, |at| at + 1);
                    let last = writes.last().map(|write| order(write)).unwrap_or(0);
                    // A deletion without a response may have been done.
                    let is_deleted = unacknowledged.get(key).into_iter().flatten().any(|operation| {
                        operation.output == Output::Unknown
                            && operation.input == Input::Delete { expected: last }
                    });
                    if is_deleted { writes.len() } else { deleted }
                }
            };
            lost.extend(writes.into_iter().skip(kept));
        }
        let first_lost = lost.iter().filter_map(|write| revision(write)).min().unwrap_or(u64::MAX);
        let last_found = found.objects.values().map(|version| version.revision).max().unwrap_or(0);
        ensure!(last_found < first_lost, "{first_lost} is lost, {last_found} is there");
        for write in &lost {
            let age = killed.saturating_duration_since(write.at);
            ensure!(age <= interval + FLUSH, "{write:?} was lost {age:?} after it was acknowledged");
            self.lost = self.lost.max(Some(age));
        }
        self.lost_writes += lost.len();
        Ok(())
    }

    /// Checks that the controllers complete what they had begun.
    async fn check_controllers(&mut self) -> Result<()> {
        let cluster = self.mode.start(self.data.path()).start().await?;
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
            let path = format!("{NAMESPACES}/{name}");
            let (_, namespace) = client.send("GET", &path, None).await?;
            if matches!(self.mode, Mode::Interval(_)) && namespace["status"]["phase"] == "Active" {
                // The deletion is lost.
                client.delete(&path).await?;
            }
            client.until_gone(&path).await?;
        }
        cluster.kill().await
    }
}

/// Where a write is in the order of its object.
fn order(write: &Acknowledged) -> u64 {
    match (write.operation.input, write.operation.output) {
        (Input::Delete { expected }, _) => expected,
        (_, Output::Written(revision)) => revision,
        _ => 0,
    }
}

/// The revision of a creation or an update.
fn revision(write: &Acknowledged) -> Option<u64> {
    match write.operation.output {
        Output::Written(revision) => Some(revision),
        _ => None,
    }
}

/// Where changes may be lost, no watch resumes from before: it gets 410, since its revision is too old.
async fn check_expired(endpoint: &Endpoint, revision: u64) -> Result<()> {
    let path = format!("{COLLECTION}?watch=1&timeoutSeconds=1&resourceVersion={revision}");
    let (_, response) = JsonClient::new(endpoint).await?.send("GET", &path, None).await?;
    let code = response["object"]["code"].as_u64().or_else(|| response["code"].as_u64());
    ensure!(code == Some(410), "a watch resumes after a crash: {response}");
    Ok(())
}

/// Gives the controllers something to do that takes a while: a rollout, and namespaces with objects that are deleted. Returns
/// the namespaces whose deletion was acknowledged before the server was gone.
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

async fn torture(mode: Mode) -> Result<()> {
    let rounds = usize::try_from(number("CORACLE_TORTURE_ROUNDS", 6))?;
    let seed = number("CORACLE_TORTURE_SEED", u64::from(std::process::id()));
    println!("CORACLE_TORTURE_SEED={seed}, {mode:?}");
    let mut run = Run::new(mode, seed).await?;
    let lives = match mode {
        Mode::Sync => LIVES,
        Mode::Interval(_) => 1,
    };
    let began = Instant::now();
    for round in 0..rounds {
        run.live(round, round % lives == 0).await.with_context(|| format!("round {round}, {mode:?}"))?;
        if round % 10 == 9 || round + 1 == rounds {
            run.check_controllers().await.with_context(|| format!("after round {round}, {mode:?}"))?;
        }
    }
    let cluster = mode.start(run.data.path()).with_service_account().start().await?;
    let endpoint = cluster.endpoint().await?;
    let mark = mark(&endpoint, "the end").await?;
    let found = list(&endpoint).await?;
    run.end_history(&endpoint, &found, mark).await?;
    ensure!(cluster.stop().await?.success(), "no clean stop");
    println!(
        "{mode:?}: {rounds} kills under load and {} during starts in {:?}; {} operations, {} events; {} acknowledged writes \
         lost, at most {:?} old",
        run.crashed_starts,
        began.elapsed(),
        run.operations,
        run.events,
        run.lost_writes,
        run.lost.unwrap_or_default()
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_in_sync() -> Result<()> {
    torture(Mode::Sync).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_last_interval_is_lost() -> Result<()> {
    torture(Mode::Interval(Duration::from_millis(50))).await
}
