//! The difference between two values in messages: a unified diff of their indented output.
//!
//! Unchanged lines are found by Ratcliff and Obershelp's pattern matching (the longest common
//! block, then the same to its left and right), as in Python's difflib, which kube-apiserver's
//! library follows exactly.

use std::collections::HashMap;
use std::ops::Range;

use serde_json::Value;

use super::internal;

const CONTEXT: usize = 3;
/// The number of lines from which frequent lines do not start a match.
const MANY_LINES: usize = 200;
/// The largest number of line pairs that are compared: the search is quadratic in the number of
/// lines, or worse. The remaining unmatched lines count as changed.
const MAX_PAIRS: usize = 3_000_000;

/// Returns the diff from `old` to `new`, both of the internal type `type_name`; empty if both have
/// the same text.
pub fn diff(type_name: &'static str, old: Option<&Value>, new: Option<&Value>) -> String {
    let (old, new) = (indented(&internal(type_name, old)), indented(&internal(type_name, new)));
    unified(&old, &new)
}

/// Breaks a compact JSON text into lines, and indents them by one space for each level.
fn indented(json: &str) -> Vec<String> {
    let (mut lines, mut line, mut depth) = (Vec::new(), String::new(), 0usize);
    let mut chars = json.chars().peekable();
    let mut break_line = |line: &mut String, depth: usize| {
        lines.push(std::mem::take(line));
        line.extend(std::iter::repeat_n(' ', depth));
    };
    let mut quoted = false;
    while let Some(c) = chars.next() {
        match c {
            _ if quoted => {
                line.push(c);
                match c {
                    '\\' => line.extend(chars.next()),
                    '"' => quoted = false,
                    _ => {}
                }
            }
            '{' | '[' => {
                line.push(c);
                match chars.next_if(|next| matches!(next, '}' | ']')) {
                    Some(close) => line.push(close),
                    None => {
                        depth += 1;
                        break_line(&mut line, depth);
                    }
                }
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                break_line(&mut line, depth);
                line.push(c);
            }
            ',' => {
                line.push(c);
                break_line(&mut line, depth);
            }
            ':' => line.push_str(": "),
            _ => {
                quoted = c == '"';
                line.push(c);
            }
        }
    }
    lines.push(line);
    lines
}

/// A range of the two texts: unchanged lines, or old lines and their replacement.
struct Stretch {
    same: bool,
    old: Range<usize>,
    new: Range<usize>,
}

fn unified(old: &[String], new: &[String]) -> String {
    let mut out = String::new();
    for hunk in hunks(stretches(old, new)) {
        let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else { continue };
        let (from, to) = (first.old.start..last.old.end, first.new.start..last.new.end);
        out.push_str(&format!("@@ -{} +{} @@\n", place(from), place(to)));
        let mut lines = |mark: char, lines: &[String]| {
            for line in lines {
                out.push(mark);
                out.push_str(line);
                out.push('\n');
            }
        };
        for stretch in &hunk {
            match stretch.same {
                true => lines(' ', &old[stretch.old.clone()]),
                false => {
                    lines('-', &old[stretch.old.clone()]);
                    lines('+', &new[stretch.new.clone()]);
                }
            }
        }
    }
    out
}

/// Formats a range as `first line,count`; a count of 1 is left out, and an empty range names the
/// line before it.
fn place(range: Range<usize>) -> String {
    match range.len() {
        0 => format!("{},0", range.start),
        1 => format!("{}", range.start + 1),
        n => format!("{},{n}", range.start + 1),
    }
}

/// Groups the stretches into hunks, each with the unchanged lines around it as context.
fn hunks(stretches: Vec<Stretch>) -> Vec<Vec<Stretch>> {
    let mut hunks: Vec<Vec<Stretch>> = Vec::new();
    let mut hunk = Vec::new();
    let count = stretches.len();
    for (i, stretch) in stretches.into_iter().enumerate() {
        let (first, last) = (i == 0, i + 1 == count);
        let long = stretch.same && (first || last || stretch.old.len() > 2 * CONTEXT);
        if !long {
            hunk.push(stretch);
            continue;
        }
        let shown = stretch.old.len().min(CONTEXT);
        if !first {
            let (old, new) = (stretch.old.start, stretch.new.start);
            hunk.push(Stretch { same: true, old: old..old + shown, new: new..new + shown });
            hunks.push(std::mem::take(&mut hunk));
        }
        if !last {
            let (old, new) = (stretch.old.end, stretch.new.end);
            hunk.push(Stretch { same: true, old: old - shown..old, new: new - shown..new });
        }
    }
    hunks.push(hunk);
    hunks.retain(|hunk| hunk.iter().any(|stretch| !stretch.same));
    hunks
}

fn stretches(old: &[String], new: &[String]) -> Vec<Stretch> {
    let mut matcher = Matcher::new(old, new);
    matcher.find_all();
    let mut stretches: Vec<Stretch> = Vec::new();
    let (mut i, mut j) = (0, 0);
    let end = Block { old: old.len(), new: new.len(), len: 0 };
    for block in matcher.blocks.into_iter().chain([end]) {
        if i < block.old || j < block.new {
            stretches.push(Stretch { same: false, old: i..block.old, new: j..block.new });
        }
        (i, j) = (block.old + block.len, block.new + block.len);
        match stretches.last_mut() {
            Some(last) if last.same && block.len > 0 => (last.old.end, last.new.end) = (i, j),
            _ if block.len > 0 => {
                stretches.push(Stretch { same: true, old: block.old..i, new: block.new..j });
            }
            _ => {}
        }
    }
    stretches
}

#[derive(Clone, Copy)]
struct Block {
    old: usize,
    new: usize,
    len: usize,
}

struct Matcher<'a> {
    old: &'a [String],
    new: &'a [String],
    /// The positions of a line in `new`, if it may start a match.
    places: HashMap<&'a str, Vec<usize>>,
    /// The matching blocks, in order.
    blocks: Vec<Block>,
    /// The number of compared line pairs.
    pairs: usize,
}

/// The remaining steps of the search, in order.
enum Step {
    Search(Range<usize>, Range<usize>),
    Keep(Block),
}

impl<'a> Matcher<'a> {
    fn new(old: &'a [String], new: &'a [String]) -> Matcher<'a> {
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (j, line) in new.iter().enumerate() {
            places.entry(line).or_default().push(j);
        }
        if new.len() >= MANY_LINES {
            places.retain(|_, lines| lines.len() <= new.len() / 100 + 1);
        }
        Matcher { old, new, places, blocks: Vec::new(), pairs: 0 }
    }

    /// Finds the blocks: the longest one, then those before and after it, and so on.
    fn find_all(&mut self) {
        let mut steps = vec![Step::Search(0..self.old.len(), 0..self.new.len())];
        while let Some(step) = steps.pop() {
            let (old, new) = match step {
                Step::Keep(block) => {
                    self.blocks.push(block);
                    continue;
                }
                Step::Search(old, new) => (old, new),
            };
            if old.is_empty() || new.is_empty() || self.pairs > MAX_PAIRS {
                continue;
            }
            let block = self.longest(old.clone(), new.clone());
            if block.len == 0 {
                continue;
            }
            let (i, j) = (block.old + block.len, block.new + block.len);
            steps.push(Step::Search(i..old.end, j..new.end));
            let (before_old, before_new) = (old.start..block.old, new.start..block.new);
            steps.push(Step::Keep(block));
            steps.push(Step::Search(before_old, before_new));
        }
    }

    fn longest(&mut self, old: Range<usize>, new: Range<usize>) -> Block {
        let mut best = Block { old: old.start, new: new.start, len: 0 };
        // The length of the block that ends with the previous line and each line of `new`.
        let mut ending: HashMap<usize, usize> = HashMap::new();
        for i in old.clone() {
            let mut next = HashMap::new();
            let places = self.places.get(self.old[i].as_str());
            self.pairs += 1 + places.map_or(0, Vec::len);
            if self.pairs > MAX_PAIRS {
                break;
            }
            for &j in places.into_iter().flatten().filter(|j| new.contains(j)) {
                let before = j.checked_sub(1).and_then(|j| ending.get(&j)).copied();
                let len = before.unwrap_or(0) + 1;
                next.insert(j, len);
                if len > best.len {
                    best = Block { old: i + 1 - len, new: j + 1 - len, len };
                }
            }
            ending = next;
        }
        // Frequent lines start no match, but may be part of one.
        while best.old > old.start && best.new > new.start && self.old[best.old - 1] == self.new[best.new - 1]
        {
            best = Block { old: best.old - 1, new: best.new - 1, len: best.len + 1 };
        }
        while best.old + best.len < old.end
            && best.new + best.len < new.end
            && self.old[best.old + best.len] == self.new[best.new + best.len]
        {
            best.len += 1;
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Checks large diffs: a change of every other line would recurse as deep as there are lines,
    /// and repeated lines are compared pairwise.
    #[test]
    fn large_diffs_are_bounded() {
        let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<Vec<_>>();
        let cases: [(&str, Vec<String>, Vec<String>); 2] = [
            (
                "every other line",
                lines(60_000, &|i| i.to_string()),
                lines(60_000, &|i| if i % 2 == 0 { i.to_string() } else { format!("x{i}") }),
            ),
            (
                "repeated lines",
                lines(60_000, &|i| (i % 200).to_string()),
                lines(60_000, &|i| (i * 7 % 200).to_string()),
            ),
        ];
        for (case, old, new) in cases {
            let started = std::time::Instant::now();
            let diff = unified(&old, &new);
            assert!(diff.starts_with("@@ -"), "{case}");
            assert!(
                started.elapsed() < std::time::Duration::from_secs(20),
                "{case}: {:?}",
                started.elapsed()
            );
        }
    }

    /// Compares with diffs of kube-apiserver.
    #[test]
    fn diffs_match_the_real_servers() {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "c", "volumeMode": "Filesystem"});
        let volume = json!({"hostPath": {"path": "/tmp/here", "type": ""}});
        for (type_name, old, change, want) in [
            (
                "core.PersistentVolumeClaimSpec",
                &claim,
                json!({"accessModes": ["ReadWriteMany"]}),
                "@@ -1,6 +1,6 @@\n {\n  \"AccessModes\": [\n-  \"ReadWriteOnce\"\n+  \"ReadWriteMany\"\n  ],\n  \"Selector\": null,\n  \"Resources\": {\n",
            ),
            (
                "core.PersistentVolumeClaimSpec",
                &claim,
                json!({"selector": {"matchLabels": {"a": "b"}}}),
                "@@ -2,7 +2,11 @@\n  \"AccessModes\": [\n   \"ReadWriteOnce\"\n  ],\n- \"Selector\": null,\n+ \"Selector\": {\n+  \"matchLabels\": {\n+   \"a\": \"b\"\n+  }\n+ },\n  \"Resources\": {\n   \"Limits\": null,\n   \"Requests\": {\n",
            ),
            (
                "core.PersistentVolumeClaimSpec",
                &claim,
                json!({"volumeMode": "Block"}),
                "@@ -11,7 +11,7 @@\n  },\n  \"VolumeName\": \"\",\n  \"StorageClassName\": \"c\",\n- \"VolumeMode\": \"Filesystem\",\n+ \"VolumeMode\": \"Block\",\n  \"DataSource\": null,\n  \"DataSourceRef\": null,\n  \"VolumeAttributesClassName\": null\n",
            ),
            (
                "core.PersistentVolumeSource",
                &volume,
                json!({"hostPath": null, "nfs": {"server": "s", "path": "/p"}}),
                "@@ -1,12 +1,13 @@\n {\n  \"GCEPersistentDisk\": null,\n  \"AWSElasticBlockStore\": null,\n- \"HostPath\": {\n-  \"Path\": \"/tmp/here\",\n-  \"Type\": \"\"\n+ \"HostPath\": null,\n+ \"Glusterfs\": null,\n+ \"NFS\": {\n+  \"Server\": \"s\",\n+  \"Path\": \"/p\",\n+  \"ReadOnly\": false\n  },\n- \"Glusterfs\": null,\n- \"NFS\": null,\n  \"RBD\": null,\n  \"Quobyte\": null,\n  \"ISCSI\": null,\n",
            ),
        ] {
            let mut new = old.clone();
            for (member, value) in change.as_object().expect("a change") {
                new[member] = value.clone();
            }
            assert_eq!(diff(type_name, Some(old), Some(&new)), want);
            assert_eq!(diff(type_name, Some(old), Some(old)), "");
        }
    }
}
