//! The files of an export while they are made: each lies beside its place under another name, and all are put in their
//! places when the last one is whole. What breaks off is never taken for the whole.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tempfile::TempPath;

use crate::recorder::{create, is_there};

/// Bytes of a file's name in that under which it is made, of the 255 that a name may have.
const MAX_NAME: usize = 200;
/// Names that are tried: what was killed may have left some behind.
const TRIES: u32 = 100;

/// The files of an export, in order.
#[derive(Clone, Debug, Default)]
pub struct Written(Arc<Mutex<Vec<Made>>>);

/// A file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub path: PathBuf,
    /// Bytes in it; 0 until it is whole.
    pub bytes: u64,
}

/// The same for who ends the program: they are taken away without it, too, when nobody makes them any more.
#[derive(Clone, Debug)]
pub struct Unfinished(Weak<Mutex<Vec<Made>>>);

#[derive(Debug)]
struct Made {
    part: Part,
    is_whole: bool,
    /// Where it lies until it is put in its place, and is taken away when this goes; `None` of what has no name of
    /// its own: pipes, devices, standard output.
    beside: Option<TempPath>,
}

impl Written {
    fn lock(&self) -> MutexGuard<'_, Vec<Made>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the file that belongs at `path`, which must not be there; pipes and devices are written to.
    pub(super) fn open(&self, path: PathBuf) -> io::Result<File> {
        let mut all = self.lock();
        let (file, beside) = match fs::symlink_metadata(&path) {
            Ok(_) => (create(&path)?, None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (file, beside) = create_beside(&path)?;
                (file, Some(beside))
            }
            Err(error) => return Err(error),
        };
        all.push(Made { part: Part { path, bytes: 0 }, is_whole: false, beside });
        Ok(file)
    }

    /// Notes one that has no place.
    pub(super) fn note(&self, path: PathBuf) {
        self.lock().push(Made { part: Part { path, bytes: 0 }, is_whole: false, beside: None });
    }

    /// How many were begun.
    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Notes that one is whole.
    pub(super) fn ended(&self, number: usize, bytes: u64) -> io::Result<()> {
        let mut all = self.lock();
        let Some(made) = all.get_mut(number) else { return Ok(()) };
        (made.part.bytes, made.is_whole) = (bytes, true);
        let beside = made.beside.as_ref().map(|beside| beside.to_path_buf());
        drop(all);
        beside.map_or(Ok(()), |beside| reach_disk(&beside))
    }

    /// Bytes in those that are whole, and whether the last one is.
    pub(super) fn bytes(&self) -> (u64, bool) {
        let all = self.lock();
        (all.iter().map(|made| made.part.bytes).sum(), all.last().is_some_and(|made| made.is_whole))
    }

    /// The files.
    #[must_use]
    pub fn parts(&self) -> Vec<Part> {
        self.lock().iter().map(|made| made.part.clone()).collect()
    }

    /// Puts all of them in their places, or none.
    ///
    /// # Errors
    ///
    /// When something has come to lie there meanwhile, or the system cannot.
    pub fn put_in_place(&self) -> io::Result<()> {
        let mut all = self.lock();
        let mut placed: Vec<PathBuf> = Vec::new();
        for made in all.iter_mut() {
            let Some(beside) = made.beside.take() else { continue };
            if let Err(error) = put(beside, &made.part.path) {
                // What cannot be taken away stays.
                for path in placed {
                    let _ = fs::remove_file(path);
                }
                all.clear();
                return Err(error);
            }
            placed.push(made.part.path.clone());
        }
        Ok(())
    }

    /// What can take away those that are not in their places.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        Unfinished(Arc::downgrade(&self.0))
    }
}

impl Unfinished {
    /// Takes away what is not in its place, and lets nothing more be made until `then` is done, which may end the program.
    pub fn take_away_and(&self, then: impl FnOnce()) {
        let written = self.0.upgrade().map(Written).unwrap_or_default();
        let mut all = written.lock();
        all.iter_mut().for_each(|made| made.beside = None);
        then();
    }
}

/// A new file beside a place: `.run.csv.844.part` for `run.csv`. A point before it has those who read folders leave it
/// alone.
fn create_beside(path: &Path) -> io::Result<(File, TempPath)> {
    let name = path.file_name().map(OsStr::as_bytes).unwrap_or_default();
    if !path.as_os_str().as_bytes().ends_with(name) || name.is_empty() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    let name = &name[..name.len().min(MAX_NAME)];
    let mut tried = 0;
    loop {
        let tail = if tried == 0 { String::new() } else { format!("-{tried}") };
        let beside = [b".", name, format!(".{}{tail}.part", std::process::id()).as_bytes()].concat();
        let beside = path.with_file_name(OsStr::from_bytes(&beside));
        tried += 1;
        match create(&beside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && tried < TRIES => {}
            file => return Ok((file?, TempPath::try_from_path(beside)?)),
        }
    }
}

/// Has a file reach the disk: file systems of other machines say only then that they are full.
fn reach_disk(path: &Path) -> io::Result<()> {
    match File::open(path)?.sync_data() {
        // Some cannot.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        done => done,
    }
}

/// Puts a file in its place if nothing lies there.
fn put(beside: TempPath, path: &Path) -> io::Result<()> {
    let Err(failed) = beside.persist_noclobber(path) else { return Ok(()) };
    match fs::symlink_metadata(path) {
        Ok(_) => Err(is_there(path)),
        // File systems that can neither link nor rename without overwriting.
        Err(_) => failed.path.persist(path).map_err(|_| failed.error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn nothing_is_in_its_place_before_everything_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let written = Written::default();
        written.open(at("run.csv")).unwrap().write_all(b"one").unwrap();
        written.ended(0, 3).unwrap();
        written.open(at("run.2.csv")).unwrap().write_all(b"two").unwrap();
        let beside = names(folder.path());
        let is_beside = |name: &String| name.starts_with(".run") && name.strip_suffix(".part").is_some();
        assert!(beside.iter().all(is_beside), "{beside:?}");
        assert_eq!(written.bytes(), (3, false));
        let mode = at(&beside[0]).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        written.ended(1, 3).unwrap();
        written.put_in_place().unwrap();
        assert_eq!(names(folder.path()), ["run.2.csv", "run.csv"]);
        // What is in its place is nothing half-done.
        written.unfinished().take_away_and(|| ());
        assert_eq!(fs::read_to_string(at("run.2.csv")).unwrap(), "two");
    }

    #[test]
    fn what_breaks_off_is_taken_away() {
        let folder = tempfile::tempdir().unwrap();
        let written = Written::default();
        let _open = written.open(folder.path().join("run.csv")).unwrap();
        let _other = written.open(folder.path().join("run.2.csv")).unwrap();
        assert_eq!(names(folder.path()).len(), 2);
        let unfinished = written.unfinished();
        unfinished.take_away_and(|| assert!(names(folder.path()).is_empty()));
        let forgotten = Written::default();
        forgotten.open(folder.path().join("run.csv")).unwrap();
        let unfinished = forgotten.unfinished();
        drop(forgotten);
        assert!(names(folder.path()).is_empty(), "whoever may still end the program");
        unfinished.take_away_and(|| ());
    }

    #[test]
    fn what_comes_to_lie_there_meanwhile_is_left_alone() {
        for is_link in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            let written = Written::default();
            for name in ["one", "two", "three"] {
                written.open(at(name)).unwrap().write_all(b"ours").unwrap();
            }
            if is_link {
                symlink(at("elsewhere"), at("two")).unwrap();
            } else {
                fs::write(at("two"), "theirs").unwrap();
            }
            let error = written.put_in_place().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{error}");
            assert_eq!(names(folder.path()), ["two"], "all or none");
            assert_eq!(fs::read_to_string(at("two")).ok().as_deref(), (!is_link).then_some("theirs"));
        }
    }

    #[test]
    fn names_that_are_taken_too_long_or_none_are_no_trouble() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let left = at(&format!(".x.{}.part", std::process::id()));
        fs::write(&left, "left behind").unwrap();
        let long = "ü".repeat(127);
        let written = Written::default();
        written.open(at("x")).unwrap();
        written.open(at(&long)).unwrap();
        written.put_in_place().unwrap();
        assert!(at("x").exists() && at(&long).exists());
        assert_eq!(fs::read_to_string(&left).unwrap(), "left behind");
        for path in [at("none/"), PathBuf::new()] {
            assert!(written.open(path).is_err());
        }
        symlink(at("nowhere"), at("link")).unwrap();
        for there in ["x", "link", "."] {
            let error = written.open(at(there)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::AlreadyExists, "{there}: {error}");
        }
    }
}
