//! Members that sources of volumes share: file modes, keys of Secrets and ConfigMaps, files of the
//! downward API.

use coracle_apimachinery::field::{Errors, Field};
use coracle_apimachinery::validation::paths;

use super::env::{self, Shown};

/// The message about an invalid file mode.
const FILE_MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";

/// Validates a file mode.
pub fn file_mode(mode: &Field<'_>, errors: &mut Errors) {
    errors.push_if(mode.int().is_some_and(|mode| !(0..=0o777).contains(&mode)), || mode.invalid(FILE_MODE));
}

/// Validates the mapping of a key to a path.
pub fn key_to_path(item: &Field<'_>, errors: &mut Errors) {
    require(item, &["key", "path"], errors);
    let path = item.get("path");
    errors.invalid_each(&path, paths::not_reserved(path.str()));
    file_mode(&item.get("mode"), errors);
}

/// Validates one file of the downward API. kube-apiserver reports its errors for the volume,
/// without the index of the file.
pub fn downward_api_file(file: &Field<'_>, errors: &mut Errors) {
    let path = file.get("path");
    require(file, &["path"], errors);
    errors.invalid_each(&path, paths::not_reserved(path.str()));
    let (field, resource) = (file.get("fieldRef"), file.get("resourceFieldRef"));
    if field.exists() {
        env::validate_field_ref(&field, Shown::InFile, errors);
        errors.push_if(resource.exists(), || {
            file.invalid_value(
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            )
        });
    } else if resource.exists() {
        env::validate_resource_ref(&resource, Shown::InFile, errors);
    } else {
        errors.push(file.required("one of fieldRef and resourceFieldRef is required"));
    }
    file_mode(&file.get("mode"), errors);
}

/// Reports the members that are missing or empty.
pub fn require(source: &Field<'_>, members: &[&str], errors: &mut Errors) {
    for member in members {
        let member = source.get(member);
        errors.push_if(member.is_empty(), || member.required(""));
    }
}
