//! Literals of lists, maps and structs.

use std::sync::Arc;

use super::{Parsed, Parser};
use crate::ast::{ExprKind, StructField};
use crate::lexer::Token;

impl Parser {
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
        Ok(self.node(offset, ExprKind::List(items)))
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
        Ok(self.node(offset, ExprKind::Map(entries)))
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
        Ok(self.node(offset, ExprKind::Struct { name: name.into(), fields }))
    }
}
