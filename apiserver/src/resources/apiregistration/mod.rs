//! Strategies of the group apiregistration, one file a kind.

pub mod api_service;
