//! What the command that gtop started prints: the end of its log.

use super::Cx;
use super::canvas::{Canvas, Place};
use super::state::Pane;
use super::subjects::Printed;
use super::text::{cut_middle, wrap};
use super::theme::Role;
use super::units;

/// Draws the pane: the newest line at the bottom, scrolled back by so many lines.
pub(super) fn draw(cx: &Cx<'_>, place: Place, canvas: &mut Canvas<'_>) {
    let (cells, height) = (usize::from(place.inner().width), usize::from(place.inner().height));
    let Some(output) = &cx.snapshot.output else {
        let inner = canvas.pane(place, "Output", "");
        let text = "gtop did not start this command: its output is where it was started";
        canvas.spans(inner, 0, vec![cx.theme().span(text, Role::Dim)]);
        return;
    };
    let keeps = |line: &&String| cx.state.filter.keeps(&Printed(line));
    let lines: Vec<&String> = output.lines.iter().filter(keeps).collect();
    let back = cx.state.top(Pane::Output, lines.len(), 1);
    // Lines that do not fit are wrapped, so that fewer of them may be seen than there are rows.
    let mut rows: Vec<String> = Vec::new();
    for line in lines.iter().rev().skip(back) {
        if rows.len() >= height {
            break;
        }
        rows.extend(pieces(line, cells).into_iter().rev());
    }
    rows.truncate(height);
    let note = match (lines.len(), back) {
        (0, _) => "nothing yet".to_owned(),
        (_, 0) => "newest".to_owned(),
        (_, back) => format!("{} back", units::some(back, "line")),
    };
    let all = output.lines.len();
    let note = match lines.len() {
        kept if kept < all => {
            format!("filter keeps {} of {} · {note}", units::count(kept as u64), units::some(all, "line"))
        }
        _ => note,
    };
    let title = format!("Output  {}", cut_middle(&output.path, cells.saturating_sub(30), "…"));
    let inner = canvas.pane(place, &title, &note);
    canvas.seen.rows[Pane::Output as usize] = 1;
    canvas.seen.all[Pane::Output as usize] = lines.len();
    for (row, text) in rows.iter().rev().enumerate() {
        canvas.put(inner, 0, row, text, cx.theme().style(Role::Plain));
    }
}

/// A line in pieces of at most so many cells. One that fits keeps its blanks, which align columns.
fn pieces(line: &str, cells: usize) -> Vec<String> {
    if super::text::width(line) <= cells { vec![line.to_owned()] } else { wrap(line, cells) }
}

#[cfg(test)]
mod tests {
    use ratatui::layout::Size;

    use super::super::{Pane, ViewState, fixture, render_text, tabs};
    use crate::input::{Key, press};
    use crate::model::snapshot::{Output, Snapshot};
    use std::sync::Arc;

    fn snapshot(lines: usize) -> Snapshot {
        let lines: Arc<[String]> = (1..=lines).map(|number| format!("line  {number}")).collect();
        let output =
            Output { path: "/home/ada/.local/state/gtop/log/vllm-20261129-172041-844.log".into(), lines };
        Snapshot { output: Some(output), ..fixture::vllm() }
    }

    #[test]
    fn the_tab_is_there_for_a_command_that_gtop_started() {
        let with = tabs(&snapshot(1));
        assert_eq!(with.last().unwrap().title, "Output");
        assert_eq!(tabs(&fixture::vllm()).len() + 1, with.len());
    }

    #[test]
    fn the_newest_line_is_at_the_bottom_and_keys_go_back() {
        let snapshot = Arc::new(snapshot(100));
        let mut state = ViewState::default();
        let number = tabs(&snapshot).len().to_string();
        press(Key::parse(&number).unwrap(), &mut state, &snapshot);
        assert_eq!(state.focus, Pane::Output);
        let mut draw = |keys: &[&str]| {
            for key in keys {
                state.seen = super::super::render(&snapshot, &state, Size::new(80, 24)).1;
                press(Key::parse(key).unwrap(), &mut state, &snapshot);
            }
            render_text(&snapshot, &state, Size::new(80, 24))
        };
        let text = draw(&[]);
        assert!(text.contains("line  100") && text.contains("line  82") && text.contains("newest"), "{text}");
        assert!(text.find("line  99") < text.find("line  100"), "{text}");
        let text = draw(&["up", "up", "up"]);
        assert!(
            !text.contains("line  98") && text.contains("line  97") && text.contains("3 lines back"),
            "{text}"
        );
        let text = draw(&["down", "down", "down", "down"]);
        assert!(text.contains("line  100"), "{text}");
    }
}
