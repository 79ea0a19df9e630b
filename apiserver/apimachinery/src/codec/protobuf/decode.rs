//! Decode: converts a protobuf message to the same normalized object as JSON.
//!
//! Unknown fields are skipped. Malformed messages are errors with the messages of kube-apiserver's
//! generated code.

use std::borrow::Cow;

use jiff::SignedDuration;
use serde_json::{Map, Value};

use super::envelope::{CollectionCount, Envelope, MAGIC, open_inside};
use super::wire::{Reader, Wire, error};
use crate::codec::json::{self, repair};
use crate::codec::limits::{MAX_DEPTH, measure};
use crate::codec::{DecodeError, TypeMeta, base64, time, zero};
use crate::field::quote;
use crate::schema::{FieldSchema, Struct, StructId, Type, schema};

type Result<T> = std::result::Result<T, DecodeError>;

impl Envelope<'_> {
    /// Decodes the object, normalized and without kind and apiVersion, which are in the envelope.
    ///
    /// # Errors
    /// With kube-apiserver's messages; also for objects that would be nested too deep in JSON,
    /// where a message is up to two levels.
    pub fn decode(&self, id: StructId) -> Result<Value> {
        let reader = Reader::inside(self.message, self.depth, self.collection_count.clone());
        let value = read_struct(reader, id).map(Value::Object)?;
        if measure(&value).depth > MAX_DEPTH {
            return Err(error("proto: exceeded max depth"));
        }
        Ok(value)
    }
}

/// Decodes a body inside of another one, of any kind.
fn decode_inside(body: &[u8], depth: usize, collection_count: CollectionCount) -> Result<Value> {
    let envelope = open_inside(body, depth, collection_count)?;
    let TypeMeta { api_version, kind } = &envelope.meta;
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let id = schema().kind(group, version, kind).ok_or_else(|| {
        error(format!("no kind {} is registered for version {}", quote(kind), quote(api_version)))
    })?;
    let mut value = envelope.decode(id)?;
    value["apiVersion"] = api_version.as_str().into();
    value["kind"] = kind.as_str().into();
    Ok(value)
}

/// Reads the message of a struct.
pub fn read_struct(reader: Reader<'_>, id: StructId) -> Result<Map<String, Value>> {
    read_struct_into(reader, id, Map::new())
}

/// Reads a struct into existing members: a repeated message is merged into the former one.
fn read_struct_into(
    reader: Reader<'_>,
    id: StructId,
    mut members: Map<String, Value>,
) -> Result<Map<String, Value>> {
    let known = schema().get(id);
    read_fields(reader, known, &mut members)?;
    zero::complete(known, &mut members);
    Ok(members)
}

/// Reads the fields of a message into the members; an embedded struct is a message of its own.
fn read_fields(mut reader: Reader<'_>, known: &Struct, members: &mut Map<String, Value>) -> Result<()> {
    while let Some((number, wire)) = reader.tag(known.name)? {
        let Some(field) = known.field_by_number(number) else {
            reader.skip(wire)?;
            continue;
        };
        if wire != wire_of(&field.ty) {
            let (code, name) = (wire.code(), go_name(field));
            return Err(error(format!("proto: wrong wireType = {code} for field {name}")));
        }
        match (&field.ty, field.inline) {
            (Type::Struct(embedded), true) => {
                read_fields(reader.message()?, schema().get(*embedded), members)?;
            }
            _ => read_member(&mut reader, field, members)?,
        }
    }
    Ok(())
}

fn read_member(reader: &mut Reader<'_>, field: &FieldSchema, members: &mut Map<String, Value>) -> Result<()> {
    match &field.ty {
        Type::List(item) => {
            let value = read_value(reader, item)?;
            if let Value::Array(items) = members.entry(field.name).or_insert_with(|| Value::Array(Vec::new()))
            {
                items.push(if value.is_null() { zero::of_entry(item) } else { value });
            }
        }
        Type::Map(entry) => {
            let (key, value) = read_entry(reader.message()?, entry)?;
            if let Value::Object(entries) =
                members.entry(field.name).or_insert_with(|| Value::Object(Map::new()))
            {
                entries.insert(key, value);
            }
        }
        Type::Struct(id) => {
            let old = members.remove(field.name);
            let old = if let Some(Value::Object(old)) = old { old } else { Map::new() };
            let value = read_struct_into(reader.message()?, *id, old)?;
            members.insert(field.name.to_owned(), Value::Object(value));
        }
        ty => {
            let value = read_value(reader, ty)?;
            if zero::is_omitted(field, &value) {
                members.remove(field.name);
            } else {
                members.insert(field.name.to_owned(), value);
            }
        }
    }
    Ok(())
}

fn read_entry(mut reader: Reader<'_>, ty: &Type) -> Result<(String, Value)> {
    let mut key = String::new();
    let mut value = Value::Null;
    while let Some((number, wire)) = reader.tag("MapEntry")? {
        match number {
            1 if wire == Wire::Bytes => key = text(reader.bytes()?).into_owned(),
            2 if wire == wire_of(ty) => value = read_value(&mut reader, ty)?,
            _ => reader.skip(wire)?,
        }
    }
    Ok((key, if value.is_null() { zero::of_entry(ty) } else { value }))
}

fn wire_of(ty: &Type) -> Wire {
    match ty {
        Type::List(item) => wire_of(item),
        Type::Bool | Type::Int32 | Type::Int64 => Wire::Varint,
        Type::Double => Wire::Fixed64,
        _ => Wire::Bytes,
    }
}

fn read_value(reader: &mut Reader<'_>, ty: &Type) -> Result<Value> {
    match ty {
        Type::Struct(id) => read_struct(reader.message()?, *id).map(Value::Object),
        Type::ListMessage(item) => {
            let mut items = Vec::new();
            each(reader.message()?, |number, wire, reader| {
                if number == 1 && wire == wire_of(item) {
                    items.push(read_value(reader, item)?);
                    return Ok(true);
                }
                Ok(false)
            })?;
            Ok(Value::Array(items))
        }
        Type::String => Ok(Value::String(text(reader.bytes()?).into_owned())),
        Type::Bytes => Ok(Value::String(base64::encode(reader.bytes()?))),
        Type::Bool => Ok(Value::Bool(reader.varint()? != 0)),
        // Go drops the excess bits of an int32.
        Type::Int32 => Ok((reader.varint()? as i32).into()),
        Type::Int64 => Ok((reader.varint()? as i64).into()),
        Type::Double => {
            let number = f64::from_bits(reader.fixed64()?);
            Ok(json::float(number).map_or(Value::Null, Value::Number))
        }
        Type::Quantity => read_quantity(reader.message()?),
        Type::IntOrString => read_int_or_string(reader.message()?),
        Type::Time | Type::MicroTime => read_time(reader.message()?, *ty == Type::MicroTime),
        Type::Duration => read_duration(reader.message()?),
        Type::RawExtension | Type::FieldsV1 | Type::Json | Type::Any => read_raw(reader.message()?),
        Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings => {
            read_schema_or(reader.message()?, ty)
        }
        // Neither can contain another.
        Type::List(_) | Type::Map(_) => reader.bytes().map(|_| Value::Null),
    }
}

/// Passes each field of a message to `take`, and skips those it does not take.
fn each<'a>(
    mut reader: Reader<'a>,
    mut take: impl FnMut(u32, Wire, &mut Reader<'a>) -> Result<bool>,
) -> Result<()> {
    while let Some((number, wire)) = reader.tag("message")? {
        if !take(number, wire, &mut reader)? {
            reader.skip(wire)?;
        }
    }
    Ok(())
}

fn read_quantity(reader: Reader<'_>) -> Result<Value> {
    let mut printed = "0".to_owned();
    each(reader, |number, wire, reader| {
        if (number, wire) != (1, Wire::Bytes) {
            return Ok(false);
        }
        let text = text(reader.bytes()?);
        printed =
            coracle_quantity::printed(&text).map_err(|refused| error(refused.to_string()))?.into_owned();
        Ok(true)
    })?;
    Ok(Value::String(printed))
}

fn read_int_or_string(reader: Reader<'_>) -> Result<Value> {
    let (mut is_string, mut int, mut string) = (false, 0, String::new());
    each(reader, |number, wire, reader| {
        match (number, wire) {
            (1, Wire::Varint) => is_string = reader.varint()? != 0,
            (2, Wire::Varint) => int = reader.varint()? as i32,
            (3, Wire::Bytes) => string = text(reader.bytes()?).into_owned(),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(if is_string { Value::String(string) } else { int.into() })
}

fn read_time(reader: Reader<'_>, micro: bool) -> Result<Value> {
    let (mut seconds, mut nanos) = (0, 0);
    each(reader, |number, wire, reader| {
        match (number, wire) {
            (1, Wire::Varint) => seconds = reader.varint()? as i64,
            (2, Wire::Varint) => nanos = reader.varint()? as i32,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    // The epoch is the zero time.
    let time = match (seconds, nanos) {
        (0, 0) => None,
        _ if micro => time::micro_from_unix(seconds, nanos),
        _ => time::from_unix(seconds),
    };
    Ok(time.map_or(Value::Null, Value::String))
}

fn read_duration(reader: Reader<'_>) -> Result<Value> {
    let mut nanos = 0;
    each(reader, |number, wire, reader| {
        let is_known = (number, wire) == (1, Wire::Varint);
        if is_known {
            nanos = reader.varint()? as i64;
        }
        Ok(is_known)
    })?;
    Ok(coracle_duration::print(SignedDuration::from_nanos(nanos)).into())
}

/// The depth that an embedded envelope counts for: decoding one needs as much stack as this many
/// messages.
const ENVELOPE_DEPTH: usize = 50;

/// Reads raw bytes: JSON, or an object in an envelope of its own.
fn read_raw(reader: Reader<'_>) -> Result<Value> {
    let mut raw = None;
    let (inside, collection_count) = (reader.depth(), reader.collection_count().clone());
    each(reader, |number, wire, reader| {
        if (number, wire) != (1, Wire::Bytes) {
            return Ok(false);
        }
        raw = Some(reader.bytes()?);
        Ok(true)
    })?;
    match raw {
        None | Some([]) => Ok(Value::Null),
        Some(bytes) if bytes.starts_with(MAGIC) => {
            decode_inside(bytes, inside + ENVELOPE_DEPTH, collection_count)
        }
        Some(bytes) => {
            let mut collections = collection_count.get();
            let value = json::decode_raw(bytes, inside, &mut collections)?;
            collection_count.set(collections);
            Ok(value)
        }
    }
}

fn read_schema_or(reader: Reader<'_>, ty: &Type) -> Result<Value> {
    let (mut allows, mut schema, mut items) = (false, None, Vec::new());
    each(reader, |number, wire, reader| {
        match (ty, number, wire) {
            (Type::SchemaOrBool, 1, Wire::Varint) => allows = reader.varint()? != 0,
            (Type::SchemaOrBool, 2, Wire::Bytes) | (_, 1, Wire::Bytes) => {
                schema = Some(read_struct(reader.message()?, zero::json_schema())?);
            }
            (Type::SchemaOrArray, 2, Wire::Bytes) => {
                items.push(Value::Object(read_struct(reader.message()?, zero::json_schema())?));
            }
            (_, 2, Wire::Bytes) => items.push(Value::String(text(reader.bytes()?).into_owned())),
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(match (ty, schema) {
        (Type::SchemaOrBool, None) => Value::Bool(allows),
        _ if !items.is_empty() => Value::Array(items),
        (_, Some(schema)) => Value::Object(schema),
        (_, None) => Value::Null,
    })
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    std::str::from_utf8(bytes).map_or_else(|_| Cow::Owned(repair(bytes)), Cow::Borrowed)
}

/// Returns the approximate Go name of a field, for errors.
fn go_name(field: &FieldSchema) -> String {
    if let Type::Struct(id) = field.ty
        && field.name == "metadata"
    {
        return schema().get(id).name.to_owned();
    }
    let mut letters = field.name.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}
