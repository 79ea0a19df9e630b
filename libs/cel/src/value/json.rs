//! Values in JSON. Counts what it copies: values that are shared many times over become as many
//! copies.

use base64::Engine;
use serde_json::{Map as Members, Value as Json};

use super::{Key, List, Map, Value};
use crate::error::EvalError;
use crate::meter::Meter;
use crate::time::duration_text;

type Result<T> = std::result::Result<T, EvalError>;

impl Value<'_> {
    /// Converts the value to JSON; None if JSON cannot represent it.
    ///
    /// # Errors
    /// [`EvalError::WorkLimit`] if it has more values or bytes than allowed.
    pub fn to_json(&self, meter: &Meter) -> Result<Option<Json>> {
        meter.visit(1)?;
        let text = |text: String| {
            meter.make(text.len())?;
            Ok(Some(Json::String(text)))
        };
        Ok(Some(match self {
            Value::Null | Value::Optional(None) => Json::Null,
            Value::Bool(value) => Json::Bool(*value),
            Value::Int(value) => (*value).into(),
            Value::Uint(value) => (*value).into(),
            Value::Double(value) => match serde_json::Number::from_f64(*value) {
                Some(number) => number.into(),
                None => return Ok(None),
            },
            Value::String(value) => {
                meter.make(value.len())?;
                Json::String(value.to_string())
            }
            Value::Bytes(bytes) => {
                meter.make(bytes.len() * 2)?;
                Json::String(base64::engine::general_purpose::STANDARD.encode(bytes))
            }
            Value::List(list) => return list_to_json(list, meter),
            Value::Map(Map::Json(members, _)) => copy_members(members, meter)?,
            Value::Map(Map::Values(entries)) => {
                let entries = entries.iter().map(|(key, value)| match key {
                    Key::String(name) => Some((&**name, value)),
                    _ => None,
                });
                return members_to_json(entries, meter);
            }
            Value::Object(object) => {
                let fields = object.fields.iter().map(|(name, value)| Some((&**name, value)));
                return members_to_json(fields, meter);
            }
            Value::Optional(Some(value)) => return value.to_json(meter),
            Value::Duration(nanos) => return text(duration_text(*nanos)),
            Value::Timestamp(time) => return text(time.to_string()),
            Value::Quantity(quantity) => return text(quantity.to_string()),
            Value::Ip(address) => return text(address.to_string()),
            Value::Cidr(cidr) => return text(cidr.to_string()),
            Value::Type(_) | Value::Url(_) | Value::Semver(_) | Value::Format(_) | Value::Host(_) => {
                return Ok(None);
            }
        }))
    }
}

fn list_to_json(list: &List<'_>, meter: &Meter) -> Result<Option<Json>> {
    make_nodes(list.len(), meter)?;
    let mut items = Vec::with_capacity(list.len());
    if let List::Json(elements, ..) = list {
        for element in *elements {
            items.push(copy(element, meter)?);
        }
        return Ok(Some(Json::Array(items)));
    }
    for item in list.iter() {
        let Some(item) = item.to_json(meter)? else { return Ok(None) };
        items.push(item);
    }
    Ok(Some(Json::Array(items)))
}

fn members_to_json<'v, 'a: 'v>(
    entries: impl ExactSizeIterator<Item = Option<(&'v str, &'v Value<'a>)>>,
    meter: &Meter,
) -> Result<Option<Json>> {
    make_nodes(entries.len(), meter)?;
    let mut members = Members::new();
    for entry in entries {
        let Some((name, value)) = entry else { return Ok(None) };
        meter.make(name.len())?;
        let Some(value) = value.to_json(meter)? else { return Ok(None) };
        members.insert(name.to_owned(), value);
    }
    Ok(Some(Json::Object(members)))
}

/// Counts the elements or members of a value.
fn make_nodes(nodes: usize, meter: &Meter) -> Result<()> {
    meter.make(nodes.saturating_mul(size_of::<Json>()))
}

/// Copies a value of the object.
fn copy(json: &Json, meter: &Meter) -> Result<Json> {
    meter.visit(1)?;
    Ok(match json {
        Json::String(text) => {
            meter.make(text.len())?;
            Json::String(text.clone())
        }
        Json::Array(elements) => {
            make_nodes(elements.len(), meter)?;
            Json::Array(elements.iter().map(|element| copy(element, meter)).collect::<Result<_>>()?)
        }
        Json::Object(members) => copy_members(members, meter)?,
        scalar => scalar.clone(),
    })
}

fn copy_members(members: &Members<String, Json>, meter: &Meter) -> Result<Json> {
    make_nodes(members.len(), meter)?;
    let copy = |(name, value): (&String, &Json)| {
        meter.make(name.len())?;
        Ok((name.clone(), copy(value, meter)?))
    };
    Ok(Json::Object(members.iter().map(copy).collect::<Result<_>>()?))
}
