//! Types, and their unification.
//!
//! Source: cel-go's `checker/types.go`.

use std::fmt;
use std::sync::Arc;

/// The type of an expression.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// Known at runtime only.
    Dyn,
    /// Known at runtime only, and without members that are known.
    Any,
    /// `null`
    Null,
    /// `bool`
    Bool,
    /// `int`
    Int,
    /// `uint`
    Uint,
    /// `double`
    Double,
    /// `string`
    String,
    /// `bytes`
    Bytes,
    /// `google.protobuf.Duration`
    Duration,
    /// `google.protobuf.Timestamp`
    Timestamp,
    /// A list and its items.
    List(Arc<Type>),
    /// A map, its keys and its values.
    Map(Arc<(Type, Type)>),
    /// The type of a type.
    Type(Arc<Type>),
    /// A value that may be absent.
    Optional(Arc<Type>),
    /// An object type of the environment.
    Object(Arc<str>),
    /// A type of a library, such as `kubernetes.Quantity`.
    Opaque(Arc<str>),
    /// A variable of a signature, and while checking a variable to be determined.
    Param(usize),
    /// The type after an error that is already reported.
    Error,
}

impl Type {
    /// Returns the type of lists of `item`.
    pub fn list(item: Type) -> Type {
        Type::List(Arc::new(item))
    }

    /// Returns the type of maps from `key` to `value`.
    pub fn map(key: Type, value: Type) -> Type {
        Type::Map(Arc::new((key, value)))
    }

    /// Returns the type of optional values of type `value`.
    pub fn optional(value: Type) -> Type {
        Type::Optional(Arc::new(value))
    }

    /// Returns `true` if null can be used as a value of the type.
    fn is_nullable(&self) -> bool {
        matches!(
            self,
            Type::Null
                | Type::Object(_)
                | Type::Opaque(_)
                | Type::Optional(_)
                | Type::Duration
                | Type::Timestamp
        )
    }

    /// Returns the name of the type with its parameters, as types of whole expressions are printed.
    pub fn full_name(&self) -> String {
        match self {
            Type::List(item) => format!("list({})", item.full_name()),
            Type::Map(entry) => format!("map({}, {})", entry.0.full_name(), entry.1.full_name()),
            Type::Type(of) => format!("type({})", of.full_name()),
            Type::Optional(of) => format!("optional_type({})", of.full_name()),
            Type::Param(number) => format!("_var{number}"),
            other => other.name().to_owned(),
        }
    }

    /// Returns `true` if the type is checked only at runtime.
    pub fn is_dyn(&self) -> bool {
        matches!(self, Type::Dyn | Type::Any | Type::Error)
    }

    /// Returns `true` if the type has more than `parts` parts.
    pub(crate) fn is_larger_than(&self, parts: usize) -> bool {
        fn count(ty: &Type, left: usize) -> Option<usize> {
            let left = left.checked_sub(1)?;
            match ty {
                Type::List(of) | Type::Type(of) | Type::Optional(of) => count(of, left),
                Type::Map(entry) => count(&entry.1, count(&entry.0, left)?),
                _ => Some(left),
            }
        }
        count(self, parts).is_none()
    }

    /// Returns `true` if values of the type have the size 1 in estimates.
    pub fn is_scalar(&self) -> bool {
        matches!(self, Type::Bool | Type::Double | Type::Duration | Type::Int | Type::Timestamp | Type::Uint)
    }

    /// Returns the type with a name in expressions, such as `int` or `string`.
    pub fn named(name: &str) -> Option<Type> {
        Some(match name {
            "dyn" => Type::Dyn,
            "null_type" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::Uint,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "google.protobuf.Duration" => Type::Duration,
            "google.protobuf.Timestamp" => Type::Timestamp,
            "list" => Type::list(Type::Dyn),
            "map" => Type::map(Type::Dyn, Type::Dyn),
            "type" => Type::Type(Arc::new(Type::Dyn)),
            "optional_type" => Type::optional(Type::Dyn),
            "net.IP" | "net.CIDR" => Type::Opaque(name.into()),
            _ => return None,
        })
    }

    /// Returns the name of the type without its parameters.
    pub fn name(&self) -> &str {
        match self {
            Type::Dyn => "dyn",
            Type::Any => "google.protobuf.Any",
            Type::Null => "null_type",
            Type::Bool => "bool",
            Type::Int => "int",
            Type::Uint => "uint",
            Type::Double => "double",
            Type::String => "string",
            Type::Bytes => "bytes",
            Type::Duration => "google.protobuf.Duration",
            Type::Timestamp => "google.protobuf.Timestamp",
            Type::List(_) => "list",
            Type::Map(_) => "map",
            Type::Type(_) => "type",
            Type::Optional(_) => "optional_type",
            Type::Object(name) | Type::Opaque(name) => name,
            Type::Param(_) => "param",
            Type::Error => "!error!",
        }
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Type::Any => f.write_str("any"),
            Type::Null => f.write_str("null"),
            Type::Duration => f.write_str("duration"),
            Type::Timestamp => f.write_str("timestamp"),
            Type::List(item) => write!(f, "list({item})"),
            Type::Map(entry) => write!(f, "map({}, {})", entry.0, entry.1),
            Type::Type(of) => write!(f, "type({of})"),
            Type::Optional(of) => write!(f, "optional_type({of})"),
            Type::Param(number) => write!(f, "_var{number}"),
            other => f.write_str(other.name()),
        }
    }
}

/// The largest number of parts of a type; larger types are checked at runtime.
pub const MAX_TYPE: usize = 100;
/// The largest number of pairs of types compared for one assignment; longer comparisons are made at
/// runtime.
const MAX_PAIRS: usize = 1_000;

/// The inferred types of type variables.
#[derive(Debug, Default)]
pub struct Substitution {
    known: Vec<Option<Type>>,
    /// The former values of the variables that were set since, for undoing an overload that does
    /// not match.
    trail: Vec<(usize, Option<Type>)>,
    /// Pairs of types that are left to compare.
    pairs: usize,
}

/// A state of the variables, to which they can be restored.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoint {
    variables: usize,
    trail: usize,
}

impl Substitution {
    /// Creates a new type variable.
    pub fn fresh(&mut self) -> Type {
        self.known.push(None);
        Type::Param(self.known.len() - 1)
    }

    fn known(&self, variable: usize) -> Option<&Type> {
        self.known.get(variable)?.as_ref()
    }

    fn set(&mut self, variable: usize, ty: Type) {
        if let Some(place) = self.known.get_mut(variable) {
            self.trail.push((variable, place.replace(ty)));
        }
    }

    /// Returns a checkpoint of the present state.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint { variables: self.known.len(), trail: self.trail.len() }
    }

    /// Restores the state of a checkpoint.
    pub fn restore(&mut self, to: Checkpoint) {
        while self.trail.len() > to.trail {
            let Some((variable, before)) = self.trail.pop() else { break };
            if let Some(place) = self.known.get_mut(variable) {
                *place = before;
            }
        }
        self.known.truncate(to.variables);
    }

    /// Substitutes the variables of a type. Unknown variables become dyn if `open_is_dyn`. Parts
    /// beyond [`MAX_TYPE`] become dyn, too, since variables that stand for types with variables can
    /// result in exponentially many parts.
    pub fn apply(&self, ty: &Type, open_is_dyn: bool) -> Type {
        let mut left = MAX_TYPE;
        if self.is_applied(ty, open_is_dyn) {
            ty.clone()
        } else {
            self.apply_within(ty, open_is_dyn, &mut left)
        }
    }

    /// Returns `true` if no variable of a type would be substituted. The type is then shared, not
    /// copied.
    fn is_applied(&self, ty: &Type, open_is_dyn: bool) -> bool {
        match ty {
            Type::Param(variable) => !open_is_dyn && self.known(*variable).is_none(),
            Type::List(of) | Type::Type(of) | Type::Optional(of) => self.is_applied(of, open_is_dyn),
            Type::Map(entry) => {
                self.is_applied(&entry.0, open_is_dyn) && self.is_applied(&entry.1, open_is_dyn)
            }
            _ => true,
        }
    }

    /// Follows a variable to its type, or to a variable that has no type yet. Variables may form a
    /// long chain.
    fn followed<'t>(&'t self, mut ty: &'t Type) -> &'t Type {
        while let Type::Param(variable) = ty
            && let Some(known) = self.known(*variable)
        {
            ty = known;
        }
        ty
    }

    /// Returns the type of a variable, or dyn if it is unknown. The variables within the type are
    /// not substituted.
    pub fn outermost<'t>(&'t self, ty: &'t Type) -> &'t Type {
        match self.followed(ty) {
            Type::Param(_) => &Type::Dyn,
            known => known,
        }
    }

    /// Returns the outermost type, with the outermost type of a list's items or of an optional's
    /// value.
    pub fn outline(&self, ty: &Type) -> Type {
        match self.outermost(ty) {
            Type::List(item) => Type::list(self.outermost(item).clone()),
            Type::Optional(of) => Type::optional(self.outermost(of).clone()),
            known => known.clone(),
        }
    }

    fn apply_within(&self, ty: &Type, open_is_dyn: bool, left: &mut usize) -> Type {
        let Some(rest) = left.checked_sub(1) else { return Type::Dyn };
        *left = rest;
        let ty = self.followed(ty);
        let mut apply = |ty: &Type| self.apply_within(ty, open_is_dyn, left);
        match ty {
            Type::Param(_) if open_is_dyn => Type::Dyn,
            Type::List(item) => Type::list(apply(item)),
            Type::Map(entry) => Type::map(apply(&entry.0), apply(&entry.1)),
            Type::Type(of) => Type::Type(Arc::new(apply(of))),
            Type::Optional(of) => Type::optional(apply(of)),
            other => other.clone(),
        }
    }

    /// Returns `true` if a value of type `from` can be used as `to`, and infers the types of
    /// variables from that.
    pub fn assign(&mut self, from: &Type, to: &Type) -> bool {
        let before = self.checkpoint();
        self.pairs = MAX_PAIRS;
        let fits = self.unify(from, to);
        if !fits {
            self.restore(before);
        }
        fits
    }

    fn unify(&mut self, from: &Type, to: &Type) -> bool {
        let Some(pairs) = self.pairs.checked_sub(1) else { return true };
        self.pairs = pairs;
        match (from, to) {
            (Type::Param(a), Type::Param(b)) if a == b => true,
            (_, Type::Param(variable)) => self.bind(*variable, from, false),
            (Type::Param(variable), _) => self.bind(*variable, to, true),
            _ if from.is_dyn() || to.is_dyn() => true,
            (Type::List(a), Type::List(b)) | (Type::Optional(a), Type::Optional(b)) => self.unify(a, b),
            (Type::Map(a), Type::Map(b)) => self.unify(&a.0, &b.0) && self.unify(&a.1, &b.1),
            (Type::Type(_), Type::Type(_)) => true,
            (Type::Null, other) | (other, Type::Null) if other.is_nullable() => true,
            (a, b) => a == b,
        }
    }

    fn bind(&mut self, mut variable: usize, ty: &Type, reversed: bool) -> bool {
        while let Some(Type::Param(other)) = self.known(variable) {
            variable = *other;
        }
        if let Some(known) = self.known(variable).cloned() {
            let fits = if reversed { self.unify(&known, ty) } else { self.unify(ty, &known) };
            // Inferred types only become more general.
            if fits && ty.is_dyn() {
                self.set(variable, Type::Dyn);
            }
            return fits;
        }
        let ty = self.apply(ty, false);
        if occurs(variable, &ty) {
            return ty == Type::Param(variable);
        }
        self.set(variable, ty);
        true
    }
}

fn occurs(variable: usize, ty: &Type) -> bool {
    match ty {
        Type::Param(other) => *other == variable,
        Type::List(of) | Type::Type(of) | Type::Optional(of) => occurs(variable, of),
        Type::Map(entry) => occurs(variable, &entry.0) || occurs(variable, &entry.1),
        _ => false,
    }
}
