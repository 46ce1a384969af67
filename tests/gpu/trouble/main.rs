//! One trouble at a time, on a real GPU: each makes one of gtop's findings happen, or with `--well` does nearly the same
//! and must not. It prints `ready pid=…`, waits for a line on standard input, does it, prints `done`, and stays until
//! its input ends. Exit codes: 0 done, 1 a call failed that should not, 2 wrong usage, 3 there is no GPU.

mod cuda;

use std::io::BufRead;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use cuda::{Exec, Gpu, Stream};
use cudarc::driver::sys;

/// Make one finding happen, or not.
///
/// Example: gtop-trouble leak-exec
#[derive(Debug, Parser)]
#[command(name = "gtop-trouble", verbatim_doc_comment)]
struct Options {
    /// What to do
    #[arg(value_enum)]
    trouble: Trouble,
    /// Do it well: the finding must not come
    #[arg(long)]
    well: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Trouble {
    /// A new executable graph each turn, the old one kept (`exec_graphs_grow`)
    LeakExec,
    /// A new graph each turn, the old one kept (`graphs_never_destroyed`)
    LeakGraph,
    /// Captures whose graph is destroyed without being instantiated (`captured_and_dropped`)
    DroppedCapture,
    /// Graphs made and then left alone for 70 s while one is launched (`never_launched_again`)
    Unused,
    /// An executable graph destroyed twice; the driver may not survive it (`destroy_after_destroy`)
    DestroyTwice,
    /// A graph for every shape while others are launched (`graph_for_every_shape`)
    Shapes,
    /// Updates with another topology (`update_fails`)
    Update,
    /// A graph with allocations, then 40 s without trimming (`graph_memory_unused`)
    GraphMemory,
    /// Graphs that allocate and do not free, destroyed (`memory_kept_after_destroy`)
    KeptAllocation,
    /// A synchronize inside a global capture (`capture_failed`)
    CaptureSync,
    /// A side stream that never joins back (`capture_failed`, 904)
    Unjoined,
    /// A failed capture that keeps 512 MiB (`failed_capture_keeps_memory`)
    CaptureMemory,
    /// Tiny kernels one by one beside a graph (`launch_bound`)
    LaunchBound,
    /// A long synchronize while the device waits for the host (`idle_in_wait`)
    IdleWait,
    /// A module loaded inside a capture (`lazy_load_in_capture`)
    LazyLoad,
    /// Memory that a node of a graph sets is freed, and the graph launched again (`freed_memory_in_graph`)
    FreedMemory,
    /// A free of memory, over and over, while kernels run (`implicit_wait`)
    ImplicitWait,
    /// Kernels on the legacy default stream beside a stream that waits for it (`legacy_stream`)
    LegacyStream,
    /// Launches beyond the device's limits, and an allocation beyond its memory (`launch_failed`)
    Launch,
    /// A kernel with 255 registers a thread in blocks of 1024 threads (`launch_failed`, registers)
    Registers,
    /// More blocks than can run at once, in a cooperative launch (`launch_failed`, cooperative)
    Cooperative,
    /// A cluster of 32 blocks (`launch_failed`, cluster)
    Cluster,
    /// A module that is no code (`launch_failed`, image)
    Image,
    /// A kernel of one context on a stream of another (`launch_failed`, context)
    Context,
    /// A launch with too large a block inside a capture: does it break it? (`launch_failed`)
    CaptureLaunch,
    /// A global capture that an allocation of another thread breaks (`capture_failed`)
    CaptureThread,
    /// A global capture of 2000 pairs of an event and a wait, broken by a synchronize (`capture_failed`)
    CaptureFlood,
    /// A node taken out of a graph, and that destroyed: prints how many nodes are left (no finding)
    RemoveNode,
    /// Child graphs inside of each other, and cloned: prints what there is (no finding)
    Nested,
    /// Memory of each sort, with the kind memory on: prints what there is (no finding)
    MemorySorts,
    /// 64 MiB more every second for five minutes (`memory_leak`)
    MemoryLeak,
    /// Pairs of an allocation and a free for two seconds, timed: what watching them costs (no finding)
    Allocate,
    /// 20 GiB at once, then five minutes of work (`memory_step`; well: a little)
    Preallocate,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let gpu = match Gpu::open() {
        Ok(Some(gpu)) => gpu,
        Ok(None) => {
            eprintln!("gtop-trouble: there is no GPU");
            return ExitCode::from(3);
        }
        Err(error) => return failed(&error),
    };
    println!("ready pid={}", std::process::id());
    let mut lines = std::io::stdin().lock().lines();
    lines.next();
    if let Err(error) = make(&gpu, options.trouble, options.well) {
        return failed(&error);
    }
    println!("done");
    for _ in lines {}
    ExitCode::SUCCESS
}

fn failed(error: &str) -> ExitCode {
    eprintln!("gtop-trouble: {error}");
    ExitCode::FAILURE
}

fn pause(ms: u64) {
    sleep(Duration::from_millis(ms));
}

/// Turns of what leaks, four a second: growth is said when it has gone on for sixteen seconds.
const LEAKED: usize = 100;

#[expect(clippy::too_many_lines, reason = "one trouble after the other, each a few lines")]
fn make(gpu: &Gpu, trouble: Trouble, well: bool) -> Result<(), String> {
    let stream = &gpu.stream()?;
    match trouble {
        Trouble::LeakExec => turns(gpu, stream, LEAKED, |kept: &mut Vec<Exec>, exec| {
            if well {
                kept.drain(..).try_for_each(Exec::destroy)?;
            }
            kept.push(exec);
            Ok(())
        }),
        Trouble::LeakGraph => {
            for _ in 0..LEAKED {
                let graph = gpu.capture(stream, 4)?;
                let exec = gpu.instantiate(graph)?;
                exec.launch(stream)?;
                stream.synchronize()?;
                exec.destroy()?;
                if well {
                    gpu.destroy_graph(graph)?;
                }
                pause(250);
            }
            Ok(())
        }
        Trouble::DroppedCapture => {
            for _ in 0..6 {
                let graph = gpu.capture(stream, 4)?;
                if well {
                    gpu.instantiate(graph)?.launch(stream)?;
                    stream.synchronize()?;
                }
                gpu.destroy_graph(graph)?;
            }
            Ok(())
        }
        Trouble::Unused => {
            let execs = (0..12).map(|i| gpu.exec(stream, 3 + i)).collect::<Result<Vec<_>, _>>()?;
            for turn in 0..1500 {
                let which = if well { turn % execs.len() } else { 0 };
                execs[which].launch(stream)?;
                stream.synchronize()?;
                pause(50);
            }
            Ok(())
        }
        Trouble::DestroyTwice => {
            let exec = gpu.exec(stream, 4)?;
            exec.launch(stream)?;
            stream.synchronize()?;
            let again = exec.handle();
            exec.destroy()?;
            if !well {
                println!("again: {:?}", gpu.destroy_exec(again));
            }
            Ok(())
        }
        Trouble::Shapes => {
            let mut execs = Vec::new();
            if well {
                for i in 0..15 {
                    execs.push(gpu.exec(stream, 3 + i)?);
                }
            }
            for i in 0..15 {
                if !well {
                    execs.push(gpu.exec(stream, 3 + i)?);
                }
                for _ in 0..12 {
                    execs[i].launch(stream)?;
                    stream.synchronize()?;
                    pause(100);
                }
            }
            Ok(())
        }
        Trouble::Update => {
            let exec = gpu.exec(stream, 4)?;
            for _ in 0..5 {
                exec.launch(stream)?;
                let other = gpu.capture(stream, if well { 4 } else { 6 })?;
                let updated = gpu.update(&exec, other);
                if updated.is_err() {
                    gpu.instantiate(other)?.launch(stream)?;
                }
                stream.synchronize()?;
                gpu.destroy_graph(other)?;
            }
            Ok(())
        }
        Trouble::GraphMemory => {
            let exec = gpu.exec_that_allocates(stream, 512 << 20, true)?;
            for _ in 0..3 {
                exec.launch(stream)?;
                stream.synchronize()?;
            }
            // What it allocated stays reserved when it is gone.
            exec.destroy()?;
            if well {
                gpu.trim()?;
            }
            pause(45_000);
            Ok(())
        }
        Trouble::KeptAllocation => {
            for _ in 0..4 {
                let exec = gpu.exec_that_allocates(stream, 100 << 20, well)?;
                exec.launch(stream)?;
                stream.synchronize()?;
                exec.destroy()?;
                pause(1_000);
            }
            Ok(())
        }
        Trouble::CaptureSync => {
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
            gpu.tiny(stream)?;
            if !well {
                println!("synchronize: {:?}", stream.synchronize());
                println!("launch: {:?}", gpu.tiny(stream));
            }
            println!("end: {:?}", stream.end_capture());
            Ok(())
        }
        Trouble::Unjoined => {
            let side = &gpu.stream()?;
            let (fork, join) = (gpu.event()?, gpu.event()?);
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)?;
            gpu.tiny(stream)?;
            stream.record(fork)?;
            side.wait(fork)?;
            gpu.tiny(side)?;
            if well {
                side.record(join)?;
                stream.wait(join)?;
            }
            println!("end: {:?}", stream.end_capture());
            Ok(())
        }
        Trouble::CaptureMemory => {
            pause(3_000);
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED)?;
            gpu.tiny(stream)?;
            let held = gpu.allocate(512 << 20)?;
            println!("synchronize: {:?}", stream.synchronize());
            println!("end: {:?}", stream.end_capture());
            if well {
                gpu.free(held)?;
            }
            pause(16_000);
            Ok(())
        }
        Trouble::LaunchBound => {
            let exec = gpu.exec(stream, 50)?;
            for _ in 0..60 {
                exec.launch(stream)?;
                for _ in 0..if well { 0 } else { 40 } {
                    gpu.tiny(stream)?;
                    stream.synchronize()?;
                }
                stream.synchronize()?;
            }
            Ok(())
        }
        Trouble::IdleWait => {
            let exec = gpu.exec(stream, 20)?;
            for _ in 0..5 {
                exec.launch(stream)?;
                if well {
                    (0..20_000).try_for_each(|_| gpu.busy(stream))?;
                } else {
                    stream.sleep_on_host()?;
                }
                gpu.tiny(stream)?;
                stream.synchronize()?;
            }
            Ok(())
        }
        Trouble::LazyLoad => {
            if well {
                gpu.load_module()?;
            }
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_RELAXED)?;
            gpu.tiny(stream)?;
            if !well {
                gpu.load_module()?;
            }
            println!("end: {:?}", stream.end_capture());
            Ok(())
        }
        Trouble::FreedMemory => {
            // From one block of the driver, which stays while the other half of it does: the launch harms nobody.
            let (memory, _other) = (gpu.allocate(64 << 10)?, gpu.allocate(64 << 10)?);
            let exec = gpu.exec_that_sets(stream, memory, 4096)?;
            for turn in 0..20 {
                if turn == 10 && !well {
                    gpu.free(memory)?;
                }
                exec.launch(stream)?;
                stream.synchronize()?;
                pause(100);
            }
            if well {
                exec.destroy()?;
                gpu.free(memory)?;
            }
            Ok(())
        }
        Trouble::ImplicitWait => {
            let exec = gpu.exec(stream, 4)?;
            for _ in 0..10 {
                let memory = gpu.allocate(64 << 10)?;
                exec.launch(stream)?;
                (0..1_000).try_for_each(|_| gpu.busy(stream))?;
                if well {
                    stream.synchronize()?;
                }
                gpu.free(memory)?;
                stream.synchronize()?;
                pause(1_000);
            }
            Ok(())
        }
        Trouble::LegacyStream => {
            let (legacy, side) = (Stream::default_one(), gpu.blocking_stream()?);
            let beside = if well { stream } else { &side };
            for _ in 0..600 {
                (0..100).try_for_each(|_| gpu.tiny(&legacy))?;
                (0..10).try_for_each(|_| gpu.tiny(beside))?;
                legacy.synchronize()?;
                pause(20);
            }
            Ok(())
        }
        Trouble::Launch => {
            if well {
                return (0..10).try_for_each(|_| gpu.tiny(stream)).and_then(|()| stream.synchronize());
            }
            println!("block: {:?}", gpu.launch(stream, [1, 1, 1], [2048, 1, 1], 0));
            println!("grid: {:?}", gpu.launch(stream, [1, 70_000, 1], [32, 1, 1], 0));
            println!("shared: {:?}", gpu.launch(stream, [1, 1, 1], [32, 1, 1], 300 << 10));
            println!("memory: {:?}", gpu.allocate(1 << 45));
            stream.synchronize()
        }
        Trouble::Registers => {
            let kernel = gpu.hungry()?;
            let threads = if well { 128 } else { 1024 };
            println!("registers: {:?}", gpu.launch_of(kernel, stream, [1, 1, 1], [threads, 1, 1], 0));
            stream.synchronize()
        }
        Trouble::Cooperative => {
            let blocks = if well { 8 } else { 60_000 };
            println!("cooperative: {:?}", gpu.cooperative(stream, blocks));
            stream.synchronize()
        }
        Trouble::Cluster => {
            println!("cluster: {:?}", gpu.cluster(stream, if well { 4 } else { 32 }));
            stream.synchronize()
        }
        Trouble::Image => {
            if well {
                return gpu.load_module();
            }
            println!("image: {:?}", gpu.load_nonsense());
            Ok(())
        }
        Trouble::Context => {
            if well {
                gpu.tiny(stream)?;
                return stream.synchronize();
            }
            let other = gpu.other_context()?;
            // From CUDA 13.0 on the stream's context is said to do (NVIDIA/cccl#6986): then this goes well.
            println!("another context is current: {:?}", gpu.tiny(stream));
            println!("a stream of another context: {:?}", gpu.tiny(&gpu.stream()?));
            println!("another context's default stream: {:?}", gpu.tiny(&Stream::default_one()));
            gpu.leave(other)?;
            stream.synchronize()
        }
        Trouble::CaptureLaunch => {
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
            gpu.tiny(stream)?;
            if !well {
                println!("launch: {:?}", gpu.launch(stream, [1, 1, 1], [2048, 1, 1], 0));
                println!("again: {:?}", gpu.tiny(stream));
            }
            println!("end: {:?}", stream.end_capture());
            Ok(())
        }
        Trouble::CaptureThread => {
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
            gpu.tiny(stream)?;
            if !well {
                let other = std::thread::scope(|scope| scope.spawn(|| gpu.allocate_here(1 << 20)).join());
                println!("other thread: {other:?}");
            }
            println!("end: {:?}", stream.end_capture());
            Ok(())
        }
        Trouble::CaptureFlood => {
            let side = &gpu.stream()?;
            let (fork, join) = (gpu.event()?, gpu.event()?);
            stream.begin_capture(sys::CUstreamCaptureMode_enum::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
            for _ in 0..2000 {
                stream.record(fork)?;
                side.wait(fork)?;
                gpu.tiny(side)?;
                side.record(join)?;
                stream.wait(join)?;
            }
            if !well {
                println!("synchronize: {:?}", stream.synchronize());
            }
            println!("end: {:?}", stream.end_capture().map(|_| ()));
            Ok(())
        }
        Trouble::RemoveNode => {
            let graph = gpu.capture(stream, 4)?;
            gpu.remove_last_node(graph)?;
            gpu.instantiate(graph)?.launch(stream)?;
            stream.synchronize()?;
            gpu.destroy_graph(graph)
        }
        Trouble::Nested => {
            let (one, two) = (gpu.graph_of(&[None])?, gpu.graph_of(&[None; 2])?);
            let both = gpu.graph_of(&[Some(two), None, Some(one)])?;
            let all = gpu.graph_of(&[Some(one), Some(two), None, Some(both), Some(two), None])?;
            let made = gpu.instantiate(all)?;
            let clone = gpu.clone_of(all)?;
            [all, both, two, one].into_iter().try_for_each(|graph| gpu.destroy_graph(graph))?;
            let cloned = gpu.instantiate(clone)?;
            gpu.destroy_graph(clone)?;
            for exec in [&made, &cloned] {
                exec.launch(stream)?;
                stream.synchronize()?;
            }
            println!("kernels=11,11 child graphs=6,6");
            Ok(())
        }
        Trouble::MemorySorts => {
            gpu.allocate(3 << 20)?;
            gpu.allocate_from_pool(stream, 5 << 20)?;
            gpu.map(32 << 20)?;
            let exec = gpu.exec_that_allocates(stream, 8 << 20, true)?;
            exec.launch(stream)?;
            stream.synchronize()?;
            println!("MiB: device=3 pool=5 mapped=32 graphs=32");
            Ok(())
        }
        Trouble::MemoryLeak => {
            for _ in 0..300 {
                gpu.tiny(stream)?;
                let more = gpu.allocate(64 << 20)?;
                stream.synchronize()?;
                if well {
                    gpu.free(more)?;
                }
                pause(1_000);
            }
            Ok(())
        }
        Trouble::Allocate => {
            let mut times = Vec::new();
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(2) {
                let before = Instant::now();
                let memory = gpu.allocate(64 << 10)?;
                gpu.free(memory)?;
                times.push(before.elapsed().as_nanos());
            }
            times.sort_unstable();
            println!("pairs={} median_ns={}", times.len(), times[times.len() / 2]);
            Ok(())
        }
        Trouble::Preallocate => {
            pause(5_000);
            gpu.allocate(if well { 64 << 20 } else { 20 << 30 })?;
            for _ in 0..120 {
                gpu.tiny(stream)?;
                stream.synchronize()?;
                pause(1_000);
            }
            Ok(())
        }
    }
}

/// Makes a new executable graph each turn, launches it and hands it to whoever keeps it.
fn turns(
    gpu: &Gpu,
    stream: &Stream,
    turns: usize,
    mut keep: impl FnMut(&mut Vec<Exec>, Exec) -> Result<(), String>,
) -> Result<(), String> {
    let mut kept = Vec::new();
    for _ in 0..turns {
        let exec = gpu.exec(stream, 50)?;
        exec.launch(stream)?;
        stream.synchronize()?;
        keep(&mut kept, exec)?;
        pause(250);
    }
    Ok(())
}
