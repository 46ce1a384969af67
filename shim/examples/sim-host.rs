//! The simulated CUDA application that the shim's tests inject into.

fn main() -> std::process::ExitCode {
    gtop_sim::host::main(std::env::args().skip(1))
}
