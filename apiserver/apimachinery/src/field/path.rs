//! The path to a value.

use std::fmt;
use std::rc::Rc;

/// The path to a value, printed as kube-apiserver prints it: `spec.containers[0].env[1].name`,
/// `metadata.labels[key]`.
#[derive(Clone, Default)]
pub struct Path(Option<Rc<Step>>);

struct Step {
    parent: Path,
    segment: Segment,
}

enum Segment {
    Child(String),
    Index(usize),
    Key(String),
}

impl Path {
    /// Returns the root path, which is printed as the empty string.
    pub fn root() -> Path {
        Path(None)
    }

    /// Parses a path of dotted names, such as `metadata.name`.
    pub fn of(dotted: &str) -> Path {
        dotted.split('.').fold(Path::root(), |path, name| path.child(name))
    }

    /// Returns `true` if this is the root path.
    pub fn is_root(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the path of a member.
    pub fn child(&self, name: &str) -> Path {
        self.step(Segment::Child(name.to_owned()))
    }

    /// Returns the path of a list's element.
    pub fn index(&self, index: usize) -> Path {
        self.step(Segment::Index(index))
    }

    /// Returns the path of a map's entry.
    pub fn key(&self, key: &str) -> Path {
        self.step(Segment::Key(key.to_owned()))
    }

    /// Returns the path without its last element.
    pub fn parent(&self) -> Path {
        self.0.as_ref().map_or_else(Path::root, |step| step.parent.clone())
    }

    fn step(&self, segment: Segment) -> Path {
        Path(Some(Rc::new(Step { parent: self.clone(), segment })))
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(step) = &self.0 else { return Ok(()) };
        step.parent.fmt(f)?;
        match &step.segment {
            Segment::Child(name) if step.parent.0.is_none() => f.write_str(name),
            Segment::Child(name) => write!(f, ".{name}"),
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => write!(f, "[{key}]"),
        }
    }
}
