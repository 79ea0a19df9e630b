//! Consistency: histories of concurrent clients, and checks that these could have happened on one
//! machine, one step after the other.
//!
//! - [`register`] checks the operations on each object for linearizability, by the algorithm of
//!   Wing and Gong with Lowe's memory of states that were tried.
//! - [`stream`] checks watches and lists against what was acknowledged: etcd's guarantees, that
//!   watches are ordered, unique, reliable and resumable, that bookmarks are never ahead, and that
//!   lists are the state at their revision.
//! - [`client`] makes such histories, with any number of clients of any number of API servers over
//!   the same data.
//!
//! The checks know nothing of servers; their own tests are histories that are wrong.

pub mod client;
pub mod register;
pub mod stream;

/// A version of an object: what clients see of it. Every write of a history stores a value of its
/// own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version {
    /// The resourceVersion.
    pub revision: u64,
    /// The value, by which the write is known that stored it.
    pub value: u64,
}
