//! Projected volumes: several sources in one directory.
//!
//! Trust bundles and pod certificates are behind disabled feature gates, and dropped before
//! validation.

use std::collections::BTreeSet;

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::paths;

use super::options::PodValidationOptions;
use super::volume_members::{downward_api_file, file_mode, key_to_path};

const MIN_TOKEN_SECONDS: i64 = 10 * 60;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

/// Validates a projected volume.
pub fn validate(volume: &Field<'_>, options: &PodValidationOptions, errors: &mut Errors) {
    file_mode(&volume.get("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    for source in volume.get("sources").items() {
        let mut given = 0;
        for member in ["secret", "configMap"] {
            let keys = source.get(member);
            if keys.exists() {
                given += 1;
                validate_keys(&keys, volume, &mut taken, errors);
            }
        }
        let downward = source.get("downwardAPI");
        if downward.exists() {
            given += 1;
            for item in downward.get("items").items() {
                downward_api_file(&item.with_path(downward.path().clone()), errors);
                let path = item.get("path").str();
                take(path, path, volume, &mut taken, errors);
            }
        }
        let token = source.get("serviceAccountToken");
        if token.exists() {
            given += 1;
            validate_token(&token, volume, options, errors);
        }
        errors.push_if(given > 1, || source.forbidden("may not specify more than 1 volume type per source"));
    }
}

fn validate_keys<'a>(
    keys: &Field<'a>,
    volume: &Field<'_>,
    taken: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    let name = keys.get("name");
    errors.push_if(name.is_empty(), || name.required(""));
    for item in keys.get("items").items() {
        key_to_path(&item, errors);
        take(item.get("path").str(), name.str(), volume, taken, errors);
    }
}

/// Records a path, which may occur only once; an error shows `shown`.
fn take<'a>(
    path: &'a str,
    shown: &str,
    volume: &Field<'_>,
    taken: &mut BTreeSet<&'a str>,
    errors: &mut Errors,
) {
    errors.push_if(!path.is_empty() && !taken.insert(path), || {
        volume.invalid_value(shown, "conflicting duplicate paths")
    });
}

fn validate_token(
    token: &Field<'_>,
    volume: &Field<'_>,
    options: &PodValidationOptions,
    errors: &mut Errors,
) {
    let expiration = token.get("expirationSeconds");
    let seconds = expiration.int().unwrap_or(0);
    errors.push_if(seconds < MIN_TOKEN_SECONDS, || {
        expiration.invalid_value(seconds, "may not specify a duration less than 10 minutes")
    });
    errors.push_if(seconds > MAX_TOKEN_SECONDS, || {
        expiration.invalid_value(seconds, "may not specify a duration larger than 2^32 seconds")
    });
    let path = token.get("path").with_path(volume.path().child("path"));
    if path.is_empty() {
        errors.push(path.required(""));
    } else if !options.allow_non_local_token_path {
        errors.invalid_each(&path, paths::not_reserved(path.str()));
    }
}
