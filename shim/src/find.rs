//! Finding libcupti: the copy that is mapped already if there is one, else the likeliest file. Never a second one.
#![expect(
    clippy::result_large_err,
    reason = "a failure carries its text in place: failing must not allocate"
)]

use crate::bound;
use crate::config::Config;
use crate::places::{self, HOLDERS, Hints, Mapped, candidates, copies};
use crate::sys::{self, Library};
use crate::text::Text;
use core::fmt::Write as _;
use gtop_protocol::message::Reason;
use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Why there is no CUPTI to call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NotFound {
    pub(crate) reason: Reason,
    pub(crate) detail: Text<256>,
}

impl NotFound {
    fn new(reason: Reason, detail: core::fmt::Arguments<'_>) -> Self {
        Self { reason, detail: Text::new(detail) }
    }
}

/// A copy that is for a newer CUDA than the driver.
#[derive(Debug)]
struct TooNew {
    path: PathBuf,
    /// Its file, without links.
    file: Option<PathBuf>,
    major: u32,
}

impl TooNew {
    fn new(path: &Path) -> Self {
        let file = path.canonicalize().ok();
        Self { path: path.to_path_buf(), file, major: places::major(path).unwrap_or(0) }
    }

    fn is_at(&self, path: &Path) -> bool {
        self.file.is_some() && self.file == path.canonicalize().ok()
    }
}

/// Files looked at before giving up.
const MOST_CANDIDATES: usize = 64;

/// The library to use. CUDA must be there first: some versions crash without it.
pub(crate) fn cupti(config: &Config) -> Result<Library, NotFound> {
    if sys::mapped_library(c"libcuda.so.1").is_none() {
        return Err(NotFound::new(Reason::NoCuda, format_args!("libcuda.so.1 is not mapped")));
    }
    let maps = sys::maps();
    let copies = copies(&maps);
    home(&copies, config)?;
    for name in [c"libcupti.so.13", c"libcupti.so.12"] {
        if let Some(library) = sys::mapped_library(name) {
            return Ok(library);
        }
    }
    if let Some(library) = copies.iter().find_map(|copy| sys::mapped_library(&c_path(Path::new(copy.path))?))
    {
        return Ok(library);
    }
    let driver = places::driver(&maps);
    let newest = driver.and_then(places::cuda_of_driver).filter(|_| config.cupti.is_none());
    let mut too_new: Option<TooNew> = None;
    let mut tried: Text<256> = Text::EMPTY;
    let hints = Hints { asked: config.cupti.as_deref(), toolkit: config.toolkit.as_deref() };
    for path in candidates(Path::new("/"), &maps, hints).iter().take(MOST_CANDIDATES) {
        let Some(name) = c_path(path) else { continue };
        if !path.exists() {
            if config.cupti.is_some() {
                let _ = write!(tried, "GTOP_CUPTI names {}, where there is no file", path.display());
            }
            continue;
        }
        if newest.is_some_and(|newest| places::major(path).is_some_and(|major| major > newest)) {
            too_new.get_or_insert_with(|| TooNew::new(path));
            continue;
        }
        // A toolkit has the same file under names without a version.
        if too_new.as_ref().is_some_and(|too_new| too_new.is_at(path)) {
            continue;
        }
        match sys::load_library(&name) {
            Ok(library) => {
                let maps = sys::maps();
                home(&self::copies(&maps), config)?;
                return Ok(library);
            }
            Err(why) => {
                let between = if tried.is_empty() { "" } else { "; " };
                // The loader names the file itself, most of the time.
                let _ = if why.as_bytes().starts_with(path.as_os_str().as_bytes()) {
                    write!(tried, "{between}{why}")
                } else {
                    write!(tried, "{between}{}: {why}", path.display())
                };
            }
        }
    }
    for (name, major) in [(c"libcupti.so.13", 13), (c"libcupti.so.12", 12)] {
        if config.cupti.is_none()
            && newest.is_none_or(|newest| major <= newest)
            && let Ok(library) = sys::load_library(name)
        {
            return Ok(library);
        }
    }
    if let (Some(too_new), Some(driver), Some(newest)) = (too_new, driver, newest) {
        return Err(NotFound::new(
            Reason::Refused,
            format_args!(
                "CUPTI {} needs a newer driver (have {driver}, for CUDA {newest}): {}",
                too_new.major,
                too_new.path.display()
            ),
        ));
    }
    if tried.is_empty() {
        let _ = tried.write_str("nothing beside torch, in pip's nvidia folders, or in a toolkit");
    }
    Err(NotFound { reason: Reason::NoCupti, detail: tried })
}

/// Proves from what is mapped now that the CUPTI whose functions are called, from the file `called`, is the one home that
/// CUPTI has here and the one asked for. Another may have been mapped since the last time.
pub(crate) fn proven(config: &Config, called: &Text<1024>) -> Result<(), NotFound> {
    let maps = sys::maps();
    let copies = copies(&maps);
    let Some(home) = home(&copies, config)? else { return Ok(()) };
    // The loader keeps the path by which it came to a library, which may lead through links and upward.
    match (real(called.as_bytes()), real(home.path.as_bytes())) {
        (Some(called), Some(mapped)) if called != mapped => Err(NotFound::new(
            Reason::SecondCopy,
            format_args!("{} is mapped, but what answers is {}", mapped.display(), called.display()),
        )),
        _ => Ok(()),
    }
}

/// CUPTI has one home in a process: another one than asked for is refused, and so is a second copy that anybody uses.
/// One that nobody uses is there where a program maps its own by path beside a preloaded one, as PyTorch does.
fn home<'a, 'b>(copies: &'b [Mapped<'a>], config: &Config) -> Result<Option<&'b Mapped<'a>>, NotFound> {
    let home = match copies {
        [] => return Ok(None),
        [copy] => copy,
        [first, second, ..] => {
            let ours = first_by_name().and_then(|file| real(file.as_bytes()));
            let is_ours = |copy: &&Mapped<'_>| ours.is_some() && real(copy.path.as_bytes()) == ours;
            let Some(home) = copies.iter().find(is_ours) else {
                return Err(NotFound::new(
                    Reason::SecondCopy,
                    format_args!("{} and {}", first.path, second.path),
                ));
            };
            for other in copies.iter().filter(|copy| !is_ours(copy)) {
                if let Some(user) = bound::to(other.range.clone()) {
                    return Err(NotFound::new(
                        Reason::SecondCopy,
                        format_args!("{} and {}, which {user} uses", home.path, other.path),
                    ));
                }
            }
            home
        }
    };
    let Some(asked) = &config.cupti else { return Ok(Some(home)) };
    let same = match (real(asked.as_os_str().as_bytes()), real(home.path.as_bytes())) {
        (Some(asked), Some(home)) => asked == home,
        _ => false,
    };
    if same {
        return Ok(Some(home));
    }
    Err(NotFound::new(
        Reason::SecondCopy,
        format_args!("{} is mapped already, so {} cannot be used", home.path, asked.display()),
    ))
}

/// The file of the copy that the loader gives to everything that needs CUPTI by name.
fn first_by_name() -> Option<Text<1024>> {
    let library = [c"libcupti.so.13", c"libcupti.so.12"].into_iter().find_map(sys::mapped_library)?;
    let function = library.symbol(c"cuptiGetVersion");
    if function.is_null() { None } else { sys::file_of(function) }
}

/// A path without links and ways upward; `None` where there is no file.
fn real(path: &[u8]) -> Option<PathBuf> {
    Path::new(OsStr::from_bytes(path)).canonicalize().ok()
}

fn c_path(path: &Path) -> Option<CString> {
    CString::new(path.as_os_str().as_bytes()).ok()
}

/// Tools that are known to hold CUPTI and that something in the process points to, for the message of error 39.
pub(crate) fn likely_holders() -> Text<256> {
    let maps = sys::maps();
    let mut text = Text::EMPTY;
    let environment = std::fs::read("/proc/self/environ").unwrap_or_default();
    let nsys = environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"NSYS_"));
    let mapped = HOLDERS.iter().filter(|(library, _)| maps.contains(library)).map(|(_, tool)| *tool);
    for (i, tool) in nsys
        .then_some("Nsight Systems (its environment variables are set)")
        .into_iter()
        .chain(mapped)
        .enumerate()
    {
        let _ = text.write_str(if i == 0 { "perhaps " } else { " or " });
        let _ = text.write_str(tool);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::tests::MAPS;

    #[test]
    fn a_second_copy_is_refused() {
        assert!(home(&copies(MAPS), &Config::default()).is_ok());
        let second =
            MAPS.replace("7f0000005000-7f0000006000 r-xp 00000000 103:02 99 ", "7f5-7f6 r-xp 0 103:02 98 ");
        let refused = home(&copies(&second), &Config::default()).unwrap_err();
        assert_eq!(refused.reason, Reason::SecondCopy);
        assert!(refused.detail.to_string().contains(" and /opt/a b/libcupti.so.12"));
    }

    #[test]
    fn another_copy_than_asked_for_is_refused() {
        let config = Config { cupti: Some("/nowhere/libcupti.so.13".into()), ..Config::default() };
        let refused = home(&copies(MAPS), &config).unwrap_err();
        assert!(refused.detail.to_string().contains("/nowhere/libcupti.so.13 cannot be used"));
    }
}
