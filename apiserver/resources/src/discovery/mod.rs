//! Strategies of the group discovery, one file a kind.

pub mod endpoint_slice;

pub use endpoint_slice::EndpointSliceStrategy;
