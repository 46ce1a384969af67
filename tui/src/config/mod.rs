//! What the person has written down for gtop to keep to: `gtop.toml`.

mod file;
mod nearest;
mod remembered;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::input::Keymap;
use crate::model::bound;
use crate::model::snapshot::Limits;
use crate::system::process::readable;
use crate::view::{Families, Group, Sort, Theme};

pub use file::{parse, sample, schema};
pub use nearest::{did_you_mean, nearest};
pub use remembered::Remembered;

/// What can be chosen.
#[derive(Clone, Debug)]
pub struct Config {
    /// How the screen looks; `None` is what the terminal and the environment suggest.
    pub theme: Option<Theme>,
    /// Whether clicks come to gtop; without, the terminal selects text as it does elsewhere.
    pub mouse: bool,
    /// Whether toggles, marks and signals are refused.
    pub read_only: bool,
    /// The tab to begin with, from 1.
    pub tab: u8,
    /// By what kernels are sorted.
    pub sort: Sort,
    /// What kernels are grouped by.
    pub group: Group,
    /// Nanoseconds a column of the timeline holds at first.
    pub column: u64,
    /// A filter to begin with.
    pub filter: String,
    /// What keys do.
    pub keymap: Arc<Keymap>,
    /// The families of kernels.
    pub families: Families,
    /// When growth of memory is called a leak.
    pub leak: Limits,
    /// Memory that gtop may take, bytes.
    pub memory: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            theme: None,
            mouse: true,
            read_only: false,
            tab: 1,
            sort: Sort::default(),
            group: Group::default(),
            column: 500_000,
            filter: String::new(),
            keymap: Arc::default(),
            families: Families::default(),
            leak: Limits::DEFAULT,
            memory: bound::DEFAULT,
        }
    }
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("{}: {source}", readable(path))]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It says what gtop does not understand.
    #[error("{}:\n{}", readable(path), problems.iter().map(|problem| format!("  {problem}")).collect::<Vec<_>>().join("\n"))]
    Wrong {
        /// Which.
        path: PathBuf,
        /// Everything that is wrong with it.
        problems: Vec<String>,
    },
}

impl Config {
    /// Makes everything keep to what holds for the whole run and not for the screen alone.
    pub fn keep_to(&self) {
        self.leak.keep_to();
        bound::keep_to(self.memory);
    }

    /// Where it is by default: `$XDG_CONFIG_HOME/gtop/gtop.toml`.
    #[must_use]
    pub fn path() -> Option<PathBuf> {
        use etcetera::BaseStrategy;
        Some(etcetera::choose_base_strategy().ok()?.config_dir().join("gtop").join("gtop.toml"))
    }

    /// Reads `path`, or the file at the default place if there is one.
    pub fn load(path: Option<&Path>) -> Result<Self, ConfigError> {
        let asked = path.is_some();
        let Some(path) = path.map(Path::to_owned).or_else(Self::path) else { return Ok(Self::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            // None there, or in a folder this user cannot look into: a container's or `su`'s `HOME` is often another's.
            Err(_) if !asked && !path.try_exists().unwrap_or(false) => return Ok(Self::default()),
            Err(source) => return Err(ConfigError::Unreadable { path, source }),
        };
        parse(&text).map_err(|problems| ConfigError::Wrong { path, problems })
    }
}
