//! Calls to servers of others: admission webhooks, conversion webhooks, aggregated API servers.
//!
//! | file | owns |
//! | --- | --- |
//! | `config.rs` | a client configuration: a URL or a service, and a CA bundle |
//! | `resolver.rs` | the trait that resolves a Service to addresses; the built-in kinds implement it |
//! | `verify.rs` | whether a server's certificate is trusted, as Go decides it |
//! | `dial.rs` | connections |
//! | `client.rs` | the clients, which keep their connections, and a call of a webhook |
//! | `metrics.rs` | metrics of conversion webhooks |
//! | `error.rs` | call errors, worded as Go's packages word them |
//!
//! Every call has a deadline and a limit for its response; redirects are not followed, and proxies
//! of the environment (`HTTPS_PROXY`) are not used. No lock is held while a call waits.
//!
//! Start at [`ClientManager::post`].
//!
//! Source: `k8s.io/apiserver/pkg/util/webhook`.

mod client;
mod config;
mod dial;
mod error;
mod metrics;
mod resolver;
mod verify;

pub(crate) use client::client_error;
pub use client::{ClientManager, HttpClient, OwnServer, Post};
pub(crate) use config::ca_bundle;
pub use config::{ClientConfig, ServiceReference, TlsConfig, host_and_port, port_or};
pub(crate) use dial::keep_alive;
pub(crate) use error::excerpt;
pub use error::{CallError, ConfigError, TransportError};
pub use metrics::{ConversionFailure, ConversionMetrics};
pub use resolver::{Destination, ServiceResolver};
