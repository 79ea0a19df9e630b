//! Plans: what is evaluated of an expression. Constant parts are values already.
//!
//! The costs of an evaluation follow from its plan: constant parts and sets of constants cost
//! nothing, a chain of selections costs once for its beginning.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::ast::ACCUMULATOR;
use crate::functions::{Function, Overload};
use crate::value::{Key, Value};

/// A step of an evaluation.
#[derive(Clone, Debug)]
pub enum Step {
    /// A value that is known.
    Constant(Value<'static>),
    /// A chain of selections.
    Attribute(Box<Attribute>),
    /// `a && b` or `a || b`: either side decides if it is `decisive`.
    Logical { sides: Box<[Step; 2]>, decisive: bool },
    /// `a.or(b)` or `a.orValue(b)`, of which the second gives the value itself.
    Or { sides: Box<[Step; 2]>, value: bool },
    /// A call of a function.
    Call(Box<Call>),
    /// `accumulator + [item]`.
    Append { item: Box<Step>, accumulator: Arc<str> },
    /// `item in [...]`, whose items are constants.
    Membership { item: Box<Step>, set: Arc<BTreeSet<Key>> },
    /// A list; the second value says whether the element is optional.
    List(Vec<(Step, bool)>),
    /// A map.
    Map(Vec<(Step, Step, bool)>),
    /// An object.
    Object { name: Arc<str>, fields: Vec<(Arc<str>, Step, bool)> },
    /// A fold.
    Fold(Box<Fold>),
}

/// A value with selections of members and items of it.
#[derive(Clone, Debug)]
pub struct Attribute {
    pub root: AttributeRoot,
    pub qualifiers: Vec<Qualifier>,
    /// The last qualifier is tested for presence.
    pub test_only: bool,
}

/// The beginning of an attribute.
#[derive(Clone, Debug)]
pub enum AttributeRoot {
    /// A variable.
    Variable(Arc<str>),
    /// The value of a step.
    Relative(Step),
    /// One of two attributes.
    Conditional { condition: Step, then: Box<Attribute>, otherwise: Box<Attribute> },
}

/// The selection of a member or an item.
#[derive(Clone, Debug)]
pub struct Qualifier {
    pub key: QualifierKey,
    /// The result is absent if there is no such member.
    pub optional: bool,
    /// Only the presence is asked for.
    pub test_only: bool,
}

/// The key of a selection.
#[derive(Clone, Debug)]
pub enum QualifierKey {
    /// A constant.
    Constant(Value<'static>),
    /// An attribute.
    Computed(Attribute),
}

/// A call of a function.
#[derive(Clone, Debug)]
pub struct Call {
    pub function: &'static Function,
    /// The overload, if the types of the arguments fit only one.
    pub overload: Option<&'static Overload>,
    pub args: Vec<Step>,
    /// The first argument that fails ends the evaluation of the call.
    pub ends_early: bool,
}

/// A fold over a list or map.
#[derive(Clone, Debug)]
pub struct Fold {
    pub range: Step,
    pub var: Arc<str>,
    pub var2: Option<Arc<str>>,
    pub accu: Arc<str>,
    pub init: Step,
    pub condition: Step,
    pub step: Step,
    pub result: Step,
}

impl Step {
    /// Returns `true` if the step is a known value.
    pub fn is_constant(&self) -> bool {
        matches!(self, Step::Constant(_))
    }

    /// Converts the step to an attribute: itself, or one relative to its value.
    pub fn into_attribute(self) -> Attribute {
        match self {
            Step::Attribute(attribute) => *attribute,
            step => {
                Attribute { root: AttributeRoot::Relative(step), qualifiers: Vec::new(), test_only: false }
            }
        }
    }
}

impl Attribute {
    /// Adds a qualifier; to both branches of a conditional one.
    pub fn qualify(&mut self, qualifier: Qualifier) {
        match &mut self.root {
            AttributeRoot::Conditional { then, otherwise, .. } => {
                then.qualify(qualifier.clone());
                otherwise.qualify(qualifier);
            }
            _ => self.qualifiers.push(qualifier),
        }
    }

    /// Returns `true` if the attribute is the accumulator of a macro's fold.
    pub fn is_accumulator(&self) -> bool {
        self.qualifiers.is_empty()
            && matches!(&self.root, AttributeRoot::Variable(name) if **name == *ACCUMULATOR)
    }
}
