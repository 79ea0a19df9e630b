//! The live page below `/ui/`: its assets, the picture of objects that it shows, and the sessions
//! of browsers.
//!
//! | file | owns |
//! | --- | --- |
//! | `assets.rs` | scripts and styles, and the headers that protect them: [`asset`], [`SECURITY_HEADERS`] |
//! | `picture.rs` | the nodes and edges of all objects at one moment: [`Picture`] |
//! | `relations.rs` | the edges that specs name: claims, volumes, selectors |
//! | `redaction.rs` | the removal of the values of Secrets: [`redact`], [`redact_field`] |
//! | `sessions.rs` | one-time links and cookies: [`Sessions`] |
//!
//! Always true here:
//! - Nothing serves, reads a store or a file; the time is a clock that is passed in.
//! - A picture has at most [`MAX_NODES`] nodes, and each node a bounded number of edges and
//!   characters.
//! - Objects may have any shape. A member of a wrong type counts as absent.
#![warn(missing_docs)]

mod assets;
mod error;
mod picture;
mod redaction;
mod relations;
mod sessions;
#[cfg(test)]
mod tests;

pub use assets::{Asset, LOGIN_REFUSED, SECURITY_HEADERS, asset, etag};
pub use error::Error;
pub use picture::{Changes, MAX_NODES, Node, Picture};
pub use redaction::{redact, redact_field};
pub use relations::{Edge, EdgeType};
pub use sessions::{LOGIN_PATH, Sessions, UI_USER};

/// The beginning of the paths of the page.
pub const PREFIX: &str = "/ui/";
