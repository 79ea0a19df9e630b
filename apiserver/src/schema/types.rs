//! Structs, fields and their types, as the table tells them.

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
    Struct(StructId),
    List(Box<Type>),
    /// A list that protobuf wraps into a message of its own: `ExtraValue`, `Verbs`.
    ListMessage(Box<Type>),
    Map(Box<Type>),
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Quantity,
    IntOrString,
    /// Whole seconds.
    Time,
    MicroTime,
    Duration,
    /// An object of any kind, kept as it came.
    RawExtension,
    FieldsV1,
    /// Any JSON value, of a CustomResourceDefinition's schema.
    Json,
    SchemaOrBool,
    SchemaOrArray,
    SchemaOrStrings,
    /// The cells of a Table.
    Any,
}

impl Type {
    /// The type of a list's items.
    pub fn item(&self) -> Option<&Type> {
        match self {
            Type::List(item) | Type::ListMessage(item) => Some(item),
            _ => None,
        }
    }

    /// The type of a map's values.
    pub fn value(&self) -> Option<&Type> {
        match self {
            Type::Map(value) => Some(value),
            _ => None,
        }
    }
}

/// What apply takes a list for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    Atomic,
    Set,
    /// Items are told apart by these members.
    Map(Vec<&'static str>),
}

#[derive(Debug)]
pub struct Struct {
    /// The Go name, such as `Container`.
    pub name: &'static str,
    /// The package in OpenAPI's form, such as `io.k8s.api.core.v1`.
    pub package: &'static str,
    /// Apply takes it for one value.
    pub atomic: bool,
    /// As declared, in Go's order. An inline field embeds a struct, which is a message of its own in protobuf.
    pub fields: &'static [Field],
    /// The members of the JSON object in Go's order: the fields, inline ones replaced by what they embed.
    pub(super) members: Vec<&'static Field>,
}

impl Struct {
    /// The name in OpenAPI documents.
    pub fn openapi_name(&self) -> String {
        format!("{}.{}", self.package, self.name)
    }

    /// The members of the JSON object, in the order in which Go prints them.
    pub fn members(&self) -> &[&'static Field] {
        &self.members
    }

    /// The member of that JSON name, embedded structs included.
    pub fn field(&self, json_name: &str) -> Option<&'static Field> {
        self.members.iter().find(|field| field.name == json_name).copied()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnionRole {
    /// Tells which one is set.
    Discriminator,
    Alternative,
}

#[derive(Debug)]
pub struct Field {
    /// The JSON name; of an inline field the name of the struct that it embeds.
    pub name: &'static str,
    pub ty: Type,
    pub inline: bool,
    pub pointer: bool,
    /// Go prints the zero value too. A nil list, map or pointer is printed as null.
    pub keep: bool,
    /// Required, says OpenAPI.
    pub required: bool,
    /// Apply takes the map or struct for one value, says the field; [`super::Schema::is_atomic`] asks the type too.
    pub atomic: bool,
    /// Apply looks into the map or struct, whatever its type says.
    pub granular: bool,
    /// What it is in a struct of which one member at most is set.
    pub union: Option<UnionRole>,
    /// What apply takes the list for, where it is one.
    pub list: List,
    /// The list's type is declared, not only concluded from the patch strategy; OpenAPI shows declared ones.
    pub list_declared: bool,
    /// The strategies as they are written: `merge`, `retainKeys`, `merge,retainKeys`, `replace`.
    pub patch_strategy: Option<&'static str>,
    pub merge_key: Option<&'static str>,
    /// The declared default, JSON.
    pub default: Option<&'static str>,
    /// The number in protobuf, where it is there at all.
    pub number: Option<u32>,
    /// The Go type as declared, seen from `package`: `[]Container`, `*core/v1.Protocol`.
    pub(super) declared: &'static str,
    pub(super) package: &'static str,
}

impl Field {
    /// Strategic merge patch merges the list.
    pub fn merges(&self) -> bool {
        self.has_strategy("merge")
    }

    pub fn retains_keys(&self) -> bool {
        self.has_strategy("retainKeys")
    }

    pub fn replaces(&self) -> bool {
        self.has_strategy("replace")
    }

    fn has_strategy(&self, wanted: &str) -> bool {
        self.patch_strategy.is_some_and(|all| all.split(',').any(|one| one == wanted))
    }

    /// The Go name of the type inside of pointers, lists and maps, as Go prints it: `v1.RestartPolicy`, `string`.
    pub fn go_type(&self) -> String {
        let declared = self.innermost();
        let (package, name) = declared.rsplit_once('.').unwrap_or((self.package, declared));
        let built_in = declared.starts_with(|c: char| c.is_ascii_lowercase()) && !declared.contains('.');
        match package.rsplit(['.', '/']).next() {
            Some(package) if !built_in => format!("{package}.{name}"),
            _ => name.to_owned(),
        }
    }

    /// The declared name inside of pointers, lists and maps.
    pub(super) fn innermost(&self) -> &'static str {
        let mut name = self.declared;
        loop {
            let inner = if let Some(item) = name.strip_prefix('*').or_else(|| name.strip_prefix("[]")) {
                item
            } else if let Some((_, value)) = name.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
                value
            } else {
                return name;
            };
            name = inner;
        }
    }
}

/// What a name declared in a Go package stands for.
#[derive(Debug)]
pub(super) enum Named {
    Struct(StructId),
    Other(Other),
}

/// A named type that is no struct: `type RestartPolicy string`.
#[derive(Debug)]
pub(super) struct Other {
    pub underlying: &'static str,
    /// Protobuf has a message for it.
    pub message: bool,
    /// The values of an enum.
    pub values: Vec<&'static str>,
}
