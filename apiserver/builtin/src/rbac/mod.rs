//! Role-based access control.

pub mod escalation;
