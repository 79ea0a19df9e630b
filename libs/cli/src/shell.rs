//! Words of a shell, for lines that users paste.

/// Quotes a word, if a shell would read it as anything else.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+=,".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_they_have_to_be() {
        for (word, want) in [
            ("/home/me/.kube/config", "/home/me/.kube/config"),
            ("/tmp/a b/ä", "'/tmp/a b/ä'"),
            ("/tmp/ä", "/tmp/ä"),
            ("it's", r"'it'\''s'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(quoted(word), want);
        }
    }
}
