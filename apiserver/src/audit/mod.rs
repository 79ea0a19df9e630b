//! Audit: events about requests, written to a log as the audit policy says.
//!
//! [`Policy`] decides by a request's attributes at which level it is audited, [`AuditContext`]
//! collects during the request what its events contain, [`Event`] is written as a line, and the log
//! puts the lines into a file, which is rotated by its size. [`Auditor`] is all of it for one
//! server.
//!
//! The layers of the server that report the stages of a request are in `serve/layers/audit.rs`.
//! Without a policy and a log there is no `Auditor`, and a request costs what it costs without
//! auditing.
//!
//! Source: `k8s.io/apiserver/pkg/audit` and `k8s.io/apiserver/plugin/pkg/audit`.

mod auditor;
mod context;
mod event;
mod log;
mod metrics;
mod policy;
mod rotation;

pub use auditor::{AuditError, AuditOptions, Auditor, source_ips};
pub use context::{AuditContext, AuditedRequest};
pub use event::Event;
pub use event::{ObjectReference, user_agent};
pub use log::{Format, LogOptions, Mode, Written};
pub use policy::{Level, Policy, PolicyError, RequestAuditConfig, Stage};
pub use rotation::Rotation;
