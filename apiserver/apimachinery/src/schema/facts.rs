//! Reads `facts.txt`.
//!
//! ```text
//! kind GROUP VERSION KIND TYPE           `core` is the group without a name, `*` is any
//! unserved GROUP VERSION KIND            registered in kube-apiserver's scheme, but not served
//! package SHORT OPENAPI                  the home of what follows; elsewhere its types are SHORT.NAME
//! type NAME UNDERLYING [message] [enum=A|B]
//! struct NAME [atomic]
//!  JSON-NAME NUMBER TYPE [flags]         a field; `inline` for an embedded struct, `-` for no protobuf number
//! ```
//!
//! Flags of a field: `keep` (the zero value is printed), `required`, `atomic`, `granular`, `set`
//! and `map=KEYS` (list, map and struct types), `discriminator` and `alternative` (roles in a
//! union), `patch=STRATEGIES`, `key=MERGE-KEY`, `default=JSON`.
//!
//! The text is part of the program, so what does not read is a bug of the build, not an error of
//! anyone's input.

use std::sync::OnceLock;

use hashbrown::{HashMap, HashSet};

use super::table::Schema;
use super::types::{Declaration, FieldSchema, List, Named, Other, Struct, StructId, Type, UnionRole};
use crate::names::Text;

const BROKEN: &str = "the embedded table is well-formed";

/// Reads the names, and what they stand for. The fields of a struct are read at its first use,
/// since most processes use few of the structs.
pub(super) fn read(text: &'static str) -> Schema {
    let mut schema = Schema {
        structs: Vec::with_capacity(1024),
        packages: HashMap::with_capacity(64),
        named: HashMap::with_capacity(1024),
        kinds: HashMap::with_capacity(512),
        unserved: HashSet::new(),
        groups: Vec::new(),
        resources: Vec::new(),
    };
    let mut kinds = Vec::with_capacity(512);
    let mut home = "";
    let mut rest = text;
    while let Some((line, following)) = rest.split_once('\n') {
        rest = following;
        // Others are empty.
        let Some((word, line)) = line.split_once(' ') else { continue };
        match word {
            "kind" => kinds.push(line),
            "unserved" => {
                schema.unserved.insert(words(line));
            }
            "package" => {
                let short;
                (short, home) = line.split_once(' ').expect(BROKEN);
                schema.packages.insert(short, home);
            }
            "type" => {
                let (name, other) = read_type(line);
                schema.named.insert((home, name), Named::Other(other));
            }
            "struct" => {
                let (name, atomic) = line.split_once(' ').unwrap_or((line, ""));
                let fields;
                (fields, rest) = split_fields(rest);
                schema.named.insert((home, name), Named::Struct(StructId::new(schema.structs.len())));
                let declaration = Declaration { name, package: home, atomic: atomic == "atomic", fields };
                schema.structs.push((declaration, OnceLock::new()));
            }
            // A comment.
            _ => {}
        }
    }
    for line in kinds {
        let (kind, type_name) = line.rsplit_once(' ').expect(BROKEN);
        let (group, version, kind) = words(kind);
        let Some(Named::Struct(id)) = schema.lookup("", type_name) else { panic!("{BROKEN}: {type_name}") };
        let group = if group == "core" { "" } else { group };
        schema.kinds.insert((group, version, kind), *id);
    }
    schema
}

/// Splits a line into three words.
fn words(line: &'static str) -> (&'static str, &'static str, &'static str) {
    let (first, rest) = line.split_once(' ').expect(BROKEN);
    let (second, third) = rest.split_once(' ').expect(BROKEN);
    (first, second, third)
}

fn read_type(line: &'static str) -> (&'static str, Other) {
    let (name, declared) = line.split_once(' ').expect(BROKEN);
    // The values of an enum may hold spaces.
    let (declared, values) = declared.split_once(" enum=").unwrap_or((declared, ""));
    let values = if values.is_empty() { Vec::new() } else { values.split('|').collect() };
    let (underlying, message) = declared.split_once(' ').unwrap_or((declared, ""));
    (name, Other { underlying, message: message == "message", values })
}

/// Splits a text after the lines that begin with a space.
fn split_fields(text: &'static str) -> (&'static str, &'static str) {
    let mut end = 0;
    while text[end..].starts_with(' ') {
        end += text[end..].find('\n').expect(BROKEN) + 1;
    }
    text.split_at(end)
}

/// Reads the fields of a struct.
pub(super) fn read_struct(declaration: &Declaration, schema: &Schema) -> Struct {
    let Declaration { name, package, atomic, fields } = *declaration;
    // A line begins with a space.
    let fields: Vec<_> = fields.lines().map(|line| read_field(&line[1..], package, schema)).collect();
    // The table lives as long as the program; leaked, its fields can be shared between structs that
    // embed one another.
    let fields: &'static [FieldSchema] = Vec::leak(fields);
    let mut members = Vec::with_capacity(fields.len());
    flatten(schema, fields, &mut members);
    let mut by_name: Vec<u16> = (0..).take(members.len()).collect();
    by_name.sort_unstable_by_key(|&at| members[usize::from(at)].name);
    let mut by_number: Vec<_> = fields.iter().filter_map(|field| Some((field.number?, field))).collect();
    by_number.sort_unstable_by_key(|(number, _)| *number);
    Struct { name, package, atomic, fields, members, by_name, by_number }
}

fn flatten(schema: &Schema, fields: &'static [FieldSchema], members: &mut Vec<&'static FieldSchema>) {
    for field in fields {
        match field.ty {
            // No struct embeds itself.
            Type::Struct(embedded) if field.inline => members.extend(schema.get(embedded).members()),
            _ => members.push(field),
        }
    }
}

fn read_field(line: &'static str, home: &'static str, schema: &Schema) -> FieldSchema {
    let mut words = line.splitn(4, ' ');
    let mut word = || words.next().expect(BROKEN);
    let (name, number, declared) = (word(), word(), word());
    let mut field = FieldSchema {
        name,
        ty: resolve(declared, home, schema),
        inline: name == "inline",
        pointer: declared.starts_with('*'),
        keep: false,
        required: false,
        atomic: false,
        granular: false,
        union: None,
        list: List::Atomic,
        list_declared: false,
        patch_strategy: None,
        merge_key: None,
        default: None,
        number: number.parse().ok(),
        declared,
        package: home,
    };
    if field.inline {
        field.name = declared.rsplit(['.', '*']).next().expect(BROKEN);
    }
    // A default may hold spaces; it is the last flag.
    let (flags, default) = split_default(words.next().unwrap_or(""));
    field.default = default;
    for flag in flags.split(' ').filter(|flag| !flag.is_empty()) {
        match flag.split_once('=').unwrap_or((flag, "")) {
            ("keep", _) => field.keep = true,
            ("required", _) => field.required = true,
            ("atomic", _) => field.atomic = true,
            ("granular", _) => field.granular = true,
            ("discriminator", _) => field.union = Some(UnionRole::Discriminator),
            ("alternative", _) => field.union = Some(UnionRole::Alternative),
            ("set", _) => field.list = List::Set,
            ("map", keys) => field.list = List::Map(keys.split(',').map(Text::from).collect()),
            ("patch", strategy) => field.patch_strategy = Some(strategy),
            ("key", key) => field.merge_key = Some(key),
            _ => panic!("{BROKEN}: {line}"),
        }
    }
    if field.ty.item().is_some() {
        field.list_declared = field.atomic || field.list != List::Atomic;
        field.atomic = false;
        if !field.list_declared && field.merges() {
            field.list = field.merge_key.map_or(List::Set, |key| List::Map(vec![key.into()]));
        }
    }
    field
}

fn split_default(flags: &'static str) -> (&'static str, Option<&'static str>) {
    match flags.find("default=") {
        None => (flags, None),
        Some(at) => (&flags[..at], Some(&flags[at + "default=".len()..])),
    }
}

/// Resolves a declared type, such as `[]Container`, `map[string]core/v1.ResourceList` or `*int32`.
pub(super) fn resolve(declared: &'static str, home: &'static str, schema: &Schema) -> Type {
    if let Some(target) = declared.strip_prefix('*') {
        return resolve(target, home, schema);
    }
    if let Some(item) = declared.strip_prefix("[]") {
        return Type::List(Box::new(resolve(item, home, schema)));
    }
    if let Some((_, value)) = declared.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
        return Type::Map(Box::new(resolve(value, home, schema)));
    }
    match declared {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "float64" => Type::Double,
        "bytes" => Type::Bytes,
        "Quantity" => Type::Quantity,
        "IntOrString" => Type::IntOrString,
        "Time" => Type::Time,
        "MicroTime" => Type::MicroTime,
        "Duration" => Type::Duration,
        "RawExtension" => Type::RawExtension,
        "FieldsV1" => Type::FieldsV1,
        "JSON" => Type::Json,
        "JSONSchemaPropsOrBool" => Type::SchemaOrBool,
        "JSONSchemaPropsOrArray" => Type::SchemaOrArray,
        "JSONSchemaPropsOrStringArray" => Type::SchemaOrStrings,
        "any" => Type::Any,
        name => resolve_name(name, home, schema),
    }
}

fn resolve_name(name: &'static str, home: &'static str, schema: &Schema) -> Type {
    match schema.lookup(home, name) {
        Some(Named::Struct(id)) => Type::Struct(*id),
        Some(Named::Other(other)) => match resolve(other.underlying, schema.home(home, name), schema) {
            Type::List(item) if other.message => Type::ListMessage(item),
            plain => plain,
        },
        None => panic!("{BROKEN}: {name} in {home}"),
    }
}
