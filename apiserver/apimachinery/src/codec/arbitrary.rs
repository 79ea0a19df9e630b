//! Random objects of any struct of the table, for tests of round trips.

use serde_json::{Map, Value, json};

use crate::codec::{base64, time, zero};
use crate::schema::{FieldSchema, StructId, Type, schema};

/// A small generator of its own (SplitMix64): a seed gives the same values everywhere.
pub struct Random(u64);

impl Random {
    /// Creates a generator with a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

const TEXTS: [&str; 12] = [
    "",
    "a",
    "web-0",
    "y",
    "012",
    "a: b #c",
    "line\nline\n",
    " edge ",
    "żółć ✓ 😀",
    "<a href=\"x\">&\\",
    "\u{1}\t\u{2028}",
    "1.5",
];

const DURATIONS: [&str; 6] = ["0s", "1s", "1m30s", "250ms", "-1h0m0.5s", "3ns"];
const QUANTITIES: [&str; 8] = ["0", "1", "100m", "1500m", "64Mi", "1.500", "2e3", "-3Gi"];

/// Generates a random object, with randomly chosen members; deeper objects have fewer.
pub fn object(id: StructId, random: &mut Random, depth: usize) -> Map<String, Value> {
    let mut members = Map::new();
    for field in schema().get(id).members() {
        // Protobuf has the kind and apiVersion of the outermost object only.
        let wanted = depth == 0 || random.below(depth + 1) == 0;
        if field.number.is_some()
            && wanted
            && !matches!(field.name, "kind" | "apiVersion" if is_type_meta(field))
        {
            members.insert(field.name.to_owned(), value(&field.ty, random, depth + 1));
        }
    }
    members
}

fn is_type_meta(field: &FieldSchema) -> bool {
    let meta = schema().named("io.k8s.apimachinery.pkg.apis.meta.v1.TypeMeta").expect("TypeMeta");
    schema().get(meta).fields.iter().any(|own| std::ptr::eq(own, field))
}

fn value(ty: &Type, random: &mut Random, depth: usize) -> Value {
    let few = if depth > 6 { 0 } else { random.below(3) };
    match ty {
        Type::Struct(id) => Value::Object(object(*id, random, depth)),
        Type::List(item) | Type::ListMessage(item) => (0..few).map(|_| value(item, random, depth)).collect(),
        Type::Map(entry) => {
            let entries = (0..few).map(|_| (random.one(&TEXTS).to_owned(), value(entry, random, depth)));
            Value::Object(entries.collect())
        }
        Type::String => random.one(&TEXTS).into(),
        Type::Bool => (random.below(2) == 0).into(),
        Type::Int32 => (random.next() as i32).into(),
        Type::Int64 => (random.next() as i64).into(),
        Type::Double => json!([0.0, 7.0, -2.5, 1e21, 0.1][random.below(5)]),
        Type::Bytes => base64::encode(&random.next().to_le_bytes()[..random.below(9)]).into(),
        Type::Quantity => random.one(&QUANTITIES).into(),
        Type::IntOrString if random.below(2) == 0 => random.one(&TEXTS).into(),
        Type::IntOrString => (random.next() as i32).into(),
        Type::Duration => random.one(&DURATIONS).into(),
        Type::Time => time::from_unix(seconds(random)).into(),
        Type::MicroTime => {
            let micros = i32::try_from(random.below(1_000_000)).unwrap_or_default();
            time::micro_from_unix(seconds(random), micros * 1000).into()
        }
        Type::RawExtension | Type::FieldsV1 | Type::Json => untyped(random, depth),
        Type::SchemaOrBool if random.below(2) == 0 => (random.below(2) == 0).into(),
        Type::SchemaOrArray if random.below(2) == 0 => {
            value(&Type::List(Box::new(Type::Struct(zero::json_schema()))), random, depth)
        }
        Type::SchemaOrStrings if random.below(2) == 0 => json!(["a", "b"]),
        Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings => {
            Value::Object(object(zero::json_schema(), random, depth))
        }
        Type::Any => random.one(&TEXTS).into(),
    }
}

fn seconds(random: &mut Random) -> i64 {
    1 + (random.next() % 4_000_000_000) as i64
}

fn untyped(random: &mut Random, depth: usize) -> Value {
    match random.below(4) {
        0 if depth < 6 => json!({"f:a": untyped(random, depth + 1), random.one(&TEXTS): null}),
        1 if depth < 6 => json!([untyped(random, depth + 1), 2.5, true]),
        2 => random.one(&TEXTS).into(),
        _ => (random.next() as i64).into(),
    }
}
