//! `gtop.toml`: one list of its keys, from which it is read, its sample written and its schema made.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use toml::{Table, Value};

use super::{Config, did_you_mean, nearest};
use crate::filter;
use crate::input::{Group as KeyGroup, Keymap};
use crate::view::{FAMILIES, Families, Group, Sort, Theme};

/// One key of the file.
struct Setting {
    name: &'static str,
    /// What it is for, in the sample and the schema.
    what: &'static str,
    /// Its value when nothing is said, as the file writes it.
    default: &'static str,
    kind: Kind,
    set: fn(&mut Config, &Value) -> Result<(), String>,
}

/// What its values are.
enum Kind {
    Flag,
    Text,
    Number(i64, i64),
    OneOf(fn() -> Vec<&'static str>),
}

const SETTINGS: [Setting; 14] = [
    Setting {
        name: "theme",
        what: "How the screen looks. `auto` follows the terminal and the environment (NO_COLOR, COLORFGBG, the locale).",
        default: "\"auto\"",
        kind: Kind::OneOf(|| [&["auto"][..], &Theme::ALL.map(|(name, _)| name)].concat()),
        set: |config, value| {
            config.theme = match one_of(value, &[&["auto"][..], &Theme::ALL.map(|(name, _)| name)].concat())?
            {
                "auto" => None,
                name => Theme::from_name(name),
            };
            Ok(())
        },
    },
    Setting {
        name: "mouse",
        what: "Whether clicks, drags and the wheel come to gtop. Most terminals still select text with shift held.",
        default: "true",
        kind: Kind::Flag,
        set: |config, value| flag(value).map(|on| config.mouse = on),
    },
    Setting {
        name: "read_only",
        what: "Only look: no toggles, no marks, no signals.",
        default: "false",
        kind: Kind::Flag,
        set: |config, value| flag(value).map(|on| config.read_only = on),
    },
    Setting {
        name: "tab",
        what: "The tab to begin with.",
        default: "1",
        kind: Kind::Number(1, 9),
        set: |config, value| number(value, 1, 9).map(|number| config.tab = number as u8),
    },
    Setting {
        name: "sort",
        what: "By what kernels are sorted.",
        default: "\"share\"",
        kind: Kind::OneOf(|| Sort::ALL.map(|(_, _, name)| name).to_vec()),
        set: |config, value| {
            let name = one_of(value, &Sort::ALL.map(|(_, _, name)| name))?;
            config.sort =
                Sort::ALL.iter().find(|(_, _, other)| *other == name).map_or(config.sort, |(sort, ..)| *sort);
            Ok(())
        },
    },
    Setting {
        name: "group",
        what: "What kernels are grouped by.",
        default: "\"kernel\"",
        kind: Kind::OneOf(|| Group::ALL.map(|(_, name)| name).to_vec()),
        set: |config, value| {
            let name = one_of(value, &Group::ALL.map(|(_, name)| name))?;
            config.group =
                Group::ALL.iter().find(|(_, other)| *other == name).map_or(config.group, |(group, _)| *group);
            Ok(())
        },
    },
    Setting {
        name: "column",
        what: "How much time a column of the timeline holds at first: 100ns to 10s.",
        default: "\"500us\"",
        kind: Kind::Text,
        set: |config, value| {
            config.column = time(value)?;
            Ok(())
        },
    },
    Setting {
        name: "filter",
        what: "What to show at first, in the language of the key /.",
        default: "\"\"",
        kind: Kind::Text,
        set: |config, value| {
            let text = text(value)?;
            filter::parse(text).map_err(|error| error.to_string())?;
            text.clone_into(&mut config.filter);
            Ok(())
        },
    },
    Setting {
        name: "memory_megabytes",
        what: "Memory that gtop may take, in millions of bytes. What is too old for it is kept as sums.",
        default: "256",
        kind: Kind::Number(64, 1_000_000),
        set: |config, value| number(value, 64, 1_000_000).map(|number| config.memory = number * 1_000_000),
    },
    Setting {
        name: "leak_window",
        what: "Memory of a process is said to leak when it grows window after window. The length of a window.",
        default: "\"60s\"",
        kind: Kind::Text,
        set: |config, value| {
            let window = time(value)?;
            config.leak.window = Some(window).filter(|ns| *ns > 0).ok_or("a window takes some time")?;
            Ok(())
        },
    },
    Setting {
        name: "leak_windows",
        what: "How many windows in a row must grow.",
        default: "3",
        kind: Kind::Number(1, 60),
        set: |config, value| number(value, 1, 60).map(|number| config.leak.windows = number as usize),
    },
    Setting {
        name: "leak_tolerance_percent",
        what: "Growth within this share of the baseline, a rolling median, is none.",
        default: "12",
        kind: Kind::Number(0, 1000),
        set: |config, value| {
            number(value, 0, 1000).map(|number| config.leak.tolerance = number as f64 / 100.0)
        },
    },
    Setting {
        name: "leak_baseline_percent",
        what: "How much of the baseline it must reach.",
        default: "150",
        kind: Kind::Number(100, 10_000),
        set: |config, value| {
            number(value, 100, 10_000).map(|number| config.leak.times = number as f64 / 100.0)
        },
    },
    Setting {
        name: "leak_megabytes",
        what: "How much it must have grown, in millions of bytes.",
        default: "384",
        kind: Kind::Number(1, 1_000_000),
        set: |config, value| number(value, 1, 1_000_000).map(|number| config.leak.bytes = number * 1_000_000),
    },
];

fn number(value: &Value, from: i64, to: i64) -> Result<u64, String> {
    let number = value.as_integer().filter(|number| (from..=to).contains(number));
    number.map(i64::unsigned_abs).ok_or_else(|| format!("it is a number from {from} to {to}"))
}

/// A time with its unit, nanoseconds.
fn time(value: &Value) -> Result<u64, String> {
    let text = text(value)?;
    let wrong = || format!("`{text}` is not a time with its unit, such as 500us");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit = match &text[digits..] {
        "ns" => 1,
        "us" | "µs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(wrong()),
    };
    Ok(number.saturating_mul(unit))
}

fn text(value: &Value) -> Result<&str, String> {
    value.as_str().ok_or_else(|| "it is a text, in quotes".to_owned())
}

fn flag(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "it is true or false".to_owned())
}

fn one_of<'a>(value: &'a Value, names: &[&'static str]) -> Result<&'a str, String> {
    let name = text(value)?;
    if names.contains(&name) {
        return Ok(name);
    }
    let near = nearest(name, names.iter().copied());
    Err(format!("there is no `{name}`{}; there are {}", did_you_mean(near), names.join(", ")))
}

/// Reads a file's text; or everything that is wrong with it.
pub fn parse(text: &str) -> Result<Config, Vec<String>> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| vec![error.to_string()])?;
    let mut config = Config::default();
    let mut problems = Vec::new();
    for (name, value) in &table {
        let done = match name.as_str() {
            "keys" => keys(value).map(|keymap| config.keymap = Arc::new(keymap)),
            "families" => families(value).map(|families| config.families = families),
            _ => match SETTINGS.iter().find(|setting| setting.name == name) {
                Some(setting) => {
                    (setting.set)(&mut config, value).map_err(|what| vec![format!("{name}: {what}")])
                }
                None => Err(vec![unknown(name)]),
            },
        };
        problems.extend(done.err().into_iter().flatten());
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

fn unknown(name: &str) -> String {
    let names = SETTINGS.iter().map(|setting| setting.name).chain(["keys", "families"]);
    format!("there is no key `{name}`{}", did_you_mean(nearest(name, names)))
}

fn keys(value: &Value) -> Result<Keymap, Vec<String>> {
    let table =
        value.as_table().ok_or_else(|| vec!["[keys] is a table of actions and their keys".to_owned()])?;
    let mut keymap = Keymap::default();
    let mut problems = Vec::new();
    for (action, keys) in table {
        let done =
            texts(keys).and_then(|keys| keymap.rebind(action, &keys).map_err(|error| error.to_string()));
        problems.extend(done.err().map(|what| format!("keys.{action}: {what}")));
    }
    if problems.is_empty() {
        problems.extend(keymap.check().err().map(|error| format!("keys: {error}")));
    }
    if problems.is_empty() { Ok(keymap) } else { Err(problems) }
}

fn families(value: &Value) -> Result<Families, Vec<String>> {
    let table = value.as_table().ok_or_else(|| {
        vec!["[families] is a table of families and the patterns of their kernels' names".to_owned()]
    })?;
    let mut rows = Vec::new();
    let mut problems = Vec::new();
    for (family, patterns) in table {
        match texts(patterns) {
            Ok(patterns) => rows.push((family.clone(), patterns.into_iter().map(str::to_owned).collect())),
            Err(what) => problems.push(format!("families.{family}: {what}")),
        }
    }
    if problems.is_empty() { Ok(Families::with(rows)) } else { Err(problems) }
}

/// A text or a list of texts.
fn texts(value: &Value) -> Result<Vec<&str>, String> {
    let wrong = || "it is a text or a list of texts".to_owned();
    match value {
        Value::String(text) => Ok(vec![text]),
        Value::Array(list) => list.iter().map(|text| text.as_str().ok_or_else(wrong)).collect(),
        _ => Err(wrong()),
    }
}

/// A file that says everything there is to say, and changes nothing.
#[must_use]
pub fn sample() -> String {
    let mut text = "# gtop.toml: what can be chosen. Everything is commented out and as it is without this file.\n\
                    # It belongs at ~/.config/gtop/gtop.toml; `gtop config --check` says whether it is right.\n"
        .to_owned();
    for setting in &SETTINGS {
        let _ = writeln!(text, "\n# {}", setting.what);
        if let Kind::OneOf(names) = setting.kind {
            let _ = writeln!(text, "# One of: {}", names().join(", "));
        }
        let _ = writeln!(text, "#{} = {}", setting.name, setting.default);
    }
    text += "\n# What keys do: a key, a sequence of keys with blanks between, or a list of them; an empty list takes the\n\
             # action off the keyboard. A key that would mean two things is refused.\n[keys]\n";
    let keymap = Keymap::default();
    for group in KeyGroup::ALL {
        for bound in keymap.iter().filter(|bound| bound.binding.group == group) {
            let _ = writeln!(text, "# {}\n#{} = {}", bound.binding.what, bound.name, list(&bound.written()));
        }
    }
    text += "\n# Families of kernels by patterns of their names, whatever the case; * is anything. The first that fits counts,\n\
             # yours before gtop's own; a family of the same name takes the place of gtop's.\n[families]\n";
    for (name, patterns) in FAMILIES {
        let _ = writeln!(text, "#{name} = {}", list(patterns));
    }
    text
}

fn list<T: AsRef<str>>(texts: &[T]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| Json::from(text.as_ref()).to_string()).collect();
    format!("[{}]", quoted.join(", "))
}

/// The file's JSON schema, for editors.
#[must_use]
pub fn schema() -> String {
    let texts = json!({"type": ["string", "array"], "items": {"type": "string"}});
    let mut properties = serde_json::Map::new();
    for setting in &SETTINGS {
        let mut property = match &setting.kind {
            Kind::Flag => json!({"type": "boolean"}),
            Kind::Text => json!({"type": "string"}),
            Kind::Number(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
            Kind::OneOf(names) => json!({"enum": names()}),
        };
        property["description"] = setting.what.into();
        property["default"] = serde_json::from_str(setting.default).unwrap_or(Json::Null);
        properties.insert(setting.name.to_owned(), property);
    }
    let keys: serde_json::Map<String, Json> = Keymap::default()
        .iter()
        .map(|bound| {
            let mut keys = texts.clone();
            keys["description"] = bound.binding.what.into();
            keys["default"] = bound.written().into();
            (bound.name.clone(), keys)
        })
        .collect();
    properties.insert(
        "keys".to_owned(),
        json!({"type": "object", "description": "What keys do.", "additionalProperties": false, "properties": keys}),
    );
    let families = json!({
        "type": "object",
        "description": "Families of kernels by patterns of their names.",
        "additionalProperties": texts,
    });
    properties.insert("families".to_owned(), families);
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gtop.toml",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    format!("{schema:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::Limits;

    fn problems(text: &str) -> String {
        parse(text).err().unwrap_or_default().join("\n")
    }

    #[test]
    fn everything_can_be_chosen() {
        let config = parse(
            "theme = \"light\"\nmouse = false\nread_only = true\ntab = 3\nsort = \"p99\"\ngroup = \"family\"\n\
             column = \"2ms\"\nfilter = \"dur>10us\"\nleak_window = \"5s\"\n\
             leak_windows = 4\nleak_tolerance_percent = 5\nleak_baseline_percent = 110\nleak_megabytes = 64\nmemory_megabytes = 100\n[keys]\nfreeze = \"f5\"\nquit = [\"q\", \"f10\"]\n\
             [families]\nmine = \"my_*\"\n",
        )
        .unwrap();
        assert_eq!(config.theme, Some(Theme::LIGHT));
        assert_eq!((config.mouse, config.read_only, config.tab), (false, true, 3));
        assert_eq!((config.sort, config.group, config.column), (Sort::Tail, Group::Family, 2_000_000));
        assert_eq!(config.filter, "dur>10us");
        let leak =
            Limits { window: 5_000_000_000, windows: 4, tolerance: 0.05, times: 1.1, bytes: 64_000_000 };
        assert_eq!(config.leak, leak);
        assert_eq!(config.keymap.key_of(crate::input::Action::Freeze).as_deref(), Some("f5"));
        let name = crate::model::snapshot::KernelName { full: "my_kernel".into(), ..Default::default() };
        assert_eq!(config.families.of(&name), "mine");
    }

    #[test]
    fn what_is_wrong_is_said_all_at_once_with_what_was_probably_meant() {
        assert_eq!(problems("thme = 1"), "there is no key `thme`; did you mean `theme`?");
        assert_eq!(
            problems("theme = \"drak\"\nmouse = 1\ntab = 0\ncolumn = \"5\"\nfilter = \"nam=x\"\nkeys = 1"),
            "column: `5` is not a time with its unit, such as 500us\n\
             filter: at character 1: there is no field `nam`; did you mean `name`?\n\
             [keys] is a table of actions and their keys\n\
             mouse: it is true or false\n\
             tab: it is a number from 1 to 9\n\
             theme: there is no `drak`; did you mean `dark`?; there are auto, dark, light, high-contrast, colour-blind, \
             16, mono, ascii"
        );
        assert_eq!(problems("[keys]\nfreeze = \"q\""), "keys: `q` is bound twice: to freeze and to quit");
        assert_eq!(
            problems("[keys]\nfreze = \"q\""),
            "keys.freze: there is no action `freze`; did you mean `freeze`?"
        );
        assert!(problems("theme = ").contains("TOML parse error"));
    }

    #[test]
    fn the_sample_changes_nothing_and_says_everything() {
        let sample = sample();
        parse(&sample).unwrap();
        let all: String = sample
            .lines()
            .map(|line| {
                line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line).to_owned() + "\n"
            })
            .collect();
        let config = parse(&all).unwrap_or_else(|problems| panic!("{problems:?}\n{all}"));
        let default = Config::default();
        assert_eq!(
            (config.theme, config.mouse, config.column),
            (default.theme, default.mouse, default.column)
        );
        assert_eq!(config.leak, default.leak);
        assert_eq!((config.sort, config.group, config.tab), (default.sort, default.group, default.tab));
        for (mine, theirs) in config.keymap.iter().zip(default.keymap.iter()) {
            assert_eq!(mine.keys, theirs.keys, "{}", mine.name);
        }
        assert_eq!(
            all.matches(" = ").count(),
            SETTINGS.len() + default.keymap.iter().count() + FAMILIES.len()
        );
    }

    #[test]
    fn the_schema_knows_every_key() {
        let schema: Json = serde_json::from_str(&schema()).unwrap();
        for setting in &SETTINGS {
            let property = &schema["properties"][setting.name];
            assert!(
                property["description"].is_string() && !property["default"].is_null(),
                "{}",
                setting.name
            );
        }
        assert!(schema["properties"]["keys"]["properties"]["toggle-kernel"]["default"].is_array());
    }
}
