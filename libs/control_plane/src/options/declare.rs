//! Declarations: the macro that makes a struct of options, and its flags as a table.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::form::Form;
use super::values::Values;

/// A struct of options that was declared by [`options!`].
pub trait Declared: Default + Sized + 'static {
    /// The flag of each field, if it has one.
    const FIELDS: &'static [Option<Flag<Self>>];

    /// The flags, in the order of the declarations, which is that of `--help`.
    fn flags() -> impl Iterator<Item = &'static Flag<Self>> {
        Self::FIELDS.iter().flatten()
    }

    /// Returns the values of the flags of `serve`, by their names; an absent one is empty.
    fn values(&self) -> BTreeMap<String, String> {
        let absent = |flag: &Flag<Self>| match flag.values {
            Values::Switch => "false".to_owned(),
            _ => String::new(),
        };
        Self::flags()
            .filter(|flag| flag.usage.serve)
            .map(|flag| (flag.name.to_owned(), (flag.write)(self).unwrap_or_else(|| absent(flag))))
            .collect()
    }

    /// Replaces numbers outside of their ranges by the nearest inside.
    fn clamp(&mut self) {
        for flag in Self::flags() {
            (flag.clamp)(self);
        }
    }
}

/// The flag of an option in the struct `S`.
#[derive(Debug)]
pub struct Flag<S: 'static> {
    /// The name, without dashes.
    pub name: &'static str,
    /// The name of the value in `--help`.
    pub value_name: &'static str,
    pub(crate) doc: &'static str,
    /// The values that it takes.
    pub values: Values,
    /// The programs that have it.
    pub usage: Usage,
    /// Checks the values, and returns an error with the reason if they are invalid.
    pub check: fn(&[OsString]) -> Result<(), String>,
    /// Sets the option to the given values.
    pub set: fn(&mut S, &[OsString]) -> Result<(), String>,
    pub(crate) write: fn(&S) -> Option<String>,
    pub(crate) clamp: fn(&mut S),
    /// Returns the range of the number in the value, such as `0, or 1 to 5000`.
    pub range: fn() -> Option<String>,
}

impl<S: Declared> Flag<S> {
    /// The help, in one line without a full stop.
    pub fn help(&self) -> String {
        let doc = self.usage.help.unwrap_or(self.doc).trim().trim_end_matches('.');
        match self.values {
            Values::Each => format!("{doc}; may be repeated"),
            _ => doc.to_owned(),
        }
    }

    /// The default, as text; None if there is none.
    pub fn default(&self) -> Option<String> {
        let default = (self.write)(&S::default());
        match self.usage.serve_default {
            None => default,
            Some(serve) => {
                let serve = match self.usage.serve_environment {
                    Some(variable) => format!("{variable}, or {serve}"),
                    None => serve.to_owned(),
                };
                Some(format!("{serve}; of `run`: {}", default.as_deref().unwrap_or("none")))
            }
        }
    }
}

/// The programs that have a flag, and its relations to others.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// `coracle serve` and its relatives.
    pub serve: bool,
    /// The drop-in `kube-apiserver` of envtest.
    pub drop_in: bool,
    /// The default of `serve`, if it is not that of the library.
    pub serve_default: Option<&'static str>,
    /// The environment variable with the value, if the flag is not given.
    pub environment: Option<&'static str>,
    /// The environment variable that replaces the default of `serve`, and means nothing to `run`.
    pub serve_environment: Option<&'static str>,
    /// The flag without which this one is refused.
    pub needs: Option<&'static str>,
    /// The help, if it is not the documentation of the option.
    pub help: Option<&'static str>,
}

/// The usage of a flag of `coracle serve`.
pub const SERVE: Usage = Usage {
    serve: true,
    drop_in: false,
    serve_default: None,
    environment: None,
    serve_environment: None,
    needs: None,
    help: None,
};
/// The usage of a flag of the drop-in `kube-apiserver`.
pub const DROP_IN: Usage = Usage { serve: false, drop_in: true, ..SERVE };
/// The usage of a flag of both.
pub const BOTH: Usage = Usage { drop_in: true, ..SERVE };

impl Usage {
    pub(crate) const fn with_serve_default(self, text: &'static str, variable: &'static str) -> Usage {
        Usage { serve_default: Some(text), serve_environment: Some(variable), ..self }
    }

    pub(crate) const fn with_environment(self, variable: &'static str) -> Usage {
        Usage { environment: Some(variable), ..self }
    }

    pub(crate) const fn needs(self, flag: &'static str) -> Usage {
        Usage { needs: Some(flag), ..self }
    }

    /// The documentation of an option of which the text on the command line is not the value in the library.
    pub(crate) const fn with_help(self, text: &'static str) -> Usage {
        Usage { help: Some(text), ..self }
    }
}

/// The values of a form, for constants.
pub(crate) const fn values_of<T, F: Form<T>>(_: &F) -> Values {
    F::VALUES
}

/// Declares a struct of options. Each field is declared as
///
/// ```text
/// /// The documentation: of the field, of the Builder's method, and, unless the usage has another help, in `--help` and in
/// /// docs/reference/flags.md.
/// FIELD: TYPE = DEFAULT, "FLAG" "VALUE_NAME" as FORM, USAGE;
/// ```
///
/// with a [`Form`] and a [`Usage`]; without what follows the default it has no flag. `docs NAME` makes a macro
/// `NAME!(FIELD)` of the documentation, for the methods that set fields.
macro_rules! options {
    (
        $(#[$attribute:meta])*
        pub struct $options:ident, docs $docs:ident {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $type:ty = $default:expr
                    $(, $name:literal $value:literal as $form:expr, $usage:expr)?;
            )*
        }
    ) => {
        $(#[$attribute])*
        pub struct $options {
            $(
                $(#[doc = $doc])+
                #[doc = concat!(
                    "\n\nDefault: `", stringify!($default), "`." $(, " Flag: `--", $name, " ", $value, "`.")?
                )]
                pub $field: $type,
            )*
        }

        impl Default for $options {
            fn default() -> $options {
                $options { $($field: $default),* }
            }
        }

        impl $crate::options::declare::Declared for $options {
            const FIELDS: &'static [Option<$crate::options::declare::Flag<$options>>] = &[$(
                $crate::options::declare::options!(
                    @flag $field: $type, concat!($($doc),+) $(, $name $value as $form, $usage)?
                )
            ),*];
        }

        /// The documentation of a field.
        #[doc(hidden)]
        #[macro_export]
        macro_rules! $docs {
            $(
                ($field) => {
                    concat!($($doc, "\n",)+ "\n\nDefault: `", stringify!($default), "`.")
                };
            )*
        }
    };
    (@flag $field:ident: $type:ty, $doc:expr) => {
        None
    };
    (@flag $field:ident: $type:ty, $doc:expr, $name:literal $value:literal as $form:expr, $usage:expr) => {{
        use $crate::options::form::Form;
        Some($crate::options::declare::Flag {
            name: $name,
            value_name: $value,
            doc: $doc,
            values: $crate::options::declare::values_of::<$type, _>(&$form),
            usage: $usage,
            check: |texts| Form::<$type>::read(&$form, texts).map(drop),
            set: |options, texts| {
                options.$field = $form.read(texts)?;
                Ok(())
            },
            write: |options| $form.write(&options.$field),
            clamp: |options| Form::clamp(&$form, &mut options.$field),
            range: || Form::<$type>::range(&$form),
        })
    }};
}

pub(crate) use options;
