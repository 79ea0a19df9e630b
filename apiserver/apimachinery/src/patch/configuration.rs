//! The body of a server-side apply.

use serde_json::Value;

use crate::codec::{body, json, yaml};
use crate::request::Warnings;
use crate::request::options::FieldValidation;
use crate::{Error, Result};

/// The media type of a server-side apply.
pub const APPLY: &str = "application/apply-patch+yaml";

/// The prefix of messages about YAML.
const CONVERTING: &str = "error converting YAML to JSON";

/// The configuration that a manager applies: the fields of an object that it manages.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The fields.
    pub object: Value,
    /// The message about repeated keys.
    repeated_keys: Option<String>,
}

impl Configuration {
    /// Parses a body, which is YAML or JSON independent of its content type.
    ///
    /// # Errors
    /// 400 if it is neither, or not an object.
    pub fn parse(body: &[u8]) -> Result<Configuration> {
        let undecodable =
            |error: &dyn std::fmt::Display| Error::bad_request(format!("error decoding YAML: {error}"));
        if yaml::is_read_as_json(body)
            && let Ok(decoded) = json::decode_value(body)
            && decoded.strict.is_empty()
        {
            return Ok(Configuration { object: decoded.value, repeated_keys: None });
        }
        let document = yaml::to_json(body).map_err(|error| undecodable(&format!("{CONVERTING}: {error}")))?;
        let object = json::decode_value(&document.json).map_err(|error| undecodable(&error))?.value;
        let kind = match object {
            Value::Object(_) => return Ok(Configuration { object, repeated_keys: document.repeated_keys }),
            // An empty body counts as an empty object.
            Value::Null => {
                return Ok(Configuration { object: Value::Object(Default::default()), repeated_keys: None });
            }
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
        };
        Err(undecodable(&format!(
            "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
        )))
    }

    /// Applies field validation to repeated keys. Unknown fields are rejected anyway.
    ///
    /// # Errors
    /// 400 under `Strict`.
    pub fn validate(&self, validation: FieldValidation, warnings: &Warnings) -> Result<()> {
        let Some(repeated) = &self.repeated_keys else { return Ok(()) };
        match validation {
            FieldValidation::Ignore => Ok(()),
            FieldValidation::Warn => {
                warnings.extend(body::warnings(std::slice::from_ref(repeated)));
                Ok(())
            }
            FieldValidation::Strict => {
                Err(Error::bad_request(format!("error strict decoding YAML: {CONVERTING}: {repeated}")))
            }
        }
    }
}
