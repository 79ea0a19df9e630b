//! The graph's races, as scripts of what happens and what has to be looked at then.
//!
//! An object is `NAMESPACE/NAME#UID:KIND`; without a namespace it is in `n`, and `/NAME` is an
//! object of the cluster; without a uid its name is its uid; without a kind it is a `K`. A
//! reference is written as an object, and `!` before it makes it block.

use std::collections::HashSet;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tokio::sync::{mpsc, watch};

use super::graph::{Change, Graph, Identity, Object, Owner, Phase, Work};
use super::monitor::MonitorEvent;
use super::observe;

fn identity(text: &str) -> Identity {
    let (text, kind) = text.split_once(':').unwrap_or((text, "K"));
    let (place, uid) = text.split_once('#').unwrap_or((text, ""));
    let (namespace, name) = place.split_once('/').unwrap_or(("n", place));
    let uid = if uid.is_empty() { name } else { uid };
    Identity {
        kind: kind.into(),
        api_version: "v1".into(),
        namespace: namespace.into(),
        name: name.into(),
        uid: uid.into(),
    }
}

fn owner(text: &str) -> Owner {
    let identity = identity(text.trim_start_matches('!'));
    Owner::of(&OwnerReference {
        api_version: identity.api_version.to_string(),
        kind: identity.kind.to_string(),
        name: identity.name.to_string(),
        uid: identity.uid.to_string(),
        block_owner_deletion: Some(text.starts_with('!')),
        controller: None,
    })
}

/// Parses `see OBJECT [terminating] [orphan] [foreground] [<- OWNER...]`, `gone OBJECT` or `absent
/// OBJECT`.
fn change(text: &str) -> Change {
    let (what, owners) = text.split_once("<-").unwrap_or((text, ""));
    let mut words = what.split_whitespace();
    let (verb, object) = (words.next().unwrap(), identity(words.next().unwrap()));
    let flags: Vec<&str> = words.collect();
    match verb {
        "gone" => Change::Deleted(object),
        "absent" => Change::Absent(object),
        _ => Change::Seen(Object {
            identity: object,
            owners: owners.split_whitespace().map(owner).collect(),
            phase: Phase {
                is_terminating: flags.contains(&"terminating"),
                orphans: flags.contains(&"orphan"),
                is_foreground: flags.contains(&"foreground"),
            },
        }),
    }
}

fn render(work: &Work) -> String {
    match work {
        Work::Delete(uid) => format!("delete {uid}"),
        Work::DeleteLater(uid) => format!("later {uid}"),
        Work::Orphan(uid) => format!("orphan {uid}"),
        Work::ReportInvalidNamespace { dependent, owner } => {
            format!("report {} of {}", dependent.uid, owner.uid)
        }
    }
}

/// Runs a script of lines `change => work, work`. Blank lines are ignored.
fn run_script(name: &str, script: &str) {
    let mut graph = Graph::default();
    for (number, line) in script.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate() {
        let (happens, want) = line.split_once("=>").unwrap_or_else(|| panic!("{name}: {line}"));
        let work: Vec<String> = graph.apply(change(happens)).iter().map(render).collect();
        assert_eq!(work.join(", "), want.trim(), "{name}, step {}: {happens}", number + 1);
    }
}

#[test]
fn scripts() {
    for (name, script) in [
        (
            "an owner that is known already",
            "
            see o =>
            see d <- o =>
            gone o => delete d
            gone d =>",
        ),
        (
            "a dependent seen before its owner",
            "
            see d <- o => delete o
            see o =>
            gone o => delete d",
        ),
        (
            "an owner that was never there",
            "
            see d <- o => delete o
            absent o => delete d",
        ),
        (
            "an owner asked for too early: what is seen outlives what was absent by other names",
            "
            see d <- o2#o => delete o
            see o => delete d
            absent o2#o => delete d",
        ),
        (
            "the same uid by two names, neither there",
            "
            see d1 <- a#o => delete o
            see d2 <- b#o => delete d2
            absent a#o => delete d1, later o
            absent b#o => delete d2, later o
            gone d1 =>
            absent a#o => later o
            gone d2 =>
            absent b#o => ",
        ),
        (
            "an owner in another namespace, seen first",
            "
            see a/o =>
            see b/d <- o => report d of o, delete d",
        ),
        (
            "an owner in another namespace, seen last",
            "
            see b/d <- o => delete o
            see a/o => report d of o, delete d",
        ),
        (
            "two namespaces refer to an owner nobody saw",
            "
            see a/d1 <- o => delete o
            see b/d2 <- o => delete d2
            absent a/o => delete d1, later o
            see b/o =>",
        ),
        (
            "an owner of the cluster, known from a namespace",
            "
            see d <- /o:C => delete o
            see /o:C =>
            see b/e <- /o:C =>",
        ),
        (
            "a dependent of the cluster refers to a namespaced kind",
            "
            see /d <- o => delete o
            see e <- o => delete e",
        ),
        (
            "a wrong kind",
            "
            see o:K =>
            see d <- o:L => delete d",
        ),
        (
            "foreground deletion looks at all dependents, then at the owner",
            "
            see o =>
            see d1 <- o =>
            see d2 <- !o =>
            see o terminating foreground => delete d1, delete d2, delete o
            see o terminating foreground =>
            gone d1 => delete o
            gone d2 => delete o",
        ),
        (
            "background deletion waits for the end",
            "
            see o =>
            see d <- o =>
            see o terminating =>
            gone o => delete d",
        ),
        (
            "orphaning",
            "
            see o =>
            see d <- o =>
            see o terminating orphan => orphan o
            see o terminating orphan =>
            see d => ",
        ),
        (
            "orphaning wins over foreground",
            "
            see o terminating orphan foreground => orphan o",
        ),
        (
            "a policy that is changed on the way",
            "
            see o terminating =>
            see o terminating foreground => delete o
            see o terminating => 
            see o terminating foreground => delete o",
        ),
        (
            "a blocking reference that goes lets the owner be looked at",
            "
            see o =>
            see d <- !o =>
            see d <- o => delete o
            see d <- !o =>
            see d => delete o",
        ),
        (
            "a blocking reference to an owner that nobody saw",
            "
            see d <- !o => delete o
            see d => delete o",
        ),
        (
            "circles",
            "
            see a <- b => delete b
            see b <- a =>
            gone a => delete b
            gone b => ",
        ),
        (
            "an object that owns itself",
            "
            see a <- a =>
            see a terminating foreground <- a => delete a, delete a",
        ),
        (
            "a name that is used again is another object",
            "
            see o#1 =>
            see d <- o#1 =>
            see o#2 =>
            gone o#1 => delete d",
        ),
        (
            "a deletion that is reported twice",
            "
            see o =>
            gone o =>
            gone o =>
            absent o => ",
        ),
        (
            "a real owner is not forgotten because another name of it is absent",
            "
            see o =>
            see d1 <- o =>
            see d2 <- x#o => delete d2
            absent x#o => delete d2
            gone o => delete d1, delete d2",
        ),
    ] {
        run_script(name, script);
    }
}

#[test]
fn a_list_is_known_only_when_the_graph_has_it() {
    let (sender, synced) = watch::channel(false);
    let relisted = MonitorEvent::Relisted {
        api_version: "v1".into(),
        kind: "Pod".into(),
        seen: HashSet::new(),
        synced: Arc::new(sender),
    };
    let (events, mut receiver) = mpsc::unbounded_channel();
    events.send(relisted).expect("the receiver is open");
    assert!(!*synced.borrow(), "sent is not known yet");
    let mut graph = Graph::default();
    observe(&mut graph, receiver.try_recv().expect("an event"));
    assert!(*synced.borrow());
}
