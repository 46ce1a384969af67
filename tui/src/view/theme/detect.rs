//! Which theme a terminal wants: how many colours it shows, on which ground, and whether it can write Unicode.

use super::Theme;

impl Theme {
    /// What the environment asks for: `NO_COLOR` and `TERM` decide on colours, the locale on ASCII, and what is known
    /// of the terminal's ground on dark or light.
    #[must_use]
    pub fn detect() -> Self {
        let var = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
        let locale = var("LC_ALL").or_else(|| var("LC_CTYPE")).or_else(|| var("LANG"));
        Self::of(
            anstyle_query::no_color(),
            var("TERM").as_deref(),
            locale.as_deref(),
            var("COLORTERM").as_deref(),
            var("COLORFGBG").as_deref(),
        )
    }

    /// Whether this is only a guess: a dark ground is taken for granted because nothing in the environment says it.
    #[must_use]
    pub fn is_guess(self) -> bool {
        self.is_for_dark() && std::env::var_os("COLORFGBG").is_none_or(|value| value.is_empty())
    }

    /// The theme for the ground there is, if this is the one for a dark ground.
    #[must_use]
    pub fn on(self, light: bool) -> Self {
        if light && self.is_for_dark() { Self { ascii: self.ascii, ..Self::LIGHT } } else { self }
    }

    fn is_for_dark(self) -> bool {
        self.palette == Self::DARK.palette
    }

    fn of(
        no_color: bool,
        term: Option<&str>,
        locale: Option<&str>,
        colorterm: Option<&str>,
        grounds: Option<&str>,
    ) -> Self {
        let dumb = term.is_none_or(|term| term == "dumb" || term.starts_with("vt"));
        let base = if no_color || dumb || term.is_some_and(is_mono) {
            Self::MONO
        } else if !term.is_some_and(|term| has_256(term, colorterm)) {
            Self::SIXTEEN
        } else if grounds.is_some_and(is_light) {
            Self::LIGHT
        } else {
            Self::DARK
        };
        Self { ascii: dumb || !is_utf8(locale), ..base }
    }
}

/// Whether a terminal of this name has no colours.
fn is_mono(term: &str) -> bool {
    term.ends_with("-mono") || term.ends_with("-m")
}

/// Whether a terminal of this name shows xterm's 256 colours; more than these are never asked for. `COLORTERM` is set by
/// those that can do more than the name they go by, and by no other.
fn has_256(term: &str, colorterm: Option<&str>) -> bool {
    /// Those whose names do not say it. tmux and screen pass on what the terminal around them can show.
    const KNOWN: [&str; 9] = [
        "tmux",
        "screen",
        "alacritty",
        "foot",
        "ghostty",
        "wezterm",
        "kitty",
        "xterm-kitty",
        "xterm-ghostty",
    ];
    /// Fewer, and it is in the name.
    const FEW: [&str; 5] = ["-16color", "-88color", "-8color", "-color", "screen.linux"];
    let is_few = FEW.iter().any(|few| term.contains(few));
    let named = term.contains("256color") || term.contains("direct");
    let known = || KNOWN.iter().any(|known| term.starts_with(known));
    // rxvt sets it whatever it can do.
    let more = colorterm.is_some_and(|more| !more.starts_with("rxvt"));
    named || !is_few && (known() || more)
}

/// Whether a terminal that sets `COLORFGBG` to this has a light ground: the last number is the ground's colour.
fn is_light(grounds: &str) -> bool {
    matches!(grounds.rsplit(';').next().and_then(|ground| ground.parse().ok()), Some(7 | 9..=15_u8))
}

fn is_utf8(locale: Option<&str>) -> bool {
    // Containers often have no locale at all, under a terminal that has one: only a locale that says so is ASCII.
    locale.is_none_or(|locale| {
        let charset = locale.split('.').nth(1).unwrap_or_default();
        let charset = charset.split('@').next().unwrap_or_default();
        charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locale_says_whether_unicode_can_be_shown() {
        for (locale, utf8) in [
            (Some("en_US.UTF-8"), true),
            (Some("C.utf8"), true),
            (Some("de_DE.UTF-8@euro"), true),
            (Some("POSIX"), false),
            (Some("en_US.ISO-8859-1"), false),
            (None, true),
        ] {
            assert_eq!(is_utf8(locale), utf8, "{locale:?}");
        }
    }

    #[test]
    fn the_environment_chooses() {
        let of = |no_color, term, colorterm, grounds| {
            let theme = Theme::of(no_color, Some(term), Some("C.UTF-8"), colorterm, grounds);
            (theme.name(), theme.ascii)
        };
        assert_eq!(of(false, "xterm-256color", None, None), ("dark", false));
        assert_eq!(of(false, "xterm-256color", None, Some("0;15")), ("light", false));
        assert_eq!(of(false, "xterm-256color", None, Some("15;default;0")), ("dark", false));
        assert_eq!(of(true, "xterm-256color", None, Some("0;15")), ("mono", false));
        assert_eq!(of(false, "xterm", None, None), ("16", false));
        assert_eq!(of(false, "linux", None, None), ("16", false));
        assert_eq!(of(false, "xterm", Some("truecolor"), None), ("dark", false));
        assert_eq!(of(false, "tmux", None, None), ("dark", false));
        assert_eq!(of(false, "screen.xterm-256color", None, None), ("dark", false));
        for few in ["xterm-16color", "xterm-color", "rxvt", "screen.linux", "ansi", "eterm-color"] {
            assert_eq!(of(false, few, None, None), ("16", false), "{few}");
        }
        assert_eq!(of(false, "xterm-16color", Some("truecolor"), None), ("16", false));
        assert_eq!(of(false, "xterm-mono", Some("truecolor"), None), ("mono", false));
        for many in ["xterm-kitty", "foot-extra", "alacritty-direct", "konsole-256color"] {
            assert_eq!(of(false, many, None, None), ("dark", false), "{many}");
        }
        assert_eq!(of(false, "dumb", None, None), ("ascii", true));
        assert_eq!(Theme::of(false, Some("tmux"), Some("POSIX"), None, None).name(), "dark");
    }

    #[test]
    fn a_light_ground_changes_the_theme_for_a_dark_one_alone() {
        assert_eq!((Theme::DARK.on(true), Theme::DARK.on(false)), (Theme::LIGHT, Theme::DARK));
        let ascii = Theme { ascii: true, ..Theme::DARK };
        assert_eq!(ascii.on(true), Theme { ascii: true, ..Theme::LIGHT });
        for (name, theme) in &Theme::ALL[1..] {
            assert_eq!(theme.on(true), *theme, "{name}");
        }
    }
}
