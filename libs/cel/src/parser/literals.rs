//! Literals.

use std::sync::Arc;

use super::{Parsed, Parser};
use crate::ast::{Expr, ExprKind, Literal, StructField};
use crate::lexer::Token;

impl Parser {
    /// Parses a literal of one token, or of a number and its sign; None if there is none.
    pub(super) fn simple_literal(&mut self, offset: usize, token: &Token) -> Option<Expr> {
        if let Token::Symbol("-") = token {
            return self.negative(offset);
        }
        let literal = match token {
            Token::Int(text) => self.factory.int(offset, text),
            Token::Uint(text) => self.factory.uint(offset, text),
            Token::Double(text) => self.factory.double(offset, text),
            Token::Symbol(word @ ("true" | "false")) => {
                self.factory.literal(offset, Literal::Bool(*word == "true"))
            }
            Token::Symbol("null") => self.factory.literal(offset, Literal::Null),
            Token::String(text) => self.factory.literal(offset, Literal::String(text.as_str().into())),
            Token::Bytes(bytes) => self.factory.literal(offset, Literal::Bytes(bytes.as_slice().into())),
            _ => return None,
        };
        self.at += 1;
        Some(literal)
    }

    /// Parses a number after a sign, with which it is one literal.
    pub(super) fn negative(&mut self, offset: usize) -> Option<Expr> {
        let literal = match &self.peek(1).token {
            Token::Int(text) => {
                let text = format!("-{text}");
                self.factory.int(offset, &text)
            }
            Token::Double(text) => {
                let text = format!("-{text}");
                self.factory.double(offset, &text)
            }
            _ => return None,
        };
        self.at += 2;
        Some(literal)
    }

    pub(super) fn list(&mut self, offset: usize) -> Parsed {
        let mut items = Vec::new();
        self.skip_only_comma("]");
        while self.take("]").is_none() {
            let optional = self.take("?").is_some();
            items.push((self.expression()?, optional));
            if self.take(",").is_none() {
                self.expect("]", "{']', ','}")?;
                break;
            }
            if self.current().token == Token::End {
                self.expect("]", "")?;
            }
        }
        Ok(self.factory.node(offset, ExprKind::List(items)))
    }

    /// Skips a comma that is all there is between brackets.
    fn skip_only_comma(&mut self, close: &str) {
        if self.is(",") && matches!(self.peek(1).token, Token::Symbol(next) if next == close) {
            self.at += 1;
        }
    }

    pub(super) fn map(&mut self, offset: usize) -> Parsed {
        let mut entries = Vec::new();
        self.skip_only_comma("}");
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":", "':'")?;
            entries.push((key, self.expression()?, optional));
            if self.take(",").is_none() {
                self.expect("}", "{'}', ','}")?;
                break;
            }
        }
        Ok(self.factory.node(offset, ExprKind::Map(entries)))
    }

    pub(super) fn structure(&mut self, offset: usize, name: &str) -> Parsed {
        let mut fields = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let (field, _) = self.field_name()?;
            let colon = self.current().offset;
            self.expect(":", "':'")?;
            let value = self.expression()?;
            fields.push(StructField { offset: colon, name: Arc::from(field.as_str()), value, optional });
            if self.take(",").is_none() {
                self.expect("}", "{'}', ','}")?;
                break;
            }
        }
        Ok(self.factory.node(offset, ExprKind::Struct { name: name.into(), fields }))
    }
}
