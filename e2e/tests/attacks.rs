//! All attacks at once, and the service of other clients in the meantime.
//!
//! The attackers share the processors with the server. Another server beside it, which nobody
//! attacks, shows how much of a delay that is alone.
//!
//! A plain run takes seconds.
//! `SOAK_SECONDS=600 cargo test --release -p coracle-e2e --test attacks -- --nocapture` runs
//! longer, and prints the figures of `docs/reliability.md`; `ATTACK=NAME` selects the attacks with
//! NAME in their name.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use coracle_e2e::http::{Connection, Endpoint};
use coracle_e2e::{Cluster, attacks, cluster, skipped};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

const TOKENS: &str = "nobody-token,nobody,1\ndeveloper-token,developer,2\nvictim-token,victim,3\n";
const DEFAULT_SECONDS: u64 = 10;
/// The maximum resident memory of a server under attack, in megabytes.
const MAX_RESIDENT: f64 = 300.0;
/// The largest duration of 99 % of the requests of other clients during attacks, in milliseconds.
const MAX_MILLIS: f64 = if cfg!(debug_assertions) { 2000.0 } else { 250.0 };
/// The objects in the lists and watches of the attacks.
const OBJECTS: usize = 100;
const OBJECT_BYTES: usize = 200_000;

async fn post(connection: &mut Connection, path: &str, object: Value) -> Result<()> {
    let response = connection.call("POST", path, &[], Some(Bytes::from(object.to_string()))).await?;
    ensure!(response.status == 201, "{path}: {} {:?}", response.status, response.body);
    Ok(())
}

/// Creates the object that the victims read and write.
async fn prepare_victims(admin: &mut Connection) -> Result<()> {
    post(admin, "/api/v1/namespaces", json!({"metadata": {"name": "victims"}})).await?;
    post(admin, VICTIMS, config_map("read".to_owned(), 1000)).await
}

/// Creates the namespaces, the rights, what the victims read, and the objects of the attackers'
/// lists.
async fn prepare(admin: &mut Connection) -> Result<()> {
    prepare_victims(admin).await?;
    post(admin, "/api/v1/namespaces", json!({"metadata": {"name": attacks::NAMESPACE}})).await?;
    for (user, namespace) in [("developer", attacks::NAMESPACE), ("victim", "victims")] {
        let binding = json!({
            "metadata": {"name": "admin"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"},
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        });
        post(
            admin,
            &format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings"),
            binding,
        )
        .await?;
    }
    for (path, object) in attacks::fixtures() {
        post(admin, &path, object).await?;
    }
    let path = format!("/api/v1/namespaces/{}/configmaps", attacks::NAMESPACE);
    for i in 0..OBJECTS {
        post(admin, &path, config_map(format!("large-{i}"), OBJECT_BYTES)).await?;
    }
    Ok(())
}

const VICTIMS: &str = "/api/v1/namespaces/victims/configmaps";

fn config_map(name: String, size: usize) -> Value {
    json!({"metadata": {"name": name}, "data": {"k": "x".repeat(size)}})
}

/// The observations of a well-behaved client: the durations of its requests in milliseconds, and
/// the codes other than 200.
#[derive(Debug, Default)]
struct Observations {
    millis: Vec<f64>,
    rejected: Vec<u16>,
}

impl Observations {
    fn percentile(&mut self, percent: usize) -> f64 {
        self.millis.sort_by(f64::total_cmp);
        let at = (self.millis.len() * percent / 100).min(self.millis.len().saturating_sub(1));
        self.millis.get(at).copied().unwrap_or_default()
    }
}

/// Reads and writes as a well-behaved client, for a while.
async fn use_api(endpoint: Endpoint, writes: bool, time: Duration) -> Result<Observations> {
    let mut connection = endpoint.connect().await?;
    let mut seen = Observations::default();
    let end = Instant::now() + time;
    let path = format!("{VICTIMS}/read");
    for round in 0.. {
        if Instant::now() > end {
            break;
        }
        if !connection.is_open() {
            connection = endpoint.connect().await?;
        }
        let began = Instant::now();
        let patch = json!({"data": {"round": format!("{round}")}}).to_string();
        let response = match writes && round % 4 == 0 {
            false => connection.call("GET", &path, &[], None).await?,
            true => {
                let merge = [("content-type", Some("application/merge-patch+json"))];
                connection.call("PATCH", &path, &merge, Some(patch.into())).await?
            }
        };
        seen.millis.push(began.elapsed().as_secs_f64() * 1000.0);
        if response.status != 200 {
            seen.rejected.push(response.status);
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(seen)
}

/// Observes users of the API, concurrently.
async fn observe<const N: usize>(users: [&Endpoint; N], time: Duration) -> Result<[Observations; N]> {
    let observations = users.map(|user| use_api(user.clone(), true, time));
    let observations = futures::future::try_join_all(observations).await?;
    observations.try_into().map_err(|_| anyhow::anyhow!("one for each"))
}

/// Reports the memory of the server until it exceeds its limit by far, which is before the
/// machine's memory is exhausted. Returns the maximum in megabytes.
async fn until_over_limit(cluster: &Cluster) -> Result<f64> {
    loop {
        let (now, most) = (cluster.resident()?, cluster.most_resident()?);
        println!("resident {now:>7.1} MB, most {most:>7.1} MB");
        if most > 4.0 * MAX_RESIDENT {
            return Ok(most);
        }
        sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_clients_are_served_while_all_attacks_run() -> Result<()> {
    let seconds = std::env::var("SOAK_SECONDS").ok().map(|text| text.parse()).transpose()?;
    let time = Duration::from_secs(seconds.unwrap_or(DEFAULT_SECONDS));
    let only = std::env::var("ATTACK").unwrap_or_default();
    let directory = TempDir::new()?;
    let tokens = directory.path().join("tokens.csv");
    std::fs::write(&tokens, TOKENS)?;
    let data = directory.path().join("data");
    let cluster = cluster().data_dir(&data).flag("--token-auth-file", tokens).start().await?;
    let beside = coracle_e2e::cluster().durable().start().await?;
    let config = cluster.config().await?;
    let user = |name: &str| Endpoint::with_token(&config, &format!("{name}-token"));
    let (admin, victim) = (cluster.endpoint().await?, user("victim")?);
    let admin_beside = beside.endpoint().await?;
    prepare(&mut admin.connect().await?).await?;
    prepare_victims(&mut admin_beside.connect().await?).await?;

    let users = [&admin, &victim, &admin_beside];
    let before = observe(users, Duration::from_secs(3)).await?;
    let attackers = attacks::runtime()?;
    for (name, attack) in attacks::all(&user("nobody")?, &user("developer")?) {
        if name.contains(&only) {
            println!("attack: {name}");
            attackers.spawn(attack);
        }
    }
    let during = tokio::select! {
        during = observe(users, time) => during?,
        most = until_over_limit(&cluster) => anyhow::bail!("{:.0} MB resident\n{}", most?, cluster.log()),
    };
    let resident = cluster.most_resident()?;
    attackers.shutdown_background();
    let who = ["administrator", "user", "administrator of the server beside it"];
    for ((who, mut before), mut during) in who.into_iter().zip(before).zip(during) {
        println!(
            "{who}: p50 {:.1} ms, p99 {:.1} ms before; p50 {:.1} ms, p99 {:.1} ms of {} requests, {} rejected",
            before.percentile(50),
            before.percentile(99),
            during.percentile(50),
            during.percentile(99),
            during.millis.len(),
            during.rejected.len()
        );
        assert!(during.rejected.is_empty(), "{who} was rejected: {:?}", during.rejected);
        // A delay that the server causes takes seconds.
        assert!(during.percentile(99) < MAX_MILLIS, "{who}: {:.1} ms", during.percentile(99));
    }
    println!("most resident: {resident:.0} MB");
    assert!(resident < MAX_RESIDENT, "{resident:.0} MB resident");
    let mut connection = admin.connect().await.context("after the attacks")?;
    let ready = connection.call("GET", "/readyz", &[], None).await?;
    assert_eq!(ready.status, 200, "{:?}", ready.body);
    ensure!(cluster.stop().await?.success(), "no clean stop");
    Ok(())
}

/// Raises this process's limit of open files as far as the system allows, and returns it.
fn max_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_connections_keeps_nobody_out() -> Result<()> {
    const CROWD: usize = 10_000;
    if max_open_files() < CROWD as u64 + 1000 {
        skipped::report("too few files may be opened");
        return Ok(());
    }
    let cluster = cluster().flag("--controllers", "").start().await?;
    let endpoint = cluster.endpoint().await?;
    let before = cluster.resident()?;
    let mut crowd = Vec::with_capacity(CROWD);
    let mut seen = Observations::default();
    for i in 0..CROWD {
        crowd.push(endpoint.socket().await?);
        if i % 100 == 0 {
            let began = Instant::now();
            let response = endpoint.connect().await?.call("GET", VICTIMS, &[], None).await?;
            seen.millis.push(began.elapsed().as_secs_f64() * 1000.0);
            ensure!(response.status == 200, "{}", response.status);
        }
    }
    let took = cluster.most_resident()? - before;
    println!(
        "beside {CROWD} connections: p99 {:.1} ms with a new connection each, {took:.0} MB more",
        seen.percentile(99)
    );
    assert!(seen.percentile(99) < MAX_MILLIS, "{:.1} ms", seen.percentile(99));
    assert!(took < 100.0, "{took:.0} MB");
    Ok(())
}

#[tokio::test]
async fn heads_without_end_are_refused() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let get = async |length: usize| {
        let value = "x".repeat(length);
        endpoint.connect().await?.call("GET", "/version", &[("x-long", Some(&value))], None).await
    };
    assert_eq!(get(100 << 10).await?.status, 200);
    // The connection may be closed before the rejection is read, since the rest of the head is not.
    match get(200 << 10).await {
        Ok(response) => assert_eq!(response.status, 431),
        Err(error) => assert!(error.downcast_ref::<hyper::Error>().is_some(), "{error:?}"),
    }
    assert_eq!(get(1).await?.status, 200);
    Ok(())
}
