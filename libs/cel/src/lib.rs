//! The Common Expression Language as Kubernetes uses it.
//!
//! An [`Env`] declares variables and object types. [`Env::compile`] parses and type-checks an
//! expression and gives a [`Program`], which knows its output type and its estimated cost, and
//! which is evaluated any number of times against the values of the variables. Values of JSON are
//! read lazily: nothing of an object is copied that an expression does not name.
//!
//! Always true here:
//! - Expressions have bounded length and depth, so no expression overflows the stack.
//! - An evaluation stops when it has spent its cost limit, or exceeds a limit of its [`Meter`]:
//!   values visited, bytes made, time.
//! - Within these limits, evaluation is deterministic: expressions see no clock and no randomness.
//! - Regular expressions are matched in linear time.
//! - Nothing in this crate knows HTTP, a store or a kind.
//!
//! Source: cel-spec's language definition; cel-go's checker and cost model;
//! `k8s.io/apiserver/pkg/cel`.

#![warn(missing_docs)]

mod activation;
mod addresses;
pub mod ast;
mod checker;
mod compile;
mod cost;
mod decl;
mod env;
pub mod environments;
mod error;
mod expr_factory;
mod functions;
mod interpreter;
mod lexer;
mod library;
mod literals;
mod macros;
mod meter;
mod names;
mod parser;
mod plan;
mod planner;
mod program;
mod source;
mod time;
mod types;
mod value;

pub use activation::{Activation, NO_VARIABLES};
pub use decl::{DYN, DeclField, DeclKind, DeclType, ListSemantics, escape, unescape};
pub use env::Env;
pub use error::EvalError;
pub use interpreter::Outcome;
pub use meter::{Limits, Meter};
pub use program::{CompileError, Program};
pub use source::{Issue, Issues};
pub use time::Time;
pub use types::Type;
pub use value::{Host, Key, List, Map, ObjectLiteral, Text, Value};
