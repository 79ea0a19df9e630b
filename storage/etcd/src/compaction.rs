//! Periodic compaction of the cluster's history, as in kube-apiserver: one of the servers that
//! share a cluster compacts it at each interval, up to the revision of the previous interval.
//!
//! The servers agree by `compact_rev_key`: the first one to raise its version compacts; the others
//! read the version and wait.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tonic::Status;

use crate::{
    client::{Client, is_compacted},
    proto::{
        CompactionRequest, Compare, CompareTarget, Operand, PutRequest, RangeRequest, Request, RequestOp,
        Response, TxnRequest, header_revision, to_wire,
    },
};

/// The key that kube-apiserver uses, independent of its prefix.
const COMPACT_REV_KEY: &[u8] = b"compact_rev_key";

/// The trigger of the compaction of the cluster's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Periodically, by one of the servers that share the cluster (`--etcd-compaction-interval`);
    /// never if it is zero.
    Interval(Duration),
    /// Whenever the store compacts its history. For a cluster that no other store uses.
    WithHistory,
}

/// A server's record of the last compaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Round {
    /// The version of the key after the last compaction.
    version: i64,
    /// The revision of the cluster then.
    revision: u64,
}

/// Compacts at each interval, alternating with the other servers, until it is dropped.
pub(crate) async fn compact_at_intervals(client: Arc<Client>, interval: Duration) {
    let mut round = Round::default();
    loop {
        tokio::time::sleep(interval).await;
        match compact_once(&client, round).await {
            Ok(next) => round = next,
            Err(status) => tracing::warn!(%status, "etcd is not compacted"),
        }
    }
}

async fn compact_once(client: &Client, round: Round) -> Result<Round, Status> {
    let key = Bytes::from_static(COMPACT_REV_KEY);
    let put =
        PutRequest { key: key.clone(), value: round.revision.to_string().into(), ..PutRequest::default() };
    let op = |request| vec![RequestOp { request: Some(request) }];
    let response = client
        .txn(&TxnRequest {
            compare: vec![Compare {
                target: CompareTarget::Version as i32,
                key: key.clone(),
                operand: Some(Operand::Version(round.version)),
            }],
            success: op(Request::Put(put)),
            failure: op(Request::Range(RangeRequest { key, ..RangeRequest::default() })),
        })
        .await?;
    let newest = header_revision(response.header.as_ref());
    if !response.succeeded {
        let found = response.responses.first().and_then(|op| match &op.response {
            Some(Response::Range(range)) => range.kvs.first(),
            _ => None,
        });
        return Ok(Round { version: found.map_or(0, |kv| kv.version), revision: newest });
    }
    if round.revision > 0 {
        compact(client, round.revision).await?;
    }
    Ok(Round { version: round.version + 1, revision: newest })
}

/// Compacts up to a revision, unless it is compacted already.
pub(crate) async fn compact(client: &Client, up_to: u64) -> Result<(), Status> {
    match client.compact(&CompactionRequest { revision: to_wire(up_to) }).await {
        Ok(response) => {
            tracing::debug!(up_to, newest = header_revision(response.header.as_ref()), "etcd is compacted");
            Ok(())
        }
        Err(status) if is_compacted(&status) => Ok(()),
        Err(status) => Err(status),
    }
}

/// Returns the lowest revision at or above `lowest` that is not compacted.
pub(crate) async fn find_compact_revision(client: &Client, lowest: u64, newest: u64) -> Result<u64, Status> {
    let (mut low, mut high) = (lowest.max(1), newest.max(1));
    while low < high {
        let middle = low + (high - low) / 2;
        let request = RangeRequest {
            key: Bytes::from_static(COMPACT_REV_KEY),
            revision: to_wire(middle),
            count_only: true,
            ..RangeRequest::default()
        };
        match client.range(&request).await {
            Ok(_) => high = middle,
            Err(status) if is_compacted(&status) => low = middle + 1,
            Err(status) => return Err(status),
        }
    }
    Ok(low)
}
