//! The decision about one object: keep it, remove references, or delete it.
//!
//! Pure: the object and its owners were read from the server; [`plan`] decides.

use super::graph::{Owner, Phase, Uid};

/// The state of an owner on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerState {
    /// It does not exist, or is another object of the same name.
    Dangling,
    /// It is terminating and waits for its dependents (foreground deletion).
    Waiting,
    /// It exists and does not wait for its dependents, whether it is terminating or not.
    Solid,
}

impl OwnerState {
    pub fn of(owner: Phase) -> OwnerState {
        if owner.is_deleting_dependents() { OwnerState::Waiting } else { OwnerState::Solid }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Background,
    Foreground,
    Orphan,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    Keep,
    /// At least one owner is solid: the references to the other owners are removed.
    Release(Vec<Uid>),
    /// `unblocked`: whether its references must stop blocking their owners first, because it may be
    /// part of a cycle.
    Delete {
        policy: Policy,
        unblocked: bool,
    },
}

/// The state of the object's dependents in the graph.
#[derive(Clone, Copy, Debug, Default)]
pub struct Dependents {
    pub any: bool,
    /// Whether a dependent waits for its own dependents. It may then wait for this object.
    pub any_deleting_dependents: bool,
}

/// Decides about an object that is not terminating by itself.
pub fn plan(phase: Phase, owners: &[(Owner, OwnerState)], dependents: Dependents) -> Plan {
    // It was deleted after the attempt began, which the graph has yet to observe. Its dependents
    // may wait for theirs already, and look like a circle.
    if phase.is_deleting_dependents() {
        return Plan::Keep;
    }
    let with = |state| owners.iter().filter(move |(_, s)| *s == state);
    let any = |state| with(state).next().is_some();
    if owners.is_empty() {
        return Plan::Keep;
    }
    if any(OwnerState::Solid) {
        let others = with(OwnerState::Dangling).chain(with(OwnerState::Waiting));
        let others: Vec<Uid> = others.map(|(owner, _)| owner.uid.clone()).collect();
        return if others.is_empty() { Plan::Keep } else { Plan::Release(others) };
    }
    if any(OwnerState::Waiting) && dependents.any {
        return Plan::Delete { policy: Policy::Foreground, unblocked: dependents.any_deleting_dependents };
    }
    let policy = match phase {
        Phase { orphans: true, .. } => Policy::Orphan,
        Phase { is_foreground: true, .. } => Policy::Foreground,
        _ => Policy::Background,
    };
    Plan::Delete { policy, unblocked: false }
}

#[cfg(test)]
mod tests {
    use super::*;
    use OwnerState::{Dangling, Solid, Waiting};

    #[test]
    fn plans() {
        let none = Dependents::default();
        let some = Dependents { any: true, any_deleting_dependents: false };
        let circle = Dependents { any: true, any_deleting_dependents: true };
        let plain = Phase::default();
        let delete = |policy| Plan::Delete { policy, unblocked: false };
        let release = |uids: &[&str]| Plan::Release(uids.iter().map(|uid| Uid::from(*uid)).collect());
        for (case, phase, owners, dependents, want) in [
            ("no owner", plain, &[][..], none, Plan::Keep),
            ("a living owner", plain, &[Solid], none, Plan::Keep),
            ("an owner that is gone", plain, &[Dangling], none, delete(Policy::Background)),
            ("one of two owners is gone", plain, &[Dangling, Solid], none, release(&["0"])),
            (
                "one lives, one waits, one is gone",
                plain,
                &[Waiting, Solid, Dangling],
                none,
                release(&["2", "0"]),
            ),
            ("a waiting owner", plain, &[Waiting], none, delete(Policy::Background)),
            ("a waiting owner and dependents", plain, &[Waiting], some, delete(Policy::Foreground)),
            (
                "a circle",
                plain,
                &[Waiting],
                circle,
                Plan::Delete { policy: Policy::Foreground, unblocked: true },
            ),
            (
                "was deleted in the meantime",
                Phase { is_terminating: true, is_foreground: true, ..plain },
                &[Waiting],
                circle,
                Plan::Keep,
            ),
            ("owners gone, dependents left", plain, &[Dangling], circle, delete(Policy::Background)),
            ("shall orphan", Phase { orphans: true, ..plain }, &[Dangling], some, delete(Policy::Orphan)),
            (
                "shall wait",
                Phase { is_foreground: true, ..plain },
                &[Dangling],
                none,
                delete(Policy::Foreground),
            ),
        ] {
            let owners: Vec<(Owner, OwnerState)> =
                owners.iter().enumerate().map(|(i, s)| (owner(i), *s)).collect();
            assert_eq!(plan(phase, &owners, dependents), want, "{case}");
        }
    }

    fn owner(uid: usize) -> Owner {
        let uid = uid.to_string();
        Owner::of(&k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference {
            uid,
            ..Default::default()
        })
    }
}
