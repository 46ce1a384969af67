//! The one gate for colours: every style on the screen is asked for here by what it means.

mod detect;

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

/// Which colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Palette {
    /// None: meaning is in words and in bold, reversed and underlined text.
    None,
    /// xterm's 256.
    Indexed(&'static Indexed),
    /// The terminal's own first sixteen.
    Sixteen,
}

/// Colours by meaning, of xterm's 256. The ground is always the terminal's own.
#[derive(Debug, PartialEq, Eq)]
struct Indexed {
    dim: u8,
    border: u8,
    focus: u8,
    good: u8,
    warn: u8,
    alarm: u8,
    /// Ink and ground of a badge that says something is wrong.
    badge: (u8, u8),
    /// Colours of kernels, chosen to differ from their neighbours.
    kernels: &'static [u8],
}

const DARK: Indexed = Indexed {
    dim: 245,
    border: 240,
    focus: 39,
    good: 78,
    warn: 214,
    alarm: 203,
    badge: (231, 160),
    kernels: &[39, 208, 78, 207, 227, 51, 141, 168, 152, 180, 155, 218, 37, 143],
};

const LIGHT: Indexed = Indexed {
    dim: 242,
    border: 249,
    focus: 25,
    good: 28,
    warn: 130,
    alarm: 160,
    badge: (231, 160),
    kernels: &[25, 166, 28, 127, 94, 30, 55, 125, 60, 131, 64, 161, 23, 100],
};

const HIGH_CONTRAST: Indexed = Indexed {
    dim: 252,
    border: 255,
    focus: 51,
    good: 46,
    warn: 226,
    alarm: 213,
    badge: (16, 213),
    kernels: &[51, 226, 46, 213, 231, 214, 123, 219, 154, 229],
};

/// Blue, orange, sky and yellow, which everybody can tell apart (after Okabe and Ito); nothing is said by red against
/// green.
const COLOUR_BLIND: Indexed = Indexed {
    dim: 245,
    border: 240,
    focus: 75,
    good: 75,
    warn: 220,
    alarm: 208,
    badge: (16, 208),
    kernels: &[75, 214, 36, 227, 32, 173, 175, 231, 110, 179],
};

/// How the screen may look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Theme {
    palette: Palette,
    /// Whether only ASCII may be written.
    pub ascii: bool,
}

impl Theme {
    const fn indexed(indexed: &'static Indexed) -> Self {
        Self { palette: Palette::Indexed(indexed), ascii: false }
    }

    /// Colours on a dark ground, with Unicode.
    pub const DARK: Self = Self::indexed(&DARK);
    /// Colours on a light ground.
    pub const LIGHT: Self = Self::indexed(&LIGHT);
    /// Few, bright colours on a dark ground.
    pub const HIGH_CONTRAST: Self = Self::indexed(&HIGH_CONTRAST);
    /// Colours on a dark ground that everybody can tell apart.
    pub const COLOUR_BLIND: Self = Self::indexed(&COLOUR_BLIND);
    /// The sixteen colours of the terminal's own settings.
    pub const SIXTEEN: Self = Self { palette: Palette::Sixteen, ascii: false };
    /// No colours, with Unicode.
    pub const MONO: Self = Self { palette: Palette::None, ascii: false };
    /// No colours and nothing but ASCII.
    pub const ASCII: Self = Self { palette: Palette::None, ascii: true };

    /// Every theme with its name, in the order in which a key goes through them.
    pub const ALL: [(&'static str, Self); 7] = [
        ("dark", Self::DARK),
        ("light", Self::LIGHT),
        ("high-contrast", Self::HIGH_CONTRAST),
        ("colour-blind", Self::COLOUR_BLIND),
        ("16", Self::SIXTEEN),
        ("mono", Self::MONO),
        ("ascii", Self::ASCII),
    ];

    /// The theme with this name, one of [`Theme::ALL`].
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(other, _)| *other == name).map(|(_, theme)| *theme)
    }

    /// Its name; of a theme of colours in ASCII, that of the colours.
    #[must_use]
    pub fn name(self) -> &'static str {
        let same = |(_, theme): &&(&str, Self)| *theme == self;
        let colours = |(_, theme): &&(&str, Self)| theme.palette == self.palette;
        let found = Self::ALL.iter().find(same).or_else(|| Self::ALL.iter().find(colours));
        found.map_or("dark", |(name, _)| name)
    }

    /// The theme after this one, as far as the terminal can show it: one that cannot show Unicode stays with ASCII.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|(name, _)| *name == self.name()).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()].1
    }

    /// How text with this meaning looks.
    pub(crate) fn style(self, role: Role) -> Style {
        match self.palette {
            Palette::None => without_colours(role),
            Palette::Indexed(colours) => indexed(colours, role),
            Palette::Sixteen => sixteen(role),
        }
    }

    /// The signs at the beginning and at the end of something that lasts.
    pub(crate) const fn bracket(self) -> (&'static str, &'static str) {
        if self.ascii { ("[", "]") } else { ("├", "┤") }
    }

    /// A span with this meaning.
    pub(crate) fn span(self, text: impl Into<String>, role: Role) -> Span<'static> {
        Span::styled(text.into(), self.style(role))
    }

    /// The colour of a kernel: the same name has the same colour on every screen and in every run.
    pub(crate) fn kernel(self, name: &str) -> Style {
        let choose = |count: usize| {
            // FNV-1a: stable, where the standard hasher is not promised to be.
            let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
            });
            // The last byte moves only low bits; mix them upwards before taking a slot.
            let mixed = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed >> 40) as usize % count
        };
        match self.palette {
            Palette::None => Style::new(),
            Palette::Indexed(colours) => {
                Style::new().fg(Color::Indexed(colours.kernels[choose(colours.kernels.len())]))
            }
            Palette::Sixteen => Style::new().fg(SIXTEEN[choose(SIXTEEN.len())]),
        }
    }
}

fn without_colours(role: Role) -> Style {
    let plain = Style::new();
    match role {
        Role::Plain | Role::Border | Role::Good => plain,
        Role::Dim => plain.add_modifier(Modifier::DIM),
        Role::Strong | Role::Focus | Role::Key => plain.add_modifier(Modifier::BOLD),
        Role::Warn => plain.add_modifier(Modifier::BOLD.union(Modifier::UNDERLINED)),
        Role::Alarm | Role::Selected => plain.add_modifier(Modifier::REVERSED),
        Role::BadgeAlarm => plain.add_modifier(Modifier::REVERSED.union(Modifier::BOLD)),
    }
}

fn indexed(colours: &Indexed, role: Role) -> Style {
    let plain = Style::new();
    let ink = |colour| plain.fg(Color::Indexed(colour));
    match role {
        // The colour of what was there before, a border, must not shine through.
        Role::Plain => plain.fg(Color::Reset),
        Role::Strong => plain.fg(Color::Reset).add_modifier(Modifier::BOLD),
        Role::Dim => ink(colours.dim),
        Role::Border => ink(colours.border),
        Role::Focus => ink(colours.focus),
        Role::Good => ink(colours.good),
        Role::Warn => ink(colours.warn),
        Role::Alarm => ink(colours.alarm).add_modifier(Modifier::BOLD),
        Role::Key => ink(colours.focus).add_modifier(Modifier::BOLD),
        Role::Selected => plain.add_modifier(Modifier::REVERSED),
        Role::BadgeAlarm => {
            let (ink, ground) = colours.badge;
            plain.fg(Color::Indexed(ink)).bg(Color::Indexed(ground)).add_modifier(Modifier::BOLD)
        }
    }
}

/// Colours of marks and blocks that are seen on a dark and on a light ground in the usual settings: neither black, white
/// nor grey.
const SIXTEEN: [Color; 6] =
    [Color::Cyan, Color::Magenta, Color::Green, Color::Yellow, Color::Blue, Color::Red];

/// Words are the terminal's own ink, magenta or red: of the sixteen these alone are readable both on black and on white
/// as xterm has them, where bold makes the others brighter still.
fn sixteen(role: Role) -> Style {
    let plain = Style::new().fg(Color::Reset);
    match role {
        Role::Plain | Role::Border | Role::Good => plain,
        Role::Dim => plain.add_modifier(Modifier::DIM),
        Role::Strong | Role::Key => plain.add_modifier(Modifier::BOLD),
        Role::Focus => plain.fg(Color::Cyan),
        Role::Warn => plain.fg(Color::Magenta),
        Role::Alarm => plain.fg(Color::Red).add_modifier(Modifier::BOLD),
        Role::Selected => Style::new().add_modifier(Modifier::REVERSED),
        // Red on whatever ground there is, turned round: never the same twice.
        Role::BadgeAlarm => plain.fg(Color::Red).add_modifier(Modifier::REVERSED.union(Modifier::BOLD)),
    }
}

/// The ASCII character that stands for a symbol of the screen; anything unknown is `?`. The whole screen is drawn
/// in Unicode and translated here, so that no pane has to know.
pub(crate) fn ascii(symbol: &str) -> char {
    match symbol.chars().next() {
        None => ' ',
        Some(c) if c.is_ascii() => c,
        Some(c) => match c {
            '█' | '▇' => '#',
            '▓' | '▆' | '▅' | '▉' | '▊' | '╭' | '╮' | '╰' | '╯' | '┌' | '┐' | '┘' | '┬' | '┴' | '┼' => {
                '+'
            }
            '▒' | '▄' | '▃' | '▋' | '▌' | '▍' => ':',
            '░' | '▂' | '▁' | '▎' | '▏' => '.',
            '─' | '·' | '−' | '–' | '—' | '○' => '-',
            // A branch of a tree is `|-`, its last one `` `- ``; brackets are chosen by [`Theme::bracket`].
            '│' | '├' | '┤' => '|',
            '└' => '`',
            '●' => '*',
            '╷' => '\'',
            '▲' => '!',
            '✖' => 'X',
            '■' => '=',
            // Not a plus: a half of an interval is no change.
            '…' | '±' | '╌' => '~',
            '°' => ' ',
            'µ' | 'μ' => 'u',
            '×' => 'x',
            '⋅' => ',',
            '←' | '≤' => '<',
            '▚' => '%',
            '▞' => '/',
            '▸' | '→' | '≥' => '>',
            '↑' => '^',
            '↓' | '▼' => 'v',
            _ => '?',
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 11] = [
        Role::Plain,
        Role::Dim,
        Role::Strong,
        Role::Border,
        Role::Focus,
        Role::Good,
        Role::Warn,
        Role::Alarm,
        Role::Key,
        Role::Selected,
        Role::BadgeAlarm,
    ];

    #[test]
    fn themes_have_names_and_follow_one_another() {
        let mut theme = Theme::DARK;
        for (name, same) in Theme::ALL {
            assert_eq!((theme, theme.name()), (same, name));
            assert_eq!(Theme::from_name(name), Some(same));
            theme = theme.next();
        }
        assert_eq!(theme, Theme::DARK);
        assert_eq!(Theme::from_name("solarized"), None);
    }

    #[test]
    fn ink_never_has_the_colour_of_its_ground_and_what_alarms_stands_out() {
        for (name, theme) in Theme::ALL {
            let plain = theme.style(Role::Plain);
            for role in ROLES {
                let style = theme.style(role);
                assert!(style.fg.is_none() || style.fg != style.bg, "{name} {role:?}");
                // The ground is the terminal's own but for badges.
                assert!(style.bg.is_none() || role == Role::BadgeAlarm, "{name} {role:?}");
            }
            for role in [Role::Alarm, Role::Warn, Role::Selected, Role::BadgeAlarm, Role::Key] {
                assert_ne!(theme.style(role), plain, "{name} {role:?}");
            }
            for kernel in 0..50 {
                let ink = theme.kernel(&format!("kernel_{kernel}")).fg;
                assert!(!matches!(ink, Some(Color::Black | Color::White | Color::Indexed(0 | 16))), "{name}");
            }
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
    fn in_ascii_trees_branch_and_brackets_hold() {
        let translated = |text: &str| text.chars().map(|c| ascii(&c.to_string())).collect::<String>();
        assert_eq!(translated("├─ 7  12 µs"), "|- 7  12 us");
        assert_eq!(translated("└─ 8"), "`- 8");
        assert_eq!(translated("┌┬┐├┼┤└┴┘"), "+++|+|`++");
        let (begins, ends) = Theme::ASCII.bracket();
        assert_eq!(translated(&format!("{begins}──{ends}")), "[--]");
        assert_eq!(translated("● on ○ off"), "* on - off");
    }

    #[test]
    fn a_kernel_keeps_its_colour() {
        assert_eq!(Theme::DARK.kernel("flash_fwd"), Theme::DARK.kernel("flash_fwd"));
        let colours: std::collections::HashSet<_> =
            (0..100).map(|i| Theme::DARK.kernel(&format!("kernel_{i}")).fg).collect();
        assert!(colours.len() > 8, "{}", colours.len());
    }
}
