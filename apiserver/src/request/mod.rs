//! What a request asks for, read once from its head: the resource and verb, the options, the forms of body and answer.

#![warn(missing_docs)]

pub mod info;
pub mod negotiate;
pub mod options;
mod warnings;

pub use info::{RequestInfo, Verb};
pub use negotiate::{Accept, Format, Transform};
pub use warnings::Warnings;
