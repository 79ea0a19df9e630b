//! Forks against a model: random writes to many control planes of one family at once, forks that
//! are made meanwhile, forks of forks, ends of any of them, and watches that begin anew. No write
//! is ever seen elsewhere, and revisions and watches are right in each.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use coracle::ControlPlane;
use coracle_e2e::random::{Rng, run_seeds};
use futures::stream::BoxStream;
use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::json;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const LABEL: &str = "of=model";
const STEPS: usize = 15;
/// The maximum number of members of a family at once.
const MEMBERS: usize = 6;
/// The maximum number of writes of a member in a step.
const WRITES: usize = 4;
/// The longest time that an event takes.
const EVENT: Duration = Duration::from_secs(20);

/// A change of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    name: &'static str,
    /// The value that it has from then on; None if it is deleted.
    value: Option<String>,
}

/// All changes, by their revisions.
#[derive(Clone, Debug, Default)]
struct Model(BTreeMap<u64, Change>);

impl Model {
    fn objects(&self) -> BTreeMap<&'static str, (String, u64)> {
        let mut objects = BTreeMap::new();
        for (revision, change) in &self.0 {
            match &change.value {
                Some(value) => objects.insert(change.name, (value.clone(), *revision)),
                None => objects.remove(change.name),
            };
        }
        objects
    }

    fn up_to(&self, revision: u64) -> Model {
        Model(self.0.range(..=revision).map(|(at, change)| (*at, change.clone())).collect())
    }
}

type Events = BoxStream<'static, kube::Result<WatchEvent<ConfigMap>>>;

struct Member {
    name: String,
    control_plane: ControlPlane,
    /// The revision that it began with.
    began: u64,
    model: Model,
    events: Events,
}

impl Member {
    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.control_plane.client())
    }

    async fn new(name: String, control_plane: ControlPlane, model: Model) -> Result<Member> {
        let began = match control_plane.began_at() {
            // A watch from 0 would begin with all objects.
            0 => revision_of_list(&control_plane).await?,
            revision => revision,
        };
        let events = watch(&control_plane, began).await?;
        Ok(Member { name, control_plane, began, model, events })
    }

    /// Makes some changes, one after the other. Returns them, with those revisions that the answers
    /// have.
    async fn write(&self, changes: Vec<Change>) -> Result<Vec<(Option<u64>, Change)>> {
        let maps = self.maps();
        let mut known = self.model.objects();
        let mut made = Vec::new();
        for change in changes {
            let exists = known.contains_key(change.name);
            let revision = match &change.value {
                None if exists => {
                    maps.delete(change.name, &DeleteParams::default()).await?;
                    known.remove(change.name);
                    None
                }
                None => continue,
                Some(value) => {
                    known.insert(change.name, (String::new(), 0));
                    let patch = json!({"data": {"value": value}});
                    let written = match exists {
                        true => {
                            maps.patch(change.name, &PatchParams::default(), &Patch::Merge(patch)).await?
                        }
                        false => {
                            let object = json!({"metadata": {"name": change.name, "labels": {"of": "model"}}, "data": {"value": value}});
                            maps.create(&PostParams::default(), &serde_json::from_value(object)?).await?
                        }
                    };
                    Some(revision_of(&written)?)
                }
            };
            made.push((revision, change));
        }
        Ok(made)
    }

    /// Reads the events of changes that were made, and remembers at which revisions they were.
    async fn follow(&mut self, made: Vec<(Option<u64>, Change)>) -> Result<()> {
        for (answered, change) in made {
            let (revision, seen) = next(&mut self.events).await?;
            ensure!(seen == change, "{seen:?} at {revision} is seen instead of {change:?}");
            ensure!(
                answered.is_none_or(|answered| answered == revision),
                "{answered:?} was said, {revision} seen"
            );
            let last = self.model.0.last_key_value().map_or(0, |(last, _)| *last);
            ensure!(revision > last, "{revision} after {last}");
            self.model.0.insert(revision, change);
        }
        Ok(())
    }

    /// Checks what is read, by lists and one by one, and what a watch from an earlier revision
    /// sees.
    async fn check(&mut self, from: u64) -> Result<()> {
        let listed = self.maps().list(&ListParams::default().labels(LABEL)).await?;
        let at: u64 = listed.metadata.resource_version.context("no revision")?.parse()?;
        ensure!(self.model.0.last_key_value().is_none_or(|(last, _)| at >= *last), "listed at {at}");
        let mut objects = BTreeMap::new();
        for map in &listed.items {
            objects.insert(map.name_any(), (value_of(map)?, revision_of(map)?));
        }
        let want = self.model.objects();
        let is_equal = objects
            .iter()
            .map(|(name, object)| (name.as_str(), object))
            .eq(want.iter().map(|(name, object)| (*name, object)));
        ensure!(is_equal, "{objects:?} instead of {want:?}");
        for name in NAMES {
            let got = self.maps().get_opt(name).await?;
            let got = got.map(|map| anyhow::Ok((value_of(&map)?, revision_of(&map)?))).transpose()?;
            ensure!(got.as_ref() == want.get(name), "{name}: {got:?}");
        }
        // The watch begins anew, at a revision that may be one of an ancestor.
        self.events = watch(&self.control_plane, from).await?;
        for (revision, change) in self.model.0.range(from + 1..) {
            let (at, seen) = next(&mut self.events).await?;
            ensure!(
                (at, &seen) == (*revision, change),
                "{seen:?} at {at} instead of {change:?} at {revision}, from {from}"
            );
        }
        Ok(())
    }
}

async fn revision_of_list(control_plane: &ControlPlane) -> Result<u64> {
    let maps = Api::<ConfigMap>::default_namespaced(control_plane.client());
    let listed = maps.list_metadata(&ListParams::default()).await?;
    Ok(listed.metadata.resource_version.context("no revision")?.parse()?)
}

fn revision_of(map: &ConfigMap) -> Result<u64> {
    Ok(map.resource_version().context("no resourceVersion")?.parse()?)
}

fn value_of(map: &ConfigMap) -> Result<String> {
    Ok(map.data.as_ref().and_then(|data| data.get("value")).context("no value")?.clone())
}

async fn watch(control_plane: &ControlPlane, from: u64) -> Result<Events> {
    let maps = Api::<ConfigMap>::default_namespaced(control_plane.client());
    Ok(maps.watch(&WatchParams::default().labels(LABEL), &from.to_string()).await?.boxed())
}

/// Returns the next change of a watch.
async fn next(events: &mut Events) -> Result<(u64, Change)> {
    let event =
        tokio::time::timeout(EVENT, events.next()).await.context("no event")?.context("the watch ends")??;
    let (map, exists) = match event {
        WatchEvent::Added(map) | WatchEvent::Modified(map) => (map, true),
        WatchEvent::Deleted(map) => (map, false),
        other => bail!("{other:?}"),
    };
    let name = NAMES.into_iter().find(|name| *name == map.name_any()).context("a foreign name")?;
    Ok((revision_of(&map)?, Change { name, value: exists.then(|| value_of(&map)).transpose()? }))
}

/// Ends one that no longer has a part in the test: whatever its watch sees now was not written to
/// it.
async fn end(mut member: Member) -> Result<()> {
    let seen = async {
        while let Some(event) = member.events.next().await {
            if let Ok(event) = event {
                ensure!(
                    !matches!(event, WatchEvent::Added(_) | WatchEvent::Modified(_) | WatchEvent::Deleted(_)),
                    "{}: {event:?} is of another one",
                    member.name
                );
            }
        }
        Ok(())
    };
    let (seen, ended) = future::join(seen, member.control_plane.shutdown()).await;
    seen?;
    Ok(ended?)
}

async fn run(mut rng: Rng, over: Instant) -> Result<()> {
    let root = ControlPlane::builder().ephemeral().nodes(0).start().await?;
    let mut members = vec![Member::new("root".to_owned(), root, Model::default()).await?];
    let mut values = 0;
    for step in 0..STEPS {
        if Instant::now() > over && step > 2 {
            break;
        }
        // Writes to all of them at once, and forks in the middle of them.
        let may_fork = members.len() < MEMBERS;
        let work = members.iter().enumerate().map(|(place, member)| {
            let mut changes = Vec::new();
            for _ in 0..rng.below(WRITES + 1) {
                values += 1;
                let value = (!rng.one_in(4)).then(|| format!("{} {values}", member.name));
                changes.push(Change { name: NAMES[rng.below(NAMES.len())], value });
            }
            let is_forked = may_fork && rng.one_in(3);
            let fork = async move {
                match is_forked {
                    true => Ok(Some((place, member.control_plane.fork().await?))),
                    false => Ok(None),
                }
            };
            future::try_join(member.write(changes), fork)
        });
        let (made, forks): (Vec<_>, Vec<_>) =
            future::try_join_all(work.collect::<Vec<_>>()).await?.into_iter().unzip();
        for (member, made) in members.iter_mut().zip(made) {
            member.follow(made).await.with_context(|| format!("step {step}, {}", member.name))?;
        }
        for (place, fork) in forks.into_iter().flatten() {
            let model = members[place].model.up_to(fork.began_at());
            let name = format!("{}.{step}", members[place].name);
            members.push(Member::new(name, fork, model).await?);
        }
        for member in &mut members {
            let known: Vec<u64> = member.model.0.keys().copied().chain([member.began]).collect();
            let from = known[rng.below(known.len())];
            member.check(from).await.with_context(|| format!("step {step}, {}", member.name))?;
        }
        if members.len() > 1 && rng.one_in(3) {
            let ended = members.swap_remove(rng.below(members.len()));
            end(ended).await?;
        }
    }
    future::try_join_all(members.into_iter().map(end)).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_is_seen_elsewhere() -> Result<()> {
    run_seeds("forks", run).await
}
