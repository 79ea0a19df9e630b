//! Types as Go declares and prints them.

use super::embedded::schema;
use super::table::Schema;
use super::types::{DeclaredString, FieldSchema, Named, Struct, StructId, Type, inside};

impl Struct {
    /// Returns the inline fields through which a member belongs to this struct, outermost first.
    pub fn embedding(&self, member: &FieldSchema) -> Vec<&'static FieldSchema> {
        fn search(
            fields: &'static [FieldSchema],
            member: &FieldSchema,
            through: &mut Vec<&'static FieldSchema>,
        ) -> bool {
            fields.iter().any(|field| match field.ty {
                Type::Struct(id) if field.inline => {
                    through.push(field);
                    let found = search(schema().get(id).fields, member, through);
                    if !found {
                        through.pop();
                    }
                    found
                }
                _ => std::ptr::eq(field, member),
            })
        }
        let mut through = Vec::new();
        search(self.fields, member, &mut through);
        through
    }
}

impl FieldSchema {
    /// Returns the Go name of the type inside of pointers, lists and maps, as Go prints it:
    /// `v1.RestartPolicy`, `string`.
    pub fn go_type(&self) -> String {
        spell(self.innermost(), self.package, schema())
    }

    /// Returns the Go type as messages print it (`[]v1.Container`, `map[string]string`), `depth`
    /// lists or maps inside of the field.
    fn go_type_inside(&self, depth: usize, schema: &Schema) -> String {
        let (mut declared, mut home) = (self.declared, self.package);
        for _ in 0..depth {
            declared = declared.trim_start_matches('*');
            if inside(declared).is_none()
                && let Some(Named::Other(other)) = schema.lookup(home, declared)
            {
                (declared, home) = (other.underlying, schema.home(home, declared));
            }
            declared = match declared {
                // Either of these may be a list.
                "JSONSchemaPropsOrArray" => "JSONSchemaProps",
                "JSONSchemaPropsOrStringArray" => "string",
                other => inside(other).unwrap_or(other),
            };
        }
        spell(declared, home, schema)
    }
}

impl Schema {
    /// Returns the Go type of the value `depth` lists or maps inside of a field, as messages print
    /// it: `map[string]string`.
    pub fn go_type(&self, field: &FieldSchema, depth: usize) -> String {
        field.go_type_inside(depth, self)
    }

    /// Returns Go's declaration of the string at a path; None if there is no string.
    pub fn string_at(&self, root: StructId, path: &str) -> Option<DeclaredString> {
        match self.place_at(root, path)? {
            (Type::String, Some((field, depth))) => Some(DeclaredString {
                is_named: self.go_type(field, depth) != "string",
                is_pointer: depth == 0 && field.pointer,
            }),
            _ => None,
        }
    }
}

/// Formats a declared type as Go's reflection prints it, qualified with the last part of its
/// package.
fn spell(declared: &'static str, home: &'static str, schema: &Schema) -> String {
    let declared = declared.trim_start_matches('*');
    if let Some(item) = declared.strip_prefix("[]") {
        return format!("[]{}", spell(item, home, schema));
    }
    if let Some((key, value)) = declared.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return format!("map[{}]{}", spell(key, home, schema), spell(value, home, schema));
    }
    match declared {
        "bytes" => "[]uint8".to_owned(),
        "any" => "interface {}".to_owned(),
        "Quantity" => "resource.Quantity".to_owned(),
        "IntOrString" => "intstr.IntOrString".to_owned(),
        "RawExtension" => "runtime.RawExtension".to_owned(),
        "string" | "bool" | "int32" | "int64" | "float64" => declared.to_owned(),
        name => {
            let package = schema.home(home, name);
            let package = package.rsplit('.').next().unwrap_or(package);
            let name = name.rsplit('.').next().unwrap_or(name);
            format!("{package}.{name}")
        }
    }
}
