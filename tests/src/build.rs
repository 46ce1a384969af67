//! The programs under test. Cargo builds them as programs of this package, so they lie beside its tests and are never
//! older than what they are made of.

use std::path::PathBuf;

/// The viewer.
pub fn gtop() -> PathBuf {
    program("gtop-tested")
}

/// The simulated CUDA application, `gtop-sim-host`.
pub fn host() -> PathBuf {
    program("gtop-tested-host")
}

/// Something that pretends to be a process with a shim.
pub fn fake_shim() -> PathBuf {
    program("gtop-fake-shim")
}

/// Something that loads the shim without having CUDA.
pub fn no_cuda() -> PathBuf {
    program("gtop-no-cuda")
}

/// A process with threads that wait in system calls.
pub fn waiters() -> PathBuf {
    program("gtop-waiters")
}

fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("the test knows where it is");
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} was not built; `cargo test -p gtop-tests` builds it"))
}
