//! The helper process: answers one request after the other, and may be killed in the middle of any.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use ipc_channel::ipc::{self, IpcSender};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, Signal};
use serde::{Deserialize, Serialize};

use super::backend::{Backend, Unavailable};
use super::driver::Driver;
use super::sample::DeviceSample;
use super::simulated::Simulated;

/// The hidden subcommand that runs the helper; the name of the client's IPC server is its one argument.
pub const SUBCOMMAND: &str = "__nvml-helper";

/// The environment variable with the secret that shows the client who connected: its socket's folder is made by
/// `ipc-channel`, which checks nobody.
pub(super) const SECRET: &str = "GTOP_NVML_SECRET";

/// Asks for one sample; the number comes back in the answer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request(pub u64);

/// What the helper says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum FromHelper {
    /// The first message.
    Hello { secret: String, requests: IpcSender<Request> },
    /// The answer to a request.
    Answer { request: u64, devices: Result<Vec<DeviceSample>, Unavailable> },
}

/// Runs the helper until the client goes away.
#[must_use]
pub fn helper_main(args: &[OsString]) -> ExitCode {
    let Some(name) = args.first().and_then(|name| name.to_str()) else {
        return ExitCode::from(2);
    };
    let open = || match Simulated::from_environment() {
        Some(simulated) => Ok(Box::new(simulated) as Box<dyn Backend>),
        None => Ok(Box::new(Driver::open()?) as Box<dyn Backend>),
    };
    match serve(name, open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Answers the requests of the client behind `name`. A backend that fails is opened again for the next request,
/// since drivers are loaded and devices come back while a viewer runs.
pub(super) fn serve(
    name: &str,
    mut open: impl FnMut() -> Result<Box<dyn Backend>, Unavailable>,
) -> io::Result<()> {
    // The client's thread holds signals back, and that is inherited.
    SigSet::empty().thread_set_mask()?;
    // A call stuck in the driver must not outlive the viewer.
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let secret = std::env::var(SECRET).unwrap_or_default();
    let client = IpcSender::connect(name.to_owned())?;
    let (sender, requests) = ipc::channel::<Request>()?;
    client.send(FromHelper::Hello { secret, requests: sender }).map_err(io::Error::other)?;

    let mut backend = None;
    while let Ok(Request(request)) = requests.recv() {
        let opened = backend.take().map_or_else(&mut open, Ok);
        let devices = opened.and_then(|mut opened| {
            let devices = opened.sample()?;
            backend = Some(opened);
            Ok(devices)
        });
        if client.send(FromHelper::Answer { request, devices }).is_err() {
            break;
        }
    }
    Ok(())
}
