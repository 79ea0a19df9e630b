//! The map of the crates in ARCHITECTURE.md: it has every crate, and the dependencies have its
//! direction.

use std::collections::{BTreeMap, BTreeSet};

use regex::Regex;

/// A row of the map: the directories of its crates, and of the crates that they must not depend on.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    pub crates: Vec<String>,
    pub forbidden: Vec<String>,
}

/// The dependencies of each crate, by directory; those of tests are left out.
pub type Dependencies = BTreeMap<String, BTreeSet<String>>;

/// Returns the rows of the table in the section "Crates".
pub fn rows(document: &str) -> Vec<Row> {
    let code = Regex::new("`([^`]+/)`").expect("a pattern");
    let directories =
        |cell: &str| code.captures_iter(cell).map(|found| found.extract::<1>().1[0].to_owned()).collect();
    let section = document.split("\n## Crates\n").nth(1).unwrap_or_default();
    let section = section.split("\n## ").next().unwrap_or_default();
    section
        .lines()
        .filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let ["", crates, _, unknown, _, ""] = cells[..] else { return None };
            let row = Row { crates: directories(crates), forbidden: directories(unknown) };
            (!row.crates.is_empty()).then_some(row)
        })
        .collect()
}

/// Describes what differs between the map and the dependencies.
pub fn violations(rows: &[Row], dependencies: &Dependencies) -> Vec<String> {
    let order: Vec<&String> = rows.iter().flat_map(|row| &row.crates).collect();
    let place = |name: &String| order.iter().position(|other| *other == name);
    let mut violations = Vec::new();
    for (name, direct) in dependencies {
        let Some(own) = place(name) else {
            violations.push(format!("{name} is not in the map"));
            continue;
        };
        let upward = direct.iter().filter(|other| place(other).is_some_and(|other| other < own));
        violations.extend(upward.map(|other| format!("{name} depends on {other}, which is above it")));
    }
    for name in order.iter().filter(|name| !dependencies.contains_key(**name)) {
        violations.push(format!("{name} is in the map, and is no crate"));
    }
    for row in rows {
        for name in &row.crates {
            let all = transitive(name, dependencies);
            let known = row.forbidden.iter().filter(|forbidden| all.contains(forbidden));
            violations
                .extend(known.map(|other| format!("{name} depends on {other}, which it must not know")));
            let unknown = row.forbidden.iter().filter(|forbidden| !dependencies.contains_key(*forbidden));
            violations.extend(unknown.map(|other| format!("{other}, unknown to {name}, is no crate")));
        }
    }
    violations
}

/// Returns all direct and indirect dependencies of a crate.
fn transitive<'a>(name: &'a String, dependencies: &'a Dependencies) -> BTreeSet<&'a String> {
    let (mut found, mut open) = (BTreeSet::new(), vec![name]);
    while let Some(name) = open.pop() {
        let direct = dependencies.get(name).into_iter().flatten();
        open.extend(direct.filter(|other| found.insert(*other)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &str = "# Map\n## Crates\n| crate | owns | does not know | start at |\n| --- | --- | --- | --- |\n\
                       | `a/` | x | | `a/src/` |\n| `b/`, `c/` | y | HTTP: `d/` | |\n| `d/` | z | | |\n## Next\n| `e/` | | | |\n";

    fn dependencies(of: &[(&str, &[&str])]) -> Dependencies {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        of.iter().map(|(name, direct)| ((*name).to_owned(), names(direct))).collect()
    }

    #[test]
    fn a_map_that_is_kept_has_no_violations() {
        let kept = dependencies(&[("a/", &["b/", "d/"]), ("b/", &["c/"]), ("c/", &[]), ("d/", &[])]);
        assert_eq!(violations(&rows(MAP), &kept), [""; 0]);
    }

    #[test]
    fn violations_of_the_map_are_named() {
        for (direct, want) in [
            (
                dependencies(&[("a/", &[]), ("b/", &["a/"]), ("c/", &[]), ("d/", &[])]),
                "b/ depends on a/, which is above it",
            ),
            (
                dependencies(&[("a/", &[]), ("b/", &["c/"]), ("c/", &["d/"]), ("d/", &[])]),
                "b/ depends on d/, which it must not know",
            ),
            (
                dependencies(&[("a/", &[]), ("b/", &[]), ("c/", &[]), ("d/", &[]), ("e/", &[])]),
                "e/ is not in the map",
            ),
            (dependencies(&[("b/", &[]), ("c/", &[]), ("d/", &[])]), "a/ is in the map, and is no crate"),
        ] {
            let found = violations(&rows(MAP), &direct);
            assert!(found.iter().any(|violation| violation == want), "{want}: {found:?}");
        }
    }
}
