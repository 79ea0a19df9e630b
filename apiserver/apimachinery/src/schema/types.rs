//! The structs, fields and types of the schema table.

use crate::names::Text;

/// A struct of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StructId(u32);

impl StructId {
    pub(super) fn new(index: usize) -> StructId {
        StructId(u32::try_from(index).expect("the table has fewer structs than that"))
    }

    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The type of a value, pointers left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// An object with these fields.
    Struct(StructId),
    /// A list of items.
    List(Box<Type>),
    /// A list that protobuf wraps into a message of its own: `ExtraValue`, `Verbs`.
    ListMessage(Box<Type>),
    /// A map from strings.
    Map(Box<Type>),
    /// Text.
    String,
    /// `true` or `false`.
    Bool,
    /// A number of 32 bits.
    Int32,
    /// A number of 64 bits.
    Int64,
    /// A float.
    Double,
    /// Base64 in JSON.
    Bytes,
    /// A `resource.Quantity`.
    Quantity,
    /// An `intstr.IntOrString`: a number of 32 bits, or text.
    IntOrString,
    /// Whole seconds.
    Time,
    /// Microseconds.
    MicroTime,
    /// A duration as Go writes it.
    Duration,
    /// An object of any kind, kept unchanged.
    RawExtension,
    /// A set of fields, as `managedFields` has it.
    FieldsV1,
    /// Any JSON value, of a CustomResourceDefinition's schema.
    Json,
    /// `JSONSchemaPropsOrBool`
    SchemaOrBool,
    /// `JSONSchemaPropsOrArray`
    SchemaOrArray,
    /// `JSONSchemaPropsOrStringArray`
    SchemaOrStrings,
    /// The cells of a Table.
    Any,
}

impl Type {
    /// Returns the type of a list's items.
    pub fn item(&self) -> Option<&Type> {
        match self {
            Type::List(item) | Type::ListMessage(item) => Some(item),
            _ => None,
        }
    }

    /// Returns the type of a map's values.
    pub fn value(&self) -> Option<&Type> {
        match self {
            Type::Map(value) => Some(value),
            _ => None,
        }
    }
}

/// The list type in server-side apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum List {
    /// The list is one value.
    #[default]
    Atomic,
    /// Items are their own keys.
    Set,
    /// Items are identified by these members.
    Map(Vec<Text>),
}

/// A struct as it is declared, before its fields are read.
#[derive(Debug)]
pub(super) struct Declaration {
    pub name: &'static str,
    pub package: &'static str,
    pub atomic: bool,
    /// The lines of its fields.
    pub fields: &'static str,
}

/// A struct of the table.
#[derive(Debug)]
pub struct Struct {
    /// The Go name, such as `Container`.
    pub name: &'static str,
    /// The package in OpenAPI's form, such as `io.k8s.api.core.v1`.
    pub package: &'static str,
    /// Whether apply treats it as one value.
    pub atomic: bool,
    /// As declared, in Go's order. An inline field embeds a struct, which is a message of its own
    /// in protobuf.
    pub fields: &'static [FieldSchema],
    /// The members of the JSON object in Go's order: the fields, with embedded structs flattened.
    pub(super) members: Vec<&'static FieldSchema>,
    /// Indexes into `members`, ordered by name.
    pub(super) by_name: Vec<u16>,
    /// The fields that protobuf has, ordered by number.
    pub(super) by_number: Vec<(u32, &'static FieldSchema)>,
}

impl Struct {
    /// Returns the name in OpenAPI documents.
    pub fn openapi_name(&self) -> String {
        format!("{}.{}", self.package, self.name)
    }

    /// Returns the members of the JSON object, in the order in which Go prints them.
    pub fn members(&self) -> &[&'static FieldSchema] {
        &self.members
    }

    /// Returns the member with a JSON name, including members of embedded structs.
    pub fn field(&self, json_name: &str) -> Option<&'static FieldSchema> {
        self.position(json_name).map(|position| self.members[position])
    }

    /// Returns the index in [`Struct::members`] of the member with a JSON name.
    pub fn position(&self, json_name: &str) -> Option<usize> {
        let found = self.by_name.binary_search_by(|&at| self.members[usize::from(at)].name.cmp(json_name));
        found.ok().map(|at| usize::from(self.by_name[at]))
    }

    /// Returns the fields that protobuf has, in the order of their numbers. An embedded struct is
    /// one field, with a message of its own.
    pub fn fields_by_number(&self) -> &[(u32, &'static FieldSchema)] {
        &self.by_number
    }

    /// Returns the field with a number in protobuf.
    pub fn field_by_number(&self, number: u32) -> Option<&'static FieldSchema> {
        let found = self.by_number.binary_search_by_key(&number, |(number, _)| *number);
        found.ok().map(|at| self.by_number[at].1)
    }

    /// Iterates over the members with their places in [`Struct::members`], ordered by name.
    pub fn members_by_name(&self) -> impl Iterator<Item = (usize, &'static FieldSchema)> {
        self.by_name.iter().map(|&at| (usize::from(at), self.members[usize::from(at)]))
    }
}

/// The role of a field in a union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnionRole {
    /// Names the one that is set.
    Discriminator,
    /// A member that may be set.
    Alternative,
}

/// A field of a struct.
#[derive(Debug)]
pub struct FieldSchema {
    /// The JSON name; of an inline field the name of the struct that it embeds.
    pub name: &'static str,
    /// The type, pointers left out.
    pub ty: Type,
    /// Whether it embeds a struct.
    pub inline: bool,
    /// Whether it is a pointer in Go, so that absent differs from zero.
    pub pointer: bool,
    /// Go prints the zero value too. A nil list, map or pointer is printed as null.
    pub keep: bool,
    /// Whether OpenAPI marks it as required.
    pub required: bool,
    /// Whether the field makes apply treat its map or struct as one value;
    /// [`super::Schema::is_atomic`] considers the type as well.
    pub atomic: bool,
    /// Whether apply treats the members of the map or struct separately, regardless of its type.
    pub granular: bool,
    /// The role of the field in a union, a struct with at most one member set.
    pub union: Option<UnionRole>,
    /// The list type in server-side apply, if the field is a list.
    pub list: List,
    /// Whether the list type is declared, not derived from the patch strategy; OpenAPI shows only
    /// declared ones.
    pub list_declared: bool,
    /// The strategies as they are written: `merge`, `retainKeys`, `merge,retainKeys`, `replace`.
    pub patch_strategy: Option<&'static str>,
    /// The member that identifies items in strategic merge patch.
    pub merge_key: Option<&'static str>,
    /// The declared default, JSON.
    pub default: Option<&'static str>,
    /// The field number in protobuf; None if protobuf does not have the field.
    pub number: Option<u32>,
    /// The Go type as declared, seen from `package`: `[]Container`, `*core/v1.Protocol`.
    pub(super) declared: &'static str,
    pub(super) package: &'static str,
}

impl FieldSchema {
    /// Returns whether strategic merge patch merges the list.
    pub fn merges(&self) -> bool {
        self.has_strategy("merge")
    }

    /// Returns whether strategic merge patch replaces the value.
    pub fn replaces(&self) -> bool {
        self.has_strategy("replace")
    }

    fn has_strategy(&self, wanted: &str) -> bool {
        self.patch_strategy.is_some_and(|all| all.split(',').any(|one| one == wanted))
    }

    /// Returns the declared type's name, without the pointers, lists and maps around it.
    pub(super) fn innermost(&self) -> &'static str {
        let mut name = self.declared;
        loop {
            match name.strip_prefix('*').or_else(|| inside(name)) {
                Some(inner) => name = inner,
                None => return name,
            }
        }
    }
}

/// Returns the declared type of the items of a list or the values of a map.
pub(super) fn inside(declared: &'static str) -> Option<&'static str> {
    let value = || declared.strip_prefix("map[")?.split_once(']').map(|(_, value)| value);
    declared.strip_prefix("[]").or_else(value)
}

/// Go's declaration of a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredString {
    /// Whether it has a type of its own, such as `v1.Protocol`.
    pub is_named: bool,
    /// Whether it is a pointer, so that it can be absent.
    pub is_pointer: bool,
}

/// The declaration behind a name in a Go package.
#[derive(Debug)]
pub(super) enum Named {
    Struct(StructId),
    Other(Other),
}

/// A named type other than a struct: `type RestartPolicy string`.
#[derive(Debug)]
pub(super) struct Other {
    pub underlying: &'static str,
    /// Protobuf has a message for it.
    pub message: bool,
    /// The values of an enum.
    pub values: Vec<&'static str>,
}
