//! From text to a filter, or to what is wrong with it and where.

use std::fmt;

use super::value::{Op, Test};
use super::{Field, Filter, Leaf, Node};
use crate::config::{did_you_mean, nearest};

/// How deep brackets may nest.
const MAX_DEPTH: usize = 32;

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterError {
    /// The character it is at, counted from 0; behind the last one at the end.
    pub at: usize,
    /// What is wrong and what would be right.
    pub what: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at character {}: {}", self.at + 1, self.what)
    }
}

impl std::error::Error for FilterError {}

/// Reads a filter. An empty text is one that everything passes.
pub fn parse(text: &str) -> Result<Filter, FilterError> {
    let mut parser = Parser { chars: text.chars().collect(), at: 0, leaves: Vec::new() };
    parser.blanks();
    if parser.peek().is_none() {
        return Ok(Filter::default());
    }
    let root = parser.any(0)?;
    if parser.peek().is_some() {
        return Err(parser.error("there is no ( for this )"));
    }
    Ok(Filter { text: text.trim().to_owned(), root: Some(root), leaves: parser.leaves })
}

struct Parser {
    chars: Vec<char>,
    at: usize,
    leaves: Vec<Leaf>,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn error(&self, what: impl Into<String>) -> FilterError {
        FilterError { at: self.at, what: what.into() }
    }

    fn blanks(&mut self) {
        while self.peek().is_some_and(char::is_whitespace) {
            self.at += 1;
        }
    }

    fn starts_with(&self, text: &str) -> bool {
        let rest = self.chars.get(self.at..).unwrap_or_default();
        text.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c))
    }

    /// Alternatives.
    fn any(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = vec![self.all(depth)?];
        while self.peek() == Some('|') {
            self.at += 1;
            nodes.push(self.all(depth)?);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Any(nodes) })
    }

    /// Conditions that hold together.
    fn all(&mut self, depth: usize) -> Result<Node, FilterError> {
        let mut nodes = Vec::new();
        self.blanks();
        while !matches!(self.peek(), None | Some('|' | ')')) {
            nodes.push(self.one(depth)?);
            self.blanks();
        }
        match nodes.len() {
            0 => Err(self.error("a condition is missing here")),
            1 => Ok(nodes.remove(0)),
            _ => Ok(Node::All(nodes)),
        }
    }

    fn one(&mut self, depth: usize) -> Result<Node, FilterError> {
        if depth > MAX_DEPTH {
            return Err(self.error("brackets nest too deeply"));
        }
        match self.peek() {
            Some('!') => {
                self.at += 1;
                self.blanks();
                if matches!(self.peek(), None | Some('|' | ')')) {
                    return Err(self.error("a condition is missing here"));
                }
                Ok(Node::Not(Box::new(self.one(depth + 1)?)))
            }
            Some('(') => {
                let from = self.at;
                self.at += 1;
                let node = self.any(depth + 1)?;
                if self.peek() != Some(')') {
                    return Err(FilterError { at: from, what: "this ( is not closed".to_owned() });
                }
                self.at += 1;
                Ok(node)
            }
            _ => self.condition(),
        }
    }

    fn condition(&mut self) -> Result<Node, FilterError> {
        let from = self.at;
        if self.peek() != Some('"') {
            while self.peek().is_some_and(|c| c.is_alphanumeric() || c == '_') {
                self.at += 1;
            }
            let name: String = self.chars[from..self.at].iter().collect();
            if let Some((written, op)) = Op::ALL.iter().find(|(written, _)| self.starts_with(written)) {
                let Some((field, _, kind, _)) = Field::ALL.iter().find(|(_, field, ..)| *field == name)
                else {
                    return Err(no_field(&name, from));
                };
                self.at += written.len();
                let value_at = self.at;
                let value = self.word()?;
                if value.is_empty() {
                    return Err(self.error(format!("{name}{written} needs a value")));
                }
                let test =
                    Test::new(*op, &value, *kind).map_err(|what| FilterError { at: value_at, what })?;
                return Ok(self.leaf(Leaf::Test(*field, test)));
            }
            self.at = from;
        }
        let word = self.word()?;
        if word.is_empty() {
            return Err(self.error("a condition is missing here"));
        }
        Ok(self.leaf(Leaf::Word(word)))
    }

    fn leaf(&mut self, leaf: Leaf) -> Node {
        self.leaves.push(leaf);
        Node::Leaf(self.leaves.len() - 1)
    }

    /// Up to a blank, a bracket or a bar; in quotes up to the next quote.
    fn word(&mut self) -> Result<String, FilterError> {
        let from = self.at;
        if self.peek() == Some('"') {
            self.at += 1;
            let rest = self.chars.get(self.at..).unwrap_or_default();
            let Some(length) = rest.iter().position(|c| *c == '"') else {
                return Err(FilterError { at: from, what: "this \" is not closed".to_owned() });
            };
            let word = rest[..length].iter().collect();
            self.at += length + 1;
            return Ok(word);
        }
        while self.peek().is_some_and(|c| !c.is_whitespace() && !matches!(c, '(' | ')' | '|' | '"')) {
            self.at += 1;
        }
        Ok(self.chars[from..self.at].iter().collect())
    }
}

fn no_field(name: &str, at: usize) -> FilterError {
    let what = if name.is_empty() {
        "a field is missing before this, such as name or dur".to_owned()
    } else {
        let names = Field::ALL.iter().map(|(_, field, ..)| *field);
        let near = nearest(name, names.clone());
        let all = || format!("; there are {}", names.collect::<Vec<_>>().join(" "));
        let hint = near.map_or_else(all, |near| did_you_mean(Some(near)));
        format!("there is no field `{name}`{hint}")
    };
    FilterError { at, what }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn errors_say_where_and_what() {
        for (text, at, what) in [
            ("nam~gemm", 0, "there is no field `nam`; did you mean `name`?"),
            ("name~gemm dur>10", 14, "`10` is not a time with its unit, such as 10us"),
            ("stream=", 7, "stream= needs a value"),
            ("stream=x", 7, "`x` is not a number, such as 7 or 10k"),
            ("a | ", 4, "a condition is missing here"),
            ("(a b", 0, "this ( is not closed"),
            ("a) b", 1, "there is no ( for this )"),
            ("name=\"a", 5, "this \" is not closed"),
            ("name<a", 5, "words have no order: use = or ~"),
            ("=7", 0, "a field is missing before this, such as name or dur"),
            ("!", 1, "a condition is missing here"),
            ("share>x", 6, "a share is written 5% or 0.05"),
            ("µ dur>1", 6, "`1` is not a time with its unit, such as 10us"),
        ] {
            assert_eq!(parse(text), Err(FilterError { at, what: what.to_owned() }), "{text}");
        }
        assert!(parse(&"(".repeat(100)).is_err());
    }

    proptest! {
        #[test]
        fn no_text_breaks_it_and_errors_lie_inside(text in "[a-z=<>~!()|\" 0-9µ%]{0,40}") {
            if let Err(error) = parse(&text) {
                prop_assert!(error.at <= text.chars().count());
            }
        }
    }
}
