//! The translation of patterns, element by element.

use crate::PatternError;

/// The length of a pattern, in bytes: while it is parsed, some of its characters take a thousand
/// times as much.
const MAX_LENGTH: usize = 10_000;
/// The number of times that a pattern may repeat something, as Go limits it.
const MAX_REPEAT: u32 = 1000;

/// A pattern on its way from one syntax to the other.
pub(crate) struct Translation<'t> {
    text: &'t str,
    pub(crate) rest: &'t str,
    pub(crate) out: String,
    /// The groups that are open: the largest number of times that each repeats something so far.
    open: Vec<u32>,
    /// As for an open group, of the whole pattern or of the group that is parsed.
    repeats: u32,
    /// The element that a repetition may repeat.
    before: Before<'t>,
}

/// The element before a repetition operator.
#[derive(Clone, Copy)]
enum Before<'t> {
    /// Nothing that can be repeated.
    Nothing,
    /// A character, a class or a group, which repeats something so many times.
    Element(u32),
    /// Another repetition, which begins here.
    Repetition(&'t str),
}

/// Translates a pattern from Go's syntax to that of the `regex` crate.
///
/// # Errors
/// The error that Go finds.
pub(crate) fn translate(text: &str) -> Result<String, PatternError> {
    if text.len() > MAX_LENGTH {
        return Err(PatternError::TooLarge);
    }
    let mut translation = Translation {
        text,
        rest: text,
        out: String::with_capacity(text.len()),
        open: Vec::new(),
        repeats: 1,
        before: Before::Nothing,
    };
    loop {
        let start = translation.rest;
        let Some(c) = translation.next() else { break };
        translation.element(c, start)?;
    }
    if !translation.open.is_empty() {
        return Err(PatternError::MissingParenthesis(text.to_owned()));
    }
    Ok(translation.out)
}

impl<'t> Translation<'t> {
    pub(crate) fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Parses an element of a pattern.
    ///
    /// - `start`: the text that begins with it
    fn element(&mut self, c: char, start: &'t str) -> Result<(), PatternError> {
        if !matches!(c, '*' | '+' | '?' | '{') {
            self.end_element();
        }
        match c {
            '\\' => {
                self.escape(start)?;
                self.before = Before::Element(1);
            }
            '[' => {
                self.class(start)?;
                self.before = Before::Element(1);
            }
            '(' => {
                self.group()?;
                self.before = Before::Nothing;
            }
            ')' => {
                let outside = self.open.pop();
                let outside = outside.ok_or(PatternError::UnexpectedParenthesis(self.text.to_owned()))?;
                self.before = Before::Element(std::mem::replace(&mut self.repeats, outside));
                self.out.push(c);
            }
            '|' => {
                self.out.push(c);
                self.before = Before::Nothing;
            }
            '*' | '+' | '?' => self.repeat(start, c.encode_utf8(&mut [0; 4]), 1)?,
            '{' => self.counted(start)?,
            // The end of no class is a character.
            '}' | ']' => {
                self.out.push('\\');
                self.out.push(c);
                self.before = Before::Element(1);
            }
            c => {
                self.out.push(c);
                self.before = Before::Element(1);
            }
        }
        Ok(())
    }

    /// Counts the repetitions in the element before, which is not repeated itself.
    fn end_element(&mut self) {
        if let Before::Element(repeats) = self.before {
            self.repeats = self.repeats.max(repeats);
        }
    }

    /// Parses the rest of a repetition operator, which repeats at most so many times.
    ///
    /// - `start`: the text that begins with it
    fn repeat(&mut self, start: &'t str, operator: &str, most: u32) -> Result<(), PatternError> {
        let is_lazy = self.rest.starts_with('?');
        self.rest = self.rest.strip_prefix('?').unwrap_or(self.rest);
        let inner = match self.before {
            Before::Nothing => return Err(PatternError::MissingArgument(self.upto_here(start))),
            Before::Repetition(first) => return Err(PatternError::NestedRepetition(self.upto_here(first))),
            Before::Element(repeats) => repeats,
        };
        // What is repeated never does not count.
        let repeats = if most == 0 { 1 } else { inner.saturating_mul(most) };
        if most > 1 && repeats > MAX_REPEAT {
            return Err(PatternError::RepeatCount(self.upto_here(start)));
        }
        self.repeats = self.repeats.max(repeats);
        self.out.push_str(operator);
        self.out.push_str(if is_lazy { "?" } else { "" });
        self.before = Before::Repetition(start);
        Ok(())
    }

    /// Parses `{n}`, `{n,}` or `{n,m}`; anything else is text.
    fn counted(&mut self, start: &'t str) -> Result<(), PatternError> {
        let counts = self.rest.split_once('}').and_then(|(inside, after)| {
            let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
            // A number with a leading zero is none, as in Go.
            let number = |text: &str| {
                text.bytes().all(|b| b.is_ascii_digit()) && (text.len() < 2 || !text.starts_with('0'))
            };
            (!least.is_empty() && number(least) && number(most)).then_some((inside, least, most, after))
        });
        let Some((inside, least, most, after)) = counts else {
            self.end_element();
            self.out.push_str("\\{");
            self.before = Before::Element(1);
            return Ok(());
        };
        let count = |text: &str| text.parse::<u32>().ok().filter(|count| *count <= MAX_REPEAT);
        let largest = match (count(least), most) {
            (least, "") => least.map(|least| if inside.contains(',') { least.max(1) } else { least }),
            (Some(least), most) => count(most).filter(|most| least <= *most),
            (None, _) => None,
        };
        let operator = format!("{{{inside}}}");
        let Some(largest) = largest else { return Err(PatternError::RepeatCount(operator)) };
        self.rest = after;
        self.repeat(start, &operator, largest)
    }

    fn group(&mut self) -> Result<(), PatternError> {
        let start = self.rest;
        let Some(rest) = start.strip_prefix('?') else {
            self.open_group("(");
            return Ok(());
        };
        let named = rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<'));
        if let Some(named) = named.filter(|named| !named.is_empty()) {
            let wrong = |text: &str| PatternError::NamedCapture(format!("({text}"));
            let (name, after) = named.split_once('>').ok_or_else(|| wrong(start))?;
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) {
                return Err(wrong(&start[..start.len() - after.len()]));
            }
            self.rest = after;
            // Names may be there twice, and nobody asks for them.
            self.open_group("(");
            return Ok(());
        }
        self.rest = rest;
        self.flags(start)
    }

    fn open_group(&mut self, text: &str) {
        self.out.push_str(text);
        self.open.push(std::mem::replace(&mut self.repeats, 1));
    }

    /// Parses the flags of a group, or those from here on. Each may be set and reset many times.
    ///
    /// - `start`: the text after the parenthesis
    fn flags(&mut self, start: &'t str) -> Result<(), PatternError> {
        let (mut on, mut off) = (String::new(), String::new());
        let (mut resets, mut has_flag) = (false, false);
        loop {
            let c = self.next();
            match c {
                Some(flag @ ('i' | 'm' | 's' | 'U')) => {
                    has_flag = true;
                    on.retain(|other| other != flag);
                    off.retain(|other| other != flag);
                    if resets { off.push(flag) } else { on.push(flag) }
                }
                Some('-') if !resets => (resets, has_flag) = (true, false),
                Some(':' | ')') if has_flag || !resets => {
                    let minus = if off.is_empty() { "" } else { "-" };
                    match c {
                        Some(':') => self.open_group(&format!("(?{on}{minus}{off}:")),
                        _ if on.is_empty() && off.is_empty() => {}
                        _ => self.out.push_str(&format!("(?{on}{minus}{off})")),
                    }
                    return Ok(());
                }
                _ => return Err(PatternError::Perl(format!("({}", &start[..start.len() - self.rest.len()]))),
            }
        }
    }

    /// Returns the text between this beginning and the place that is parsed next.
    pub(crate) fn upto_here(&self, start: &str) -> String {
        start[..start.len() - self.rest.len()].to_owned()
    }
}
