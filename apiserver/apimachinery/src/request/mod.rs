//! Requests, parsed once from their head: resource and verb, options, and the negotiated
//! representations of body and response.

pub mod info;
pub mod negotiate;
pub mod options;
mod warnings;

pub use info::{RequestInfo, Verb};
pub use negotiate::{Accept, Format, Transform};
pub use warnings::Warnings;
