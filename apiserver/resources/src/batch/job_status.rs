//! The status of a Job. External controllers write it too (`managedBy`), so it has rules of its
//! own: counters that only grow, terminal conditions that stay, and consistent figures.
//!
//! A rule applies only to updates that change the fields it concerns, so that older statuses stay
//! writable.

use std::collections::HashSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::{numbers, printed};
use serde_json::Value;

use super::{indexes, job_spec};

/// Returns `true` if a status has a condition of type `kind` with status `True`.
pub fn has_condition(status: &Field<'_>, kind: &str) -> bool {
    condition_is(status, kind, "True")
}

fn condition_is(status: &Field<'_>, kind: &str, value: &str) -> bool {
    status
        .get("conditions")
        .items()
        .any(|condition| condition.get("type").str() == kind && condition.get("status").str() == value)
}

/// The terminal conditions of a status.
struct TerminalConditions {
    complete: bool,
    failed: bool,
    failure_target: bool,
    success_criteria_met: bool,
}

impl TerminalConditions {
    fn of(status: &Field<'_>) -> TerminalConditions {
        TerminalConditions {
            complete: has_condition(status, "Complete"),
            failed: has_condition(status, "Failed"),
            failure_target: has_condition(status, "FailureTarget"),
            success_criteria_met: has_condition(status, "SuccessCriteriaMet"),
        }
    }

    fn finished(&self) -> bool {
        self.complete || self.failed
    }
}

/// A change of the status, and which of its fields changed.
struct Change<'a> {
    spec: Field<'a>,
    new: Field<'a>,
    old: Field<'a>,
    outcome: TerminalConditions,
    old_outcome: TerminalConditions,
}

impl Change<'_> {
    fn of(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.new.get(name).value() != self.old.get(name).value())
    }

    fn count(&self, name: &str) -> i64 {
        self.new.get(name).int().unwrap_or(0)
    }

    fn completes(&self) -> bool {
        self.outcome.complete != self.old_outcome.complete
    }

    fn fails(&self) -> bool {
        self.outcome.failed != self.old_outcome.failed
    }

    fn finishes(&self) -> bool {
        self.outcome.finished() != self.old_outcome.finished()
    }

    /// Reports an error in the conditions without their value.
    fn conditions(&self, wrong: bool, detail: &str, errors: &mut Errors) {
        errors.push_if(wrong, || self.new.get("conditions").invalid(detail).without_value());
    }
}

/// Validates an update of a Job's status.
pub fn validate_change(job: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let (new, old) = (job.get("status"), old.get("status"));
    let (outcome, old_outcome) = (TerminalConditions::of(&new), TerminalConditions::of(&old));
    let change = Change { spec: job.get("spec"), new, old, outcome, old_outcome };
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        numbers::not_negative(&change.new.get(name), errors);
    }
    validate_uncounted(&change.new.get("uncountedTerminatedPods"), errors);
    validate_completion(&change, errors);
    validate_finished(&change, errors);
    validate_indexes(&change, errors);
    validate_pods(&change, errors);
    validate_success(&change, errors);
    validate_progress(&change, errors);
}

fn validate_uncounted(uncounted: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for uid in uncounted.get("succeeded").items().chain(uncounted.get("failed").items()) {
        if uid.is_empty() {
            errors.push(uid.invalid("must not be empty"));
        } else {
            errors.push_if(!seen.insert(uid.str()), || uid.duplicate());
        }
    }
}

fn validate_completion(change: &Change<'_>, errors: &mut Errors) {
    let outcome = &change.outcome;
    change.conditions(
        (change.completes() || change.fails()) && outcome.complete && outcome.failed,
        "cannot set Complete=True and Failed=true conditions",
        errors,
    );
    let failure_target_changed = outcome.failure_target != change.old_outcome.failure_target;
    change.conditions(
        (change.completes() || failure_target_changed) && outcome.complete && outcome.failure_target,
        "cannot set Complete=True and FailureTarget=true conditions",
        errors,
    );
    let (start, end) = (change.new.get("startTime"), change.new.get("completionTime"));
    if change.completes() || change.of(&["completionTime"]) {
        errors.push_if(end.exists() && !outcome.complete, || {
            end.invalid("cannot set completionTime when there is no Complete=True condition")
        });
        errors.push_if(!end.exists() && outcome.complete, || {
            end.required("completionTime is required for Complete jobs")
        });
    }
    let out_of_order = start.exists() && end.exists() && end.str() < start.str();
    errors.push_if(change.of(&["startTime", "completionTime"]) && out_of_order, || {
        end.invalid("must be equal to or after `startTime`")
    });
    change.conditions(
        (change.fails() || change.of(&["failedIndexes"])) && outcome.failed && !outcome.failure_target,
        "cannot set Failed=True condition without the FailureTarget=true condition",
        errors,
    );
    let criteria_changed = outcome.success_criteria_met != change.old_outcome.success_criteria_met;
    change.conditions(
        (change.completes() || criteria_changed) && outcome.complete && !outcome.success_criteria_met,
        "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        errors,
    );
}

fn validate_finished(change: &Change<'_>, errors: &mut Errors) {
    let touched = |names: &[&str]| change.outcome.finished() && (change.finishes() || change.of(names));
    let active = change.new.get("active");
    errors.push_if(touched(&["active"]) && change.count("active") > 0, || {
        active.invalid("active>0 is invalid for finished job")
    });
    let start = change.new.get("startTime");
    let nothing_to_do = change.spec.get("suspend").bool() && change.spec.get("completions").int() == Some(0);
    errors.push_if(touched(&["startTime"]) && !nothing_to_do && !start.exists(), || {
        start.required("startTime is required for finished job")
    });
    let uncounted = change.new.get("uncountedTerminatedPods");
    let some = !uncounted.get("succeeded").is_empty() || !uncounted.get("failed").is_empty();
    errors.push_if(touched(&["uncountedTerminatedPods"]) && some, || {
        printed::invalid(&uncounted, "batch.UncountedTerminatedPods", "must be empty for finished job")
    });
}

fn validate_indexes(change: &Change<'_>, errors: &mut Errors) {
    let (completed, failed) = (change.new.get("completedIndexes"), change.new.get("failedIndexes"));
    let (completed_changed, failed_changed) =
        (change.of(&["completedIndexes"]), change.of(&["failedIndexes"]));
    let completions = change.spec.get("completions").int();
    let limited_per_index = change.spec.get("backoffLimitPerIndex").exists();
    if let Some(completions) = completions {
        let mut readable = |field: &Field<'_>, name: &str| {
            if let Err(error) = indexes::count(field.str(), completions) {
                errors.push(field.invalid(format!("error parsing {name}: {error}")));
            }
        };
        if completed_changed {
            readable(&completed, "completedIndexes");
        }
        if failed_changed && limited_per_index {
            readable(&failed, "failedIndexes");
        }
    }
    let indexed = job_spec::is_indexed(&change.spec);
    errors.push_if(completed_changed && !completed.is_empty() && !indexed, || {
        completed.invalid("cannot set non-empty completedIndexes when non-indexed completion mode")
    });
    errors.push_if(failed_changed && failed.exists() && !limited_per_index, || {
        failed.invalid("cannot set non-null failedIndexes when backoffLimitPerIndex is null")
    });
    if let Some(completions) = completions
        && (completed_changed || failed_changed)
        && let Some(index) = indexes::overlap(completed.str(), failed.str(), completions)
    {
        errors.push(failed.invalid(format!("failedIndexes and completedIndexes overlap at index: {index}")));
    }
}

fn validate_pods(change: &Change<'_>, errors: &mut Errors) {
    let terminating = change.new.get("terminating");
    let touched = change.finishes() || change.of(&["terminating"]);
    errors.push_if(touched && change.outcome.finished() && change.count("terminating") > 0, || {
        terminating.invalid("terminating>0 is invalid for finished job")
    });
    let ready = change.new.get("ready");
    let more_ready = change.count("ready") > change.count("active");
    errors.push_if(change.of(&["ready", "active"]) && ready.exists() && more_ready, || {
        ready.invalid("cannot set more ready pods than active")
    });
}

fn validate_success(change: &Change<'_>, errors: &mut Errors) {
    let TerminalConditions { complete, failed, failure_target, success_criteria_met } = change.outcome;
    change.conditions(
        success_criteria_met && failed,
        "cannot set SuccessCriteriaMet=True and Failed=true conditions",
        errors,
    );
    change.conditions(
        success_criteria_met && failure_target,
        "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        errors,
    );
    change.conditions(
        change.spec.get("successPolicy").exists() && !success_criteria_met && complete,
        "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
        errors,
    );
}

/// Validates fields that may change in one direction only.
fn validate_progress(change: &Change<'_>, errors: &mut Errors) {
    for kind in ["Failed", "Complete", "FailureTarget"] {
        change.conditions(
            has_condition(&change.old, kind) && !has_condition(&change.new, kind),
            &format!("cannot disable the terminal {kind}=True condition"),
            errors,
        );
    }
    let mut counted_up = |name: &str| {
        let (new, old) = (change.count(name), change.old.get(name).int().unwrap_or(0));
        errors.push_if(new < old, || {
            change.new.get(name).invalid_value(new, format!("cannot decrease the {name} counter"))
        });
    };
    counted_up("failed");
    // An elastic indexed Job may shrink; the indexes beyond its completions are no longer counted.
    let elastic = job_spec::is_indexed(&change.spec)
        && change.spec.get("completions").int() == change.spec.get("parallelism").int();
    if !elastic {
        counted_up("succeeded");
    }
    let (end, old_end) = (change.new.get("completionTime"), change.old.get("completionTime"));
    errors.push_if(end.exists() && old_end.exists() && end.value() != old_end.value(), || {
        end.invalid("field is immutable")
    });
    let start = change.new.get("startTime");
    let resumes = has_condition(&change.old, "Suspended") && condition_is(&change.new, "Suspended", "False");
    let restarted = change.old.get("startTime").exists() && change.of(&["startTime"]) && !resumes;
    errors.push_if(restarted && !change.spec.get("suspend").bool(), || {
        let shown = start.value().cloned().unwrap_or(Value::Null);
        start.invalid_value(shown, "field is immutable for unsuspended job once set")
    });
    let (new, old) = (&change.outcome, &change.old_outcome);
    change.conditions(
        old.success_criteria_met && !new.success_criteria_met,
        "cannot disable the SuccessCriteriaMet=True condition",
        errors,
    );
    change.conditions(
        old.complete && !old.success_criteria_met && new.success_criteria_met,
        "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
        errors,
    );
}
