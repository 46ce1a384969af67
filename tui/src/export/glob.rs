//! `--name GLOB`: `*` is any text, `?` any one character; the whole name must fit.

/// A pattern for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Vec<char>);

impl Glob {
    /// Every text is a pattern.
    #[must_use]
    pub fn new(pattern: &str) -> Self {
        Self(pattern.chars().collect())
    }

    /// Whether a name fits.
    #[must_use]
    pub fn fits(&self, name: &str) -> bool {
        let pattern = &self.0;
        let name: Vec<char> = name.chars().collect();
        let (mut at, mut of) = (0, 0);
        // Where the last star was, and up to where it has eaten.
        let mut star: Option<(usize, usize)> = None;
        while at < name.len() {
            match pattern.get(of) {
                Some('*') => {
                    star = Some((of, at));
                    of += 1;
                }
                Some(c) if *c == '?' || *c == name[at] => {
                    at += 1;
                    of += 1;
                }
                _ => {
                    let Some((place, eaten)) = star else { return false };
                    star = Some((place, eaten + 1));
                    (at, of) = (eaten + 1, place + 1);
                }
            }
        }
        pattern[of..].iter().all(|c| *c == '*')
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_names_fit() {
        let fits = |pattern: &str, name: &str| Glob::new(pattern).fits(name);
        assert!(fits("*flash*", "void flash_fwd<64>(P)") && fits("flash_?wd", "flash_fwd"));
        assert!(fits("*", "") && fits("", "") && fits("a*b*c", "a-b-b-c"));
        assert!(!fits("flash", "flash_fwd") && !fits("?", "") && !fits("a*b", "a-b-c"));
    }

    proptest! {
        #[test]
        fn a_name_with_holes_fits(name in "[a-c]{0,12}", from in 0usize..12, len in 0usize..12) {
            let from = from.min(name.len());
            let to = (from + len).min(name.len());
            let pattern = format!("{}*{}", &name[..from], &name[to..]);
            prop_assert!(Glob::new(&pattern).fits(&name), "{}", pattern);
        }
    }
}
