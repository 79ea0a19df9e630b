//! The graph of owners and dependents: a node for each uid that was observed, as an object or in a
//! reference, and the work that follows from each change.
//!
//! Pure: it takes changes and returns [`Work`]. One task writes; the workers only read.
//!
//! An owner that is only known from a reference is *virtual*: it has the coordinates of its first
//! dependent's reference until it is observed or found to be absent. A reference may combine a uid
//! with wrong coordinates, so an [`Identity`] is recorded as absent, not a uid.

use std::collections::{BTreeSet, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use lru::LruCache;

pub const ORPHAN: &str = "orphan";
pub const FOREGROUND: &str = "foregroundDeletion";

pub type Uid = Arc<str>;

/// The coordinates and the uid of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    pub kind: Arc<str>,
    pub api_version: Arc<str>,
    /// Empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
}

impl Identity {
    /// Returns `true` if a reference has the object's coordinates and uid. A reference has no
    /// namespace.
    fn is_referenced_by(&self, owner: &Owner) -> bool {
        self.uid == owner.uid
            && self.name == owner.name
            && self.kind == owner.kind
            && self.api_version == owner.api_version
    }
}

/// A reference to an owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    pub name: Arc<str>,
    pub uid: Uid,
    pub blocks: bool,
}

impl Owner {
    pub fn of(reference: &OwnerReference) -> Owner {
        Owner {
            api_version: reference.api_version.as_str().into(),
            kind: reference.kind.as_str().into(),
            name: reference.name.as_str().into(),
            uid: reference.uid.as_str().into(),
            blocks: reference.block_owner_deletion == Some(true),
        }
    }

    pub fn all(references: Option<&Vec<OwnerReference>>) -> Vec<Owner> {
        references.into_iter().flatten().map(Owner::of).collect()
    }

    /// Returns the identity that the owner has if it is in this namespace.
    pub fn identity(&self, namespace: Arc<str>) -> Identity {
        Identity {
            kind: self.kind.clone(),
            api_version: self.api_version.clone(),
            namespace,
            name: self.name.clone(),
            uid: self.uid.clone(),
        }
    }
}

/// The properties of an object that the collector uses.
#[derive(Clone, Debug)]
pub struct Object {
    pub identity: Identity,
    pub owners: Vec<Owner>,
    pub phase: Phase,
}

impl Object {
    /// Creates the entry of an object, or returns `None` if it has no uid, which the server always
    /// sets.
    pub fn new(kind: &Arc<str>, api_version: &Arc<str>, meta: &ObjectMeta) -> Option<Object> {
        Some(Object {
            identity: Identity {
                kind: kind.clone(),
                api_version: api_version.clone(),
                namespace: meta.namespace.as_deref().unwrap_or_default().into(),
                name: meta.name.as_deref().unwrap_or_default().into(),
                uid: meta.uid.as_deref()?.into(),
            },
            owners: Owner::all(meta.owner_references.as_ref()),
            phase: Phase::of(meta),
        })
    }
}

/// The progress of an object's deletion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phase {
    pub is_terminating: bool,
    pub orphans: bool,
    pub is_foreground: bool,
}

impl Phase {
    pub fn of(meta: &ObjectMeta) -> Phase {
        let holds = |name| meta.finalizers.iter().flatten().any(|finalizer| finalizer == name);
        Phase {
            is_terminating: meta.deletion_timestamp.is_some(),
            orphans: holds(ORPHAN),
            is_foreground: holds(FOREGROUND),
        }
    }

    pub fn is_orphaning(self) -> bool {
        self.is_terminating && self.orphans
    }

    pub fn is_deleting_dependents(self) -> bool {
        self.is_terminating && self.is_foreground
    }
}

#[derive(Clone, Debug)]
pub struct Node {
    pub identity: Identity,
    pub owners: Vec<Owner>,
    pub dependents: BTreeSet<Uid>,
    /// Whether the object was observed, not only referred to.
    pub is_observed: bool,
    /// Whether the object is terminating. Never reset.
    pub is_terminating: bool,
    /// Whether the object waits for its dependents (foreground deletion). Never reset.
    pub is_deleting_dependents: bool,
    /// The phase at the last observation.
    phase: Phase,
}

/// A change to the graph.
#[derive(Clone, Debug)]
pub enum Change {
    Seen(Object),
    Deleted(Identity),
    /// The server did not have an object of this identity when it was read by name.
    Absent(Identity),
}

/// Work that follows from a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Check whether the object has to be deleted.
    Delete(Uid),
    /// The same, but not at once.
    DeleteLater(Uid),
    /// Release its dependents.
    Orphan(Uid),
    /// Report that a dependent refers to an owner of another namespace.
    ReportInvalidNamespace { dependent: Identity, owner: Owner },
}

pub struct Graph {
    nodes: HashMap<Uid, Node>,
    absent: LruCache<Identity, ()>,
}

/// kube-controller-manager's size of the cache of absent owners.
const ABSENT: NonZeroUsize = NonZeroUsize::new(500).unwrap();

impl Default for Graph {
    fn default() -> Graph {
        Graph { nodes: HashMap::new(), absent: LruCache::new(ABSENT) }
    }
}

impl Graph {
    pub fn node(&self, uid: &str) -> Option<&Node> {
        self.nodes.get(uid)
    }

    /// Iterates over the known dependents.
    pub fn dependents<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        node.dependents.iter().filter_map(|uid| self.nodes.get(uid))
    }

    /// Iterates over the dependents that have to be deleted before an owner that waits for them.
    pub fn blocking<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a Node> {
        let uid = &node.identity.uid;
        self.dependents(node).filter(move |d| d.owners.iter().any(|owner| owner.blocks && owner.uid == *uid))
    }

    /// Returns the identities of the observed objects of one kind.
    pub fn observed(&self, api_version: &str, kind: &str) -> Vec<Identity> {
        let nodes = self.nodes.values().filter(|node| node.is_observed);
        let nodes = nodes.map(|node| &node.identity);
        nodes.filter(|i| *i.kind == *kind && *i.api_version == *api_version).cloned().collect()
    }

    pub fn is_absent(&mut self, identity: &Identity) -> bool {
        self.absent.get(identity).is_some()
    }

    pub fn mark_absent(&mut self, identity: Identity) {
        self.absent.put(identity, ());
    }

    pub fn apply(&mut self, change: Change) -> Vec<Work> {
        let mut work = Vec::new();
        match change {
            Change::Seen(object) => self.see(object, &mut work),
            Change::Deleted(identity) => {
                self.observe(&identity, &mut work);
                self.remove(&identity, &mut work);
            }
            Change::Absent(identity) => self.absent(&identity, &mut work),
        }
        work
    }

    fn see(&mut self, object: Object, work: &mut Vec<Work>) {
        let Object { identity, owners, phase } = object;
        self.observe(&identity, work);
        let uid = identity.uid.clone();
        let before = match self.nodes.get_mut(&uid) {
            None => {
                let node = Node {
                    identity: identity.clone(),
                    owners: owners.clone(),
                    dependents: BTreeSet::new(),
                    is_observed: true,
                    is_terminating: phase.is_terminating,
                    is_deleting_dependents: phase.is_deleting_dependents(),
                    phase,
                };
                self.nodes.insert(uid.clone(), node);
                self.link(&identity, &owners, work);
                Phase::default()
            }
            Some(node) => {
                let old_owners = std::mem::replace(&mut node.owners, owners.clone());
                node.is_terminating |= phase.is_terminating;
                let before = std::mem::replace(&mut node.phase, phase);
                self.relink(&identity, &old_owners, &owners, work);
                before
            }
        };
        if phase.is_orphaning() && !before.is_orphaning() {
            work.push(Work::Orphan(uid));
        } else if phase.is_deleting_dependents()
            && !before.is_deleting_dependents()
            && let Some(node) = self.nodes.get_mut(&uid)
        {
            node.is_deleting_dependents = true;
            work.extend(node.dependents.iter().cloned().map(Work::Delete));
            work.push(Work::Delete(uid));
        }
    }

    /// Replaces a virtual node's identity by the observed one.
    fn observe(&mut self, identity: &Identity, work: &mut Vec<Work>) {
        let Some(node) = self.nodes.get_mut(&identity.uid) else { return };
        if node.is_observed {
            return;
        }
        node.is_observed = true;
        if node.identity == *identity {
            return;
        }
        node.identity = identity.clone();
        let node = node.clone();
        for dependent in self.dependents(&node) {
            let Some(owner) = disagreement(dependent, identity) else { continue };
            if !identity.namespace.is_empty() && dependent.identity.namespace != identity.namespace {
                let (dependent, owner) = (dependent.identity.clone(), owner.clone());
                work.push(Work::ReportInvalidNamespace { dependent, owner });
            }
            work.push(Work::Delete(dependent.identity.uid.clone()));
        }
    }

    /// Adds an object as a dependent of its new owners.
    fn link(&mut self, dependent: &Identity, owners: &[Owner], work: &mut Vec<Work>) {
        let mut is_doubtful = false;
        for owner in owners {
            let node = self.nodes.entry(owner.uid.clone()).or_insert_with(|| {
                work.push(Work::Delete(owner.uid.clone()));
                Node::referred(owner.identity(dependent.namespace.clone()))
            });
            node.dependents.insert(dependent.uid.clone());
            if is_doubtful {
                continue;
            }
            let is_elsewhere = node.identity.namespace != dependent.namespace;
            let is_namespaced = !node.identity.namespace.is_empty();
            if is_elsewhere && is_namespaced {
                if node.is_observed {
                    let (dependent, owner) = (dependent.clone(), owner.clone());
                    work.push(Work::ReportInvalidNamespace { dependent, owner });
                }
                is_doubtful = true;
            } else {
                is_doubtful = !node.identity.is_referenced_by(owner) || (is_elsewhere && !node.is_observed);
            }
        }
        if is_doubtful {
            work.push(Work::Delete(dependent.uid.clone()));
        }
    }

    fn relink(&mut self, dependent: &Identity, old: &[Owner], new: &[Owner], work: &mut Vec<Work>) {
        for owner in old {
            let now = new.iter().find(|n| n.uid == owner.uid);
            if owner.blocks && now.is_none_or(|n| !n.blocks) && self.nodes.contains_key(&owner.uid) {
                work.push(Work::Delete(owner.uid.clone()));
            }
        }
        let added = new.iter().filter(|n| old.iter().all(|o| o.uid != n.uid));
        let added: Vec<Owner> = added.cloned().collect();
        self.link(dependent, &added, work);
        let removed = old.iter().filter(|o| new.iter().all(|n| n.uid != o.uid));
        removed.for_each(|owner| self.unlink(&dependent.uid, owner));
    }

    fn unlink(&mut self, dependent: &Uid, owner: &Owner) {
        if let Some(node) = self.nodes.get_mut(&owner.uid) {
            node.dependents.remove(dependent);
        }
    }

    fn remove(&mut self, identity: &Identity, work: &mut Vec<Work>) {
        let Some(node) = self.nodes.remove(&identity.uid) else { return };
        for owner in &node.owners {
            self.unlink(&identity.uid, owner);
        }
        if !node.dependents.is_empty() {
            self.mark_absent(identity.clone());
        }
        work.extend(node.dependents.iter().cloned().map(Work::Delete));
        let owners = node.owners.iter().filter_map(|owner| self.nodes.get(&owner.uid));
        let waiting = owners.filter(|owner| owner.is_deleting_dependents);
        work.extend(waiting.map(|owner| Work::Delete(owner.identity.uid.clone())));
    }

    /// Handles an identity that was not found. Other dependents may refer to the same uid by
    /// another identity, which may be right.
    fn absent(&mut self, identity: &Identity, work: &mut Vec<Work>) {
        let Some(node) = self.nodes.get(&identity.uid) else { return };
        if node.is_observed && node.identity == *identity {
            return self.remove(identity, work);
        }
        let node = node.clone();
        let others: Vec<&Node> =
            self.dependents(&node).filter(|dependent| disagreement(dependent, identity).is_some()).collect();
        if !node.is_observed && others.is_empty() {
            return self.remove(identity, work);
        }
        let agreeing = self.dependents(&node).filter(|dependent| agrees(dependent, identity));
        let agreeing: Vec<Work> = agreeing.map(|d| Work::Delete(d.identity.uid.clone())).collect();
        let alternative = alternative(&others, identity);
        if !agreeing.is_empty() {
            self.mark_absent(identity.clone());
        }
        work.extend(agreeing);
        if !node.is_observed
            && node.identity == *identity
            && let Some(alternative) = alternative
            && let Some(node) = self.nodes.get_mut(&identity.uid)
        {
            node.identity = alternative;
            work.push(Work::DeleteLater(identity.uid.clone()));
        }
    }
}

impl Node {
    /// Returns the node of an object that is only known from a reference.
    fn referred(identity: Identity) -> Node {
        Node {
            identity,
            owners: Vec::new(),
            dependents: BTreeSet::new(),
            is_observed: false,
            is_terminating: false,
            is_deleting_dependents: false,
            phase: Phase::default(),
        }
    }
}

/// Returns `true` if the object is cluster-scoped or in the namespace of the dependent, and so may
/// own it.
fn reaches(identity: &Identity, dependent: &Node) -> bool {
    identity.namespace.is_empty() || identity.namespace == dependent.identity.namespace
}

/// Returns `true` if a dependent refers to this identity as its owner.
fn agrees(dependent: &Node, identity: &Identity) -> bool {
    reaches(identity, dependent) && dependent.owners.iter().any(|owner| identity.is_referenced_by(owner))
}

/// Returns a reference of a dependent that has the uid of the identity, but other coordinates.
fn disagreement<'a>(dependent: &'a Node, identity: &Identity) -> Option<&'a Owner> {
    let mut references = dependent.owners.iter().filter(|owner| owner.uid == identity.uid);
    references.find(|owner| !reaches(identity, dependent) || !identity.is_referenced_by(owner))
}

/// Returns another identity to which dependents refer with the same uid: the next one in order, or
/// the first one after the last.
fn alternative(dependents: &[&Node], identity: &Identity) -> Option<Identity> {
    let mut known = BTreeSet::new();
    for dependent in dependents {
        let references = dependent.owners.iter().filter(|owner| owner.uid == identity.uid);
        known.extend(references.map(|owner| {
            let same_kind = owner.kind == identity.kind && owner.api_version == identity.api_version;
            // The identity of a cluster-scoped kind has no namespace.
            let namespace = match identity.namespace.is_empty() && same_kind {
                true => identity.namespace.clone(),
                false => dependent.identity.namespace.clone(),
            };
            owner.identity(namespace)
        }));
    }
    known.remove(identity);
    known.range(identity..).next().or_else(|| known.first()).cloned()
}
