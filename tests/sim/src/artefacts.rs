//! Finds the simulated libraries where cargo built them, and lays them out under the names of the real ones.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// What cargo calls the libraries, and what loaders look for.
const LIBRARIES: [(&str, &str); 2] =
    [("libgtop_sim_cuda.so", "libcuda.so.1"), ("libgtop_sim_cupti.so", "libcupti.so.13")];

/// Puts `libcuda.so.1` and `libcupti.so.13` into `directory`. A package whose tests use this depends, for tests, on
/// `gtop-sim-cuda` and `gtop-sim-cupti`, which makes cargo build them.
///
/// # Errors
/// They were not built, or the directory cannot be written to.
pub fn lay_out(directory: &Path) -> io::Result<()> {
    for (built, name) in LIBRARIES {
        let from = find(built)?;
        let to = directory.join(name);
        // A link is enough where it is possible; its path is what /proc/self/maps shows.
        if fs::hard_link(&from, &to).is_err() {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// The newest file of this name beside the running program or in a `deps` folder next to it.
fn find(name: &str) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    program
        .ancestors()
        .skip(1)
        .take(3)
        .flat_map(|folder| [folder.join(name), folder.join("deps").join(name)])
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .max()
        .map(|(_, path)| path)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{name} was not built")))
}
