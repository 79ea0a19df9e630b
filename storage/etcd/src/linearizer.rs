//! The linearizer: determines the revision that a reader must wait for to see the writes of others.
//! Readers that wait at the same time share one request for the cluster's revision.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use coracle_storage::{
    Revision,
    log::{Linearizer, LogError},
};
use futures::{FutureExt, future::BoxFuture};
use tokio::sync::{mpsc, oneshot};

use crate::{
    client::Client,
    error::failed,
    proto::{RangeRequest, header_revision},
    tail::Tail,
};

/// The longest time the watch may lag behind the cluster before the readers get an error.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Capacity of the queue of readers whose request has not started.
const WAITING: usize = 4096;

type Reply = oneshot::Sender<Result<Revision, LogError>>;

/// Requests the cluster's revision once for all readers that wait.
pub(crate) struct ReadIndex {
    waiting: mpsc::Sender<Reply>,
    tail: Arc<Tail>,
    servers: String,
}

impl ReadIndex {
    /// Creates the handle, and the task that handles its requests.
    pub fn new(
        client: Arc<Client>,
        tail: Arc<Tail>,
        prefix: Bytes,
    ) -> (ReadIndex, impl Future<Output = ()> + Send + 'static) {
        let (waiting, mut readers) = mpsc::channel::<Reply>(WAITING);
        let servers = client.servers.clone();
        let index = ReadIndex { waiting, tail: tail.clone(), servers };
        let work = async move {
            let mut group = Vec::new();
            while readers.recv_many(&mut group, WAITING).await > 0 {
                let request =
                    RangeRequest { key: prefix.clone(), count_only: true, ..RangeRequest::default() };
                let response = client.range(&request).await;
                let readers = std::mem::take(&mut group);
                let servers = client.servers.clone();
                let tail = tail.clone();
                // The watch may take a while; meanwhile the loop serves further readers.
                tokio::spawn(async move {
                    let committed = match response {
                        Err(status) => Err(status.message().to_owned()),
                        Ok(response) => {
                            let newest = header_revision(response.header.as_ref());
                            match tokio::time::timeout(TIMEOUT, tail.reached(newest)).await {
                                Ok(Ok(())) => {
                                    tail.report_progress(newest);
                                    Ok(Revision(newest))
                                }
                                Ok(Err(error)) => Err(error.to_string()),
                                Err(_) => Err("the watch is behind".to_owned()),
                            }
                        }
                    };
                    for reader in readers {
                        let committed =
                            committed.clone().map_err(|reason| failed("cannot read", &servers, reason));
                        // The reader may have stopped waiting.
                        drop(reader.send(committed));
                    }
                });
            }
        };
        (index, work)
    }
}

impl Linearizer for ReadIndex {
    fn committed(&self) -> BoxFuture<'_, Result<Revision, LogError>> {
        async {
            let closed = || failed("cannot read", &self.servers, "the store is closed");
            let (reply, committed) = oneshot::channel();
            self.waiting.send(reply).await.map_err(|_| closed())?;
            committed.await.map_err(|_| closed())?
        }
        .boxed()
    }

    fn readiness(&self) -> Result<(), String> {
        self.tail.interruption().map_or(Ok(()), Err)
    }
}
