//! Label selectors: `env in (a,b),tier!=db,!legacy`.
//!
//! Source: "Labels and Selectors"; the error texts are kube-apiserver's.

use std::fmt;

use serde_json::Value;

use crate::field::{Field, Path};
use crate::validation::content;

/// The maximum number of requirements: each is evaluated for every object of a list. The values in
/// a set do not count, since they are found by binary search.
const MAX_REQUIREMENTS: usize = 1000;

/// The requirements that the labels must satisfy; an empty selector selects everything.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists,
    Missing,
    Equals(String),
    /// Sorted, as are those of `NotIn`.
    In(Vec<String>),
    /// Also true if the label is missing.
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl LabelSelector {
    /// Returns whether the selector selects everything.
    pub fn is_empty(&self) -> bool {
        self.requirements.is_empty()
    }

    /// Returns whether labels satisfy every requirement; `label` returns a label's value.
    pub fn matches<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = label(&requirement.key);
            match &requirement.test {
                Test::Exists => value.is_some(),
                Test::Missing => value.is_none(),
                Test::Equals(wanted) => value == Some(wanted),
                Test::In(values) => value.is_some_and(|v| contains(values, v)),
                Test::NotIn(values) => value.is_none_or(|v| !contains(values, v)),
                Test::Greater(bound) => number(value).is_some_and(|v| v > *bound),
                Test::Less(bound) => number(value).is_some_and(|v| v < *bound),
            }
        })
    }

    /// Parses the string form of a query parameter.
    pub fn parse(text: &str) -> Result<LabelSelector, String> {
        Parser { tokens: scan(text), position: 0 }.selector()
    }

    /// Converts a valid `metav1.LabelSelector`; None selects nothing.
    pub fn from_object(selector: Option<&Value>) -> Option<LabelSelector> {
        let selector = Field::root(selector?);
        let mut requirements = Vec::new();
        for (key, value) in selector.get("matchLabels").entries() {
            let test = Test::Equals(value.str().to_owned());
            requirements.push(Requirement { key: key.to_owned(), test });
        }
        for expression in selector.get("matchExpressions").items() {
            let mut values: Vec<String> =
                expression.get("values").items().map(|v| v.str().to_owned()).collect();
            values.sort_unstable();
            let test = match expression.get("operator").str() {
                "In" => Test::In(values),
                "NotIn" => Test::NotIn(values),
                "Exists" => Test::Exists,
                "DoesNotExist" => Test::Missing,
                _ => return None,
            };
            requirements.push(Requirement { key: expression.get("key").str().to_owned(), test });
        }
        Some(LabelSelector { requirements })
    }

    /// Returns whether an object's `metadata.labels` satisfy the selector.
    pub fn matches_map(&self, labels: Option<&Value>) -> bool {
        self.matches(|key| labels.and_then(|l| l.get(key)).and_then(Value::as_str))
    }
}

/// The string form, ordered by key.
impl fmt::Display for LabelSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut requirements: Vec<&Requirement> = self.requirements.iter().collect();
        requirements.sort_by_key(|requirement| &requirement.key);
        for (i, Requirement { key, test }) in requirements.into_iter().enumerate() {
            if i > 0 {
                f.write_str(",")?;
            }
            let list = |values: &[String]| values.join(",");
            match test {
                Test::Exists => f.write_str(key)?,
                Test::Missing => write!(f, "!{key}")?,
                Test::Equals(value) => write!(f, "{key}={value}")?,
                Test::In(values) => write!(f, "{key} in ({})", list(values))?,
                Test::NotIn(values) => write!(f, "{key} notin ({})", list(values))?,
                Test::Greater(bound) => write!(f, "{key}>{bound}")?,
                Test::Less(bound) => write!(f, "{key}<{bound}")?,
            }
        }
        Ok(())
    }
}

fn contains(sorted: &[String], value: &str) -> bool {
    sorted.binary_search_by(|other| other.as_str().cmp(value)).is_ok()
}

fn number(value: Option<&str>) -> Option<i64> {
    value?.parse().ok()
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    In,
    NotIn,
    Equals,
    DoubleEquals,
    NotEquals,
    Greater,
    Less,
    Comma,
    Open,
    Close,
    Bang,
    Bad(String),
    End,
}

impl Token {
    fn literal(&self) -> &str {
        match self {
            Token::Word(text) | Token::Bad(text) => text,
            Token::In => "in",
            Token::NotIn => "notin",
            Token::Equals => "=",
            Token::DoubleEquals => "==",
            Token::NotEquals => "!=",
            Token::Greater => ">",
            Token::Less => "<",
            Token::Comma => ",",
            Token::Open => "(",
            Token::Close => ")",
            Token::Bang => "!",
            Token::End => "",
        }
    }

    /// Returns the token as a value: where a value is expected, `in` and `notin` are values.
    fn as_value(&self) -> Option<&str> {
        match self {
            Token::Word(_) | Token::In | Token::NotIn => Some(self.literal()),
            _ => None,
        }
    }
}

fn scan(text: &str) -> Vec<Token> {
    let special = |c: char| "=!(),><".contains(c);
    let space = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let mut tokens = Vec::new();
    let mut rest = text.trim_start_matches(space);
    while let Some(first) = rest.chars().next() {
        let (token, length) = if special(first) {
            match first {
                '(' => (Token::Open, 1),
                ')' => (Token::Close, 1),
                ',' => (Token::Comma, 1),
                '>' => (Token::Greater, 1),
                '<' => (Token::Less, 1),
                '!' if rest.starts_with("!=") => (Token::NotEquals, 2),
                '!' => (Token::Bang, 1),
                '=' if rest.starts_with("==") => (Token::DoubleEquals, 2),
                '=' => (Token::Equals, 1),
                other => (Token::Bad(other.to_string()), other.len_utf8()),
            }
        } else {
            let end = rest.find(|c| special(c) || space(c)).unwrap_or(rest.len());
            let word = match &rest[..end] {
                "in" => Token::In,
                "notin" => Token::NotIn,
                word => Token::Word(word.to_owned()),
            };
            (word, end)
        };
        tokens.push(token);
        rest = rest[length..].trim_start_matches(space);
    }
    tokens.push(Token::End);
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

impl Parser {
    fn peek(&self) -> &Token {
        self.tokens.get(self.position).unwrap_or(&Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek().clone();
        self.position += 1;
        token
    }

    fn selector(mut self) -> Result<LabelSelector, String> {
        let mut requirements = Vec::new();
        loop {
            match self.peek() {
                Token::End => break,
                token if token.as_value().is_some() || *token == Token::Bang => {}
                other => {
                    return Err(format!(
                        "found '{}', expected: !, identifier, or 'end of string'",
                        other.literal()
                    ));
                }
            }
            if requirements.len() == MAX_REQUIREMENTS {
                return Err(format!("too many requirements, at most {MAX_REQUIREMENTS} are allowed"));
            }
            requirements.push(self.requirement().map_err(|e| format!("unable to parse requirement: {e}"))?);
            match self.next() {
                Token::End => break,
                Token::Comma if self.peek().as_value().is_some() || *self.peek() == Token::Bang => {}
                Token::Comma => {
                    return Err(format!("found '{}', expected: identifier after ','", self.peek().literal()));
                }
                other => {
                    return Err(format!("found '{}', expected: ',' or 'end of string'", other.literal()));
                }
            }
        }
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(LabelSelector { requirements })
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let negated = *self.peek() == Token::Bang;
        if negated {
            self.next();
        }
        let key = self.word("expected: identifier")?;
        check(content::qualified_name(&key), &key, &Path::root())?;
        if negated {
            // kube-apiserver parses any operator after `!key` and then ignores it; its grammar
            // rejects it below.
            return Ok(Requirement { key, test: Test::Missing });
        }
        if matches!(self.peek(), Token::End | Token::Comma) {
            return Ok(Requirement { key, test: Test::Exists });
        }
        let operator = self.next();
        let mut values = match operator {
            Token::In | Token::NotIn => self.values()?,
            Token::Equals | Token::DoubleEquals | Token::NotEquals | Token::Greater | Token::Less => {
                match self.peek() {
                    Token::End | Token::Comma => vec![String::new()],
                    _ => vec![self.word("expected: identifier")?],
                }
            }
            other => {
                return Err(format!("found '{}', expected: in, notin, =, ==, !=, gt, lt", other.literal()));
            }
        };
        values.sort();
        values.dedup();
        let path = Path::of("values");
        let test = match operator {
            Token::Greater | Token::Less => {
                let value = values.first().map(String::as_str).unwrap_or("");
                let bound = value.parse().map_err(|_| {
                    Field::at(Some(&Value::from(value)), path.index(0))
                        .invalid("for 'Gt', 'Lt' operators, the value must be an integer")
                        .to_string()
                })?;
                if operator == Token::Greater { Test::Greater(bound) } else { Test::Less(bound) }
            }
            Token::NotIn | Token::NotEquals => Test::NotIn(values.clone()),
            Token::In => Test::In(values.clone()),
            _ => Test::Equals(values.concat()),
        };
        for (i, value) in values.iter().enumerate() {
            check(content::label_value(value), value, &path.index(i).key(&key))?;
        }
        Ok(Requirement { key, test })
    }

    fn word(&mut self, expected: &str) -> Result<String, String> {
        let token = self.next();
        match token.as_value() {
            Some(word) => Ok(word.to_owned()),
            None => Err(format!("found '{}', {expected}", token.literal())),
        }
    }

    /// Parses a list of values, such as `(a,b)`; a missing item, as in `(a,)` or `()`, is the empty
    /// value.
    fn values(&mut self) -> Result<Vec<String>, String> {
        let open = self.next();
        if open != Token::Open {
            return Err(format!("found '{}' expected: '('", open.literal()));
        }
        match self.peek() {
            Token::Close => {
                self.next();
                return Ok(vec![String::new()]);
            }
            token if token.as_value().is_some() || *token == Token::Comma => {}
            other => {
                return Err(format!("found '{}', expected: ',', ')' or identifier", other.literal()));
            }
        }
        let mut values = Vec::new();
        let mut item_expected = true;
        loop {
            let token = self.next();
            match (&token, token.as_value()) {
                (_, Some(word)) if item_expected => {
                    values.push(word.to_owned());
                    item_expected = false;
                }
                (Token::Comma, _) => {
                    if item_expected {
                        values.push(String::new());
                    }
                    item_expected = true;
                }
                (Token::Close, _) => {
                    if item_expected {
                        values.push(String::new());
                    }
                    return Ok(values);
                }
                (other, _) if item_expected => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.literal()));
                }
                (other, _) => return Err(format!("found '{}', expected: ',' or ')'", other.literal())),
            }
        }
    }
}

fn check(errors: Vec<String>, text: &str, path: &Path) -> Result<(), String> {
    if errors.is_empty() {
        return Ok(());
    }
    let value = Value::from(text);
    let error = Field::at(Some(&value), path.clone()).invalid(errors.join("; "));
    Err(if path.to_string().is_empty() { format!("<nil>: {}", error.body()) } else { error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_selectors_match() {
        for (selector, labels, want) in [
            ("", "a=1", true),
            ("a", "a=1", true),
            ("a", "b=1", false),
            ("!a", "b=1", true),
            ("a=1,b=2", "a=1 b=2", true),
            ("a==1", "a=2", false),
            ("a!=1", "b=1", true),
            ("a!=1", "a=1", false),
            ("a in (1,2)", "a=2", true),
            ("a notin (1,2)", "a=2", false),
            ("a notin (1,2)", "b=2", true),
            ("a in ()", "a=", true),
            ("a in ()", "a=1", false),
            ("a=", "a=", true),
            ("n>3", "n=4", true),
            ("n<3", "n=x", false),
            ("in in (in,notin)", "in=notin", true),
        ] {
            let labels: Vec<(&str, &str)> =
                labels.split(' ').map(|l| l.split_once('=').expect("a label")).collect();
            let parsed = LabelSelector::parse(selector).expect(selector);
            let found = parsed.matches(|key| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v));
            assert_eq!(found, want, "{selector} on {labels:?}");
        }
    }

    #[test]
    fn label_selectors_print_ordered_by_key() {
        let selector = serde_json::json!({
            "matchLabels": {"b": "1"},
            "matchExpressions": [
                {"key": "c", "operator": "In", "values": ["y", "x"]},
                {"key": "a", "operator": "NotIn", "values": ["z"]},
                {"key": "e", "operator": "Exists"},
                {"key": "d", "operator": "DoesNotExist"},
            ],
        });
        let selector = LabelSelector::from_object(Some(&selector)).expect("a selector");
        assert_eq!(selector.to_string(), "a notin (z),b=1,c in (x,y),!d,e");
        for text in ["a=1", "a in (1,2)", "a>1,b<2"] {
            assert_eq!(LabelSelector::parse(text).expect(text).to_string(), text);
        }
    }

    #[test]
    fn invalid_label_selectors_are_rejected() {
        for (selector, want) in [
            ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
            (",a", "found ',', expected: !, identifier, or 'end of string'"),
            ("a,", "found '', expected: identifier after ','"),
            ("a in 1", "unable to parse requirement: found '1' expected: '('"),
            ("a in (1 2)", "unable to parse requirement: found '2', expected: ',' or ')'"),
        ] {
            assert_eq!(LabelSelector::parse(selector), Err(want.to_owned()), "{selector}");
        }
    }
}
