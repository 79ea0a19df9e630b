//! Semantic versions.

/// Parses a semantic version; leniently also with a leading `v`, leading zeros, and missing parts.
///
/// Source: `github.com/blang/semver`; `k8s.io/apiserver/pkg/cel/library/semverlib.go`.
pub fn parse_semver(text: &str, lenient: bool) -> Result<semver::Version, String> {
    if !lenient {
        return strict_semver(text);
    }
    let text = text.strip_prefix('v').unwrap_or(text);
    let mut parts: Vec<String> = text.splitn(3, '.').map(without_zeros).collect();
    if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
        return Err("short version cannot contain PreRelease/Build meta data".into());
    }
    while parts.len() < 3 {
        parts.push("0".into());
    }
    strict_semver(&parts.join("."))
}

/// Returns a number without leading zeros.
fn without_zeros(part: &str) -> String {
    if part.len() < 2 {
        return part.to_owned();
    }
    let rest = part.trim_start_matches('0');
    if rest.starts_with(|c: char| c.is_ascii_digit()) { rest.to_owned() } else { format!("0{rest}") }
}

fn strict_semver(text: &str) -> Result<semver::Version, String> {
    if text.is_empty() {
        return Err("Version string empty".into());
    }
    let mut parts = text.splitn(3, '.');
    let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("No Major.Minor.Patch elements found".into());
    };
    let digits = |text: &str| text.bytes().all(|c| c.is_ascii_digit());
    let zeros = |text: &str| text.len() > 1 && text.starts_with('0');
    let number = |part: &str, upper: &str, lower: &str| {
        if part.is_empty() || !digits(part) {
            return Err(format!("Invalid character(s) found in {lower} number {part:?}"));
        }
        if zeros(part) {
            return Err(format!("{upper} number must not contain leading zeroes {part:?}"));
        }
        part.parse::<u64>().map_err(|_| format!("strconv.ParseUint: parsing {part:?}: value out of range"))
    };
    let major = number(major, "Major", "major")?;
    let minor = number(minor, "Minor", "minor")?;
    let (rest, build) = rest.split_once('+').map_or((rest, None), |(rest, build)| (rest, Some(build)));
    let (patch, pre) = rest.split_once('-').map_or((rest, None), |(patch, pre)| (patch, Some(pre)));
    let mut version = semver::Version::new(major, minor, number(patch, "Patch", "patch")?);
    let plain = |part: &str| part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    for part in pre.into_iter().flat_map(|pre| pre.split('.')) {
        if part.is_empty() {
            return Err("Prerelease is empty".into());
        }
        if digits(part) && zeros(part) {
            return Err(format!("Numeric PreRelease version must not contain leading zeroes {part:?}"));
        }
        if !plain(part) {
            return Err(format!("Invalid character(s) found in prerelease {part:?}"));
        }
    }
    for part in build.into_iter().flat_map(|build| build.split('.')) {
        if part.is_empty() {
            return Err("Build meta data is empty".into());
        }
        if !plain(part) {
            return Err(format!("Invalid character(s) found in build meta data {part:?}"));
        }
    }
    let wrong = |error: semver::Error| error.to_string();
    version.pre = semver::Prerelease::new(pre.unwrap_or("")).map_err(wrong)?;
    version.build = semver::BuildMetadata::new(build.unwrap_or("")).map_err(wrong)?;
    Ok(version)
}
