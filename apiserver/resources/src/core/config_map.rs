//! ConfigMap, and the rules that it shares with Secret: keys, the size limit, `immutable`.

use coracle_apimachinery::field::{Errors, Field, Path};
use coracle_apimachinery::strategy::Strategy;
use coracle_apimachinery::validation::content;

/// The limit of all values of a ConfigMap or Secret together, in bytes.
pub const MAX_SIZE: usize = 1024 * 1024;

/// The strategy of ConfigMap.
pub struct ConfigMapStrategy;

impl Strategy for ConfigMapStrategy {
    fn validate(&self, map: &Field<'_>, errors: &mut Errors) {
        let (data, binary) = (map.get("data"), map.get("binaryData"));
        for (key, value) in data.entries() {
            validate_key(key, &value, errors);
            errors.push_if(binary.get(key).exists(), || {
                value.invalid_value(key, "duplicate of key present in binaryData")
            });
        }
        for (key, value) in binary.entries() {
            validate_key(key, &value, errors);
        }
        let size: usize = data.entries().map(|(_, value)| value.len()).sum();
        errors.push_if(size + encoded_size(&binary) > MAX_SIZE, || {
            // kube-apiserver reports the whole object, which prints like this.
            Field::at(None, Path::root().key("")).too_long(MAX_SIZE)
        });
    }

    fn validate_update(&self, map: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
        validate_immutable(map, old, &["data", "binaryData"], errors);
        self.validate(map, errors);
    }
}

/// Validates a key of data; `value` gives the path.
pub fn validate_key(key: &str, value: &Field<'_>, errors: &mut Errors) {
    errors.extend(content::config_map_key(key).into_iter().map(|e| value.invalid_value(key, e)));
}

/// Computes the decoded size of the base64 values of a map, in bytes.
pub fn encoded_size(map: &Field<'_>) -> usize {
    map.entries().map(|(_, value)| value.str().trim_end_matches('=').len() * 3 / 4).sum()
}

/// Validates that an object with `immutable: true` keeps `immutable` and its data.
pub fn validate_immutable(new: &Field<'_>, old: &Field<'_>, members: &[&str], errors: &mut Errors) {
    const FROZEN: &str = "field is immutable when `immutable` is set";
    if !old.get("immutable").bool() {
        return;
    }
    let immutable = new.get("immutable");
    errors.push_if(!immutable.bool(), || immutable.forbidden(FROZEN));
    for member in members {
        let (new, old) = (new.get(member), old.get(member));
        let same = new.value() == old.value() || (new.is_empty() && old.is_empty());
        errors.push_if(!same, || new.forbidden(FROZEN));
    }
}
