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

use std::collections::{HashMap, HashSet};

use super::table::Schema;
use super::types::{FieldSchema, List, Named, Other, Struct, StructId, Type, UnionRole};
use crate::names::Text;

const BROKEN: &str = "the embedded table is well-formed";

pub(super) fn read(text: &'static str) -> Schema {
    let mut schema = Schema {
        structs: Vec::new(),
        named: HashMap::with_capacity(1024),
        kinds: HashMap::new(),
        unserved: HashSet::new(),
        groups: Vec::new(),
        resources: Vec::new(),
    };
    read_names(text, &mut schema);
    read_structs(text, &mut schema);
    for line in text.lines().filter_map(|line| line.strip_prefix("kind ")) {
        let mut words = line.split(' ');
        let mut word = || words.next().expect(BROKEN);
        let (group, version, kind, type_name) = (word(), word(), word(), word());
        let Some(Named::Struct(id)) = schema.lookup("", type_name) else { panic!("{BROKEN}: {type_name}") };
        let group = if group == "core" { "" } else { group };
        schema.kinds.insert((group, version, kind), *id);
    }
    for line in text.lines().filter_map(|line| line.strip_prefix("unserved ")) {
        let mut words = line.split(' ');
        let mut word = || words.next().expect(BROKEN);
        schema.unserved.insert((word(), word(), word()));
    }
    schema
}

/// Gives every name its meaning first, since fields refer forwards.
fn read_names(text: &'static str, schema: &mut Schema) {
    let mut home = "";
    let mut structs = 0;
    for line in text.lines() {
        let mut words = line.split(' ');
        match words.next() {
            Some("package") => home = words.nth(1).expect(BROKEN),
            Some("struct") => {
                let name = words.next().expect(BROKEN);
                schema.named.insert((home, name), Named::Struct(StructId::new(structs)));
                structs += 1;
            }
            Some("type") => {
                let name = words.next().expect(BROKEN);
                let underlying = words.next().expect(BROKEN);
                // The values of an enum may hold spaces.
                let values = line.split_once(" enum=").map(|(_, values)| values.split('|').collect());
                let message = words.next() == Some("message");
                let other = Other { underlying, message, values: values.unwrap_or_default() };
                schema.named.insert((home, name), Named::Other(other));
            }
            _ => {}
        }
    }
}

fn read_structs(text: &'static str, schema: &mut Schema) {
    let mut home = "";
    let mut structs: Vec<(Struct, std::ops::Range<usize>)> = Vec::with_capacity(1024);
    let mut fields = Vec::with_capacity(4096);
    for line in text.lines() {
        if let Some(field) = line.strip_prefix(' ') {
            fields.push(read_field(field, home, schema));
            structs.last_mut().expect(BROKEN).1.end = fields.len();
        } else if let Some(rest) = line.strip_prefix("struct ") {
            let (name, atomic) = rest.split_once(' ').unwrap_or((rest, ""));
            let item = Struct {
                name,
                package: home,
                atomic: atomic == "atomic",
                fields: &[],
                members: Vec::new(),
                by_name: Vec::new(),
                by_number: Vec::new(),
            };
            structs.push((item, fields.len()..fields.len()));
        } else if let Some(rest) = line.strip_prefix("package ") {
            home = rest.split_once(' ').expect(BROKEN).1;
        }
    }
    // The table lives as long as the program; leaked, its fields can be shared between structs that
    // embed one another.
    let fields: &'static [FieldSchema] = Vec::leak(fields);
    schema.structs =
        structs.into_iter().map(|(item, range)| Struct { fields: &fields[range], ..item }).collect();
    for index in 0..schema.structs.len() {
        let mut members = Vec::new();
        flatten(schema, StructId::new(index), &mut members);
        let mut by_name: Vec<u16> = (0..).take(members.len()).collect();
        by_name.sort_unstable_by_key(|&at| members[usize::from(at)].name);
        let item = &mut schema.structs[index];
        let numbered = item.fields.iter().filter_map(|field| Some((field.number?, field)));
        item.by_number = numbered.collect();
        item.by_number.sort_unstable_by_key(|(number, _)| *number);
        (item.members, item.by_name) = (members, by_name);
    }
}

fn flatten(schema: &Schema, id: StructId, members: &mut Vec<&'static FieldSchema>) {
    for field in schema.get(id).fields {
        match field.ty {
            Type::Struct(embedded) if field.inline => flatten(schema, embedded, members),
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
