//! Names of images, and those that cannot be pulled, by patterns.

use std::str::FromStr;

use coracle_pattern::glob::matches;

/// The longest pattern and image, in bytes: a name has 255 at most, with a tag or a digest.
const MAX_PATTERN_LENGTH: usize = 512;

/// The maximum number of patterns of an annotation.
const MAX_PATTERNS: usize = 64;

/// Returns the name of an image without its registry, repository, tag and digest.
pub(crate) fn image_name(image: &str) -> &str {
    let name = image.rsplit('/').next().unwrap_or_default();
    name.split(['@', ':']).next().unwrap_or_default()
}

/// A list of patterns of images, in which `*` stands for any characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Images(Vec<String>);

impl Images {
    /// Returns `true` if a pattern matches an image as written in a pod.
    pub fn contains(&self, image: &str) -> bool {
        image.len() <= MAX_PATTERN_LENGTH && self.0.iter().any(|pattern| matches(pattern, image))
    }
}

impl FromStr for Images {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Images, &'static str> {
        let patterns: Vec<String> = text.split(',').map(|pattern| pattern.trim().to_owned()).collect();
        let is_image = |pattern: &String| !pattern.is_empty() && pattern.len() <= MAX_PATTERN_LENGTH;
        match patterns.len() <= MAX_PATTERNS && patterns.iter().all(is_image) {
            true => Ok(Images(patterns)),
            false => Err("not images such as app:2, registry.example/*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_whole_images() {
        for (patterns, image, want) in [
            ("app:2", "app:2", true),
            ("app:2", "app:20", false),
            ("app", "app:2", false),
            ("app:*", "app:2", true),
            ("*", "", true),
            ("registry.example/*:broken", "registry.example/a/b:broken", true),
            ("registry.example/*:broken", "registry.example/a:works", false),
            ("*a*b*", "xaxxabx", true),
            ("*ab", "aab", true),
            ("other, app:*", "app:1", true),
        ] {
            assert_eq!(
                patterns.parse::<Images>().map(|images| images.contains(image)),
                Ok(want),
                "{patterns} {image}"
            );
        }
        for wrong in ["", ",", "a,", &"x".repeat(MAX_PATTERN_LENGTH + 1), &"x,".repeat(MAX_PATTERNS)] {
            assert!(wrong.parse::<Images>().is_err(), "{wrong}");
        }
        let image = "a".repeat(MAX_PATTERN_LENGTH);
        assert!(!"*".parse::<Images>().unwrap().contains(&format!("{image}a")), "no image has such a name");
        let hostile = format!("{}b", "*a".repeat(MAX_PATTERN_LENGTH / 2 - 1));
        assert!(!hostile.parse::<Images>().unwrap().contains(&image));
    }
}
