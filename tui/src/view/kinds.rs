//! The activity kinds: which are on, the keys that toggle them, and what that would do.

use gtop_protocol::Kind;
use gtop_protocol::cupti::result_name;
use ratatui::text::Span;

use super::Cx;
use super::effect::effect;
use super::header::is_untold;
use super::text::{left, width, wrap};
use super::theme::{Role, Theme};
use crate::input::Action;
use crate::model::snapshot::Process;

/// A kind's mark and word.
fn state(process: &Process, kind: Kind) -> (&'static str, &'static str, Role) {
    let kinds = &process.kinds;
    if is_untold(process) {
        ("?", "?", Role::Dim)
    } else if kinds.enabled.has(kind) {
        ("●", "on", Role::Good)
    } else if kinds.refused.has(kind) {
        ("✖", "refused", Role::Alarm)
    } else if kinds.asked.has(kind) {
        ("▲", "asked", Role::Warn)
    } else {
        ("○", "off", Role::Dim)
    }
}

/// The keys that toggle a kind; blanks where none do.
fn key(cx: &Cx<'_>, kind: Kind) -> String {
    let key = cx.state.keymap.key_of(Action::Toggle(kind)).filter(|_| cx.can_ask());
    format!("{:<3}", key.unwrap_or_default())
}

/// A kind in `cells` cells.
pub(super) fn short(cx: &Cx<'_>, process: &Process, kind: Kind, cells: usize) -> Vec<Span<'static>> {
    let (theme, key) = (cx.theme(), key(cx, kind));
    let (mark, word, role) = state(process, kind);
    let word = if matches!(word, "on" | "?") { word } else { "off" };
    let text = format!(" {mark} {} {word}", kind.name());
    vec![theme.span(key.clone(), Role::Key), theme.span(left(&text, cells.saturating_sub(width(&key))), role)]
}

/// A kind with what toggling it would do.
pub(super) fn long(cx: &Cx<'_>, process: &Process, kind: Kind) -> Vec<Span<'static>> {
    let theme = cx.theme();
    let (mark, word, role) = state(process, kind);
    let mut spans = vec![
        theme.span(key(cx, kind), Role::Key),
        theme.span(format!(" {mark} {} {}", left(kind.name(), 8), left(word, 7)), role),
    ];
    if cx.can_ask() {
        let effect = effect(process, kind);
        spans
            .push(theme.span(format!(" {}", effect.short), if effect.asks { Role::Warn } else { Role::Dim }));
    }
    spans
}

/// What toggling a kind would do, in full, in lines that stand below it.
pub(super) fn sentence(theme: Theme, process: &Process, kind: Kind, cells: usize) -> Vec<Vec<Span<'static>>> {
    const INDENT: usize = 24;
    let lines = wrap(&effect(process, kind).sentence, cells.saturating_sub(INDENT));
    lines.into_iter().map(|line| vec![theme.span(" ".repeat(INDENT) + &line, Role::Dim)]).collect()
}

/// The kinds CUPTI refused, with the error and what to do about it.
pub(super) fn refused(process: &Process) -> Option<String> {
    let kinds = &process.kinds;
    if kinds.refused.is_empty() {
        return None;
    }
    let names = kinds.refused.to_string();
    Some(match (kinds.error, kinds.cure()) {
        (Some(error), Some(cure)) => format!("{names} denied ({error}): {cure}; the other kinds work"),
        (Some(error), None) => {
            format!("{names} refused ({} {error}); the other kinds work", result_name(error))
        }
        (None, _) => format!("{names} refused; the other kinds work"),
    })
}

/// The toggles that harm, those with the same harm in one line: `memcpy/memset off would leak: asks`.
pub(super) fn harms(cx: &Cx<'_>, process: &Process) -> Vec<String> {
    if !cx.can_ask() {
        return Vec::new();
    }
    let mut lines: Vec<(&'static str, Vec<&'static str>)> = Vec::new();
    for kind in Kind::ALL {
        let effect = effect(process, kind);
        if !effect.asks {
            continue;
        }
        match lines.iter_mut().find(|(short, _)| *short == effect.short) {
            Some((_, names)) => names.push(kind.name()),
            None => lines.push((effect.short, vec![kind.name()])),
        }
    }
    lines.into_iter().map(|(short, names)| format!("{} {short}", names.join("/"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::Kinds;
    use gtop_protocol::KindSet;

    #[test]
    fn of_raw_buffers_no_kind_is_said_to_be_off() {
        let mut process = Process::default();
        assert_eq!(state(&process, Kind::Kernel).1, "off");
        process.records.shown = 3;
        assert_eq!(state(&process, Kind::Kernel).1, "?");
        process.heard.state = true;
        assert_eq!(state(&process, Kind::Kernel).1, "off");
    }

    #[test]
    fn a_kind_that_is_denied_says_what_helps() {
        let refused_kinds = KindSet::EMPTY.with(Kind::Memcpy);
        let kinds = Kinds { refused: refused_kinds, error: Some(35), ..Kinds::default() };
        let text = refused(&Process { kinds, ..Process::default() }).unwrap();
        for part in
            ["memcpy denied (35)", "as root", "CAP_SYS_ADMIN", "NVreg_RestrictProfilingToAdminUsers=0"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(refused(&Process::default()), None);
    }
}
