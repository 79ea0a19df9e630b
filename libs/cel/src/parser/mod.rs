//! The parser: recursive descent over the tokens, with a bound on the depth.
//!
//! Source: the grammar of cel-spec; the texts of errors are those of cel-go's generated parser.

mod literals;

use crate::ast::{Expr, ExprKind, Literal};
use crate::expr_factory::{ExprFactory, MAX_DEPTH, ParseAborted};
use crate::lexer::{self, Lexeme, Token};
use crate::macros::{self, Expansion};
use crate::source::{Issue, Issues};

/// The largest nesting depth of brackets and branches, so that parsing needs a bounded stack.
const MAX_NESTING: usize = 64;
/// The largest length of an expression, in characters.
const MAX_LENGTH: usize = 100_000;
/// The number of syntax errors after which parsing ends, as in cel-go.
const MAX_SYNTAX_ERRORS: usize = 100;

const EXPRESSION: &str = "{'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}";
const RESERVED: [&str; 18] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
    "in",
];

/// Parses an expression. Returns its tree and the number of nodes.
///
/// - `binds`: whether the macro `cel.bind` is available.
pub fn parse(text: &str, binds: bool) -> Result<(Expr, usize), Issues> {
    let length = text.chars().count();
    if length > MAX_LENGTH {
        let message = format!("expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}");
        return Err(Issues::new(text, vec![Issue { offset: 0, message }]));
    }
    let mut factory = ExprFactory::default();
    let tokens = lexer::tokens(text, &mut factory.issues);
    let mut parser = Parser { tokens, at: 0, factory, nesting: 0, binds };
    let parsed = parser.whole();
    let ExprFactory { count, issues } = parser.factory;
    match parsed {
        Ok(expr) if issues.is_empty() => Ok((expr, count)),
        _ => Err(Issues::new(text, issues)),
    }
}

type Parsed = Result<Expr, ParseAborted>;

/// The state of parsing.
struct Parser {
    tokens: Vec<Lexeme>,
    at: usize,
    factory: ExprFactory,
    nesting: usize,
    /// Whether the macro `cel.bind` is available.
    binds: bool,
}

const END: &Lexeme = &Lexeme { token: Token::End, offset: 0, text: String::new() };

impl Parser {
    fn whole(&mut self) -> Parsed {
        let expr = self.expression()?;
        if self.current().token != Token::End {
            // A single superfluous token is skipped; after several of them the parser stops.
            let only = self.peek(1).token == Token::End;
            let wrong = if only { "extraneous" } else { "mismatched" };
            let current = self.current().clone();
            self.syntax(
                &current,
                format!("{wrong} input '{}' expecting <EOF>", lexer::printed(&current.text)),
            );
            return Err(ParseAborted);
        }
        Ok(expr)
    }

    fn peek(&self, ahead: usize) -> &Lexeme {
        self.tokens.get(self.at + ahead).or(self.tokens.last()).unwrap_or(END)
    }

    fn current(&self) -> &Lexeme {
        self.peek(0)
    }

    fn is(&self, symbol: &str) -> bool {
        matches!(self.current().token, Token::Symbol(found) if found == symbol)
    }

    /// Consumes a symbol if it is the next token, and returns its position.
    fn take(&mut self, symbol: &str) -> Option<usize> {
        let offset = self.current().offset;
        self.is(symbol).then(|| {
            self.at += 1;
            offset
        })
    }

    fn take_any(&mut self, symbols: &[&str]) -> Option<(usize, &'static str)> {
        let Token::Symbol(found) = self.current().token else { return None };
        let offset = self.current().offset;
        symbols.contains(&found).then(|| {
            self.at += 1;
            (offset, found)
        })
    }

    fn syntax(&mut self, at: &Lexeme, message: String) {
        self.factory.issue(at.offset, format!("Syntax error: {message}"));
    }

    fn expect(&mut self, symbol: &str, others: &str) -> Result<(), ParseAborted> {
        if self.take(symbol).is_some() {
            return Ok(());
        }
        let current = self.current().clone();
        let message = match (others, &current.token) {
            (others, Token::End) if !others.is_empty() => {
                format!("mismatched input '<EOF>' expecting {others}")
            }
            ("", Token::End) => format!("missing '{symbol}' at '<EOF>'"),
            (_, _) => {
                let skipped = matches!(self.peek(1).token, Token::Symbol(next) if next == symbol);
                let wrong = if skipped { "extraneous" } else { "mismatched" };
                format!("{wrong} input '{}' expecting '{symbol}'", lexer::printed(&current.text))
            }
        };
        self.syntax(&current, message);
        Err(ParseAborted)
    }

    fn nested<T>(
        &mut self,
        rule: impl FnOnce(&mut Self) -> Result<T, ParseAborted>,
    ) -> Result<T, ParseAborted> {
        if self.factory.issues.len() >= MAX_SYNTAX_ERRORS {
            return Err(ParseAborted);
        }
        if self.nesting >= MAX_NESTING
            || self.factory.issues.iter().any(|issue| issue.message.contains("recursion limit"))
        {
            let offset = self.current().offset;
            self.factory.issue(offset, format!("expression recursion limit exceeded: {MAX_NESTING}"));
            return Err(ParseAborted);
        }
        self.nesting += 1;
        let parsed = rule(self);
        self.nesting -= 1;
        parsed
    }

    fn expression(&mut self) -> Parsed {
        self.nested(|parser| {
            let condition = parser.logical("||", "_||_")?;
            let Some(offset) = parser.take("?") else { return Ok(condition) };
            let then = parser.logical("||", "_||_")?;
            parser.expect(":", "':'")?;
            let otherwise = parser.expression()?;
            Ok(parser.factory.call(offset, "_?_:_", vec![condition, then, otherwise]))
        })
    }

    /// Parses a chain of `&&` or `||` into a balanced tree.
    fn logical(&mut self, symbol: &str, function: &str) -> Parsed {
        let mut terms = Vec::new();
        let mut operators = Vec::new();
        loop {
            terms.push(Some(if symbol == "||" { self.logical("&&", "_&&_")? } else { self.relation()? }));
            match self.take(symbol) {
                Some(offset) => operators.push(offset),
                None => break,
            }
        }
        self.balance(function, &mut terms, &operators).ok_or(ParseAborted)
    }

    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], operators: &[usize]) -> Option<Expr> {
        if operators.is_empty() {
            return terms.first_mut()?.take();
        }
        let middle = (operators.len() - 1).div_ceil(2);
        let (left, right) = terms.split_at_mut_checked(middle + 1)?;
        let (before, rest) = operators.split_at_checked(middle)?;
        let (offset, after) = rest.split_first()?;
        let left = self.balance(function, left, before)?;
        let right = self.balance(function, right, after)?;
        Some(self.factory.call(*offset, function, vec![left, right]))
    }

    fn binary(&mut self, symbols: &[&str], operand: fn(&mut Self) -> Parsed) -> Parsed {
        let mut left = operand(self)?;
        while let Some((offset, symbol)) = self.take_any(symbols) {
            let right = operand(self)?;
            let function = if symbol == "in" { "@in".to_owned() } else { format!("_{symbol}_") };
            left = self.factory.call(offset, &function, vec![left, right]);
            if left.depth > MAX_DEPTH {
                return Err(ParseAborted);
            }
        }
        Ok(left)
    }

    fn relation(&mut self) -> Parsed {
        self.binary(&["<", "<=", ">=", ">", "==", "!=", "in"], Self::addition)
    }

    fn addition(&mut self) -> Parsed {
        self.binary(&["+", "-"], Self::multiplication)
    }

    fn multiplication(&mut self) -> Parsed {
        self.binary(&["*", "/", "%"], Self::unary)
    }

    fn unary(&mut self) -> Parsed {
        let offset = self.current().offset;
        if self.is("-")
            && let Some(literal) = self.negative(offset)
        {
            return self.members(literal);
        }
        for (symbol, function) in [("!", "!_"), ("-", "-_")] {
            let mut count = 0;
            while self.take(symbol).is_some() {
                count += 1;
            }
            if count == 0 {
                continue;
            }
            let operand = self.member()?;
            // An even number of signs means nothing.
            let is_even = count % 2 == 0;
            return Ok(if is_even { operand } else { self.factory.call(offset, function, vec![operand]) });
        }
        self.member()
    }

    fn member(&mut self) -> Parsed {
        let primary = self.primary()?;
        self.members(primary)
    }

    fn members(&mut self, mut expr: Expr) -> Parsed {
        loop {
            if expr.depth > MAX_DEPTH {
                return Err(ParseAborted);
            }
            if let Some(dot) = self.take(".") {
                let optional = self.take("?").is_some();
                let field_at = self.current().offset;
                if !optional && self.recover_from_missing_field(dot) {
                    if self.factory.issues.len() >= MAX_SYNTAX_ERRORS {
                        return Err(ParseAborted);
                    }
                    continue;
                }
                let (field, escaped) = self.field_name()?;
                if escaped {
                    self.factory.issue(field_at, "unsupported syntax: '`'");
                    return Err(ParseAborted);
                }
                let open = self.current().offset;
                if !optional && self.take("(").is_some() {
                    let args = self.arguments(")")?;
                    expr = self.member_call(open, expr, &field, args)?;
                } else if optional {
                    let name = self.factory.literal(dot, Literal::String(field.as_str().into()));
                    expr = self.factory.call(dot, "_?._", vec![expr, name]);
                } else {
                    let kind = ExprKind::Select {
                        operand: Box::new(expr),
                        field: field.as_str().into(),
                        test_only: false,
                    };
                    expr = self.factory.node(dot, kind);
                }
            } else if let Some(open) = self.take("[") {
                let function = if self.take("?").is_some() { "_[?_]" } else { "_[_]" };
                let index = self.expression()?;
                self.expect("]", "")?;
                expr = self.factory.call(open, function, vec![expr, index]);
            } else {
                return Ok(expr);
            }
        }
    }

    fn field_name(&mut self) -> Result<(String, bool), ParseAborted> {
        let current = self.current().clone();
        let name = match current.token {
            Token::Ident(name) => (name, false),
            Token::Escaped(name) => (name, true),
            _ => {
                let text = lexer::printed(&current.text);
                self.syntax(&current, format!("mismatched input '{text}' expecting IDENTIFIER"));
                return Err(ParseAborted);
            }
        };
        self.at += 1;
        Ok(name)
    }

    /// Reports a dot without a field name. Returns whether parsing continues after the member, as
    /// that of ANTLR's parser does.
    fn recover_from_missing_field(&mut self, dot: usize) -> bool {
        let current = self.current().clone();
        let follows = match current.token {
            Token::Symbol(symbol) => !["true", "false", "null"].contains(&symbol),
            Token::End | Token::Double(_) => true,
            _ => false,
        };
        if !follows {
            return false;
        }
        let text = match current.token {
            Token::End => String::new(),
            // Any white space between them is printed as one blank.
            _ if current.offset > dot + 1 => format!(" {}", lexer::printed(&current.text)),
            _ => lexer::printed(&current.text),
        };
        self.syntax(&current, format!("no viable alternative at input '.{text}'"));
        if let Token::Double(_) = current.token {
            self.at += 1;
        }
        true
    }

    fn arguments(&mut self, close: &str) -> Result<Vec<Expr>, ParseAborted> {
        let mut args = Vec::new();
        if self.take(close).is_some() {
            return Ok(args);
        }
        loop {
            args.push(self.expression()?);
            if self.take(",").is_none() {
                break;
            }
        }
        self.expect(close, "")?;
        Ok(args)
    }

    fn member_call(&mut self, offset: usize, target: Expr, function: &str, args: Vec<Expr>) -> Parsed {
        let (target, args) =
            match macros::expand_member(&mut self.factory, offset, function, target, args, self.binds)? {
                Expansion::Expanded(expr) => return Ok(expr),
                Expansion::None { target, args } => (target, args),
            };
        let target = target.map(Box::new);
        Ok(self.factory.node(offset, ExprKind::Call { function: function.into(), target, args }))
    }

    fn primary(&mut self) -> Parsed {
        let current = self.current().clone();
        let offset = current.offset;
        match &current.token {
            Token::Symbol("(") => {
                self.at += 1;
                let expr = self.expression()?;
                self.expect(")", "")?;
                Ok(expr)
            }
            Token::Symbol("[") => {
                self.at += 1;
                self.list(offset)
            }
            Token::Symbol("{") => {
                self.at += 1;
                self.map(offset)
            }
            Token::Symbol(".") | Token::Ident(_) => self.named(offset),
            token => match self.simple_literal(offset, token) {
                Some(literal) => Ok(literal),
                None => self.recover_from_unexpected(&current),
            },
        }
    }

    /// Reports a token with which no expression begins. It is skipped where an expression follows.
    fn recover_from_unexpected(&mut self, current: &Lexeme) -> Parsed {
        let skipped = current.token != Token::End && self.begins_expression(1);
        let wrong = if skipped { "extraneous" } else { "mismatched" };
        let text = lexer::printed(&current.text);
        self.syntax(current, format!("{wrong} input '{text}' expecting {EXPRESSION}"));
        if skipped {
            self.at += 1;
            return self.nested(Self::primary);
        }
        Err(ParseAborted)
    }

    fn begins_expression(&self, ahead: usize) -> bool {
        match &self.peek(ahead).token {
            Token::End | Token::Escaped(_) => false,
            Token::Symbol(symbol) => ["[", "{", "(", ".", "-", "!", "true", "false", "null"].contains(symbol),
            _ => true,
        }
    }

    /// Parses a variable, a call or a struct literal.
    fn named(&mut self, offset: usize) -> Parsed {
        self.take(".");
        let current = self.current().clone();
        let Token::Ident(name) = &current.token else {
            let text = lexer::printed(&current.text);
            self.syntax(&current, format!("mismatched input '{text}' expecting IDENTIFIER"));
            return Err(ParseAborted);
        };
        self.at += 1;
        if RESERVED.contains(&name.as_str()) {
            self.factory.issue(offset, format!("reserved identifier: {name}"));
        }
        let open = self.current().offset;
        if self.take("(").is_some() {
            let args = self.arguments(")")?;
            return match macros::expand_global(&mut self.factory, open, name, args)? {
                Expansion::Expanded(expr) => Ok(expr),
                Expansion::None { args, .. } => Ok(self.factory.call(open, name, args)),
            };
        }
        if let Some((full, length)) = self.struct_name(name) {
            self.at += length;
            let open = self.current().offset;
            self.at += 1;
            return self.structure(open, &full);
        }
        Ok(self.factory.ident(offset, name))
    }

    /// Returns the name of a struct literal that begins with `first`, and the number of further
    /// tokens in the name; `None` if there is no struct literal.
    fn struct_name(&self, first: &str) -> Option<(String, usize)> {
        let mut name = first.to_owned();
        let mut ahead = 0;
        loop {
            match &self.peek(ahead).token {
                Token::Symbol("{") => return Some((name, ahead)),
                Token::Symbol(".") => match &self.peek(ahead + 1).token {
                    Token::Ident(part) => {
                        name = format!("{name}.{part}");
                        ahead += 2;
                    }
                    _ => return None,
                },
                _ => return None,
            }
        }
    }
}
