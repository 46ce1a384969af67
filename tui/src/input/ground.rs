//! The colour of the terminal's ground. It is asked for when nothing says it, and told among the keys whenever the
//! terminal answers, if it ever does: nothing waits for it, and what is no answer goes on as the keys it is.

use super::Key;

/// What asks a terminal for it (OSC 11).
pub const QUESTION: &str = "\x1b]11;?\x1b\\";
/// How an answer begins, after the introducer.
const HEAD: &str = "11;";
/// The longest answer, in keys.
const LONGEST: usize = 40;

/// The answer, as far as it has come.
#[derive(Debug, Default)]
pub struct Ground {
    held: Vec<Key>,
    answered: bool,
}

/// What a key is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// A part of an answer.
    Nothing,
    /// No answer: these keys were pressed.
    Keys(Vec<Key>),
    /// The answer: whether the ground is light.
    Light(bool),
}

enum Read {
    No,
    Part,
    Whole(Option<bool>),
}

impl Ground {
    /// Takes a key in.
    pub fn take(&mut self, key: Key) -> Told {
        self.held.push(key);
        let read = if self.answered { Read::No } else { read(&self.held) };
        match read {
            Read::Part => Told::Nothing,
            Read::No => Told::Keys(std::mem::take(&mut self.held)),
            Read::Whole(light) => {
                self.held.clear();
                self.answered = true;
                light.map_or(Told::Nothing, Told::Light)
            }
        }
    }

    /// The keys that were held back, when something else than a key comes: they are no answer.
    pub fn give_up(&mut self) -> Vec<Key> {
        std::mem::take(&mut self.held)
    }
}

/// Reads an answer from the keys that a terminal's bytes are taken for: `alt-]`, then `11;rgb:ffff/ffff/ffff`, and
/// `ctrl-g` or `alt-\` at the end.
fn read(keys: &[Key]) -> Read {
    let Some((first, rest)) = keys.split_first() else { return Read::Part };
    if !first.is("alt-]") || keys.len() > LONGEST {
        return Read::No;
    }
    let (last, body) = match rest.split_last() {
        Some((last, body)) if last.is("ctrl-g") || last.is("alt-\\") => (true, body),
        _ => (false, rest),
    };
    let Some(text) = body.iter().map(|key| key.character()).collect::<Option<String>>() else {
        return Read::No;
    };
    let (head, colour) = text.split_at_checked(HEAD.len()).unwrap_or((&text, ""));
    let of_colour = |c: char| c.is_ascii_hexdigit() || "rg:/".contains(c);
    if !HEAD.starts_with(head) || !colour.chars().all(of_colour) || (last && colour.is_empty()) {
        return Read::No;
    }
    if last { Read::Whole(is_light(colour)) } else { Read::Part }
}

/// Whether a colour such as `rgb:ffff/ffff/ffff` is nearer to white than to black, as the eye sees it.
fn is_light(colour: &str) -> Option<bool> {
    let (_, channels) = colour.split_once(':')?;
    let mut sum = 0.0;
    let mut channels = channels.split('/');
    for weight in [0.2126, 0.7152, 0.0722] {
        let digits = channels.next().filter(|digits| (1..=4).contains(&digits.len()))?;
        let most = f64::from((1u32 << (4 * digits.len())) - 1);
        sum += weight * f64::from(u16::from_str_radix(digits, 16).ok()?) / most;
    }
    Some(sum > 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> Vec<Key> {
        text.split(' ').map(|key| Key::parse(key).unwrap()).collect()
    }

    fn answer(colour: &str, end: &str) -> Vec<Key> {
        let body = format!("11;{colour}");
        let body = body.chars().map(|c| Key::parse(&c.to_string()).unwrap());
        keys("alt-]").into_iter().chain(body).chain(keys(end)).collect()
    }

    #[test]
    fn an_answer_is_no_key() {
        for (colour, end, light) in [
            ("rgb:ffff/ffff/ffff", "alt-\\", true),
            ("rgb:0000/0000/0000", "ctrl-g", false),
            ("rgb:fd/f6/e3", "ctrl-g", true),
            ("rgb:1e1e/1e1e/2e2e", "alt-\\", false),
            ("rgba:ffff/ffff/ffff/ffff", "alt-\\", true),
        ] {
            let mut ground = Ground::default();
            let told: Vec<Told> = answer(colour, end).into_iter().map(|key| ground.take(key)).collect();
            let (last, before) = told.split_last().unwrap();
            assert_eq!(last, &Told::Light(light), "{colour}");
            assert!(before.iter().all(|told| *told == Told::Nothing), "{colour}");
            assert_eq!(ground.take(keys("alt-]")[0]), Told::Keys(keys("alt-]")), "one answer is enough");
        }
    }

    #[test]
    fn no_key_is_lost() {
        for text in ["q", "1 1 ; r", "alt-] 1 2", "alt-] 1 1 ; x", "alt-] ctrl-g", "alt-] alt-]", "alt-] up"]
        {
            let mut ground = Ground::default();
            let mut given = Vec::new();
            for key in keys(text) {
                match ground.take(key) {
                    Told::Keys(keys) => given.extend(keys),
                    Told::Nothing => {}
                    Told::Light(_) => panic!("{text}"),
                }
            }
            given.extend(ground.give_up());
            assert_eq!(given, keys(text));
        }
        let mut ground = Ground::default();
        let endless = std::iter::repeat_n(keys("f")[0], 100);
        let given = answer("", "f").into_iter().chain(endless).map(|key| ground.take(key));
        assert!(given.last().is_some_and(|told| told == Told::Keys(keys("f"))), "it does not hold for ever");
    }

    #[test]
    fn a_colour_that_cannot_be_read_says_nothing() {
        for colour in ["rgb:", "rgb:ffff/ffff", "rgb:fffff/0/0", "rgb", "rgb:/ff/ff"] {
            assert_eq!(is_light(colour), None, "{colour}");
        }
    }
}
