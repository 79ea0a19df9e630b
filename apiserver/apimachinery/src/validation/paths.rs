//! Paths inside containers and volumes. Each rule returns the errors, as those of
//! [`super::content`] do.

/// Validates a path without `..`.
pub fn no_backsteps(path: &str) -> Vec<String> {
    let up = path.split('/').any(|step| step == "..");
    up.then(|| "must not contain '..'".to_owned()).into_iter().collect()
}

/// Validates a relative path without `..`.
pub fn descending(path: &str) -> Vec<String> {
    let absolute = path.starts_with('/').then(|| "must be a relative path".to_owned());
    absolute.into_iter().chain(no_backsteps(path)).collect()
}

/// Validates a relative path without `..` that is not reserved by volumes (`..data`).
pub fn not_reserved(path: &str) -> Vec<String> {
    let mut mistakes = descending(path);
    if path.starts_with("..") && !path.starts_with("../") {
        mistakes.push("must not start with '..'".to_owned());
    }
    mistakes
}
