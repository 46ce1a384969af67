//! The copies of CUPTI that a process has or would find, which one it gets, and which version each is.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use gtop_protocol::cupti::CuptiVersion;
use gtop_shim::places::{self, Hints};

use super::ask::{Ask, Library};
use super::machine::{Machine, Subject};
use crate::system::process::{printable, readable};

/// Copies that are looked at.
const MOST: usize = 32;
/// Folders in which the loader looks without being told.
const LOADER: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/lib64",
    "/usr/local/lib",
];

/// One copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Its path as the process sees it.
    pub path: PathBuf,
    /// Whether the process has it mapped.
    pub mapped: bool,
    /// The version, if it could be told.
    pub version: Option<CuptiVersion>,
    /// The release, `13.0.85`, if an installer noted it down.
    pub release: Option<String>,
    /// The major version of CUDA it belongs to.
    pub major: Option<u32>,
    /// How the version was told, or why not.
    pub how: String,
}

/// All copies of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copies {
    /// Those mapped first, then in the order in which the shim tries them.
    pub all: Vec<Copy>,
    /// The one the process has or would get; none when there is none, or when two are mapped and neither is
    /// preloaded.
    pub chosen: Option<usize>,
}

impl Copies {
    /// The copy the process has or would get.
    #[must_use]
    pub fn chosen(&self) -> Option<&Copy> {
        self.chosen.and_then(|index| self.all.get(index))
    }

    /// The shim has called the copy at this path, which told it its version.
    pub(super) fn called(&mut self, version: CuptiVersion, path: &Path) {
        if let Some(at) = self.all.iter().position(|copy| copy.mapped && copy.path == path) {
            self.chosen = Some(at);
            let copy = &mut self.all[at];
            copy.release = copy.release.take().filter(|release| of_release(release) == Some(version));
            (copy.version, copy.major) = (Some(version), Some(version.major()));
            "it told the shim so".clone_into(&mut copy.how);
        }
    }

    /// How many are mapped.
    #[must_use]
    pub fn mapped(&self) -> usize {
        self.all.iter().filter(|copy| copy.mapped).count()
    }
}

impl Copy {
    /// The version for people.
    #[must_use]
    pub fn name(&self) -> String {
        match (&self.release, self.version, self.major) {
            (Some(release), ..) => format!("CUPTI {}", printable(release.as_bytes())),
            (None, Some(version), _) => format!("CUPTI {version}"),
            (None, None, Some(major)) => format!("CUPTI {major}.?"),
            (None, None, None) => "a CUPTI of unknown version".to_owned(),
        }
    }

    /// Major and minor of the CUDA it belongs to, as far as known.
    pub(super) fn cuda(&self) -> Option<(u32, Option<u32>)> {
        let by_release = self.release.as_deref().and_then(numbers);
        let known = by_release.or_else(|| self.version.and_then(cuda_of));
        known.map(|(major, minor)| (major, Some(minor))).or_else(|| Some((self.major?, None)))
    }
}

/// Finds them. `driver` is the CUDA version of the machine's driver, `12020` for 12.2.
pub(super) fn find(machine: &Machine, subject: &Subject, ask: &mut dyn Ask, driver: Option<i32>) -> Copies {
    let mapped: Vec<PathBuf> =
        places::copies(&subject.maps).into_iter().map(|copy| PathBuf::from(copy.path)).collect();
    let mut paths = mapped.clone();
    let asked = subject.variable("GTOP_CUPTI").map(Path::new);
    paths.extend(asked.map(Path::to_path_buf));
    if subject.pid.is_none() {
        for packages in python_packages(machine, subject) {
            places::beside(&subject.root, &packages, &mut paths);
        }
    }
    let toolkit = subject.variable("CUDA_HOME").or_else(|| subject.variable("CUDA_PATH")).map(Path::new);
    paths.extend(places::candidates(&subject.root, &subject.maps, Hints { asked: None, toolkit }));
    for folder in subject.folders("LD_LIBRARY_PATH").into_iter().chain(LOADER.map(PathBuf::from)) {
        let from = paths.len();
        places::libraries(&subject.root, &folder, &mut paths);
        // The loader is asked for these names and for no others.
        let tail = paths.split_off(from);
        paths.extend(tail.into_iter().filter(|path| {
            path.file_name().is_some_and(|name| name == "libcupti.so.13" || name == "libcupti.so.12")
        }));
    }

    let mut copies = Copies::default();
    let mut seen = Vec::new();
    for path in paths {
        let is_mapped = mapped.contains(&path);
        let file = fs::metadata(subject.path(&path)).ok();
        // Names of one file are one copy. What is mapped is there even if its file is not.
        let identity = file.as_ref().map(|file| (file.dev(), file.ino()));
        if identity.is_none() && !is_mapped || identity.is_some() && seen.contains(&identity) {
            continue;
        }
        seen.push(identity);
        copies.all.push(look(subject, path, is_mapped, ask));
        if copies.all.len() == MOST {
            break;
        }
    }
    // The shim tells it by the name of the driver's library.
    let newest = match subject.pid {
        Some(_) => places::driver(&subject.maps).and_then(places::cuda_of_driver),
        None => driver.and_then(|driver| u32::try_from(driver / 1000).ok()),
    };
    let fits = |copy: &Copy| {
        let newer = newest.zip(copy.major).is_some_and(|(newest, major)| major > newest);
        asked.is_some() || !newer
    };
    copies.chosen = match mapped.len() {
        0 => copies.all.iter().position(fits).or((!copies.all.is_empty()).then_some(0)),
        1 if !copies.all.is_empty() => Some(0),
        1 => None,
        // Of several, everything that needs CUPTI by name gets the preloaded one.
        _ => {
            let of = |path: &Path| fs::metadata(subject.path(path)).ok().map(|file| (file.dev(), file.ino()));
            let files: Vec<_> = subject.folders("LD_PRELOAD").iter().filter_map(|path| of(path)).collect();
            copies
                .all
                .iter()
                .position(|copy| copy.mapped && of(&copy.path).is_some_and(|own| files.contains(&own)))
        }
    };
    copies
}

fn look(subject: &Subject, path: PathBuf, mapped: bool, ask: &mut dyn Ask) -> Copy {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let major = name.split(".so.").nth(1).and_then(|rest| rest.split('.').next()?.parse::<u32>().ok());
    // A toolkit's file may carry the year of its release.
    let major = major.filter(|major| *major < 100);
    let answer = if may_load(subject, &path) {
        ask.library(&subject.path(&path))
    } else {
        Library::Silent("it is not loaded to ask, since others may have made it".to_owned())
    };
    let noted = release(subject, &path, major);
    let (version, how) = match (answer, &noted) {
        (Library::Version(version), _) => (Some(CuptiVersion(version)), "it says so".to_owned()),
        (Library::Silent(_), Some((release, source))) => (of_release(release), format!("{source} says so")),
        (Library::Silent(why), None) => (None, why),
    };
    let release = noted.map(|(release, _)| release);
    let major = version.map(CuptiVersion::major).or(major);
    Copy { path, mapped, version, release, major, how }
}

/// Whether a library may be loaded to be asked: nobody but root or this user can have made it.
fn may_load(subject: &Subject, path: &Path) -> bool {
    let own = nix::unistd::geteuid().as_raw();
    let trusted = |path: &Path| {
        fs::metadata(path)
            .is_ok_and(|file| (file.uid() == 0 || file.uid() == own) && file.mode() & 0o002 == 0)
    };
    let file = subject.path(path);
    subject.same_root && trusted(&file) && file.parent().is_some_and(trusted)
}

/// The release that pip or the toolkit's installer noted down beside the library, and who says so.
fn release(subject: &Subject, path: &Path, major: Option<u32>) -> Option<(String, String)> {
    let packages = path
        .ancestors()
        .find(|folder| folder.ends_with("site-packages") || folder.ends_with("dist-packages"));
    if let Some(packages) = packages {
        let entries = fs::read_dir(subject.path(packages)).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut found: Vec<String> = names.filter_map(|name| wheel(&name, major)).collect();
        found.sort_unstable();
        return Some((found.pop()?, "pip's records".to_owned()));
    }
    let toolkit = path.ancestors().skip(1).take(5).find_map(|folder| {
        let text = fs::read_to_string(subject.path(&folder.join("version.json"))).ok()?;
        let versions: serde_json::Value = serde_json::from_str(&text).ok()?;
        Some((versions["cuda_cupti"]["version"].as_str()?.to_owned(), folder.join("version.json")))
    });
    toolkit.map(|(release, file)| (release, readable(&file)))
}

/// The version in `nvidia_cuda_cupti-13.0.85.dist-info` or `nvidia_cuda_cupti_cu12-12.8.90.dist-info`, if it is of
/// this major version of CUDA.
fn wheel(folder: &str, major: Option<u32>) -> Option<String> {
    let (name, version) = folder.strip_suffix(".dist-info")?.split_once('-')?;
    let is_cupti = name == "nvidia_cuda_cupti" || name.starts_with("nvidia_cuda_cupti_cu");
    let of_major = major.is_none_or(|major| version.starts_with(&format!("{major}.")));
    (is_cupti && of_major).then(|| version.to_owned())
}

/// The number `cuptiGetVersion` gives in a release such as 13.0.85. Where no table knows the release, the first of
/// its minor version: verdicts are the same.
fn of_release(release: &str) -> Option<CuptiVersion> {
    let (major, minor) = numbers(release)?;
    if (major, minor) == (12, 1) {
        // The header of 12.1 says the same as that of 12.0.
        return Some(CuptiVersion(18));
    }
    if major < 13 {
        return (0..100).map(CuptiVersion).find(|version| cuda_of(*version) == Some((major, minor)));
    }
    let base = major.checked_mul(10_000)?.checked_add(minor.checked_mul(100)?)?;
    let named =
        (base..base.checked_add(100)?).map(CuptiVersion).find(|version| version.to_string() == release);
    Some(named.unwrap_or(CuptiVersion(base)))
}

/// Major and minor of a release.
fn numbers(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// Major and minor of the CUDA a version belongs to, if that is known.
fn cuda_of(version: CuptiVersion) -> Option<(u32, u32)> {
    if version.0 >= 100_000 {
        return Some((version.0 / 10_000, version.0 / 100 % 100));
    }
    let text = version.to_string();
    let (major, minor) = text.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where Python packages lie for a program started here: the environment's own, the user's, the system's.
fn python_packages(machine: &Machine, subject: &Subject) -> Vec<PathBuf> {
    let environments = ["VIRTUAL_ENV", "CONDA_PREFIX"].map(|name| subject.variable(name).map(PathBuf::from));
    let user = subject.variable("HOME").map(|home| Path::new(home).join(".local"));
    let system = ["/usr/local", "/usr"].map(|folder| Some(PathBuf::from(folder)));
    let mut found = Vec::new();
    for prefix in environments.into_iter().chain([user]).chain(system).flatten() {
        let lib = prefix.join("lib");
        let versions = machine.names(&lib).into_iter().filter(|name| name.starts_with("python"));
        for folder in versions
            .flat_map(|name| ["site-packages", "dist-packages"].map(|kind| lib.join(&name).join(kind)))
        {
            if fs::metadata(machine.path(&folder)).is_ok_and(|file| file.is_dir()) && !found.contains(&folder)
            {
                found.push(folder);
            }
        }
    }
    found
}

/// Whether this is the name of the CUDA driver's library.
pub(super) fn is_cuda(name: &str) -> bool {
    OsStr::new(name) == "libcuda.so" || name.starts_with("libcuda.so.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_put_into_the_numbers_of_cupti() {
        for (release, version) in [
            ("13.0.85", 130_001),
            ("13.0.48", 130_000),
            ("13.2.86", 130_202),
            ("13.3.99", 130_300),
            ("14.1.2", 140_100),
            ("12.8.90", 26),
            ("12.9.79", 28),
            ("12.0.146", 18),
            ("12.1.105", 18),
        ] {
            assert_eq!(of_release(release), Some(CuptiVersion(version)), "{release}");
        }
        for unknown in ["", "13", "12.99.1", "x.y", "4294967295.1"] {
            assert_eq!(of_release(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn wheels_are_told_by_their_records() {
        assert_eq!(wheel("nvidia_cuda_cupti-13.0.85.dist-info", Some(13)).as_deref(), Some("13.0.85"));
        assert_eq!(wheel("nvidia_cuda_cupti_cu12-12.8.90.dist-info", Some(12)).as_deref(), Some("12.8.90"));
        assert_eq!(wheel("nvidia_cuda_cupti_cu12-12.8.90.dist-info", Some(13)), None);
        assert_eq!(wheel("nvidia_cuda_runtime-13.0.85.dist-info", Some(13)), None);
        assert_eq!(wheel("nvidia_cuda_cupti-13.0.85", None), None);
    }
}
