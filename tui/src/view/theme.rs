//! The one gate for colours: every style on the screen is asked for here by what it means.

use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Span;

/// What a piece of text means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Role {
    /// Ordinary text.
    Plain,
    /// Less important than its neighbours.
    Dim,
    /// Headings and the numbers that matter.
    Strong,
    /// Borders.
    Border,
    /// The border of the pane that has the keys.
    Focus,
    /// All is well.
    Good,
    /// Something to look at.
    Warn,
    /// Something is lost.
    Alarm,
    /// A key to press.
    Key,
    /// The selected row.
    Selected,
    /// A badge that says something is wrong.
    BadgeAlarm,
}

/// How the screen may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    /// Whether colours are used; without them meaning is in words and in bold, reversed and underlined text.
    pub colour: bool,
    /// Whether only ASCII may be written.
    pub ascii: bool,
}

/// Colours for kernels, chosen to differ from their neighbours on a dark ground (xterm 256).
const KERNELS: [u8; 14] = [39, 208, 78, 207, 227, 51, 141, 168, 152, 180, 155, 218, 37, 143];

impl Theme {
    /// Colours on a dark ground, with Unicode.
    pub const DARK: Self = Self { colour: true, ascii: false };
    /// No colours, with Unicode.
    pub const MONO: Self = Self { colour: false, ascii: false };
    /// No colours and nothing but ASCII.
    pub const ASCII: Self = Self { colour: false, ascii: true };

    /// The theme with this name: `dark`, `mono` or `ascii`.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "dark" => Self::DARK,
            "mono" => Self::MONO,
            "ascii" => Self::ASCII,
            _ => return None,
        })
    }

    /// What the environment asks for: `NO_COLOR` and `TERM` decide on colours, the locale on ASCII.
    #[must_use]
    pub fn detect() -> Self {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = var("LC_ALL").or_else(|| var("LC_CTYPE")).or_else(|| var("LANG"));
        let dumb = var("TERM").is_none_or(|term| term == "dumb" || term.starts_with("vt"));
        Self { colour: !anstyle_query::no_color() && !dumb, ascii: dumb || !is_utf8(locale.as_deref()) }
    }

    /// How text with this meaning looks.
    pub(crate) fn style(self, role: Role) -> Style {
        let plain = Style::new();
        if !self.colour {
            return match role {
                Role::Plain | Role::Border | Role::Good => plain,
                Role::Dim => plain.add_modifier(Modifier::DIM),
                Role::Strong | Role::Focus | Role::Key => plain.add_modifier(Modifier::BOLD),
                Role::Warn => plain.add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED)),
                Role::Alarm | Role::Selected => plain.add_modifier(Modifier::REVERSED),
                Role::BadgeAlarm => plain.add_modifier(Modifier::REVERSED.union(Modifier::BOLD)),
            };
        }
        match role {
            // The colour of what was there before, a border, must not shine through.
            Role::Plain => plain.fg(Color::Reset),
            Role::Strong => plain.fg(Color::Reset).add_modifier(Modifier::BOLD),
            Role::Dim => plain.fg(Color::Indexed(245)),
            Role::Border => plain.fg(Color::Indexed(240)),
            Role::Focus => plain.fg(Color::Indexed(39)),
            Role::Good => plain.fg(Color::Indexed(78)),
            Role::Warn => plain.fg(Color::Indexed(214)),
            Role::Alarm => plain.fg(Color::Indexed(203)).add_modifier(Modifier::BOLD),
            Role::Key => plain.fg(Color::Indexed(39)).add_modifier(Modifier::BOLD),
            Role::Selected => plain.add_modifier(Modifier::REVERSED),
            Role::BadgeAlarm => {
                plain.fg(Color::Indexed(231)).bg(Color::Indexed(160)).add_modifier(Modifier::BOLD)
            }
        }
    }

    /// A span with this meaning.
    pub(crate) fn span(self, text: impl Into<String>, role: Role) -> Span<'static> {
        Span::styled(text.into(), self.style(role))
    }

    /// The colour of a kernel: the same name has the same colour on every screen and in every run.
    pub(crate) fn kernel(self, name: &str) -> Style {
        if !self.colour {
            return Style::new();
        }
        // FNV-1a: stable, where the standard hasher is not promised to be.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
        });
        // The last byte moves only low bits; mix them upwards before taking a slot.
        let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let slot = (mixed >> 40) as usize % KERNELS.len();
        Style::new().fg(Color::Indexed(KERNELS[slot]))
    }
}

fn is_utf8(locale: Option<&str>) -> bool {
    // Containers often have no locale at all, under a terminal that has one: only a locale that says so is ASCII.
    locale.is_none_or(|locale| {
        let charset = locale.split('.').nth(1).unwrap_or_default();
        let charset = charset.split('@').next().unwrap_or_default();
        charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
    })
}

/// The ASCII character that stands for a symbol of the screen; anything unknown is `?`. The whole screen is drawn
/// in Unicode and translated here, so that no pane has to know.
pub(crate) fn ascii(symbol: &str) -> char {
    match symbol.chars().next() {
        None => ' ',
        Some(c) if c.is_ascii() => c,
        Some(c) => match c {
            '█' | '▇' => '#',
            '▓' | '▆' | '▅' | '▉' | '▊' | '╭' | '╮' | '╰' | '╯' | '└' | '┘' => '+',
            '▒' | '▄' | '▃' | '▋' | '▌' | '▍' => ':',
            '░' | '▂' | '▁' | '▎' | '▏' => '.',
            '─' | '·' | '−' | '–' | '—' => '-',
            '│' => '|',
            '├' => '[',
            '┤' => ']',
            '●' => '*',
            '○' => 'o',
            '▲' => '!',
            '✖' => 'X',
            '■' => '=',
            '…' => '~',
            '°' => ' ',
            'µ' | 'μ' => 'u',
            '×' => 'x',
            '←' => '<',
            '▸' | '→' => '>',
            '↑' => '^',
            '↓' => 'v',
            _ => '?',
        },
    }
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
    fn without_colours_alarms_and_selections_still_stand_out() {
        for role in [Role::Alarm, Role::Warn, Role::Selected, Role::BadgeAlarm, Role::Key] {
            let style = Theme::MONO.style(role);
            assert!(style.fg.is_none() && style.bg.is_none(), "{role:?}");
            assert!(!style.add_modifier.is_empty(), "{role:?}");
        }
        assert_eq!(Theme::MONO.kernel("a"), Style::new());
    }

    #[test]
    fn a_kernel_keeps_its_colour() {
        assert_eq!(Theme::DARK.kernel("flash_fwd"), Theme::DARK.kernel("flash_fwd"));
        let colours: std::collections::HashSet<_> =
            (0..100).map(|i| Theme::DARK.kernel(&format!("kernel_{i}")).fg).collect();
        assert!(colours.len() > 8, "{}", colours.len());
    }
}
