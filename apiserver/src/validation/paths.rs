//! Paths inside containers and volumes. Each rule returns what is wrong, as those of [`super::content`] do.

/// No step up.
pub fn no_backsteps(path: &str) -> Vec<String> {
    let up = path.split('/').any(|step| step == "..");
    up.then(|| "must not contain '..'".to_owned()).into_iter().collect()
}

/// Relative, without a step up.
pub fn descending(path: &str) -> Vec<String> {
    let absolute = path.starts_with('/').then(|| "must be a relative path".to_owned());
    absolute.into_iter().chain(no_backsteps(path)).collect()
}

/// Descending, and not a name that volumes keep for themselves (`..data`).
pub fn not_reserved(path: &str) -> Vec<String> {
    let mut mistakes = descending(path);
    if path.starts_with("..") && !path.starts_with("../") {
        mistakes.push("must not start with '..'".to_owned());
    }
    mistakes
}
