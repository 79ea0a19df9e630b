//! Variables, and the selection of their members and items.

use std::sync::Arc;

use super::{Evaluated, Interpreter, ScopeValue};
use crate::cost;
use crate::error::EvalError;
use crate::functions;
use crate::plan::{Attribute, AttributeRoot, Qualifier, QualifierKey};
use crate::types::Type;
use crate::value::{List, Map, Value};

impl<'p, 'a> Interpreter<'p, 'a> {
    /// Returns the value of an attribute. The cost of its root is counted, but not that of the
    /// branches of a conditional attribute.
    pub(super) fn attribute(&mut self, attribute: &'p Attribute) -> Evaluated<'a> {
        let value = self.resolve(attribute);
        let is_free = attribute.test_only || matches!(attribute.root, AttributeRoot::Conditional { .. });
        if is_free { value } else { self.charged(cost::CALL, value) }
    }

    /// Resolves an attribute within an attribute. The expression bounds the depth.
    fn resolve_nested(&mut self, attribute: &'p Attribute) -> Evaluated<'a> {
        let meter = self.meter;
        meter.nested(|| self.resolve(attribute))
    }

    fn resolve(&mut self, attribute: &'p Attribute) -> Evaluated<'a> {
        let mut qualifiers = attribute.qualifiers.as_slice();
        let object = match &attribute.root {
            AttributeRoot::Variable(name) => match self.member_of_variable(name, qualifiers) {
                Some(member) => {
                    self.add_cost(cost::CALL)?;
                    let test_only = qualifiers.first().is_some_and(|first| first.test_only);
                    qualifiers = qualifiers.get(1..).unwrap_or_default();
                    if test_only { Value::Bool(member.is_ok()) } else { member? }
                }
                None => self.variable(name)?,
            },
            AttributeRoot::Relative(step) => self.evaluate(step)?,
            AttributeRoot::Conditional { condition, then, otherwise } => {
                return match self.evaluate(condition)? {
                    Value::Bool(true) => self.resolve_nested(then),
                    Value::Bool(false) => self.resolve_nested(otherwise),
                    _ => Err(EvalError::NoSuchOverload),
                };
            }
        };
        self.qualify_all(object, qualifiers)
    }

    /// Returns a member of a variable that the caller computes separately.
    fn member_of_variable(&self, name: &str, qualifiers: &[Qualifier]) -> Option<Evaluated<'a>> {
        let first = qualifiers.first().filter(|first| !first.optional)?;
        let QualifierKey::Constant(Value::String(member)) = &first.key else { return None };
        if self.scopes.iter().any(|scope| scope.name == name) {
            return None;
        }
        self.variables.resolve_member(name, member)
    }

    /// Returns the value of a variable.
    pub(super) fn variable(&mut self, name: &str) -> Evaluated<'a> {
        if let Some(at) = self.scopes.iter().rposition(|scope| scope.name == name) {
            return self.scoped(at);
        }
        if let Some(value) = self.variables.resolve(name) {
            return value;
        }
        let member = name.rsplit_once('.');
        match member.and_then(|(name, member)| self.variables.resolve_member(name, member)) {
            Some(value) => value,
            None => match Type::named(name) {
                Some(ty) => Ok(Value::Type(ty)),
                None => Err(EvalError::Other(format!("no such attribute(s): {name}"))),
            },
        }
    }

    pub(super) fn scoped(&mut self, at: usize) -> Evaluated<'a> {
        let step = match self.scopes.get(at).map(|scope| &scope.value) {
            Some(ScopeValue::Ready(value)) => return value.clone(),
            Some(ScopeValue::Lazy(step)) => *step,
            None => return Err(EvalError::NoSuchOverload),
        };
        // It sees what is around the variable.
        let inner = self.scopes.split_off(at);
        let value = self.evaluate(step);
        self.scopes.extend(inner);
        if let Some(scope) = self.scopes.get_mut(at) {
            scope.value = ScopeValue::Ready(value.clone());
        }
        value
    }

    fn qualify_all(&mut self, object: Value<'a>, qualifiers: &'p [Qualifier]) -> Evaluated<'a> {
        if qualifiers.is_empty() {
            return Ok(object);
        }
        let (mut object, mut optional) = match object {
            Value::Optional(None) => return Ok(absent(qualifiers)),
            Value::Optional(Some(value)) => ((*value).clone(), true),
            value => (value, false),
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let computed;
            let key = match &qualifier.key {
                QualifierKey::Constant(key) => key,
                QualifierKey::Computed(attribute) => {
                    computed = match self.resolve_nested(attribute) {
                        Err(error) if !error.ends_evaluation() && !optional => {
                            self.add_cost(cost::CALL)?;
                            return Err(error);
                        }
                        resolved => resolved?,
                    };
                    &computed
                }
            };
            let found = self.qualify(&object, key);
            // The absence of an optional member costs nothing.
            if !(optional && matches!(found, Ok(None))) {
                self.add_cost(cost::CALL)?;
            }
            object = match (found?, optional) {
                (found, false) if qualifier.test_only => Value::Bool(found.is_some()),
                (None, true) if qualifier.test_only => return Ok(Value::Bool(false)),
                (Some(_), true) if qualifier.test_only => return Ok(Value::Bool(true)),
                (Some(found), _) => self.read(found)?,
                (None, true) => return Ok(absent(qualifiers)),
                // The fields of an object that is made are null until they are set.
                (None, false) if matches!(object, Value::Object(_)) => Value::Null,
                (None, false) => {
                    let shown = functions::shown(key, self.meter)?;
                    return Err(match object {
                        Value::List(_) => EvalError::IndexOutOfBounds(shown),
                        _ => EvalError::NoSuchKey(shown),
                    });
                }
            };
        }
        Ok(if optional { Value::Optional(Some(Arc::new(object))) } else { object })
    }

    /// Returns a member or an item; None if there is none, or if values of the type have no
    /// members.
    fn qualify(&self, object: &Value<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
        match object {
            Value::Map(map) => match (map, key) {
                (_, Value::String(_)) | (Map::Values(_), _) => Ok(map.at(key)),
                (Map::Json(..), _) if map.is_typed() => Err(EvalError::NoSuchOverload),
                _ => Ok(None),
            },
            Value::Object(object) => match key {
                Value::String(name) => Ok(object.fields.get(&**name).cloned()),
                _ => Ok(None),
            },
            Value::List(list) => self.item(list, key),
            _ => Ok(None),
        }
    }

    fn item(&self, list: &List<'a>, key: &Value<'a>) -> Result<Option<Value<'a>>, EvalError> {
        let at = match key {
            Value::Int(at) => Some(*at),
            Value::Uint(at) => i64::try_from(*at).ok(),
            Value::Double(at) if at.fract() == 0.0 && at.abs() < 9.2e18 => Some(*at as i64),
            Value::Double(_) => None,
            _ => {
                let ty = key.type_of();
                return Err(EvalError::Other(format!("unsupported index type '{}' in list", ty.name())));
            }
        };
        let Some(at) = at else {
            let shown = functions::shown(key, self.meter)?;
            return Err(EvalError::Other(format!("unsupported index value {shown} in list")));
        };
        let found = usize::try_from(at).ok().and_then(|at| list.get(at));
        if found.is_some() && list.is_typed() && !matches!(key, Value::Int(_)) {
            let shown = functions::shown(key, self.meter)?;
            return Err(EvalError::Other(format!("unsupported index: {shown}")));
        }
        Ok(found)
    }
}

/// Returns the result of selections on an absent value.
fn absent<'a>(qualifiers: &[Qualifier]) -> Value<'a> {
    let test_only = qualifiers.last().is_some_and(|last| last.test_only);
    if test_only { Value::Bool(false) } else { Value::Optional(None) }
}
