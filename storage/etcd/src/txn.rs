//! One transaction: a `Txn` that compares the revision of each key's last change.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_storage::{
    Revision,
    log::{Change, Conflict, Outcome, Rejected, Transaction, Unknown},
};
use tokio::time::Instant;

use crate::{
    client::{Client, is_transient},
    layout::Layout,
    lease::Leases,
    proto::{
        Compare, CompareTarget, DeleteRangeRequest, Operand, PutRequest, RangeRequest, Request, RequestOp,
        Response, ResponseOp, TxnRequest, header_revision, revision, to_wire,
    },
    tail::Tail,
};

/// Timeout for a transaction, including its retries.
const TIMEOUT: Duration = Duration::from_secs(15);

/// The pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// A transaction as etcd takes it.
pub(crate) struct Txn {
    /// The expected revision of each key's last change; None if the key must not exist.
    previous: Vec<Option<Revision>>,
    /// Names and values; no value deletes.
    changes: Vec<(Bytes, Option<Bytes>)>,
    /// The time to live of each put; None if the key does not expire.
    times_to_live: Vec<Option<Duration>>,
}

/// The parts that a transaction is executed with.
pub(crate) struct Executor {
    pub client: Arc<Client>,
    pub tail: Arc<Tail>,
    pub leases: Leases,
}

impl Txn {
    pub fn new(layout: &dyn Layout, transaction: &Transaction) -> Txn {
        let change = |change: &coracle_storage::log::Proposal| {
            let value = match &change.change {
                Change::Put { stored, .. } => Some(layout.encode(&change.key, stored)),
                Change::Delete => None,
            };
            (Bytes::from(layout.name(&change.key)), value)
        };
        Txn {
            previous: transaction.iter().map(|proposal| proposal.previous).collect(),
            changes: transaction.iter().map(change).collect(),
            times_to_live: transaction.iter().map(|proposal| layout.time_to_live(&proposal.key)).collect(),
        }
    }

    fn request(&self, leases: &[i64]) -> TxnRequest {
        let compare = |((name, _), previous): (&(Bytes, _), &Option<Revision>)| Compare {
            target: CompareTarget::Mod as i32,
            key: name.clone(),
            // A key that does not exist has the modification revision zero.
            operand: Some(Operand::ModRevision(previous.map_or(0, |revision| to_wire(revision.0)))),
        };
        let change = |((name, value), lease): (&(Bytes, Option<Bytes>), &i64)| match value {
            Some(value) => {
                Request::Put(PutRequest { key: name.clone(), value: value.clone(), lease: *lease })
            }
            None => Request::DeleteRange(DeleteRangeRequest { key: name.clone() }),
        };
        let read = |(name, _): &(Bytes, _)| {
            Request::Range(RangeRequest { key: name.clone(), keys_only: true, ..RangeRequest::default() })
        };
        let op = |request| RequestOp { request: Some(request) };
        TxnRequest {
            compare: self.changes.iter().zip(&self.previous).map(compare).collect(),
            success: self.changes.iter().zip(leases).map(change).map(op).collect(),
            failure: self.changes.iter().map(read).map(op).collect(),
        }
    }

    /// Returns the conflict of the first comparison that failed.
    fn conflict(&self, responses: &[ResponseOp], newest: u64) -> Conflict {
        let found = |op: &ResponseOp| match &op.response {
            Some(Response::Range(range)) => range.kvs.first().map(|kv| Revision(revision(kv.mod_revision))),
            _ => None,
        };
        let found: Vec<_> = responses.iter().map(found).collect();
        let index = found.iter().zip(&self.previous).position(|(found, previous)| found != previous);
        let index = index.unwrap_or_default();
        Conflict { index, found: found.get(index).copied().flatten(), newest: Revision(newest) }
    }
}

impl Executor {
    /// Executes a transaction. Its comparisons succeed at most once, so it may be sent again when a
    /// response is lost. A retry that conflicts with its own first attempt is recognized by the
    /// events that the watch has shown.
    pub async fn commit(&self, txn: &Txn) -> Outcome {
        let deadline = Instant::now() + TIMEOUT;
        let mut leases = Vec::with_capacity(txn.changes.len());
        for (ttl, (_, value)) in txn.times_to_live.iter().zip(&txn.changes) {
            leases.push(match (ttl, value) {
                (Some(ttl), Some(_)) => match self.leases.get(*ttl).await {
                    Ok(lease) => lease,
                    Err(reason) => return Outcome::Rejected(Rejected(reason)),
                },
                _ => 0,
            });
        }
        let request = txn.request(&leases);
        let mut is_uncertain = false;
        let mut pause = FIRST_PAUSE;
        loop {
            let status = match self.client.txn(&request).await {
                Ok(response) => {
                    let newest = header_revision(response.header.as_ref());
                    if response.succeeded {
                        return Outcome::Committed(Revision(newest));
                    }
                    let conflict = Outcome::Conflict(txn.conflict(&response.responses, newest));
                    return if is_uncertain {
                        self.find(txn, newest, deadline, conflict).await
                    } else {
                        conflict
                    };
                }
                Err(status) => status,
            };
            if !is_transient(&status) && !is_uncertain {
                return Outcome::Rejected(Rejected(status.message().to_owned()));
            }
            is_uncertain = true;
            if Instant::now() + pause >= deadline {
                return Outcome::Unknown(Unknown(status.message().to_owned()));
            }
            tracing::debug!(%status, "a transaction is sent to etcd again");
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Finds an earlier attempt of the transaction, which may have been executed, in the events of
    /// the watch.
    async fn find(&self, txn: &Txn, newest: u64, deadline: Instant, conflict: Outcome) -> Outcome {
        match tokio::time::timeout_at(deadline, self.tail.reached(newest)).await {
            Ok(Ok(())) => match self.tail.find(&txn.changes) {
                Some(revision) => Outcome::Committed(Revision(revision)),
                None => conflict,
            },
            Ok(Err(error)) => Outcome::Unknown(Unknown(error.to_string())),
            Err(_) => Outcome::Unknown(Unknown("the watch of etcd is behind".to_owned())),
        }
    }
}
