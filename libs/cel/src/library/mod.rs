//! The values of Kubernetes' libraries: URLs, versions and named formats.

mod format;
mod url;
mod version;

pub use format::NamedFormat;
pub use url::Url;
pub use version::parse_semver;
