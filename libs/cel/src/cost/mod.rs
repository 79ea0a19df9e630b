//! Costs: estimated from the declared sizes before an evaluation, counted during it.
//!
//! Source: cel-go's `checker/cost.go`, `interpreter/runtimecost.go`, `ext/lists.go` and
//! `ext/sets.go`; `k8s.io/apiserver/pkg/cel/library/cost.go`.

mod actual;
mod estimate;
mod functions;
mod range;

pub use actual::of_call;
pub use estimate::{Root, estimate};
pub use range::{CALL, LIST, MAP, OBJECT, Range};
