//! Shims of the past and of the future, shims that send nonsense, and shims that do not answer.

use gtop_protocol::frame::{FrameKind, Header, MAGIC, PROTOCOL};
use gtop_protocol::message::{HelloFields, Loss, State, StateCode, names};
use gtop_protocol::record::Kernel;
use gtop_protocol::wire::Writer;
use gtop_tests::fake::{Fake, Then, frame, hello};
use gtop_tests::stage::Stage;
use gtop_tests::summary::{Summary, assert_balance, count};
use zerocopy::IntoBytes;

const KERNELS: u32 = 40;

fn armed(seq: u64) -> Vec<u8> {
    frame(FrameKind::State, seq, |w| {
        State { state: StateCode::Armed as u8, watchers: 1, ..State::default() }.write(w)
    })
}

/// A kernel's record as a shim with records of another size writes it.
fn kernel(size: usize) -> Vec<u8> {
    let kernel = Kernel {
        start: 1_764_000_000_000_000_000.into(),
        end: 1_764_000_000_000_001_000.into(),
        name: 1.into(),
        context: 1.into(),
        stream: 7.into(),
        ..Kernel::default()
    };
    let mut bytes = kernel.as_bytes().to_vec();
    bytes.resize(size, 0xee);
    bytes
}

fn run(w: &mut Writer<'_>, family: u8, count: u32, record: &[u8]) -> Result<(), gtop_protocol::wire::Full> {
    w.bytes(&[family, 0, 0, 0])?;
    w.u32(count)?;
    (0..count).try_for_each(|_| w.bytes(record))
}

/// A whole stream behind the hello: state, a name, kernels of this size, and counts that agree with them.
fn stream(size: usize) -> Vec<u8> {
    let loss = Loss {
        walked: KERNELS.into(),
        framed: KERNELS.into(),
        kernel: KERNELS.into(),
        offered: KERNELS.into(),
        ..Loss::default()
    };
    [
        armed(2),
        frame(FrameKind::Names, 3, |w| names::write_one(w, 1, b"gemm")),
        frame(FrameKind::Records, 4, |w| run(w, 1, KERNELS, &kernel(size))),
        frame(FrameKind::Loss, 5, |w| loss.write(w)),
    ]
    .concat()
}

fn stat(stage: &Stage, fake: &Fake) -> gtop_tests::gtop::Ran {
    stage.gtop(&["stat", "--json", "--for", "50ms", "--attach", &fake.pid().to_string()])
}

fn assert_kernels(stage: &Stage, bytes: &[u8]) {
    let fake = Fake::start(stage, bytes, Then::Read);
    let stat = Summary(stat(stage, &fake).json());
    assert_balance(&stat["records"]);
    assert_eq!(count(&stat["records"]["kernel"]), u64::from(KERNELS));
    assert_eq!((&stat["kernels"][0]["name"], &stat["state"]), (&"gemm".into(), &"armed".into()));
}

/// A hello of this protocol whose records have these sizes, with as many of its fields as `fields` writes.
fn hello_of(
    protocol: u16,
    sizes: &[u16],
    fields: impl FnOnce(&mut Writer<'_>) -> Result<(), gtop_protocol::wire::Full>,
) -> Vec<u8> {
    frame(FrameKind::Hello, 1, |w| {
        w.bytes(&MAGIC)?;
        w.u16(protocol)?;
        w.u8(sizes.len() as u8)?;
        sizes.iter().try_for_each(|size| w.u16(*size))?;
        fields(w)
    })
}

#[test]
fn a_shim_of_the_past_is_understood() {
    let stage = Stage::new();
    let size = size_of::<Kernel>() - 16;
    // It knew of one family, and said nothing of itself behind its process's name.
    let hello = hello_of(PROTOCOL - 1, &[size as u16], |w| {
        w.u32(1)?;
        w.u32(0)?;
        w.u64(5)?;
        w.blob(b"old")
    });
    assert_kernels(&stage, &[hello, stream(size)].concat());
}

#[test]
fn a_shim_of_the_future_is_understood_as_far_as_possible() {
    let stage = Stage::new();
    let size = size_of::<Kernel>() + 40;
    let hello = hello_of(PROTOCOL, &[size as u16, 80, 80, 80, 24, 32], |w| {
        HelloFields { name: b"new", cupti_version: Some(140_000), ..HelloFields::default() }.write(w)?;
        w.bytes(b"fields of the future")
    });
    let unknown =
        |kind: u16, seq| [Header { len: 9, kind, seq }.to_bytes().as_slice(), b"what now?"].concat();
    let mut further = frame(FrameKind::Notice, 7, |w| {
        w.u64(0)?;
        w.u8(200)?;
        w.blob(b"topic")?;
        w.blob(b"text")?;
        w.u64(u64::MAX)
    });
    further.extend(frame(FrameKind::Records, 8, |w| run(w, 5, 3, &[1; 24])));
    assert_kernels(&stage, &[hello, unknown(99, 2), stream(size), unknown(255, 6), further].concat());
}

#[test]
fn a_shim_too_new_to_be_understood_is_told_from_a_stranger() {
    let stage = Stage::new();
    let hello = hello_of(PROTOCOL + 1, &[96], |w| HelloFields::default().write(w));
    let fake = Fake::start(&stage, &hello, Then::Read);
    stat(&stage, &fake).fails(3, &["protocol 2", "a gtop at least as new"]);
    stage.ctl(fake.pid(), &["arm"]).fails(3, &["protocol 2"]);
}

#[test]
fn something_else_at_the_socket_is_no_shim() {
    let stage = Stage::new();
    let absurd = Header { len: u32::MAX, kind: 1, seq: 1 }.to_bytes();
    for bytes in [b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(), &absurd, &hello()[..20], &armed(1)] {
        let fake = Fake::start(&stage, bytes, Then::Close);
        stat(&stage, &fake).fails(3, &["not gtop's shim"]);
    }
}

#[test]
fn damage_anywhere_in_a_stream_is_survived() {
    let stage = Stage::new();
    let whole = [hello(), stream(size_of::<Kernel>())].concat();
    let absurd = [whole.as_slice(), &Header { len: u32::MAX, kind: 4, seq: 6 }.to_bytes()].concat();
    let mut damaged = vec![(absurd, Then::Close)];
    for step in 1..16 {
        damaged.push((whole[..whole.len() * step / 16].to_vec(), Then::Close));
        let mut flipped = whole.clone();
        let at = (whole.len() * step / 16 + step) % whole.len();
        flipped[at] ^= 1 << (step % 8);
        damaged.push((flipped, if step % 2 == 0 { Then::Close } else { Then::Read }));
    }
    for some in damaged.chunks(8) {
        let fakes: Vec<Fake> = some.iter().map(|(bytes, then)| Fake::start(&stage, bytes, *then)).collect();
        let runs: Vec<_> = fakes
            .iter()
            .map(|fake| {
                let pid = fake.pid().to_string();
                stage.start_gtop(&["stat", "--json", "--for", "200ms", "--attach", &pid])
            })
            .collect();
        for running in runs {
            let ran = running.finish();
            match ran.code() {
                Some(0) => {
                    let stat = Summary(ran.json());
                    assert!(count(&stat["records"]["shown"]) <= 1_000_000);
                }
                _ => ran.fails(3, &["process"]),
            }
        }
    }
}

#[test]
fn shims_that_do_not_answer_hold_nobody_for_ever() {
    let stage = Stage::new();
    let whole = [hello(), stream(size_of::<Kernel>())].concat();
    let holding = Fake::start(&stage, &whole, Then::Hold);
    let pid = holding.pid().to_string();
    let asked = stage.start_gtop(&["ctl", "--attach", &pid, "mark", "x"]);

    let silent = Fake::start(&stage, b"", Then::Hold);
    stat(&stage, &silent).fails(3, &["does not answer", "may be stopped"]);
    let closing = Fake::start(&stage, b"", Then::Close);
    stat(&stage, &closing).fails(3, &["hung up"]);
    // What it sent is shown, although it reads nothing.
    let stat = Summary(stat(&stage, &holding).json());
    assert_eq!(count(&stat["records"]["shown"]), u64::from(KERNELS));

    asked.finish().fails(3, &["no answer in 30 s"]);
}
