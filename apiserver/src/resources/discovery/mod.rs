//! Strategies of the group discovery, one file a kind.

pub mod endpoint_slice;
