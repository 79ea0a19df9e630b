//! The ends of single containers: a table that an annotation has.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::overrides::{EXIT_CODES, duration};
use crate::pod::Ending;

/// The maximum number of containers of an annotation.
const MAX_CONTAINERS: usize = 64;

/// The ends of containers, by their names: `{"web": {"after": "2s", "exitCode": 1}}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exits(BTreeMap<String, Ending>);

/// An end as it is written.
#[derive(Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct Written {
    after: String,
    exit_code: i32,
}

impl Exits {
    /// Returns the end of a container that is in the table.
    pub fn get(&self, container: &str) -> Option<Ending> {
        self.0.get(container).copied()
    }

    /// Returns the text of an annotation with one more end. An invalid text is replaced.
    pub fn text_with(text: Option<&str>, container: &str, ending: Ending) -> String {
        let table = text.and_then(|text| serde_json::from_str(text).ok());
        let mut table: BTreeMap<String, Written> = table.unwrap_or_default();
        let after = format!("{}ms", ending.after.as_millis());
        table.insert(container.to_owned(), Written { after, exit_code: ending.code });
        serde_json::to_string(&table).unwrap_or_default()
    }
}

impl FromStr for Exits {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Exits, &'static str> {
        const EXPECTED: &str = "not a JSON object from containers to ends such as {\"web\": {\"after\": \"2s\", \"exitCode\": 1}}";
        let table: BTreeMap<String, Written> = serde_json::from_str(text).map_err(|_| EXPECTED)?;
        if table.len() > MAX_CONTAINERS {
            return Err("more than 64 containers");
        }
        let ending = |(container, Written { after, exit_code }): (String, Written)| {
            if !EXIT_CODES.contains(&exit_code) {
                return Err("an exitCode that is not a number from 0 to 255");
            }
            let after = if after.is_empty() { Duration::ZERO } else { duration(&after)? };
            Ok((container, Ending { after, code: exit_code }))
        };
        table.into_iter().map(ending).collect::<Result<_, _>>().map(Exits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_read_and_added() {
        let ending = Ending { after: Duration::from_millis(1500), code: 3 };
        for before in [None, Some("no table"), Some("{\"c\": {}}"), Some("{\"d\": {\"after\": \"2s\"}}")] {
            let exits: Exits = Exits::text_with(before, "c", ending).parse().unwrap();
            assert_eq!(exits.get("c"), Some(ending), "{before:?}");
            let is_kept = before.is_some_and(|text| text.contains("\"d\""));
            assert_eq!(exits.get("d").map(|end| end.after.as_secs()), is_kept.then_some(2));
        }
    }

    #[test]
    fn wrong_tables_are_refused() {
        let many: Vec<String> = (0..=MAX_CONTAINERS).map(|i| format!("\"{i}\": {{}}")).collect();
        for wrong in [
            "",
            "[]",
            "{\"c\": 1}",
            "{\"c\": {\"code\": 1}}",
            "{\"c\": {\"exitCode\": 256}}",
            "{\"c\": {\"after\": \"-1s\"}}",
            &format!("{{{}}}", many.join(",")),
        ] {
            assert!(wrong.parse::<Exits>().is_err(), "{wrong}");
        }
    }
}
