//! The keys as they hold now: those of the list, or what the person has put in their place.

use super::{Action, BINDINGS, Binding, Context, Group, Key};
use crate::config::{did_you_mean, nearest};

/// What a sequence of keys means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// This.
    Action(Action),
    /// It begins a longer one.
    Prefix,
    /// Nothing.
    Nothing,
}

/// A binding with the keys it has now.
#[derive(Clone, Debug)]
pub struct Bound {
    /// What they do.
    pub binding: &'static Binding,
    /// The name of the action where a person writes it: `freeze`, `toggle-kernel`, `question-yes`.
    pub name: String,
    /// The keys, each a sequence of one or more.
    pub keys: Vec<Vec<Key>>,
}

impl Bound {
    /// The keys as they are written.
    #[must_use]
    pub fn written(&self) -> Vec<String> {
        self.keys.iter().map(|keys| written(keys)).collect()
    }
}

/// Why keys cannot be as somebody wants them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// There is no such action.
    #[error("there is no action `{name}`{}", did_you_mean(nearest.as_deref()))]
    NoAction {
        /// What was written.
        name: String,
        /// The action whose name is nearest to it.
        nearest: Option<String>,
    },
    /// That is not how a key is written.
    #[error("`{0}` is no key; keys are written like q, G, ctrl-c, shift-left, space, enter, f5 or `t k`")]
    NoKey(String),
    /// One sequence of keys would do two things.
    #[error("`{keys}` is bound twice: to {first} and to {second}")]
    Twice {
        /// The keys.
        keys: String,
        /// One action.
        first: String,
        /// The other.
        second: String,
    },
    /// A key hides a longer sequence that begins with it.
    #[error("`{short}` ({first}) hides `{long}` ({second}), which begins with it")]
    Hides {
        /// The shorter sequence.
        short: String,
        /// Its action.
        first: String,
        /// The longer sequence.
        long: String,
        /// Its action.
        second: String,
    },
}

/// All keys as they hold now.
#[derive(Clone, Debug)]
pub struct Keymap(Vec<Bound>);

impl Default for Keymap {
    fn default() -> Self {
        let bound = |binding: &'static Binding| {
            let keys = binding.keys.iter().filter_map(|written| parse(written).ok()).collect();
            Bound { binding, name: name(binding), keys }
        };
        Self(BINDINGS.iter().map(bound).collect())
    }
}

impl Keymap {
    /// Every binding, in the order of the list.
    pub fn iter(&self) -> impl Iterator<Item = &Bound> {
        self.0.iter()
    }

    /// Looks a sequence up.
    #[must_use]
    pub fn lookup(&self, context: Context, keys: &[Key]) -> Found {
        let mut found = Found::Nothing;
        for bound in self.0.iter().filter(|bound| bound.binding.context == context) {
            for bound_keys in &bound.keys {
                if bound_keys == keys {
                    return Found::Action(bound.binding.action);
                }
                if bound_keys.starts_with(keys) {
                    found = Found::Prefix;
                }
            }
        }
        found
    }

    /// Whether these keys begin a sequence of this group.
    #[must_use]
    pub fn begins(&self, keys: &[Key], group: Group) -> bool {
        let mut of_group = self.0.iter().filter(|bound| bound.binding.group == group);
        !keys.is_empty() && of_group.any(|bound| bound.keys.iter().any(|bound| bound.starts_with(keys)))
    }

    /// The first keys of an action, as they are written.
    #[must_use]
    pub fn key_of(&self, action: Action) -> Option<String> {
        let bound = self.0.iter().find(|bound| bound.binding.action == action)?;
        bound.keys.first().map(|keys| written(keys))
    }

    /// Gives the action called `name` these keys and no others; none takes it off the keyboard.
    pub fn rebind(&mut self, name: &str, keys: &[&str]) -> Result<(), KeyError> {
        let parsed = keys.iter().map(|keys| parse(keys)).collect::<Result<Vec<_>, _>>()?;
        let Some(at) = self.0.iter().position(|bound| bound.name == name) else {
            let names = self.0.iter().map(|bound| bound.name.as_str());
            let nearest = nearest(name, names).map(str::to_owned);
            return Err(KeyError::NoAction { name: name.to_owned(), nearest });
        };
        self.0[at].keys = parsed;
        Ok(())
    }

    /// Whether each sequence means one thing and none hides another.
    pub fn check(&self) -> Result<(), KeyError> {
        let all: Vec<(&Bound, &Vec<Key>)> =
            self.0.iter().flat_map(|bound| bound.keys.iter().map(move |keys| (bound, keys))).collect();
        for (i, (one, keys)) in all.iter().enumerate() {
            let here = |other: &&Bound| other.binding.context == one.binding.context;
            for (other, others) in all[i + 1..].iter().filter(|(other, _)| here(other)) {
                if keys == others {
                    let (first, second) = (one.name.clone(), other.name.clone());
                    return Err(KeyError::Twice { keys: written(keys), first, second });
                }
                let (short, first, long, second) = if others.starts_with(keys) {
                    (keys, one, others, other)
                } else if keys.starts_with(others) {
                    (others, other, keys, one)
                } else {
                    continue;
                };
                let (first, second) = (first.name.clone(), second.name.clone());
                return Err(KeyError::Hides { short: written(short), first, long: written(long), second });
            }
        }
        Ok(())
    }
}

/// `NextPane` as `next-pane`, `Toggle(Kernel)` as `toggle-kernel`; answers with what they answer before it.
fn name(binding: &Binding) -> String {
    let mut name = match binding.context {
        Context::Panes => String::new(),
        context => format!("{context:?}-").to_lowercase(),
    };
    for c in format!("{:?}", binding.action).chars() {
        match c {
            '(' => name.push('-'),
            ')' => {}
            c if c.is_uppercase() => {
                if name.ends_with(|last: char| last != '-') {
                    name.push('-');
                }
                name.extend(c.to_lowercase());
            }
            c => name.push(c),
        }
    }
    name
}

fn written(keys: &[Key]) -> String {
    keys.iter().map(Key::to_string).collect::<Vec<_>>().join(" ")
}

fn parse(keys: &str) -> Result<Vec<Key>, KeyError> {
    let wrong = || KeyError::NoKey(keys.to_owned());
    keys.split(' ').map(|key| Key::parse(key).ok_or_else(wrong)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Key> {
        parse(text).unwrap()
    }

    #[test]
    fn keys_can_be_put_elsewhere_and_taken_away() {
        let mut map = Keymap::default();
        map.rebind("freeze", &["f5", "f6 f6"]).unwrap();
        map.rebind("suspend", &[]).unwrap();
        map.check().unwrap();
        assert_eq!(map.lookup(Context::Panes, &keys("f5")), Found::Action(Action::Freeze));
        assert_eq!(map.lookup(Context::Panes, &keys("f6")), Found::Prefix);
        assert_eq!(map.lookup(Context::Panes, &keys("space")), Found::Nothing);
        assert_eq!(map.lookup(Context::Panes, &keys("ctrl-z")), Found::Nothing);
        assert_eq!(map.key_of(Action::Freeze).as_deref(), Some("f5"));
        assert_eq!(map.key_of(Action::Suspend), None);
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let mut map = Keymap::default();
        let no_action = map.rebind("freezze", &["x"]).unwrap_err().to_string();
        assert_eq!(no_action, "there is no action `freezze`; did you mean `freeze`?");
        assert!(map.rebind("freeze", &["ctrl-"]).unwrap_err().to_string().starts_with("`ctrl-` is no key"));
        map.rebind("freeze", &["q"]).unwrap();
        assert_eq!(map.check().unwrap_err().to_string(), "`q` is bound twice: to freeze and to quit");
        map.rebind("freeze", &["t"]).unwrap();
        let hides = map.check().unwrap_err().to_string();
        assert_eq!(hides, "`t` (freeze) hides `t k` (toggle-kernel), which begins with it");
    }

    #[test]
    fn each_binding_has_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for name in BINDINGS.iter().map(name) {
            assert!(
                name.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-'),
                "{name}"
            );
            assert!(names.insert(name.clone()), "{name} is there twice");
        }
        for name in ["next-pane", "tab-1", "toggle-kernel", "question-yes", "leave-stop"] {
            assert!(names.contains(name), "{name}");
        }
    }
}
