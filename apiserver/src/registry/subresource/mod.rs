//! Subresources that are no part of the object itself: each turns a document of another kind into a change of the object,
//! or leads where there is none.

pub mod binding;
pub mod connect;
mod delete_options;
pub mod eviction;
mod log;
pub mod scale;
pub mod token;
