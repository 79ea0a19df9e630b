//! JSONPath in kubectl's dialect, as far as columns of custom resources need it: `.spec.hosts[0]`,
//! `.status.conditions[?(@.type=="Ready")].status`, `.metadata.labels['a']`, `..name`,
//! `.items[*].x`, `[1:3]`, `['a','b']`.
//!
//! Source: "JSONPath Support" of the kubectl reference; client-go's deviations are kept (`@`, `$`
//! and spaces are ignored, a key in brackets may contain dots).

use std::borrow::Cow;
use std::cell::Cell;
use std::cmp::Ordering;

use serde_json::Value;

/// The number of values that the paths of one row may visit together. `..` visits all within a
/// value, and again those within each of them: the results of several multiply, and both paths and
/// objects are those of clients.
const MAX_VISITS: usize = 50_000;
/// The length of a path in bytes, and the nesting of its brackets and filters.
const MAX_LENGTH: usize = 10_000;
const MAX_NESTING: usize = 32;

/// A parsed path.
pub struct JsonPath(Vec<Step>);

enum Step {
    Field(String),
    Wildcard,
    /// The value and everything inside of it.
    Recursive,
    Slice(Slice),
    Union(Vec<Vec<Step>>),
    Filter(Filter),
    Literal(Value),
}

struct Slice {
    from: Option<i64>,
    to: Option<i64>,
    /// A single index: the end is one after the start.
    single: bool,
    step: Option<i64>,
}

struct Filter {
    left: Vec<Step>,
    /// None: the left side only has to exist.
    right: Option<(String, Vec<Step>)>,
}

/// The values that a path selects. None as a result: the path does not match the value.
type Found<'a> = Vec<Cow<'a, Value>>;

impl JsonPath {
    /// Parses a path; None if it is invalid.
    pub fn parse(text: &str) -> Option<JsonPath> {
        if text.len() > MAX_LENGTH {
            return None;
        }
        Parser::new(text, MAX_NESTING).steps().map(JsonPath)
    }

    /// Returns the first selected value; None if nothing is selected, or if too many values would
    /// be visited.
    pub fn first<'a>(&self, value: &'a Value, visits: &Visits) -> Option<Cow<'a, Value>> {
        follow(&self.0, vec![Cow::Borrowed(value)], visits)?.into_iter().next()
    }
}

/// The values that are left to visit.
pub struct Visits(Cell<usize>);

impl Visits {
    /// Creates the limits for the paths of one row.
    pub fn of_row() -> Visits {
        Visits(Cell::new(MAX_VISITS))
    }

    /// Counts visited values; returns None if the limit is reached.
    fn count(&self, values: usize) -> Option<()> {
        self.0.set(self.0.get().checked_sub(values)?);
        Some(())
    }
}

fn follow<'a>(steps: &[Step], start: Found<'a>, visits: &Visits) -> Option<Found<'a>> {
    steps.iter().try_fold(start, |found, step| step.follow(found, visits))
}

impl Step {
    fn follow<'a>(&self, found: Found<'a>, visits: &Visits) -> Option<Found<'a>> {
        visits.count(1 + found.len())?;
        let mut next = Vec::new();
        match self {
            Step::Union(paths) => {
                for path in paths {
                    next.extend(follow(path, found.clone(), visits)?);
                }
            }
            Step::Literal(value) => next.extend(found.iter().map(|_| Cow::Owned(value.clone()))),
            Step::Field(name) => {
                next.extend(found.into_iter().filter_map(|value| member(value, name)));
            }
            Step::Wildcard => {
                for value in found {
                    let children = children(value);
                    visits.count(children.len())?;
                    next.extend(children);
                }
            }
            Step::Recursive => {
                for value in found {
                    descend(value, &mut next, visits)?;
                }
            }
            Step::Slice(slice) => {
                for value in found.into_iter().filter(|value| !value.is_null()) {
                    let len = value.as_array()?.len();
                    for at in slice.indexes(i64::try_from(len).ok()?)? {
                        visits.count(1)?;
                        next.extend(usize::try_from(at).ok().and_then(|at| element(value.clone(), at)));
                    }
                }
            }
            Step::Filter(filter) => {
                for value in found {
                    for at in 0..value.as_array()?.len() {
                        visits.count(1)?;
                        let item = element(value.clone(), at)?;
                        if filter.passes(&item, visits)? {
                            next.push(item);
                        }
                    }
                }
            }
        }
        Some(next)
    }
}

impl Slice {
    fn indexes(&self, len: i64) -> Option<impl Iterator<Item = i64> + use<>> {
        let mut from = self.from.unwrap_or(0);
        let mut to = match self.to {
            None if self.single => from + 1,
            None => len,
            Some(to) => to,
        };
        if from < 0 {
            from += len;
        }
        if to < 0 || (to == 0 && self.single) {
            to += len;
        }
        let fits = from == to || (0..len).contains(&from) && (from..=len).contains(&to);
        let step = self.step.unwrap_or(1);
        (fits && step > 0).then(|| (from..to).step_by(usize::try_from(step).unwrap_or(usize::MAX)))
    }
}

impl Filter {
    /// Returns whether an item passes the filter; None if the two sides cannot be compared.
    fn passes(&self, item: &Value, visits: &Visits) -> Option<bool> {
        let side = |steps: &[Step]| follow(steps, vec![Cow::Borrowed(item)], visits);
        let left = side(&self.left);
        // Too many visits give no result at all.
        visits.count(1)?;
        let Some((operator, right)) = &self.right else {
            return Some(left.is_some_and(|found| !found.is_empty()));
        };
        match (left?.as_slice(), side(right)?.as_slice()) {
            ([], _) | (_, []) => Some(false),
            ([left], [right]) => compare(left, operator, right),
            _ => None,
        }
    }
}

/// Compares two values; returns None if they are of different types, or of a type without this
/// comparison.
fn compare(left: &Value, operator: &str, right: &Value) -> Option<bool> {
    let ordering = match (left, right) {
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Number(a), Value::Number(b)) if a.is_f64() == b.is_f64() => {
            a.as_f64()?.partial_cmp(&b.as_f64()?)?
        }
        (Value::Bool(a), Value::Bool(b)) if matches!(operator, "==" | "!=") => a.cmp(b),
        _ => return None,
    };
    match operator {
        "==" => Some(ordering == Ordering::Equal),
        "!=" => Some(ordering != Ordering::Equal),
        "<" => Some(ordering == Ordering::Less),
        "<=" => Some(ordering != Ordering::Greater),
        ">" => Some(ordering == Ordering::Greater),
        ">=" => Some(ordering != Ordering::Less),
        _ => None,
    }
}

fn member<'a>(value: Cow<'a, Value>, name: &str) -> Option<Cow<'a, Value>> {
    match value {
        Cow::Borrowed(value) => value.get(name).map(Cow::Borrowed),
        Cow::Owned(value) => value.get(name).cloned().map(Cow::Owned),
    }
}

fn element(value: Cow<'_, Value>, at: usize) -> Option<Cow<'_, Value>> {
    match value {
        Cow::Borrowed(value) => value.get(at).map(Cow::Borrowed),
        Cow::Owned(value) => value.get(at).cloned().map(Cow::Owned),
    }
}

fn children(value: Cow<'_, Value>) -> Found<'_> {
    match value {
        Cow::Borrowed(Value::Object(members)) => members.values().map(Cow::Borrowed).collect(),
        Cow::Borrowed(Value::Array(elements)) => elements.iter().map(Cow::Borrowed).collect(),
        // Only literals are owned, and they have no children.
        _ => Vec::new(),
    }
}

fn descend<'a>(value: Cow<'a, Value>, all: &mut Found<'a>, visits: &Visits) -> Option<()> {
    let children = children(value.clone());
    visits.count(1 + children.len())?;
    if !children.is_empty() {
        all.push(value);
    }
    children.into_iter().try_for_each(|child| descend(child, all, visits))
}

struct Parser<'t> {
    rest: &'t str,
    /// The levels to which brackets and filters may still be nested.
    nesting: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str, nesting: usize) -> Parser<'t> {
        Parser { rest: text, nesting }
    }

    /// Parses a part of the path into its steps.
    fn steps_of(&self, text: &str) -> Option<Vec<Step>> {
        Parser::new(text, self.nesting.checked_sub(1)?).steps()
    }

    fn steps(mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        while let Some(first) = self.rest.chars().next() {
            if let Some(rest) = self.rest.strip_prefix("[?(") {
                self.rest = rest;
                steps.push(self.filter()?);
            } else if let Some(rest) = self.rest.strip_prefix("..") {
                if matches!(steps.last(), Some(Step::Recursive)) {
                    return None;
                }
                self.rest = rest;
                steps.push(Step::Recursive);
                if self.rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                    steps.push(self.field());
                }
            } else if matches!(first, '+' | '-' | '0'..='9') {
                let end = self.rest[1..].find(|c: char| c != '.' && !c.is_ascii_digit());
                steps.push(Step::Literal(
                    serde_json::from_str(self.take(end.map_or(self.rest.len(), |at| at + 1))).ok()?,
                ));
            } else if first.is_alphanumeric() || first == '_' {
                steps.push(Step::Literal(serde_json::from_str(self.word()).ok().filter(Value::is_boolean)?));
            } else {
                self.take(first.len_utf8());
                match first {
                    ' ' | '@' | '$' => {}
                    '.' => steps.push(self.field()),
                    '[' => self.brackets(&mut steps)?,
                    '"' | '\'' => steps.push(Step::Literal(self.quoted(first)?.into())),
                    _ => return None,
                }
            }
        }
        Some(steps)
    }

    fn take(&mut self, len: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        taken
    }

    /// Reads the text up to the end of a name; escaped characters do not end it.
    fn word(&mut self) -> &'t str {
        let mut escaped = false;
        let end = self.rest.find(|c: char| {
            let ends = !escaped
                && matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}');
            escaped = !escaped && c == '\\';
            ends
        });
        self.take(end.unwrap_or(self.rest.len()))
    }

    fn field(&mut self) -> Step {
        match self.word() {
            "*" => Step::Wildcard,
            name => Step::Field(name.replace('\\', "")),
        }
    }

    /// Parses the content of brackets, after the opening bracket.
    fn brackets(&mut self, steps: &mut Vec<Step>) -> Option<()> {
        let inner = self.take(self.rest.find(']')?);
        self.take(1);
        if inner.contains(',') {
            let alternative = |text: &str| self.steps_of(&format!("[{}]", text.trim_matches(' ')));
            steps.push(Step::Union(inner.split(',').map(alternative).collect::<Option<_>>()?));
        } else if let Some(key) = inner.strip_prefix('\'').and_then(|key| key.strip_suffix('\'')) {
            steps.extend(self.steps_of(&format!(".{key}"))?);
        } else if inner == "*" {
            steps.push(Step::Slice(Slice { from: None, to: None, single: false, step: None }));
        } else {
            let parts: Vec<&str> = inner.split(':').collect();
            let number = |at: usize| match parts.get(at) {
                None | Some(&"") => Some(None),
                Some(text) => text.parse().ok().map(Some),
            };
            if parts.len() > 3 {
                return None;
            }
            steps.push(Step::Slice(Slice {
                from: number(0)?,
                to: number(1)?,
                single: parts.len() == 1,
                step: number(2)?,
            }));
        }
        Some(())
    }

    /// Parses a filter after its `[?(`, up to the `)]` outside of quotes.
    fn filter(&mut self) -> Option<Step> {
        let mut quote = None;
        let end = self.rest.find(|c: char| {
            match (quote, c) {
                (None, '"' | '\'') => quote = Some(c),
                (Some(open), c) if c == open => quote = None,
                _ => {}
            }
            quote.is_none() && c == ')'
        })?;
        let text = self.take(end);
        self.rest = self.rest.strip_prefix(")]")?;
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let Some(at) = text.find(is_operator).filter(|at| *at > 0) else {
            return Some(Step::Filter(Filter { left: self.steps_of(text)?, right: None }));
        };
        let (left, rest) = text.split_at(at);
        let operator = &rest[..rest.find(|c| !is_operator(c))?];
        let right = self.steps_of(&rest[operator.len()..])?;
        Some(Step::Filter(Filter { left: self.steps_of(left)?, right: Some((operator.to_owned(), right)) }))
    }

    /// Parses a string after its opening quote.
    fn quoted(&mut self, quote: char) -> Option<String> {
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        loop {
            match chars.next()? {
                (at, c) if c == quote => {
                    self.take(at + c.len_utf8());
                    return Some(text);
                }
                (_, '\\') => text.push(chars.next()?.1),
                (_, c) => text.push(c),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_select_values() {
        let value = json!({
            "a": {"b": "1", "c.d": "2", "e": null},
            "l": [{"n": "x", "v": 1, "f": 1.5}, {"n": "y", "v": 2}, {"n": "z", "v": 3}],
            "s": ["p", "q", "r"],
        });
        for (path, want) in [
            (".a.b", Some(json!("1"))),
            ("$.a.b", Some(json!("1"))),
            (".a.c\\.d", Some(json!("2"))),
            (".a['b']", Some(json!("1"))),
            (".a.e.x", None),
            (".s[0]", Some(json!("p"))),
            (".s[-1]", Some(json!("r"))),
            (".s[3]", None),
            (".s[1:]", Some(json!("q"))),
            (".s[:2]", Some(json!("p"))),
            (".s[*]", Some(json!("p"))),
            (".s.*", Some(json!("p"))),
            (".s[2,0]", Some(json!("r"))),
            (".a['x','b']", Some(json!("1"))),
            (".a.b[0]", None),
            (".l[?(@.n==\"y\")].v", Some(json!(2))),
            (".l[?(@.n=='y')].v", Some(json!(2))),
            (".l[?(@.v>1)].n", Some(json!("y"))),
            (".l[?(@.v!=1)].n", Some(json!("y"))),
            (".l[?(@.v<=1)].n", Some(json!("x"))),
            (".l[?(@.v==\"1\")].n", None),
            (".l[?(@.v==1.0)].n", None),
            (".l[?(@.v>=2)].n", Some(json!("y"))),
            (".l[?(@.f)].n", Some(json!("x"))),
            (".a['c\\.d']", Some(json!("2"))),
            (".l[?(@.none)].n", None),
            (".l[?(@.n==\")]\")].v", None),
            ("..v", Some(json!(1))),
            (".", None),
        ] {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} reads"));
            assert_eq!(parsed.first(&value, &Visits::of_row()).map(Cow::into_owned), want, "{path}");
        }
    }

    /// Builds an object with this number of levels, and a list at each.
    fn deep(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, _| json!({"a": inner, "l": [1, 2, 3]}))
    }

    #[test]
    fn paths_that_multiply_values_select_nothing() {
        let value = json!({"spec": deep(90)});
        let filters = "[?(@..a)]".repeat(40);
        for path in [
            format!(".spec{}", "..a".repeat(5)),
            format!(".spec{}", "..[*]".repeat(5)),
            format!("{}.a", "..[*]".repeat(1500)),
            format!(".spec..l{filters}{}", "..[*]".repeat(50)),
            format!(".spec..a..a[{}]", vec!["'a'"; 2000].join(",")),
            format!(".spec{}", "[*,*,*,*,*,*,*,*,*,*]".repeat(200)),
        ] {
            let started = std::time::Instant::now();
            let path = JsonPath::parse(&path).unwrap_or_else(|| panic!("{path:.60} reads"));
            assert_eq!(path.first(&value, &Visits::of_row()).map(Cow::into_owned), None);
            assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
        }
        let value = json!({"spec": deep(20)});
        for path in ["..l[2]", ".spec..a..l[0]", "..a..l[?(@>1)]"] {
            let parsed = JsonPath::parse(path).unwrap_or_else(|| panic!("{path} reads"));
            assert!(parsed.first(&value, &Visits::of_row()).is_some(), "{path}");
        }
    }

    #[test]
    fn long_and_nested_paths_are_rejected() {
        let nested = "[?(@.a".repeat(5000);
        let quoted = "['".repeat(4000) + "]";
        let unions = "['".repeat(2000) + "a" + "']".repeat(2000).as_str();
        for path in [".a".repeat(6000), nested, quoted, unions] {
            assert!(JsonPath::parse(&path).is_none(), "{path:.60}");
        }
        assert!(JsonPath::parse(&".a".repeat(4000)).is_some());
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for path in [
            ".a[",
            ".a[x]",
            ".a[1:2:3:4]",
            ".l[?(@.n",
            ".l[?(@.n)",
            "....a",
            ".a}",
            ".a[\"b\"]",
            ".a['b",
            "{.a}",
        ] {
            assert!(JsonPath::parse(path).is_none(), "{path}");
        }
    }

    proptest! {
        #[test]
        fn no_path_panics(path in "[.a'\"\\[\\]?(@=!<>)*:,0-9 -]{0,16}|\\PC{0,8}") {
            let value = json!({"a": [{"a": "1"}, {"a": 0}], "0": null});
            if let Some(path) = JsonPath::parse(&path) {
                let _ = path.first(&value, &Visits::of_row());
            }
        }
    }
}
