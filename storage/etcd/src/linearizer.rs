//! How far a reader must wait to see what others wrote: the revision of the cluster, asked for as often as one request takes,
//! for all who wait.

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

/// How long the watch may be behind the cluster before the readers get an error.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How many readers may wait to be noticed.
const WAITING: usize = 4096;

type Reply = oneshot::Sender<Result<Revision, LogError>>;

/// Asks for those who wait, together.
pub(crate) struct ReadIndex {
    waiting: mpsc::Sender<Reply>,
    tail: Arc<Tail>,
    servers: String,
}

impl ReadIndex {
    /// The handle, and the task that does the work.
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
                // The watch may need a while, during which others ask.
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
                        // A reader may have gone.
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
