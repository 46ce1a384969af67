//! What is remembered from one run to the next: the filters that were used.

use std::fs;
use std::path::PathBuf;

/// The file, and what it said.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    /// Where; `None` remembers nothing.
    path: Option<PathBuf>,
    /// Filters, the newest last.
    pub filters: Vec<String>,
    /// Whether gtop was never run here before.
    pub first_run: bool,
}

impl Remembered {
    /// Reads the file at its place, `$XDG_STATE_HOME/gtop/filters`. What cannot be read was never there.
    #[must_use]
    pub fn load() -> Self {
        use etcetera::BaseStrategy;
        let state = etcetera::choose_base_strategy().ok().and_then(|base| base.state_dir());
        state.map_or_else(Self::default, |state| Self::load_from(state.join("gtop").join("filters")))
    }

    fn load_from(path: PathBuf) -> Self {
        let text = fs::read_to_string(&path);
        let first_run = text.is_err();
        let filters = text.unwrap_or_default().lines().map(str::to_owned).collect();
        Self { path: Some(path), filters, first_run }
    }

    /// Writes it back with these filters. It is a comfort: that it cannot be written is no error.
    pub fn save(&self, filters: &[String]) {
        let Some(path) = &self.path else { return };
        if !self.first_run && filters == self.filters {
            return;
        }
        let text = filters.join("\n") + if filters.is_empty() { "" } else { "\n" };
        let _ = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_come_back_and_the_first_run_is_the_first() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state").join("filters");
        let first = Remembered::load_from(path.clone());
        assert!(first.first_run && first.filters.is_empty());
        first.save(&["flash".to_owned(), "dur>10us".to_owned()]);
        let second = Remembered::load_from(path);
        assert!(!second.first_run);
        assert_eq!(second.filters, ["flash", "dur>10us"]);
        Remembered::default().save(&[]);
    }
}
