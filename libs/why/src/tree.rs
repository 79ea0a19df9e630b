//! The tree of owners and dependents around an object.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::{Context, Target};
use crate::explanation::MAX_MEMBER;
use crate::objects::Objects;
use crate::owners::{Lookup, Owner, controller, look_up, owners};
use crate::reason::State;
use crate::survey::state;
use crate::text::{cut, enumerate, items, text, text_or_empty};

/// The objects of a tree.
pub const MAX_NODES: usize = 500;

/// The depth of a tree, and the owners that are followed upwards.
pub const MAX_DEPTH: usize = 32;

/// The tree of owners and dependents around an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tree {
    /// The first owner of the chain of owners of the object, or the object itself.
    pub root: TreeNode,
    /// The number of dependents that were left out, because there are too many of them or they are
    /// too deep.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub omitted: usize,
}

/// An object in a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TreeNode {
    /// The object with its group and namespace: `pod/shop/web-0`.
    pub object: String,
    /// The state of the object.
    pub state: State,
    /// The reason for the state in a few words; empty if there is nothing to say.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Whether it is the object that the tree was asked for.
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_requested: bool,
    /// The objects that name it as an owner.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependents: Vec<TreeNode>,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_false(value: &bool) -> bool {
    !value
}

/// An object by its resource, namespace and name.
type Key = (String, String, String);

fn key(target: Target) -> Key {
    (target.resource.to_owned(), target.namespace.to_owned(), target.name.to_owned())
}

/// Returns the tree of owners and dependents around an object, from its topmost owner down.
///
/// - `resource`: the plural name with its group, such as `pods` or `statefulsets.apps`
/// - `namespace`: empty for cluster-scoped resources
///
/// If an object has several owners, the tree follows the controller. An owner that does not exist,
/// or that owns itself through others, is in the tree with that reason. Returns `None` if neither
/// the object nor its past is known.
pub fn tree(objects: &dyn Objects, resource: &str, namespace: &str, name: &str) -> Option<Tree> {
    let ctx = Context::shallow(objects, Timestamp::UNIX_EPOCH);
    let requested = (resource.to_owned(), namespace.to_owned(), name.to_owned());
    let Some(object) = ctx.get(resource, namespace, name) else {
        let past = ctx.past(resource, namespace, name);
        let uid = text_or_empty(&past.first()?.object["metadata"]["uid"]).to_owned();
        let root = Root::Missing {
            reference: ctx.reference(resource, namespace, name),
            uid,
            reason: "does not exist any more",
        };
        return Some(Builder::new(&ctx, namespace, requested).tree(root));
    };
    let root = root(&ctx, Target { resource, namespace, name, object: &object });
    let scope = match &root {
        Root::Found { key: (_, namespace, _), .. } => namespace.clone(),
        Root::Missing { .. } => namespace.to_owned(),
    };
    Some(Builder::new(&ctx, &scope, requested).tree(root))
}

/// The root of a tree.
enum Root {
    Found {
        key: Key,
        object: Value,
    },
    /// An owner that does not exist.
    Missing {
        reference: String,
        uid: String,
        reason: &'static str,
    },
}

/// Follows the owners of an object upwards.
fn root(ctx: &Context, target: Target) -> Root {
    let mut at = (key(target), target.object.clone());
    let mut visited: HashSet<Key> = HashSet::from([at.0.clone()]);
    for _ in 0..MAX_DEPTH.saturating_sub(1) {
        let ((_, namespace, _), object) = &at;
        let Some(owner) = controller(object).or_else(|| owners(object).next()) else { break };
        let reason = match look_up(ctx, namespace, &owner) {
            Lookup::Missing => "does not exist",
            Lookup::Unserved => "its kind is not served",
            Lookup::Found(found) => {
                let Some(resource) = ctx.resource_of(&owner.api_version, &owner.kind) else { break };
                let namespace = if resource.namespaced { namespace.clone() } else { String::new() };
                let key = (resource.name.clone(), namespace, owner.name);
                if !visited.insert(key.clone()) {
                    break;
                }
                at = (key, found);
                continue;
            }
        };
        return Root::Missing { reference: owner.reference(ctx, namespace), uid: owner.uid, reason };
    }
    Root::Found { key: at.0, object: at.1 }
}

/// An object with its resource.
struct Entry<'a> {
    resource: &'a str,
    list: Rc<Vec<Value>>,
    index: usize,
}

struct Builder<'a> {
    ctx: &'a Context<'a>,
    requested: Key,
    entries: Vec<Entry<'a>>,
    /// The places of the dependents by the uid of their owner.
    dependents: HashMap<String, Vec<usize>>,
    shown: HashSet<Key>,
    /// The nodes, of which some show an object that is above.
    nodes: usize,
    omitted: usize,
}

impl<'a> Builder<'a> {
    /// Indexes the dependents in a namespace, or in all if the root is cluster-scoped.
    fn new(ctx: &'a Context<'a>, namespace: &str, requested: Key) -> Builder<'a> {
        let namespace = Some(namespace).filter(|namespace| !namespace.is_empty());
        let mut builder = Builder {
            ctx,
            requested,
            entries: Vec::new(),
            dependents: HashMap::new(),
            shown: HashSet::new(),
            nodes: 1,
            omitted: 0,
        };
        let is_meant = |resource: &&crate::Resource| {
            !resource.is_event() && (namespace.is_none() || resource.namespaced)
        };
        for resource in ctx.resources().iter().filter(is_meant) {
            let list = ctx.list(&resource.name, namespace);
            for (object, index) in list.iter().zip(0_usize..) {
                let mut uids: Vec<&str> = items(&object["metadata"]["ownerReferences"])
                    .filter_map(|owner| text(&owner["uid"]))
                    .take(100)
                    .collect();
                uids.sort_unstable();
                uids.dedup();
                if uids.is_empty() {
                    continue;
                }
                for uid in uids {
                    builder.dependents.entry(uid.to_owned()).or_default().push(builder.entries.len());
                }
                builder.entries.push(Entry { resource: &resource.name, list: list.clone(), index });
            }
        }
        builder
    }

    fn tree(mut self, root: Root) -> Tree {
        let mut root = match root {
            Root::Found { key: (resource, namespace, name), object } => {
                let target =
                    Target { resource: &resource, namespace: &namespace, name: &name, object: &object };
                self.shown.insert(key(target));
                let mut node = self.node(target, None);
                node.dependents = self.dependents_of(target.uid(), 1, &mut vec![key(target)]);
                node
            }
            Root::Missing { reference, uid, reason } => {
                let is_requested = {
                    let (resource, namespace, name) = &self.requested;
                    self.ctx.reference(resource, namespace, name) == reference
                };
                let dependents = self.dependents_of(&uid, 1, &mut Vec::new());
                TreeNode {
                    object: reference,
                    state: State::Missing,
                    reason: reason.to_owned(),
                    is_requested,
                    dependents,
                }
            }
        };
        root.reason = cut(&root.reason, MAX_MEMBER);
        Tree { root, omitted: self.omitted }
    }

    /// Returns the dependents of an owner; `path` has the owners above them.
    fn dependents_of(&mut self, uid: &str, depth: usize, path: &mut Vec<Key>) -> Vec<TreeNode> {
        let indexes = self.dependents.get(uid).cloned().unwrap_or_default();
        let mut nodes = Vec::new();
        for (index, done) in indexes.iter().zip(0_usize..) {
            if depth >= MAX_DEPTH || self.nodes >= MAX_NODES {
                self.omitted = self.omitted.saturating_add(indexes.len().saturating_sub(done));
                break;
            }
            let Some(Entry { resource, list, index }) = self.entries.get(*index) else { continue };
            let (resource, list, index) = (*resource, list.clone(), *index);
            let Some(object) = list.get(index) else { continue };
            let target = Target::listed(resource, object);
            let own = key(target);
            self.nodes = self.nodes.saturating_add(1);
            let mut node = self.node(target, Some(uid));
            if path.contains(&own) {
                node.reason = "circle of owners: it is above".to_owned();
            } else if !self.shown.insert(own.clone()) {
                node.reason = "has several owners: it is above".to_owned();
            } else {
                path.push(own);
                node.dependents = self.dependents_of(target.uid(), depth.saturating_add(1), path);
                path.pop();
            }
            nodes.push(node);
        }
        nodes
    }

    fn node(&self, target: Target, parent: Option<&str>) -> TreeNode {
        let (state, mut reason) = state(self.ctx, target);
        let others = |owner: &Owner| parent.is_some_and(|parent| owner.uid != parent);
        let others: Vec<String> = owners(target.object).filter(others).map(|owner| owner.short()).collect();
        if !others.is_empty() {
            let separator = if reason.is_empty() { "" } else { "; " };
            reason = format!("{reason}{separator}also owned by {}", enumerate(&others));
        }
        TreeNode {
            object: self.ctx.reference_of(target),
            state,
            reason: cut(&reason, MAX_MEMBER),
            is_requested: key(target) == self.requested,
            dependents: Vec::new(),
        }
    }
}
