//! `gtop-fake-shim FILE close|read|hold`: listens where the shim of this process would, sends the bytes of the file to
//! whoever connects, and then hangs up, reads, or does nothing. It ends with its standard input.

use std::io::{Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use gtop_protocol::rendezvous;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, then] = arguments.as_slice() else { panic!("usage: gtop-fake-shim FILE close|read|hold") };
    let bytes = std::fs::read(file).expect("the file");
    let listener = listen();
    println!("listening");
    let then = then.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (bytes, then) = (bytes.clone(), then.clone());
            std::thread::spawn(move || serve(stream.expect("a connection"), &bytes, &then));
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

fn listen() -> UnixListener {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").expect("XDG_RUNTIME_DIR is set");
    let folder = Path::new(&runtime).join("gtop");
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).expect("the folder");
    UnixListener::bind(folder.join(rendezvous::file_name(std::process::id(), start_time())))
        .expect("the socket")
}

/// Field 22 of `/proc/self/stat`.
fn start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("/proc/self/stat");
    let behind_name = stat.rsplit_once(") ").expect("a name in brackets").1;
    behind_name.split(' ').nth(19).and_then(|field| field.parse().ok()).expect("a start time")
}

fn serve(mut stream: UnixStream, bytes: &[u8], then: &str) {
    // Whoever listened may be gone.
    let _ = stream.write_all(bytes);
    match then {
        "close" => {}
        "read" => {
            let _ = stream.read_to_end(&mut Vec::new());
        }
        _ => loop {
            std::thread::park();
        },
    }
}
