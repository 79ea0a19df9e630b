//! The delete options of an Eviction.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::names::GroupKind;
use coracle_apimachinery::{Error, Result};
use serde_json::{Value, json};

/// Validates an Eviction of the pod `name`, and returns the options of the deletion.
pub fn delete_options(name: &str, eviction: &Value, dry_run: bool) -> Result<Value> {
    const UNSAFE: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    let field = Field::root(eviction);
    if field.walk("metadata.name").str() != name {
        return Err(Error::bad_request("name in URL does not match name in Eviction object"));
    }
    let unsafe_delete = field.get("deleteOptions").get(UNSAFE);
    if unsafe_delete.bool() {
        let mut errors = Errors::new();
        errors.push(unsafe_delete.invalid("can not be set for pod eviction, try after removing the option"));
        return Err(Error::invalid(&GroupKind::new("policy", "Eviction"), name, errors));
    }
    let mut options = eviction.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
    let own = field.walk("deleteOptions.dryRun");
    let own: Vec<&str> = own.items().map(|mode| mode.str()).collect();
    if dry_run && !own.is_empty() && own != ["All"] {
        return Err(Error::Unclassified(format!(
            "Non-matching dry-run options in request and content: [All] and [{}]",
            own.join(" ")
        )));
    }
    if dry_run {
        options["dryRun"] = json!(["All"]);
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evictions_become_delete_options() {
        for (case, name, options, dry_run, want) in [
            ("none", "p", json!(null), false, Ok(json!({}))),
            ("its own", "p", json!({"gracePeriodSeconds": 5}), false, Ok(json!({"gracePeriodSeconds": 5}))),
            ("a dry run", "p", json!(null), true, Ok(json!({"dryRun": ["All"]}))),
            (
                "two dry runs",
                "p",
                json!({"dryRun": ["None"]}),
                true,
                Err("Non-matching dry-run options in request and content: [All] and [None]"),
            ),
            (
                "another pod",
                "q",
                json!(null),
                false,
                Err("name in URL does not match name in Eviction object"),
            ),
            (
                "unsafe",
                "p",
                json!({"ignoreStoreReadErrorWithClusterBreakingPotential": true}),
                false,
                Err(
                    "Eviction.policy \"p\" is invalid: deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential: Invalid value: true: can not be set for pod eviction, try after removing the option",
                ),
            ),
        ] {
            let mut eviction = json!({"metadata": {"name": "p"}});
            if !options.is_null() {
                eviction["deleteOptions"] = options;
            }
            let found = delete_options(name, &eviction, dry_run).map_err(|error| error.to_string());
            assert_eq!(found, want.map_err(str::to_owned), "{case}");
        }
    }
}
