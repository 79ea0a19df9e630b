//! Decode: converts JSON text to a normalized object in one pass, by the schema table.
//!
//! The result equals a round trip through the Go struct: null is absence, empty `omitempty` members
//! are dropped, zero values that Go prints are present (except those printed as null), quantities,
//! times and base64 are canonical. Unknown and duplicate fields are reported in document order;
//! duplicate ones are merged as Go merges them.
//!
//! Errors have Go's precedence: a syntax error, then a `kind` or `apiVersion` that is not a string,
//! then a value that is rejected by a type with a JSON unmarshaler of its own, then the first value
//! of a wrong type.

use std::collections::HashSet;
use std::str::FromStr;

use serde_json::{Map, Number, Value};

use super::reader::{Key, Kind, Reader, SyntaxError};
use crate::codec::limits::Limits;
use crate::codec::{DecodeError, Decoded, TypeMeta, base64, time, zero};
use crate::go_value::TYPE_META;
use crate::schema::{FieldSchema, Schema, StructId, Type, schema};

type Result<T> = std::result::Result<T, SyntaxError>;

/// The maximum number of messages about unknown and duplicate fields.
const MAX_MESSAGES: usize = 100;

/// Decodes JSON text into a struct of the table.
pub fn decode(text: &[u8], id: StructId) -> std::result::Result<Decoded, DecodeError> {
    decode_with_meta(text, Some(id)).1
}

/// Decodes the JSON text of an object without a type, such as a custom resource: no field is
/// unknown.
pub fn decode_untyped(text: &[u8]) -> std::result::Result<Decoded, DecodeError> {
    decode_with_meta(text, None).1
}

/// Decodes a document that another server sent, within limits. Members that the type does not have,
/// and the members `skipped` of the document, take no memory and do not count.
pub fn decode_response(
    text: &[u8],
    id: StructId,
    skipped: &'static [&'static str],
    limits: Limits,
) -> std::result::Result<Value, DecodeError> {
    let mut decoder = Decoder::of(Reader::within(text, limits));
    decoder.skipped = Some(skipped);
    decoder.decoded(Some(id)).map(|decoded| decoded.value)
}

/// Decodes any JSON value that another server sent, within limits.
pub fn decode_value_within(text: &[u8], limits: Limits) -> std::result::Result<Value, DecodeError> {
    Decoder::of(Reader::within(text, limits)).raw()
}

/// Decodes any JSON value; only duplicate fields are reported.
pub fn decode_value(text: &[u8]) -> std::result::Result<Decoded, DecodeError> {
    decode_whole(Decoder::new(text))
}

/// Decodes as [`decode_value`], but `1.0` stays a float: it is not an integer where a type decides.
/// See [`whole_numbers`].
pub fn decode_with_fractions(text: &[u8]) -> std::result::Result<Decoded, DecodeError> {
    let mut decoder = Decoder::new(text);
    decoder.keeps_fractions = true;
    decode_whole(decoder)
}

fn decode_whole(mut decoder: Decoder<'_>) -> std::result::Result<Decoded, DecodeError> {
    let read = decoder.untyped(true).and_then(|value| decoder.reader.finish().map(|()| value));
    match (read, decoder.type_mismatch) {
        (Err(SyntaxError(text)), _) | (_, Some(text)) => Err(DecodeError::TypeMismatch(text)),
        (Ok(value), None) => Ok(Decoded { value, strict: decoder.strict.messages }),
    }
}

/// Decodes any JSON value that is part of a document: at that depth, after that many other objects
/// and arrays, to which it adds its own.
pub(in crate::codec) fn decode_raw(
    text: &[u8],
    depth: usize,
    collections: &mut usize,
) -> std::result::Result<Value, DecodeError> {
    let mut decoder = Decoder::of(Reader::inside(text, depth, *collections));
    let value = decoder.raw()?;
    *collections = decoder.reader.collections();
    Ok(value)
}

/// Decodes a stored value.
pub(super) fn decode_stored(text: &[u8]) -> std::result::Result<Value, DecodeError> {
    decode_value_within(text, Limits::STORED)
}

/// Decodes, and returns the type meta of the text, whether or not it matches.
pub(in crate::codec) fn decode_with_meta(
    text: &[u8],
    id: Option<StructId>,
) -> (TypeMeta, std::result::Result<Decoded, DecodeError>) {
    let mut decoder = Decoder::new(text);
    let result = decoder.decoded(id);
    (decoder.meta, result)
}

/// A step of the path from the document to the current value.
enum Step<'a> {
    Member(StructId, &'static FieldSchema),
    Index(usize),
    Key(Key<'a>),
}

struct Decoder<'a> {
    reader: Reader<'a>,
    schema: &'static Schema,
    path: Vec<Step<'a>>,
    meta: TypeMeta,
    strict: Messages,
    /// The members of a document of another server that are skipped. What is unknown in it is not
    /// reported.
    skipped: Option<&'static [&'static str]>,
    /// Whether a float without a fraction stays a float.
    keeps_fractions: bool,
    /// Set inside of types with a JSON unmarshaler of their own: there are no messages, and a type
    /// mismatch ends the decoding.
    in_unmarshaler: bool,
    unreadable: Option<String>,
    refused: Option<String>,
    type_mismatch: Option<String>,
}

#[derive(Default)]
struct Messages {
    messages: Vec<String>,
    seen: HashSet<String>,
}

impl Messages {
    fn push(&mut self, message: String) {
        if self.messages.len() < MAX_MESSAGES && self.seen.insert(message.clone()) {
            self.messages.push(message);
        }
    }
}

impl<'a> Decoder<'a> {
    fn new(text: &'a [u8]) -> Decoder<'a> {
        Decoder::of(Reader::new(text))
    }

    fn of(reader: Reader<'a>) -> Decoder<'a> {
        Decoder {
            reader,
            schema: schema(),
            path: Vec::with_capacity(16),
            meta: TypeMeta::default(),
            strict: Messages::default(),
            skipped: None,
            keeps_fractions: false,
            in_unmarshaler: false,
            unreadable: None,
            refused: None,
            type_mismatch: None,
        }
    }

    fn decoded(&mut self, id: Option<StructId>) -> std::result::Result<Decoded, DecodeError> {
        let read = self.document(id);
        let rejected = self.refused.take().or(self.type_mismatch.take());
        match (read, self.unreadable.take(), rejected) {
            (Err(SyntaxError(text)), _, _) | (_, Some(text), _) => Err(DecodeError::Unreadable(text)),
            (_, _, Some(text)) => Err(DecodeError::TypeMismatch(text)),
            (Ok(value), None, None) => {
                Ok(Decoded { value, strict: std::mem::take(&mut self.strict.messages) })
            }
        }
    }

    fn raw(&mut self) -> std::result::Result<Value, DecodeError> {
        let read = self.untyped(false).and_then(|value| self.reader.finish().map(|()| value));
        read.map_err(|SyntaxError(text)| DecodeError::TypeMismatch(text))
    }

    fn document(&mut self, id: Option<StructId>) -> Result<Value> {
        let value = match self.reader.peek()? {
            Kind::Null => {
                self.reader.null()?;
                id.map_or_else(|| Value::Object(Map::new()), zero::of_struct)
            }
            Kind::Object => match id {
                Some(id) => self.structure(id, Map::new())?,
                None => self.untyped_object(true)?,
            },
            other => {
                self.reader.skip()?;
                self.unreadable =
                    Some(format!("json: cannot unmarshal {} into Go {TYPE_META}", other.name()));
                Value::Null
            }
        };
        self.reader.finish()?;
        Ok(value)
    }

    /// Decodes a value of a type; `old` is the value of an earlier member with the same name. Null
    /// is returned as null.
    fn value(&mut self, ty: &Type, old: Option<Value>) -> Result<Value> {
        let kind = self.reader.peek()?;
        match (ty, kind) {
            (Type::Struct(id), Kind::Object) => {
                let old = if let Some(Value::Object(old)) = old { old } else { Map::new() };
                self.structure(*id, old)
            }
            (Type::Map(value), Kind::Object) => {
                let old = if let Some(Value::Object(old)) = old { old } else { Map::new() };
                self.map(value, old)
            }
            (Type::List(item) | Type::ListMessage(item), Kind::Array) => {
                let old = if let Some(Value::Array(old)) = old { old } else { Vec::new() };
                self.list(item, old)
            }
            (Type::Quantity, _) => self.quantity(),
            (Type::IntOrString, Kind::String) => self.text(),
            (Type::IntOrString, Kind::Null) => self.reader.null().map(|()| 0.into()),
            (Type::IntOrString, _) => self.int32(kind),
            (Type::Time | Type::MicroTime, _) => self.time(kind, *ty == Type::MicroTime),
            (Type::Duration, _) => self.duration(kind),
            (Type::Any, _) => self.untyped(true),
            (Type::Json | Type::RawExtension | Type::FieldsV1, _) => self.untyped(false),
            (Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings, _) => self.schema_or(ty, kind),
            (_, Kind::Null) => self.reader.null().map(|()| Value::Null),
            (Type::String, Kind::String) => self.text(),
            (Type::Bytes, Kind::String) => self.bytes(),
            (Type::Bytes, Kind::Array) => self.listed_bytes(),
            (Type::Bool, Kind::Bool) => self.reader.bool().map(Value::Bool),
            (Type::Int32 | Type::Int64, Kind::Number) => self.integer(*ty == Type::Int32),
            (Type::Double, Kind::Number) => self.double(),
            (_, kind) => {
                self.reader.skip()?;
                self.type_mismatch(kind.name());
                Ok(Value::Null)
            }
        }
    }

    fn structure(&mut self, id: StructId, mut members: Map<String, Value>) -> Result<Value> {
        let schema = self.schema;
        let known = schema.get(id);
        let document = self.path.is_empty();
        // One bit for each known member; no struct of the table has more than 64.
        let mut seen = 0u64;
        let fresh = members.is_empty();
        let mut first = true;
        self.reader.begin()?;
        while let Some(key) = self.reader.key(first)? {
            first = false;
            let name = key.name();
            if document {
                self.note_meta(&name)?;
            }
            let is_skipped = document && self.skipped.is_some_and(|skipped| skipped.contains(&&*name));
            let position = known.position(&name).filter(|_| !is_skipped);
            let Some(position) = position else {
                self.report_strict("unknown field", &name);
                match self.skipped {
                    Some(_) => self.reader.skip_uncounted()?,
                    None => self.reader.skip()?,
                };
                continue;
            };
            let field = known.members()[position];
            let bit = 1u64.checked_shl(u32::try_from(position).unwrap_or(u32::MAX)).unwrap_or_default();
            let repeated = seen & bit != 0;
            if repeated {
                self.report_strict("duplicate field", field.name);
            }
            seen |= bit;
            self.path.push(Step::Member(id, field));
            let old = if fresh && !repeated { None } else { members.remove(field.name) };
            let mut value = self.member(field, old)?;
            self.path.pop();
            if field.name == "managedFields" && self.path.len() == 1 && value == Value::Array(Vec::new()) {
                // An empty list of managers is not the same as none: as one empty entry, it is not
                // dropped.
                value = Value::Array(vec![Value::Object(Map::new())]);
            }
            if !zero::is_omitted(field, &value) {
                members.insert(field.name.to_owned(), value);
            }
        }
        zero::complete(known, &mut members);
        Ok(Value::Object(members))
    }

    fn member(&mut self, field: &'static FieldSchema, old: Option<Value>) -> Result<Value> {
        if self.reader.peek()? != Kind::Null {
            return self.value(&field.ty, old);
        }
        self.reader.null()?;
        Ok(old.filter(|_| zero::ignores_null(field)).unwrap_or_default())
    }

    fn map(&mut self, ty: &Type, mut entries: Map<String, Value>) -> Result<Value> {
        // Entries of an earlier member with the same name are not duplicates.
        let mut seen = (!entries.is_empty()).then(HashSet::new);
        let mut first = true;
        self.reader.begin()?;
        while let Some(key) = self.reader.key(first)? {
            first = false;
            let name = key.name().into_owned();
            let repeated = match &mut seen {
                Some(seen) => !seen.insert(name.clone()),
                None => entries.contains_key(&name),
            };
            if repeated {
                self.report_strict("duplicate field", &name);
            }
            self.path.push(Step::Key(key));
            let value = self.value(ty, None)?;
            self.path.pop();
            entries.insert(name, if value.is_null() { zero::of_entry(ty) } else { value });
        }
        Ok(Value::Object(entries))
    }

    fn list(&mut self, ty: &Type, mut items: Vec<Value>) -> Result<Value> {
        let mut count = 0;
        self.reader.begin()?;
        while self.reader.item(count == 0)? {
            let old = items.get_mut(count).map(Value::take);
            self.path.push(Step::Index(count));
            let value = if old.is_some() && self.reader.peek()? == Kind::Null {
                self.reader.null()?;
                old.unwrap_or_default()
            } else {
                self.value(ty, old)?
            };
            self.path.pop();
            let value = if value.is_null() { zero::of_entry(ty) } else { value };
            match items.get_mut(count) {
                Some(slot) => *slot = value,
                None => items.push(value),
            }
            count += 1;
        }
        items.truncate(count);
        Ok(Value::Array(items))
    }

    fn text(&mut self) -> Result<Value> {
        Ok(Value::String(self.reader.string()?.into_owned()))
    }

    fn bytes(&mut self) -> Result<Value> {
        let text = self.reader.string()?;
        Ok(match base64::canonical(&text) {
            Ok(text) => Value::String(text.into_owned()),
            Err(error) => {
                self.keep_type_mismatch(error.to_string());
                Value::Null
            }
        })
    }

    /// Decodes bytes that are given as a list of numbers.
    fn listed_bytes(&mut self) -> Result<Value> {
        let mut bytes = Vec::new();
        self.reader.begin()?;
        while self.reader.item(bytes.is_empty())? {
            let kind = self.reader.peek()?;
            let text = self.reader.skip()?;
            let text = std::str::from_utf8(text).unwrap_or_default();
            bytes.push(match kind {
                Kind::Null => 0,
                Kind::Number => u8::from_str(text).unwrap_or_else(|_| {
                    self.keep_type_mismatch(self.type_error(&format!("number {text}"), Some("uint8")));
                    0
                }),
                other => {
                    self.keep_type_mismatch(self.type_error(other.name(), Some("uint8")));
                    0
                }
            });
        }
        Ok(Value::String(base64::encode(&bytes)))
    }

    fn integer(&mut self, narrow: bool) -> Result<Value> {
        let text = self.reader.number()?;
        Ok(match i64::from_str(text) {
            Ok(number) if !narrow || i32::try_from(number).is_ok() => number.into(),
            _ => {
                self.type_mismatch(&format!("number {text}"));
                Value::Null
            }
        })
    }

    fn double(&mut self) -> Result<Value> {
        let text = self.reader.number()?;
        Ok(match f64::from_str(text).ok().and_then(float) {
            Some(number) => number.into(),
            None => {
                self.type_mismatch(&format!("number {text}"));
                Value::Null
            }
        })
    }

    fn quantity(&mut self) -> Result<Value> {
        let raw = self.reader.skip()?;
        if raw == b"null" {
            return Ok(zero::of(&Type::Quantity));
        }
        let text = raw.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(raw);
        let text = String::from_utf8_lossy(text);
        Ok(match coracle_quantity::printed(text.trim()) {
            Ok(printed) => Value::String(printed.into_owned()),
            Err(error) => {
                self.refuse(error.to_string());
                Value::Null
            }
        })
    }

    fn duration(&mut self, kind: Kind) -> Result<Value> {
        if kind == Kind::String {
            let text = self.reader.string()?;
            return Ok(match coracle_duration::parse(&text) {
                Ok(duration) => coracle_duration::print(duration).into(),
                Err(error) => {
                    self.refuse(error.to_string());
                    Value::Null
                }
            });
        }
        self.reader.skip()?;
        if kind != Kind::Null {
            self.refuse(self.type_error(kind.name(), Some("string")));
        }
        Ok(Value::Null)
    }

    fn time(&mut self, kind: Kind, micro: bool) -> Result<Value> {
        match kind {
            Kind::Null => self.reader.null().map(|()| Value::Null),
            Kind::String => {
                let text = self.reader.string()?;
                let parsed = if micro { time::parse_micro(&text) } else { time::parse(&text) };
                Ok(match parsed {
                    Ok(Some(printed)) => Value::String(printed),
                    // The zero time, which is printed as null.
                    Ok(None) => Value::Null,
                    Err(error) => {
                        self.refuse(error.to_string());
                        Value::Null
                    }
                })
            }
            other => {
                self.reader.skip()?;
                self.refuse(self.type_error(other.name(), Some("string")));
                Ok(Value::Null)
            }
        }
    }

    /// Decodes the number of an int-or-string.
    fn int32(&mut self, kind: Kind) -> Result<Value> {
        let what = if kind == Kind::Number {
            let text = self.reader.number()?;
            match i32::from_str(text) {
                Ok(number) => return Ok(number.into()),
                Err(_) => format!("number {text}"),
            }
        } else {
            self.reader.skip()?;
            kind.name().to_owned()
        };
        self.refuse(self.type_error(&what, Some("int32")));
        Ok(Value::Null)
    }

    /// Decodes the types of a CustomResourceDefinition's schema that are a schema or something
    /// else.
    fn schema_or(&mut self, ty: &Type, kind: Kind) -> Result<Value> {
        let outer = std::mem::replace(&mut self.in_unmarshaler, true);
        let schema_type = Type::Struct(zero::json_schema());
        let value = match (ty, kind) {
            (_, Kind::Object) => self.value(&schema_type, None)?,
            (Type::SchemaOrBool, Kind::Bool) => Value::Bool(self.reader.bool()?),
            (Type::SchemaOrArray, Kind::Array) => self.value(&Type::List(Box::new(schema_type)), None)?,
            (Type::SchemaOrStrings, Kind::Array) => self.value(&Type::List(Box::new(Type::String)), None)?,
            (Type::SchemaOrBool, _) => {
                self.reader.skip()?;
                self.refuse("boolean or JSON schema expected".to_owned());
                Value::Null
            }
            // Other values count as absent.
            _ => self.reader.skip().map(|_| Value::Null)?,
        };
        self.in_unmarshaler = outer;
        Ok(value)
    }

    fn untyped(&mut self, report_duplicates: bool) -> Result<Value> {
        match self.reader.peek()? {
            Kind::Null => self.reader.null().map(|()| Value::Null),
            Kind::Bool => self.reader.bool().map(Value::Bool),
            Kind::String => self.text(),
            Kind::Number => {
                let text = self.reader.number()?;
                let number = match self.keeps_fractions {
                    true => number(text),
                    false => untyped_number(text),
                };
                Ok(number.unwrap_or_else(|| {
                    self.keep_type_mismatch(format!(
                        "json: cannot unmarshal number {text} into Go value of type float64"
                    ));
                    Value::Null
                }))
            }
            Kind::Array => {
                let mut items = Vec::new();
                self.reader.begin()?;
                while self.reader.item(items.is_empty())? {
                    self.path.push(Step::Index(items.len()));
                    items.push(self.untyped(report_duplicates)?);
                    self.path.pop();
                }
                Ok(Value::Array(items))
            }
            Kind::Object => self.untyped_object(report_duplicates),
        }
    }

    fn untyped_object(&mut self, report_duplicates: bool) -> Result<Value> {
        let document = self.path.is_empty();
        let mut members = Map::new();
        let mut first = true;
        self.reader.begin()?;
        while let Some(key) = self.reader.key(first)? {
            first = false;
            let name = key.name().into_owned();
            if document {
                self.note_meta(&name)?;
            }
            if report_duplicates && members.contains_key(&name) {
                self.report_strict("duplicate field", &name);
            }
            self.path.push(Step::Key(key));
            let value = self.untyped(report_duplicates)?;
            self.path.pop();
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }

    /// Parses the type meta ahead: Go does that first, and accepts names of any case.
    fn note_meta(&mut self, name: &str) -> Result<()> {
        let (slot, name) = if name.eq_ignore_ascii_case("kind") {
            (&mut self.meta.kind, "kind")
        } else if name.eq_ignore_ascii_case("apiVersion") {
            (&mut self.meta.api_version, "apiVersion")
        } else {
            return Ok(());
        };
        match self.reader.peek()? {
            Kind::String => *slot = self.reader.ahead(Reader::string)?.into_owned(),
            Kind::Null => {}
            other => {
                self.unreadable.get_or_insert_with(|| {
                    format!(
                        "json: cannot unmarshal {} into Go struct field .{name} of type string",
                        other.name()
                    )
                });
            }
        }
        Ok(())
    }

    /// Reports an unknown or duplicate member of the current value.
    fn report_strict(&mut self, what: &str, name: &str) {
        if self.in_unmarshaler || self.skipped.is_some() {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Index(index) => path.push_str(&format!("[{index}]")),
                Step::Member(_, field) => push_name(&mut path, field.name),
                Step::Key(key) => push_name(&mut path, &key.name()),
            }
        }
        push_name(&mut path, name);
        self.strict.push(format!("{what} {}", crate::field::quote(&path)));
    }

    /// Records a value of the wrong type; decoding continues, since later errors may have
    /// precedence.
    fn type_mismatch(&mut self, what: &str) {
        let error = self.type_error(what, None);
        self.keep_type_mismatch(error);
    }

    fn keep_type_mismatch(&mut self, error: String) {
        // A type mismatch in a JSON unmarshaler ends that unmarshaler.
        let slot = if self.in_unmarshaler { &mut self.refused } else { &mut self.type_mismatch };
        slot.get_or_insert(error);
    }

    fn refuse(&mut self, error: String) {
        self.refused.get_or_insert(error);
    }

    /// Formats Go's message for a value that does not match the current field. `wanted` is the
    /// expected type if it is not the field's own.
    fn type_error(&self, what: &str, wanted: Option<&str>) -> String {
        let member = self.path.iter().rposition(|step| matches!(step, Step::Member(..)));
        let Some((at, Step::Member(owner, field))) = member.map(|at| (at, &self.path[at])) else {
            return format!(
                "json: cannot unmarshal {what} into Go value of type {}",
                wanted.unwrap_or("object")
            );
        };
        let mut names = String::new();
        for step in &self.path {
            if let Step::Member(owner, field) = step {
                for embedded in self.schema.get(*owner).embedding(field) {
                    push_name(&mut names, embedded.name);
                }
                push_name(&mut names, field.name);
            }
        }
        let depth = self.path.len() - at - 1;
        let wanted = wanted.map_or_else(|| self.schema.go_type(field, depth), str::to_owned);
        let owner = self.schema.get(*owner).name;
        format!("json: cannot unmarshal {what} into Go struct field {owner}.{names} of type {wanted}")
    }
}

fn push_name(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Converts a float to a number: an integer if it is whole, since Go prints it so.
pub(in crate::codec) fn float(number: f64) -> Option<Number> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() < EXACT {
        return Some((number as i64).into());
    }
    Number::from_f64(number)
}

/// Makes an integer of each float that has no fraction, as [`decode_value`] does.
pub fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) if number.is_f64() => {
            if let Some(whole) = number.as_f64().and_then(float) {
                *number = whole;
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(members) => members.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Parses a number as it is written.
fn number(text: &str) -> Option<Value> {
    let integer = i64::from_str(text).ok().map(Number::from);
    integer.or_else(|| Number::from_f64(f64::from_str(text).ok()?)).map(Value::Number)
}

/// Parses a number without a type: an integer if it is one and fits, else a float.
fn untyped_number(text: &str) -> Option<Value> {
    let integer = i64::from_str(text).ok().map(Number::from);
    integer.or_else(|| float(f64::from_str(text).ok()?)).map(Value::Number)
}
