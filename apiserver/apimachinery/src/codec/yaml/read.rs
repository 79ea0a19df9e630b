//! Read: the first document of a YAML stream, as JSON text.
//!
//! Composing the document needs no recursion; the conversion to JSON follows aliases, so its depth,
//! nodes and bytes are bounded before they are created.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Value};

use super::scalar::{ScalarValue, resolve, tagged};
use crate::codec::DecodeError;
use crate::codec::base64;
use crate::codec::json::{repair, write_untyped};
use crate::codec::limits::MAX_DEPTH;
use crate::field::quote;

/// The prefix of the message about repeated keys.
pub const REPEATED_KEYS: &str = "yaml: unmarshal errors:\n";

/// The maximum bytes of JSON from aliases, as many as a whole body may have: a document of 100 KB
/// can expand to gigabytes. kube-apiserver bounds only the number of nodes from aliases.
const MAX_ALIASED_BYTES: usize = 3 * 1024 * 1024;

/// The bytes of a node in JSON besides its text, such as quotes and a comma.
const NODE_BYTES: usize = 8;

/// The maximum number of scalars, lists, maps and aliases of a document.
const MAX_NODES: usize = 1_000_000;

/// The maximum number of `[`, `{` and `,`: the scanner buffers a flow collection until it is
/// closed.
const MAX_FLOW_INDICATORS: usize = 500_000;

/// The maximum bytes of all tags, with the prefixes that they abbreviate.
const MAX_TAG_BYTES: usize = 3 * 1024 * 1024;

/// The maximum bytes of messages about repeated keys.
const MAX_REPEATED_BYTES: usize = 256 * 1024;

/// A converted document.
#[derive(Debug)]
pub struct Document {
    /// The document as JSON text.
    pub json: Vec<u8>,
    /// The message about repeated keys, one a line.
    pub repeated_keys: Option<String>,
}

/// Converts the first document of a YAML stream to JSON text with sorted members.
///
/// # Errors
/// With messages close to kube-apiserver's.
pub fn to_json(text: &[u8]) -> Result<Document, DecodeError> {
    let (value, repeated) = characters(text).and_then(read).map_err(DecodeError::TypeMismatch)?;
    let mut json = Vec::with_capacity(text.len());
    write_untyped(&value, &mut json);
    let repeated_keys = (!repeated.is_empty()).then(|| format!("{REPEATED_KEYS}  {}", repeated.join("\n  ")));
    Ok(Document { json, repeated_keys })
}

/// Returns the characters of a document, all of which YAML must allow.
fn characters(text: &[u8]) -> Result<&str> {
    let text = std::str::from_utf8(text).map_err(|error| {
        let sequence = &text[error.valid_up_to()..];
        let problem = match (sequence.first(), error.error_len()) {
            (_, None) => "incomplete UTF-8 octet sequence",
            (Some(0xc0..=0xf7), Some(1)) if sequence.get(1).is_some_and(|next| next & 0xc0 == 0x80) => {
                "invalid Unicode character"
            }
            (Some(0xc0..=0xf7), _) => "invalid trailing UTF-8 octet",
            _ => "invalid leading UTF-8 octet",
        };
        format!("yaml: {problem}")
    })?;
    let is_allowed = |character: char| match character {
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' => true,
        character => character >= '\u{a0}' && !matches!(character, '\u{fffe}' | '\u{ffff}'),
    };
    match text.chars().all(is_allowed) {
        true => Ok(text),
        false => Err("yaml: control characters are not allowed".to_owned()),
    }
}

/// Returns `true` if a text has no document after the first one, which is the only one that
/// [`to_json`] reads.
pub fn is_single_document(text: &str) -> bool {
    let mut documents = 0;
    Parser::new_from_str(text).all(|event| match event {
        Ok((Event::DocumentStart(_), _)) => {
            documents += 1;
            documents == 1
        }
        Ok(_) => true,
        Err(_) => false,
    })
}

/// Parses a document; returns its value, and the messages about repeated keys.
fn read(text: &str) -> Result<(Value, Vec<String>)> {
    let nodes = compose(text)?;
    let mut converter = Converter {
        nodes: &nodes,
        converted: 0,
        from_aliases: 0,
        aliased_bytes: 0,
        open: Vec::new(),
        repeated: Vec::new(),
        repeated_bytes: 0,
    };
    let value = match nodes.root {
        Some(root) => converter.value(root, 0)?,
        None => Value::Null,
    };
    Ok((value, converter.repeated))
}

type Result<T, E = String> = std::result::Result<T, E>;

/// The meaning of a tag. The text of other tags, which may be long, is dropped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tagged {
    Not,
    Binary,
    Merge,
    Core(&'static str),
    /// A string, whatever its text.
    Other,
}

impl Tagged {
    fn of(tag: Option<&Tag>) -> Tagged {
        let Some(tag) = tag else { return Tagged::Not };
        if !tag.is_yaml_core_schema() {
            return Tagged::Other;
        }
        match tag.suffix.as_str() {
            "binary" => Tagged::Binary,
            "merge" => Tagged::Merge,
            suffix => {
                let known = ["str", "int", "float", "bool", "null", "timestamp"];
                known.into_iter().find(|known| *known == suffix).map_or(Tagged::Other, Tagged::Core)
            }
        }
    }
}

enum Node<'a> {
    Scalar {
        text: Cow<'a, str>,
        plain: bool,
        tag: Tagged,
    },
    List(Vec<u32>),
    /// Keys and values in turn.
    Map(Vec<u32>),
    /// The anchored node, which may contain this one.
    Alias(u32),
}

struct Nodes<'a> {
    all: Vec<(Node<'a>, usize)>,
    root: Option<u32>,
}

impl<'a> Nodes<'a> {
    fn get(&self, id: u32) -> &Node<'a> {
        &self.all[id as usize].0
    }
}

fn compose(text: &str) -> Result<Nodes<'_>> {
    refuse_leading_tab(text)?;
    if text.bytes().filter(|byte| matches!(byte, b'[' | b'{' | b',')).count() > MAX_FLOW_INDICATORS {
        return Err("yaml: exceeded max number of flow indicators".to_owned());
    }
    let mut nodes = Nodes { all: Vec::new(), root: None };
    let mut anchors: HashMap<usize, u32> = HashMap::new();
    let mut tag_bytes = 0;
    // The lists and maps that are not closed yet.
    let mut open: Vec<u32> = Vec::new();
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| scan_error(&error, text))?;
        if let Event::Scalar(_, _, _, Some(tag))
        | Event::SequenceStart(_, Some(tag))
        | Event::MappingStart(_, Some(tag)) = &event
        {
            tag_bytes += tag.handle.len() + tag.suffix.len();
            if tag_bytes > MAX_TAG_BYTES {
                return Err("yaml: exceeded max length of tags".to_owned());
            }
        }
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain;
                (Node::Scalar { text, plain, tag: Tagged::of(tag.as_deref()) }, anchor)
            }
            Event::SequenceStart(anchor, _) => (Node::List(Vec::new()), anchor),
            Event::MappingStart(anchor, _) => (Node::Map(Vec::new()), anchor),
            Event::Alias(anchor) => match anchors.get(&anchor) {
                Some(target) => (Node::Alias(*target), 0),
                None => return Err("yaml: unknown anchor referenced".to_owned()),
            },
            Event::SequenceEnd | Event::MappingEnd => {
                open.pop();
                continue;
            }
            Event::DocumentEnd | Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentStart(_) => continue,
        };
        if nodes.all.len() >= MAX_NODES {
            return Err("yaml: exceeded max number of nodes".to_owned());
        }
        let id = u32::try_from(nodes.all.len()).unwrap_or(u32::MAX);
        match open.last().map(|&parent| &mut nodes.all[parent as usize].0) {
            Some(Node::List(children) | Node::Map(children)) => children.push(id),
            _ => nodes.root = Some(id),
        }
        if matches!(node, Node::List(_) | Node::Map(_)) {
            if open.len() == MAX_DEPTH {
                return Err("yaml: exceeded max depth".to_owned());
            }
            open.push(id);
        }
        if anchor != 0 {
            anchors.insert(anchor, id);
        }
        nodes.all.push((node, span.start.line()));
    }
    Ok(nodes)
}

const NO_TOKEN: &str = "found character that cannot start any token";

/// Errors of Go's parser, while other errors are its scanner's.
const FROM_PARSER: [&str; 5] = [
    "did not find expected key",
    "did not find expected '-' indicator",
    "did not find expected node content",
    "did not find expected ',' or '}'",
    "did not find expected ',' or ']'",
];

/// Formats a syntax error. The line number is omitted for the first line, as in kube-apiserver.
fn scan_error(error: &ScanError, text: &str) -> String {
    let marker = error.marker();
    let info = error.info();
    if info.contains("unknown anchor") {
        let line = text.lines().nth(marker.line().saturating_sub(1)).unwrap_or_default();
        let alias = line.chars().skip(marker.col()).skip_while(|c| *c == '*');
        let name: String = alias.take_while(|c| !c.is_whitespace() && !",[]{}".contains(*c)).collect();
        return format!("yaml: unknown anchor '{name}' referenced");
    }
    let in_context = info.split_once(", ").filter(|(context, _)| context.starts_with("while "));
    let problem = in_context.map_or(info, |(_, problem)| problem);
    let mut line = marker.line();
    let problem = match problem {
        "tabs disallowed within this context (block indentation)" => NO_TOKEN,
        "found a tab" => {
            // Go reports the line of the tab, not of the text before it.
            line += 1;
            "found a tab character that violates indentation"
        }
        "expected ',' or ']'" | "illegal placement of ':' indicator" => "did not find expected ',' or ']'",
        other if other.starts_with("unexpected character: ") => NO_TOKEN,
        other => other,
    };
    if FROM_PARSER.contains(&problem) {
        // Its lines count from zero, the scanner's from one.
        return match line {
            0 | 1 => format!("yaml: {problem}"),
            line => format!("yaml: line {}: {problem}", line - 1),
        };
    }
    match line {
        0 | 1 => format!("yaml: {problem}"),
        line => format!("yaml: line {line}: {problem}"),
    }
}

/// Rejects a tab at the beginning of a document, which the parser accepts.
fn refuse_leading_tab(text: &str) -> Result<()> {
    let blank = |line: &str| {
        line.trim_start_matches([' ', '\t']).is_empty() || line.starts_with('#') || line.trim_end() == "---"
    };
    let first = text.lines().enumerate().find(|(_, line)| !blank(line));
    match first.filter(|(_, line)| line.trim_start_matches(' ').starts_with('\t')) {
        None => Ok(()),
        Some((0, _)) => Err(format!("yaml: {NO_TOKEN}")),
        Some((before, _)) => Err(format!("yaml: line {}: {NO_TOKEN}", before + 1)),
    }
}

struct Converter<'n, 'a> {
    nodes: &'n Nodes<'a>,
    /// The number of converted nodes, those of them from aliases, and the bytes of the latter.
    converted: usize,
    from_aliases: usize,
    aliased_bytes: usize,
    /// The anchored nodes that are being converted through aliases.
    open: Vec<u32>,
    repeated: Vec<String>,
    repeated_bytes: usize,
}

impl<'a> Converter<'_, 'a> {
    fn value(&mut self, id: u32, depth: usize) -> Result<Value> {
        self.count(id)?;
        if depth > MAX_DEPTH {
            return Err("yaml: exceeded max depth".to_owned());
        }
        let nodes = self.nodes;
        match nodes.get(id) {
            Node::Scalar { text, plain, tag } => scalar(text, *plain, *tag),
            Node::List(items) => {
                let items = items.iter().map(|&item| self.value(item, depth + 1));
                Ok(Value::Array(items.collect::<Result<_>>()?))
            }
            Node::Map(children) => {
                let mut members = Map::new();
                self.members(children, &mut members, depth)?;
                Ok(Value::Object(members))
            }
            Node::Alias(target) => self.aliased(*target, |converter| converter.value(*target, depth + 1)),
        }
    }

    fn aliased<T>(&mut self, target: u32, convert: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        if self.open.contains(&target) {
            return Err("yaml: anchor value contains itself".to_owned());
        }
        self.open.push(target);
        let converted = convert(self);
        self.open.pop();
        converted
    }

    /// Counts a node before its conversion.
    fn count(&mut self, id: u32) -> Result<()> {
        self.converted += 1;
        if !self.open.is_empty() {
            self.from_aliases += 1;
            let text = if let Node::Scalar { text, .. } = self.nodes.get(id) { text.len() } else { 0 };
            self.aliased_bytes += text + NODE_BYTES;
        }
        if self.has_excessive_aliases() || self.aliased_bytes > MAX_ALIASED_BYTES {
            return Err("yaml: document contains excessive aliasing".to_owned());
        }
        Ok(())
    }

    /// Returns `true` if too many nodes are aliases. By kube-apiserver's rule, a small document may
    /// have a large share of them.
    fn has_excessive_aliases(&self) -> bool {
        const FEW: f64 = 400_000.0;
        const MANY: f64 = 4_000_000.0;
        let converted = self.converted as f64;
        let allowed = 0.99 - 0.89 * ((converted - FEW) / (MANY - FEW)).clamp(0.0, 1.0);
        self.from_aliases > 100 && self.converted > 1000 && self.from_aliases as f64 / converted > allowed
    }

    fn members(&mut self, children: &[u32], members: &mut Map<String, Value>, depth: usize) -> Result<()> {
        for pair in children.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            if self.is_merge(key) {
                self.merge(value, members, depth)?;
                continue;
            }
            let (name, shown) = self.key(key)?;
            let value = self.value(value, depth + 1)?;
            if members.contains_key(&name) && self.repeated_bytes < MAX_REPEATED_BYTES {
                let line = self.nodes.all[key as usize].1;
                let shown = shown.unwrap_or_else(|| quote(&name));
                let message = format!("line {line}: key {shown} already set in map");
                self.repeated_bytes += message.len();
                self.repeated.push(message);
            }
            members.insert(name, value);
        }
        Ok(())
    }

    fn is_merge(&self, key: u32) -> bool {
        match self.nodes.get(key) {
            Node::Scalar { text, plain, tag } => {
                text == "<<" && (*plain && *tag == Tagged::Not || *tag == Tagged::Merge)
            }
            _ => false,
        }
    }

    /// Merges one or several maps into the members. The first of several has precedence.
    fn merge(&mut self, source: u32, members: &mut Map<String, Value>, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err("yaml: exceeded max depth".to_owned());
        }
        self.count(source)?;
        let nodes = self.nodes;
        match nodes.get(source) {
            Node::Map(children) => self.members(children, members, depth + 1),
            Node::Alias(target) if matches!(nodes.get(*target), Node::Map(_)) => {
                self.aliased(*target, |converter| converter.merge(*target, members, depth + 1))
            }
            Node::List(items) => items.iter().rev().try_for_each(|&item| match nodes.get(item) {
                Node::Map(_) | Node::Alias(_) => self.merge(item, members, depth + 1),
                _ => Err(BAD_MERGE.to_owned()),
            }),
            _ => Err(BAD_MERGE.to_owned()),
        }
    }

    /// Returns the name of a member, and the key as messages show it if that is not the quoted
    /// name.
    fn key(&mut self, id: u32) -> Result<(String, Option<String>)> {
        if !self.open.is_empty() {
            self.count(id)?;
        }
        let nodes = self.nodes;
        let (text, plain, tag) = match nodes.get(id) {
            Node::Scalar { text, plain, tag } => (text, *plain, *tag),
            Node::Alias(target) => return self.aliased(*target, |converter| converter.key(*target)),
            Node::List(_) | Node::Map(_) => {
                let mut shown = Vec::new();
                write_untyped(&self.value(id, 0)?, &mut shown);
                return Err(format!("yaml: invalid map key: {}", String::from_utf8_lossy(&shown)));
            }
        };
        Ok(match scalar(text, plain, tag)? {
            Value::String(name) => (name, None),
            Value::Number(number) => {
                let name = number.to_string();
                (name.strip_suffix(".0").unwrap_or(&name).to_owned(), Some(name))
            }
            Value::Bool(set) => (set.to_string(), Some(set.to_string())),
            _ => return Err("unsupported map key of type: %!s(<nil>), key: <nil>".to_owned()),
        })
    }
}

const BAD_MERGE: &str = "yaml: map merge requires map or sequence of maps as the value";

fn scalar(text: &str, plain: bool, tag: Tagged) -> Result<Value> {
    match tag {
        Tagged::Binary => {
            let canonical = base64::canonical(text);
            let bytes =
                canonical.map_err(|_| "yaml: !!binary value contains invalid base64 data".to_owned())?;
            Ok(repair(&base64::decode(&bytes)).into())
        }
        Tagged::Core(tag) => tagged(tag, text).map_err(|error| format!("yaml: {error}")),
        Tagged::Merge | Tagged::Other => Ok(text.into()),
        Tagged::Not if !plain => Ok(text.into()),
        Tagged::Not => match resolve(text) {
            ScalarValue::Null => Ok(Value::Null),
            ScalarValue::Bool(set) => Ok(Value::Bool(set)),
            ScalarValue::Number(number) => Ok(Value::Number(number)),
            ScalarValue::NonFinite(what) => Err(format!("json: unsupported value: {what}")),
            ScalarValue::Timestamp | ScalarValue::Text => Ok(text.into()),
        },
    }
}
