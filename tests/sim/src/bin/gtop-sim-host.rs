//! A CUDA application on the simulated GPU, see `gtop_sim::host`.

use std::process::ExitCode;

fn main() -> ExitCode {
    gtop_sim::host::main(std::env::args().skip(1))
}
