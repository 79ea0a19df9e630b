//! The contract of every store, over an etcd cluster; skipped where there is no etcd.
//!
//! A new etcd is at revision 1, a new store at 0: the revisions are shifted by one, and are dense
//! as the contract has them, since each test has a cluster of its own.

use coracle_storage::{
    CompactRevision, EntryId, Revision,
    log::{Change, Conflict, Location, Log, LogBounds, LogError, Notifier, Outcome, Record, Transaction},
    testing::TestLog,
};
use coracle_storage_etcd::{
    Compaction, EtcdLog,
    testing::{EtcdCluster, start_or_skip},
};

mod support;

use support::Plain;

struct Cluster(EtcdCluster);

impl Cluster {
    fn start() -> Option<Cluster> {
        start_or_skip(1).expect("etcd starts").map(Cluster)
    }
}

impl TestLog for Cluster {
    fn log(&self) -> impl Log {
        Shifted(EtcdLog::new(&self.0.endpoints(), Plain, Compaction::WithHistory).expect("a log"))
    }
}

/// A log whose revisions are those of another one less one.
struct Shifted(EtcdLog);

fn down(revision: Revision) -> Revision {
    Revision(revision.0 - 1)
}

fn up(revision: Revision) -> Revision {
    Revision(revision.0 + 1)
}

fn record_down(record: Record) -> Record {
    let id = |id: EntryId| EntryId { revision: down(id.revision), ..id };
    match record {
        Record::Entry(mut entry) => {
            entry.id = id(entry.id);
            if let Change::Put { created: Some(created), .. } = &mut entry.change {
                *created = down(*created);
            }
            Record::Entry(entry)
        }
        Record::Unreadable(mut entry) => {
            entry.id = id(entry.id);
            Record::Unreadable(entry)
        }
    }
}

fn outcome_down(outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Committed(revision) => Outcome::Committed(down(revision)),
        Outcome::Conflict(conflict) => Outcome::Conflict(Conflict {
            found: conflict.found.map(down),
            newest: down(conflict.newest),
            ..conflict
        }),
        other => other,
    }
}

impl Log for Shifted {
    fn start(&mut self, notifier: Notifier) -> Result<LogBounds, LogError> {
        let bounds = self.0.start(notifier)?;
        Ok(LogBounds {
            compact_revision: CompactRevision::at(down(bounds.compact_revision.revision())),
            newest: down(bounds.newest),
        })
    }

    fn load(&mut self, visit: &mut dyn FnMut(Record) -> Result<(), LogError>) -> Result<(), LogError> {
        self.0.load(&mut |record| visit(record_down(record)))
    }

    fn append(&mut self, batch: &[Transaction]) -> Result<Vec<Outcome>, LogError> {
        let mut batch = batch.to_vec();
        for proposal in batch.iter_mut().flatten() {
            proposal.previous = proposal.previous.map(up);
        }
        Ok(self.0.append(&batch)?.into_iter().map(outcome_down).collect())
    }

    fn tail(&mut self, until: Revision) -> Result<Vec<Record>, LogError> {
        Ok(self.0.tail(up(until))?.into_iter().map(record_down).collect())
    }

    fn progress(&self) -> Option<Revision> {
        self.0.progress().filter(|progress| *progress > Revision::ZERO).map(down)
    }

    fn has_other_writers(&self) -> bool {
        self.0.has_other_writers()
    }

    fn compact(&mut self, compact_revision: CompactRevision, superseded: &[EntryId]) -> Result<(), LogError> {
        self.0.compact(CompactRevision::at(up(compact_revision.revision())), superseded)
    }

    fn location(&self) -> Location {
        self.0.location()
    }

    fn close(self: Box<Self>) -> Result<(), LogError> {
        Box::new(self.0).close()
    }
}

macro_rules! cluster {
    () => {
        match crate::Cluster::start() {
            Some(cluster) => cluster,
            None => return,
        }
    };
}

mod while_open {
    coracle_storage::contract_while_open!(cluster!());
}

mod on_reopen {
    coracle_storage::contract_on_reopen!(cluster!());
}

mod shared {
    coracle_storage::contract! { cluster!(); stores_share_a_log }
}
