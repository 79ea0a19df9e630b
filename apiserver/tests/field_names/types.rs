//! The names of fields, and the paths of names, that the schema table knows.

use std::collections::HashSet;

use coracle_apimachinery::schema::{StructId, Type, schema};

/// The structs in which the names of a file are looked up.
pub struct Scope(Vec<StructId>);

impl Scope {
    /// Returns the scope of all structs in the table.
    pub fn all() -> Scope {
        Scope(schema().structs().map(|(id, _)| id).collect())
    }

    /// Returns the structs in objects of a kind, whose name is like `replica_set`; None if there is
    /// no such kind.
    pub fn of_kind(snake_case: &str) -> Option<Scope> {
        let name = snake_case.replace('_', "");
        let kinds = schema().resources().iter().filter(|resource| resource.singular == name);
        let roots: Vec<StructId> = kinds.map(|resource| resource.type_id).collect();
        (!roots.is_empty()).then(|| Scope::below(roots))
    }

    /// Returns the structs in objects of the kinds of a group.
    pub fn of_group(group: &str) -> Scope {
        let kinds = schema().resources().iter().filter(|resource| resource.group == group);
        Scope::below(kinds.map(|resource| resource.type_id).collect())
    }

    fn below(roots: Vec<StructId>) -> Scope {
        let mut seen: HashSet<StructId> = roots.iter().copied().collect();
        let (mut found, mut next) = (Vec::new(), roots);
        while let Some(id) = next.pop() {
            found.push(id);
            let members = schema().get(id).members().iter();
            let structs = members.filter_map(|member| match innermost(&member.ty) {
                Type::Struct(id) => Some(*id),
                _ => None,
            });
            next.extend(structs.filter(|id| seen.insert(*id)));
        }
        Scope(found)
    }

    /// Returns `true` if the path leads from some struct through its fields. Lists have no names of
    /// their own, and maps have any.
    pub fn has(&self, path: &[String]) -> bool {
        self.0.iter().any(|id| leads(&Type::Struct(*id), path))
    }
}

fn leads(from: &Type, path: &[String]) -> bool {
    let Some((name, rest)) = path.split_first() else { return true };
    match from {
        Type::Struct(id) => schema().get(*id).field(name).is_some_and(|field| leads(&field.ty, rest)),
        Type::List(item) | Type::ListMessage(item) => leads(item, path),
        Type::Map(value) => leads(value, rest) || leads(value, path),
        // One of several types, or any.
        Type::RawExtension | Type::FieldsV1 | Type::Json | Type::Any => true,
        Type::SchemaOrBool | Type::SchemaOrArray | Type::SchemaOrStrings => true,
        _ => false,
    }
}

fn innermost(ty: &Type) -> &Type {
    match ty {
        Type::List(inner) | Type::ListMessage(inner) | Type::Map(inner) => innermost(inner),
        other => other,
    }
}
