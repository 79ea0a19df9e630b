//! Aggregated APIs: groups and versions that another server serves, behind this one.
//!
//! An APIService with a service names such a server. Its requests are proxied (`serve/proxy.rs`)
//! once its condition `Available` is true, which [`AvailabilityController`] keeps; what the server
//! answers to discovery goes into this server's documents.
//!
//! | file | owns |
//! | --- | --- |
//! | `api_service.rs` | the stored APIServices that have a service |
//! | `availability.rs` | their condition |
//! | `openapi.rs` | their OpenAPI documents |
//! | `swagger.rs` | the part of a document of version 2 that is about one group and version |
//! | `download.rs` | requests for their documents |
//! | `groups.rs` | discovery of remote groups |
//! | `metrics.rs` | the metrics of their availability |
//! | `extension.rs` | groups that are served only once a provider exists |
//!
//! Source: `k8s.io/kube-aggregator`.

mod api_service;
mod availability;
mod download;
mod extension;
mod groups;
mod metrics;
mod openapi;
mod swagger;

pub use api_service::{RemoteApi, RemoteApis};
pub use availability::AvailabilityController;
pub use extension::serve_when_provided;
pub use groups::{RemoteGroups, RemoteResource, RemoteVersion};
pub use metrics::AvailabilityCollector;
pub use openapi::{OpenApiController, RemoteDocument, RemoteDocuments};
pub use swagger::{DEFINITIONS, Definition, KINDS, SwaggerPart};

/// The group of APIServices.
const GROUP: &str = "apiregistration.k8s.io";
/// The resource name of APIServices.
const PLURAL: &str = "apiservices";
