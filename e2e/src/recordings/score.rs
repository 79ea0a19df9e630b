//! The expected score of an area: its floor, and its known gaps.
//!
//! `recordings/floors.txt` has the minimum number of equal steps of each area; it never decreases.
//! `recordings/gaps.md` is a table of known differences with their reasons; every other step must
//! be equal.

use std::fs;

use anyhow::{Context, Result, bail};

use super::player::{Played, Verdict};
use super::{Recording, Step, directory};

/// Returns the minimum number of equal steps of an area.
pub fn floor(area: &str) -> Result<usize> {
    let text = fs::read_to_string(directory().join("floors.txt"))?;
    let line = text.lines().find_map(|line| line.strip_prefix(area)?.strip_prefix(' '));
    line.with_context(|| format!("{area} has no floor"))?.trim().parse().context("a floor is a number")
}

/// The table of known gaps.
#[derive(Debug)]
pub struct Gaps(Vec<Gap>);

#[derive(Debug)]
struct Gap {
    /// `area/name`, or `area/*`, or `*`.
    recordings: String,
    steps: Steps,
}

#[derive(Debug, PartialEq)]
enum Steps {
    /// The steps after the first that waits for an action of the server are not played: waiting for
    /// something that does not happen takes too long.
    FromFirstWait,
    /// These steps are played, and differ.
    Numbers(Vec<usize>),
}

impl Gaps {
    /// Reads `gaps.md`.
    pub fn read() -> Result<Gaps> {
        Gaps::parse(&fs::read_to_string(directory().join("gaps.md"))?)
    }

    fn parse(text: &str) -> Result<Gaps> {
        let rows = text.lines().filter(|line| line.starts_with("| `"));
        Ok(Gaps(rows.map(|row| Gap::parse(row).with_context(|| row.to_owned())).collect::<Result<_>>()?))
    }

    /// Returns the step before which to stop.
    pub fn end(&self, recording: &Recording, steps: &[Step]) -> usize {
        let first = |is: fn(&Step) -> bool| steps.iter().position(is).unwrap_or(steps.len());
        let name = recording.name();
        let ends = self.of(&name).map(|gap| match gap.steps {
            Steps::FromFirstWait => first(Step::is_wait),
            Steps::Numbers(_) => steps.len(),
        });
        ends.min().unwrap_or(steps.len())
    }

    /// Returns `true` if a step is known to differ.
    pub fn contains(&self, recording: &str, step: usize) -> bool {
        self.of(recording).any(|gap| match &gap.steps {
            Steps::Numbers(numbers) => numbers.contains(&step),
            _ => false,
        })
    }

    fn of<'a>(&'a self, recording: &'a str) -> impl Iterator<Item = &'a Gap> {
        self.0.iter().filter(move |gap| match gap.recordings.strip_suffix('*') {
            Some(prefix) => recording.starts_with(prefix),
            None => recording == gap.recordings,
        })
    }
}

impl Gap {
    /// Parses a row: `| recordings | steps | why |`.
    fn parse(row: &str) -> Result<Gap> {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, recordings, steps, why, _] = cells[..] else { bail!("not three cells") };
        if why.is_empty() {
            bail!("a gap without a reason");
        }
        let steps = match steps {
            "from the first wait" => Steps::FromFirstWait,
            numbers => Steps::Numbers(numbers.split(' ').map(str::parse).collect::<Result<_, _>>()?),
        };
        Ok(Gap { recordings: recordings.trim_matches('`').to_owned(), steps })
    }
}

/// The score of an area.
#[derive(Debug, Default)]
pub struct Score<'a> {
    /// The number of equal steps.
    pub equal: usize,
    /// The number of steps with a response, played or not.
    pub compared: usize,
    /// The number of steps with a response that were not played.
    pub left_out: usize,
    /// Steps that differ and are not listed as gaps.
    pub unexpected: Vec<(&'a str, &'a Verdict)>,
    /// Steps that are listed as gaps and are equal.
    pub fixed: Vec<(&'a str, &'a Verdict)>,
}

impl<'a> Score<'a> {
    /// Computes the score of the recordings of an area.
    pub fn of(played: &'a [Played], gaps: &Gaps) -> Score<'a> {
        let mut score = Score::default();
        for recording in played {
            score.equal += recording.equal();
            score.compared += recording.compared() + recording.left_out;
            score.left_out += recording.left_out;
            for verdict in &recording.verdicts {
                match (verdict.differences.is_empty(), gaps.contains(&recording.name, verdict.step)) {
                    (false, false) => score.unexpected.push((&recording.name, verdict)),
                    (true, true) => score.fixed.push((&recording.name, verdict)),
                    _ => {}
                }
            }
        }
        score
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps() {
        let gaps = Gaps::parse(
            "| recordings | steps | why |\n\
             | --- | --- | --- |\n\
             | `gc/*` | from the first wait | no collector |\n\
             | `api/health` | 3 14 | known |\n",
        );
        let gaps = gaps.unwrap();
        for (recording, step, want) in [
            ("api/health", 3, true),
            ("api/health", 4, false),
            ("api/health-2", 3, false),
            ("gc/a", 3, false),
        ] {
            assert_eq!(gaps.contains(recording, step), want, "{recording} {step}");
        }
        assert_eq!(gaps.of("gc/a").map(|g| &g.steps).collect::<Vec<_>>(), [&Steps::FromFirstWait]);
        for wrong in ["| `a` | 1 |", "| `a` | one | why |", "| `a` | 1 | |"] {
            assert!(Gaps::parse(wrong).is_err(), "{wrong}");
        }
    }
}
