//! Literals of lists, maps and structs.

use std::sync::Arc;

use super::{Parsed, Parser};
use crate::ast::{ExprKind, StructField};

impl Parser {
    pub(super) fn list(&mut self, offset: usize) -> Parsed {
        let mut items = Vec::new();
        while self.take("]").is_none() {
            let optional = self.take("?").is_some();
            items.push((self.expression()?, optional));
            if self.take(",").is_none() {
                self.expect("]", "")?;
                break;
            }
        }
        Ok(self.node(offset, ExprKind::List(items)))
    }

    pub(super) fn map(&mut self, offset: usize) -> Parsed {
        let mut entries = Vec::new();
        while self.take("}").is_none() {
            let optional = self.take("?").is_some();
            let key = self.expression()?;
            self.expect(":", "")?;
            entries.push((key, self.expression()?, optional));
            if self.take(",").is_none() {
                self.expect("}", "")?;
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
            self.expect(":", "")?;
            let value = self.expression()?;
            fields.push(StructField { offset: colon, name: Arc::from(field.as_str()), value, optional });
            if self.take(",").is_none() {
                self.expect("}", "")?;
                break;
            }
        }
        Ok(self.node(offset, ExprKind::Struct { name: name.into(), fields }))
    }
}
