//! Subresources that are no part of the object itself: each turns a document of another kind into a change of the object.

pub mod binding;
pub mod eviction;
pub mod scale;
pub mod token;
