//! PriorityLevelConfiguration: how many requests of a level may execute at once, and what happens
//! to the others.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::strategy::defaulting::{fill, keep_metadata};
use coracle_apimachinery::strategy::{Context, Strategy};
use coracle_apimachinery::validation::printed;
use serde_json::{Value, json};

use super::{mandatory_spec, validate_conditions};

const SPEC: &str = "flowcontrol.PriorityLevelConfigurationSpec";
const MAX_QUEUES: i64 = 10_000_000;
/// The entropy of the hash for shuffle sharding, in bits.
const MAX_HASH_BITS: f64 = 60.0;
const PRESERVE_ZERO: &str = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares";

/// The strategy of PriorityLevelConfiguration.
pub struct PriorityLevelConfigurationStrategy;

impl Strategy for PriorityLevelConfigurationStrategy {
    fn default(&self, object: &mut Value) {
        let Some(spec) = object.get_mut("spec") else { return };
        for (kind, shares) in [("exempt", 0), ("limited", 30)] {
            if let Some(level) = spec.get_mut(kind).and_then(Value::as_object_mut) {
                fill(level, [("nominalConcurrencyShares", json!(shares)), ("lendablePercent", json!(0))]);
            }
        }
        let queuing = spec.pointer_mut("/limited/limitResponse/queuing").and_then(Value::as_object_mut);
        if let Some(queuing) = queuing {
            for (name, number) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
                if queuing.get(name).and_then(Value::as_i64).unwrap_or(0) == 0 {
                    queuing.insert(name.into(), json!(number));
                }
            }
        }
    }

    fn prepare_for_status_update(&self, object: &mut Value, old: &Value, _: &Context<'_>) {
        keep_metadata(object, old);
    }

    fn validate(&self, object: &Field<'_>, errors: &mut Errors) {
        let annotations = object.walk("metadata.annotations");
        errors.push_if(annotations.get(PRESERVE_ZERO).exists(), || {
            annotations.forbidden(format!("annotation '{PRESERVE_ZERO}' is forbidden"))
        });
        let (name, spec) = (object.walk("metadata.name").str(), object.get("spec"));
        validate_spec(name, &spec, errors);
        validate_mandatory(name, &spec, errors);
        validate_conditions(&object.get("status"), errors);
    }

    fn validate_status_update(&self, object: &Field<'_>, _: &Field<'_>, errors: &mut Errors) {
        validate_conditions(&object.get("status"), errors);
    }
}

/// Validates that the spec of a mandatory level is unchanged, except `spec.exempt` of the level
/// `exempt`.
fn validate_mandatory(name: &str, spec: &Field<'_>, errors: &mut Errors) {
    let Some(mut wanted) = mandatory_spec("PriorityLevelConfiguration", name) else { return };
    let mut actual = spec.value().cloned().unwrap_or_default();
    let except = if name == "exempt" {
        for spec in [&mut wanted, &mut actual] {
            if let Some(spec) = spec.as_object_mut() {
                spec.remove("exempt");
            }
        }
        " except the 'spec.exempt' field"
    } else {
        ""
    };
    errors.push_if(actual != wanted, || {
        printed::invalid(spec, SPEC, &format!("spec of '{name}'{except} must equal the fixed value"))
    });
}

fn validate_spec(name: &str, spec: &Field<'_>, errors: &mut Errors) {
    let (kind, exempt, limited) = (spec.get("type"), spec.get("exempt"), spec.get("limited"));
    errors.push_if((name == "exempt") != (kind.str() == "Exempt"), || {
        kind.invalid("must be 'Exempt' if and only if `name` is 'exempt'")
    });
    match kind.str() {
        "Exempt" => {
            errors.push_if(limited.exists(), || limited.forbidden("must be nil if the type is not Limited"));
            validate_shares(&exempt, errors);
        }
        "Limited" => {
            errors.push_if(exempt.exists(), || exempt.forbidden("must be nil if the type is Limited"));
            if limited.exists() {
                validate_limited(&limited, errors);
            } else {
                errors.push(limited.required("must not be empty when type is Limited"));
            }
        }
        _ => errors.push(kind.not_supported(&["Exempt", "Limited"])),
    }
}

fn validate_limited(limited: &Field<'_>, errors: &mut Errors) {
    let shares = limited.get("nominalConcurrencyShares");
    errors.push_if(shares.int().is_some_and(|n| n < 0), || shares.invalid("must be a non-negative integer"));
    validate_response(&limited.get("limitResponse"), errors);
    validate_lendable(limited, errors);
    let borrowing = limited.get("borrowingLimitPercent");
    errors.push_if(borrowing.int().is_some_and(|n| n < 0), || {
        borrowing.invalid("if specified, must be a non-negative integer")
    });
}

fn validate_shares(exempt: &Field<'_>, errors: &mut Errors) {
    let shares = exempt.get("nominalConcurrencyShares");
    errors.push_if(shares.int().is_some_and(|n| n < 0), || shares.invalid("must be a non-negative integer"));
    validate_lendable(exempt, errors);
}

fn validate_lendable(level: &Field<'_>, errors: &mut Errors) {
    let lendable = level.get("lendablePercent");
    errors.push_if(lendable.int().is_some_and(|n| !(0..=100).contains(&n)), || {
        lendable.invalid("must be between 0 and 100, inclusive")
    });
}

fn validate_response(response: &Field<'_>, errors: &mut Errors) {
    let (kind, queuing) = (response.get("type"), response.get("queuing"));
    match kind.str() {
        "Reject" => errors.push_if(queuing.exists(), || {
            queuing.forbidden("must be nil if limited.limitResponse.type is not Limited")
        }),
        "Queue" if queuing.exists() => validate_queuing(&queuing, errors),
        "Queue" => {
            errors.push(queuing.required("must not be empty if limited.limitResponse.type is Limited"))
        }
        _ => errors.push(kind.not_supported(&["Queue", "Reject"])),
    }
}

fn validate_queuing(queuing: &Field<'_>, errors: &mut Errors) {
    let number = |name: &str| queuing.get(name).int().unwrap_or(0);
    let (queues, hand_size) = (number("queues"), number("handSize"));
    errors.push_if(number("queueLengthLimit") <= 0, || {
        queuing.get("queueLengthLimit").invalid("must be positive")
    });
    errors.extend(match queues {
        ..=0 => Some(queuing.get("queues").invalid("must be positive")),
        _ if queues > MAX_QUEUES => {
            Some(queuing.get("queues").invalid(format!("must not be greater than {MAX_QUEUES}")))
        }
        _ => None,
    });
    let bits = ((queues as f64).log2() * hand_size as f64).ceil();
    errors.extend(match hand_size {
        ..=0 => Some("must be positive".to_owned()),
        _ if hand_size > queues => Some(format!("should not be greater than queues ({queues})")),
        _ if bits > MAX_HASH_BITS => Some(format!(
            "required entropy bits of deckSize {queues} and handSize {hand_size} should not be greater than {MAX_HASH_BITS}"
        )),
        _ => None,
    }.map(|error| queuing.get("handSize").invalid(error)));
}
