//! The members of a family of forks: who sees which, names that are used again, and ends of some
//! while others begin.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use coracle_e2e::http::{Endpoint, config_at};
use coracle_e2e::json_client::JsonClient;
use coracle_e2e::{Cluster, cluster};
use futures::StreamExt;
use futures::future::{join_all, try_join_all};
use futures::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::time::timeout;

const FORKS: &str = "/coracle/v1alpha1/forks";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// The time in which a response comes, by far.
const SOON: Duration = Duration::from_secs(30);

/// Makes a fork, and returns a client of it.
async fn fork(cluster: &Cluster, of: &mut JsonClient, name: &str) -> Result<JsonClient> {
    let fork = of.call("POST", FORKS, Some(json!({"name": name}))).await?;
    client(cluster, &fork).await
}

async fn client(cluster: &Cluster, fork: &Value) -> Result<JsonClient> {
    let url = fork["server"].as_str().with_context(|| fork.to_string())?;
    JsonClient::new(&Endpoint::new(&config_at(&cluster.config().await?, url)?)?).await
}

/// Returns the names of the forks that a member sees.
async fn seen(client: &mut JsonClient) -> Result<Vec<String>> {
    let list = timeout(SOON, client.get(FORKS)).await??;
    let forks = list["forks"].as_array().context("a list")?.iter();
    Ok(forks.filter_map(|fork| fork["name"].as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn names_that_are_used_again_lead_to_nobody_elses_forks() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    let mut a = fork(&cluster, &mut root, "a").await?;
    let mut b = fork(&cluster, &mut a, "b").await?;
    let mut c = fork(&cluster, &mut b, "c").await?;
    ensure!(seen(&mut a).await? == ["b", "c"] && seen(&mut b).await? == ["c"]);

    // What is between them ends, and they still descend from a.
    root.call("DELETE", &format!("{FORKS}/b"), None).await?;
    ensure!(seen(&mut a).await? == ["c"] && seen(&mut root).await? == ["a", "c"]);

    // Another a is below c, and is no ancestor of it.
    root.call("DELETE", &format!("{FORKS}/a"), None).await?;
    let mut second = fork(&cluster, &mut c, "a").await?;
    let mut d = fork(&cluster, &mut second, "d").await?;
    for (name, member, want) in [
        ("root", &mut root, &["a", "c", "d"][..]),
        ("c", &mut c, &["a", "d"]),
        ("a", &mut second, &["d"]),
        ("d", &mut d, &[]),
    ] {
        ensure!(seen(member).await? == want, "{name}");
    }

    // The same beside each other.
    root.call("DELETE", &format!("{FORKS}/a"), None).await?;
    let mut third = fork(&cluster, &mut root, "a").await?;
    ensure!(seen(&mut third).await?.is_empty());
    for (method, path) in [("GET", "/coracle/v1alpha1/diff?fork=c"), ("DELETE", "/coracle/v1alpha1/forks/c")]
    {
        let refused = third.call(method, path, None).await.err().context(path)?;
        ensure!(refused.to_string().contains("404"), "{method} {path}: {refused}");
    }
    ensure!(seen(&mut root).await? == ["a", "c", "d"]);
    ensure!(cluster.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn one_of_those_who_want_a_name_gets_it() -> Result<()> {
    let cluster = cluster().start().await?;
    let endpoint = cluster.endpoint().await?;
    let outcomes = join_all((0..12).map(|_| async {
        let mut client = JsonClient::new(&endpoint).await?;
        client.call("POST", FORKS, Some(json!({"name": "a"}))).await
    }));
    let outcomes = outcomes.await;
    let refused: Vec<String> =
        outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).map(ToString::to_string).collect();
    ensure!(refused.len() == 11 && refused.iter().all(|error| error.contains("409")), "{refused:?}");
    ensure!(seen(&mut JsonClient::new(&endpoint).await?).await? == ["a"]);
    Ok(())
}

/// Checks that forks are made of a fork that is ended meanwhile, or not, and that nothing hangs.
#[tokio::test]
async fn a_fork_of_one_that_is_being_ended_is_made_or_refused() -> Result<()> {
    const FORKS_OF_IT: usize = 4;
    let cluster = cluster().start().await?;
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    for made in 0..=FORKS_OF_IT {
        let parent = root.call("POST", FORKS, Some(json!({"name": "parent"}))).await?;
        let clients = try_join_all((0..FORKS_OF_IT).map(|_| client(&cluster, &parent))).await?;
        let making = clients.into_iter().map(|mut client| async move {
            // The connection may end before the response.
            client.call("POST", FORKS, Some(json!({}))).await.ok()
        });
        let mut making = making.collect::<FuturesUnordered<_>>();
        // It is ended once so many are made.
        for _ in 0..made {
            timeout(SOON, making.next()).await?.flatten().context("it is not being ended yet")?;
        }
        let path = format!("{FORKS}/parent");
        let ending = root.call("DELETE", &path, None);
        let (_, ended) = timeout(SOON, async { tokio::join!(making.count(), ending) }).await?;
        ended?;
        let names = seen(&mut root).await?;
        ensure!((made..=FORKS_OF_IT).contains(&names.len()), "{made} and more are made: {names:?}");
        for name in names {
            let version = root.get(&format!("/coracle/forks/{name}/version")).await?;
            ensure!(version["gitVersion"].is_string(), "{name}: {version}");
            root.call("DELETE", &format!("{FORKS}/{name}"), None).await?;
        }
    }
    ensure!(seen(&mut root).await?.is_empty());
    ensure!(cluster.stop().await?.success());
    Ok(())
}

/// Checks that a fork which ends in the middle of writes takes nothing from its parent.
#[tokio::test]
async fn a_fork_that_ends_while_it_writes_loses_nothing_of_its_parent() -> Result<()> {
    let cluster = cluster().start().await?;
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    let made = root.call("POST", FORKS, Some(json!({"name": "a"}))).await?;
    let mut writer = client(&cluster, &made).await?;
    let writing = tokio::spawn(async move {
        let mut written = 0;
        while writer.create(MAPS, json!({"metadata": {"name": format!("f{written}")}})).await.is_ok() {
            written += 1;
        }
        written
    });
    let mut other = JsonClient::new(&cluster.endpoint().await?).await?;
    for i in 0..200 {
        root.create(MAPS, json!({"metadata": {"name": format!("p{i}")}})).await?;
        if i == 100 {
            timeout(SOON, other.call("DELETE", &format!("{FORKS}/a"), None)).await??;
        }
    }
    ensure!(timeout(SOON, writing).await?? > 0);
    let list = root.get(MAPS).await?;
    let names: Vec<&str> = list["items"]
        .as_array()
        .context("items")?
        .iter()
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect();
    ensure!((0..200).all(|i| names.contains(&&*format!("p{i}"))), "{names:?}");
    ensure!(names.iter().all(|name| !name.starts_with('f')), "{names:?}");
    ensure!(cluster.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn a_parent_that_is_full_has_forks() -> Result<()> {
    let cluster = cluster().flag("--max-store-bytes", "400000").start().await?;
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    let data = "x".repeat(50_000);
    let mut refused = None;
    for i in 0..20 {
        let map = json!({"metadata": {"name": format!("m{i}")}, "data": {"k": data}});
        if let Err(error) = root.create(MAPS, map).await {
            refused = Some(error.to_string());
            break;
        }
    }
    let is_full = |error: &str| error.contains("database space exceeded");
    ensure!(refused.as_deref().is_some_and(is_full), "{refused:?}");
    let mut a = fork(&cluster, &mut root, "a").await?;
    ensure!(a.get(&format!("{MAPS}/m0")).await?["data"]["k"] == data);
    let map = json!({"metadata": {"name": "m20"}, "data": {"k": data}});
    let refused = a.create(MAPS, map).await.err().context("it is as full")?;
    ensure!(is_full(&refused.to_string()), "{refused}");
    a.call("DELETE", &format!("{MAPS}/m0"), None).await?;
    ensure!(root.get(&format!("{MAPS}/m0")).await?["data"]["k"] == data);
    Ok(())
}

/// Makes forks by these requests until one is refused with 429. Returns how many were made, and the
/// message.
async fn until_refused(client: &mut JsonClient, most: usize) -> Result<(usize, String)> {
    for made in 0..=most {
        let (status, response) = client.send("POST", FORKS, Some(json!({}))).await?;
        if status != 201 {
            ensure!(status == 429 && response["reason"] == "TooManyRequests", "{response}");
            return Ok((made, response["message"].as_str().context("a message")?.to_owned()));
        }
    }
    bail!("{most} forks are exceeded")
}

#[tokio::test]
async fn generations_end() -> Result<()> {
    const MOST: usize = 63;
    let cluster = cluster().start().await?;
    let mut last = JsonClient::new(&cluster.endpoint().await?).await?;
    for generation in 0..MOST {
        last = fork(&cluster, &mut last, &format!("g{generation}")).await?;
    }
    let (made, message) = until_refused(&mut last, 0).await?;
    ensure!(made == 0 && message.contains("generation 64"), "{made}: {message}");
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    ensure!(seen(&mut root).await?.len() == MOST);
    root.call("DELETE", &format!("{FORKS}/g0"), None).await?;
    // The generations before it stay those of its authorities.
    ensure!(until_refused(&mut last, 0).await?.0 == 0);
    fork(&cluster, &mut root, "another").await?;
    ensure!(cluster.stop().await?.success());
    Ok(())
}

#[tokio::test]
async fn forks_leave_open_files_to_others() -> Result<()> {
    let cluster = cluster().max_open_files(64).start().await?;
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    let (made, message) = until_refused(&mut root, 32).await?;
    ensure!(made == 16 && message.contains("ulimit -n"), "{made}: {message}");
    let mut another = JsonClient::new(&cluster.endpoint().await?).await?;
    let name = seen(&mut another).await?.pop().context("a fork")?;
    another.call("DELETE", &format!("{FORKS}/{name}"), None).await?;
    fork(&cluster, &mut root, "another").await?;
    ensure!(cluster.stop().await?.success());
    Ok(())
}

/// Creates objects in a fork until one is refused, and then grows one until that is refused, too.
/// Returns the number of objects.
async fn fill(client: &mut JsonClient) -> Result<usize> {
    let is_full = |status: u16, response: &Value| -> Result<bool> {
        let full = response["message"].as_str().is_some_and(|text| text.contains("database space exceeded"));
        ensure!(full || (200..300).contains(&status), "{response}");
        Ok(full)
    };
    let data = "x".repeat(50_000);
    for i in 0..20 {
        let map = json!({"metadata": {"name": format!("m{i}")}, "data": {"k": data}});
        let (status, response) = client.send("POST", MAPS, Some(map)).await?;
        if is_full(status, &response)? {
            for length in (500..100_000).step_by(500) {
                let patch = json!({"data": {"more": "x".repeat(length)}});
                let (status, response) = client.send("PATCH", &format!("{MAPS}/m0"), Some(patch)).await?;
                if is_full(status, &response)? {
                    return Ok(i);
                }
            }
        }
    }
    bail!("it is not full")
}

#[tokio::test]
async fn forks_together_have_as_much_space_as_one_store() -> Result<()> {
    let cluster = cluster().flag("--max-store-bytes", "1000000").start().await?;
    let mut root = JsonClient::new(&cluster.endpoint().await?).await?;
    let mut writers = [fork(&cluster, &mut root, "a").await?, fork(&cluster, &mut root, "b").await?];
    let data = "x".repeat(50_000);
    for i in 0..10 {
        writers[0].create(MAPS, json!({"metadata": {"name": format!("a{i}")}, "data": {"k": data}})).await?;
    }
    let filled = fill(&mut writers[1]).await?;
    ensure!((7..11).contains(&filled), "{filled} beside the objects of the other fork");
    let (made, message) = until_refused(&mut root, 0).await?;
    ensure!(made == 0 && message.contains("--max-store-bytes"), "{message}");
    // The parent has its own space, and what a fork deletes or leaves is that of others.
    root.create(MAPS, json!({"metadata": {"name": "m"}, "data": {"k": data}})).await?;
    root.call("DELETE", &format!("{FORKS}/a"), None).await?;
    fork(&cluster, &mut root, "c").await?;
    let more = json!({"metadata": {"name": "more"}, "data": {"k": data}});
    writers[1].create(MAPS, more).await?;
    ensure!(cluster.stop().await?.success());
    Ok(())
}
