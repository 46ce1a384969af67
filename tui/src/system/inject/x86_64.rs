//! What a borrowed thread does on x86-64, and how it finds back by itself. Beside what it is to call lies a signal
//! frame that looks as if a signal had interrupted it: whoever borrowed it puts everything back, and where he is gone
//! `rt_sigreturn` does, as after any signal.
#![expect(unsafe_code, reason = "the bytes of a routine in assembly are taken from this program")]

use std::slice;

use nix::errno::Errno;

use super::trace::Traced;

/// The sets of general and of floating point and vector registers (`linux/elf.h`).
const NT_PRSTATUS: i32 = 1;
const NT_X86_XSTATE: i32 = 0x202;
/// The shadow stack's pointer; there is none where the thread has no shadow stack.
const NT_X86_SHSTK: i32 = 0x204;
/// More than the vector registers of any processor take, bytes.
const MOST_EXTENDED: usize = 64 << 10;

/// The first of `struct user_regs_struct` (`sys/user.h`), by index.
const R15: usize = 0;
const R14: usize = 1;
const R13: usize = 2;
const R12: usize = 3;
const RBP: usize = 4;
const RBX: usize = 5;
const R11: usize = 6;
const R10: usize = 7;
const R9: usize = 8;
const R8: usize = 9;
const RAX: usize = 10;
const RCX: usize = 11;
const RDX: usize = 12;
const RSI: usize = 13;
const RDI: usize = 14;
const ORIG_RAX: usize = 15;
const RIP: usize = 16;
const CS: usize = 17;
const EFLAGS: usize = 18;
const RSP: usize = 19;
const SS: usize = 20;
const COUNT: usize = 27;

/// `cs` of a thread in 64-bit mode (`USER_CS`).
const CS_64: u64 = 0x33;
/// The direction and trap flags, which a function must not find set.
const FLAGS_OFF: u64 = 0x400 | 0x100;
/// What a leaf function may use below its stack pointer.
const RED_ZONE: u64 = 128;
/// How a system call that is broken off tells the kernel what to do next (`linux/errno.h`).
const ERESTARTSYS: i64 = -512;
const ERESTARTNOINTR: i64 = -513;
const ERESTARTNOHAND: i64 = -514;
const ERESTART_RESTARTBLOCK: i64 = -516;

/// System calls that give up when they are broken off (signal(7)) and do the same once more when begun again.
const GIVE_UP: [i64; 13] = [
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_io_getevents,
    // With a time limit on their socket.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_accept,
    libc::SYS_accept4,
];

/// The stack that the calls get.
const STACK: u64 = 512 << 10;

// r15 is the block below; the other registers are those of the `mmap` that makes the stack. Nothing here is
// addressed, so that it runs wherever it lies.
std::arch::global_asm!(
    ".pushsection .text.gtop_borrowed,\"ax\",@progbits",
    ".globl gtop_borrowed_start",
    ".hidden gtop_borrowed_start",
    "gtop_borrowed_start:",
    "syscall",
    "mov [r15], rax",
    "cmp rax, -4096",
    "ja 5f",
    "mov rsp, rax",
    "add rsp, [r15 + 112]",
    "xor ebp, ebp",
    "xor r14d, r14d",
    // The thread's errno is kept.
    "mov rax, [r15 + 72]",
    "test rax, rax",
    "jz 2f",
    "call rax",
    "mov r14, rax",
    "mov r13d, [rax]",
    "2:",
    "mov rdi, [r15 + 80]",
    "mov rsi, [r15 + 96]",
    "call [r15 + 48]",
    "mov [r15 + 8], rax",
    "test rax, rax",
    "jz 3f",
    "mov rdi, rax",
    "mov rsi, [r15 + 88]",
    "call [r15 + 56]",
    "mov [r15 + 16], rax",
    "test rax, rax",
    "jz 3f",
    "call rax",
    "mov [r15 + 24], rax",
    "jmp 4f",
    "3:",
    "mov rax, [r15 + 64]",
    "test rax, rax",
    "jz 4f",
    "call rax",
    "mov [r15 + 32], rax",
    "4:",
    "mov rsp, [r15 + 104]",
    "test r14, r14",
    "jz 6f",
    "mov [r14], r13d",
    "6:",
    "mov rdi, [r15]",
    "mov rsi, [r15 + 112]",
    "mov eax, 11", // munmap
    "syscall",
    "5:",
    "mov rsp, [r15 + 104]",
    "mov qword ptr [r15 + 40], 1",
    "mov eax, 39", // getpid, by which whoever borrowed the thread sees that it is done
    "syscall",
    ".globl gtop_borrowed_done",
    ".hidden gtop_borrowed_done",
    "gtop_borrowed_done:",
    "mov eax, 15", // rt_sigreturn
    "syscall",
    "ud2",
    ".globl gtop_borrowed_end",
    ".hidden gtop_borrowed_end",
    "gtop_borrowed_end:",
    ".popsection",
);

unsafe extern "C" {
    static gtop_borrowed_start: u8;
    static gtop_borrowed_done: u8;
    static gtop_borrowed_end: u8;
}

/// The routine's bytes.
pub(super) fn routine() -> &'static [u8] {
    // SAFETY: both are labels of the one routine above, which is never written to.
    unsafe {
        let (start, end) = (&raw const gtop_borrowed_start, &raw const gtop_borrowed_end);
        slice::from_raw_parts(start, end.offset_from_unsigned(start))
    }
}

/// Where in the routine a thread is once it is done.
fn done_at() -> u64 {
    // SAFETY: two labels of one routine.
    let offset =
        unsafe { (&raw const gtop_borrowed_done).offset_from_unsigned(&raw const gtop_borrowed_start) };
    offset as u64
}

/// What the routine calls. All are addresses in the process; 0 is a function it does not have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Functions {
    pub(super) open: u64,
    pub(super) symbol: u64,
    pub(super) error: u64,
    pub(super) errno: u64,
    /// What `open` is told.
    pub(super) flags: u64,
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Results {
    /// The stack, or an error number with a minus.
    pub(super) stack: i64,
    /// The library.
    pub(super) handle: u64,
    /// Its function.
    pub(super) function: u64,
    /// What that gave.
    pub(super) result: u64,
    /// The loader's message.
    pub(super) error: u64,
    pub(super) done: bool,
}

/// Words of the block that `Results` is read from.
pub(super) const RESULTS: usize = 6;

impl Results {
    pub(super) fn read(words: &[u64]) -> Self {
        let at = |index: usize| words.get(index).copied().unwrap_or(0);
        Self {
            stack: at(0).cast_signed(),
            handle: at(1),
            function: at(2),
            result: at(3),
            error: at(4),
            done: at(5) != 0,
        }
    }
}

/// Everything a thread has in registers.
#[derive(Clone, Debug)]
pub(super) struct Registers {
    general: [u64; COUNT],
    extended: Vec<u8>,
}

impl Registers {
    /// Those of a thread that stands still.
    pub(super) fn of(thread: &Traced) -> Result<Self, Errno> {
        let mut bytes = [0; COUNT * 8];
        thread.register_set(NT_PRSTATUS, &mut bytes)?;
        let mut extended = vec![0; MOST_EXTENDED];
        let len = thread.register_set(NT_X86_XSTATE, &mut extended)?;
        extended.truncate(len);
        let mut general = [0; COUNT];
        for (register, word) in general.iter_mut().zip(bytes.chunks_exact(8)) {
            *register = word.try_into().map_or(0, u64::from_le_bytes);
        }
        Ok(Self { general, extended })
    }

    fn set_general(thread: &Traced, general: &[u64; COUNT]) -> Result<(), Errno> {
        let bytes: Vec<u8> = general.iter().flat_map(|register| register.to_le_bytes()).collect();
        thread.set_register_set(NT_PRSTATUS, &bytes)
    }

    /// Puts them back. The general ones come last, since with them the thread is itself again.
    pub(super) fn put_back(&self, thread: &Traced) -> Result<(), Errno> {
        thread.set_register_set(NT_X86_XSTATE, &self.extended)?;
        Self::set_general(thread, &self.general)
    }

    /// The address of the next instruction.
    pub(super) const fn at(&self) -> u64 {
        self.general[RIP]
    }

    /// The stack pointer.
    pub(super) const fn stack(&self) -> u64 {
        self.general[RSP]
    }

    /// Whether the thread was stopped in this system call, in 64-bit mode, and the kernel would begin it again.
    pub(super) fn waits_in(&self, call: i64) -> bool {
        let result = self.general[RAX].cast_signed();
        let restarts = [ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND, ERESTART_RESTARTBLOCK];
        self.general[CS] == CS_64
            && self.general[ORIG_RAX].cast_signed() == call
            && (restarts.contains(&result) || result == -i64::from(libc::EINTR))
    }

    /// Some system calls give up when they are broken off, whoever does it. Nobody has sent a signal, so this one is
    /// begun again; if a signal with a handler comes it gives up for that.
    pub(super) fn begin_again(&mut self) {
        let gave_up = self.general[RAX].cast_signed() == -i64::from(libc::EINTR);
        if gave_up && GIVE_UP.contains(&self.general[ORIG_RAX].cast_signed()) {
            self.general[RAX] = ERESTARTNOHAND.cast_unsigned();
        }
    }
}

/// Whether a thread that stands still has done what the routine at `routine` is for.
pub(super) fn is_done(thread: &Traced, routine: u64) -> Result<bool, Errno> {
    let mut bytes = [0; COUNT * 8];
    thread.register_set(NT_PRSTATUS, &mut bytes)?;
    let at = bytes[RIP * 8..].first_chunk().copied().map(u64::from_le_bytes);
    Ok(at == Some(routine + done_at()))
}

/// Whether the processor checks where this thread's functions return to.
pub(super) fn has_shadow_stack(thread: &Traced) -> bool {
    thread.register_set(NT_X86_SHSTK, &mut [0; 8]).is_ok()
}

/// Bytes for the stack of a thread, and where they belong.
#[derive(Debug)]
pub(super) struct Block {
    pub(super) address: u64,
    pub(super) bytes: Vec<u8>,
}

/// Sizes of the kernel's signal frame (`asm/sigcontext.h`, `asm-generic/ucontext.h`), and where in it things lie.
const FRAME: usize = 8 + UCONTEXT;
const UCONTEXT: usize = 40 + SIGCONTEXT + 8;
const SIGCONTEXT: usize = 256;
/// The general registers in a signal frame's order.
const IN_FRAME: [usize; 18] =
    [R8, R9, R10, R11, R12, R13, R14, R15, RDI, RSI, RBP, RBX, RDX, RAX, RCX, RSP, RIP, EFLAGS];
/// Extended state, the stack segment, and that it counts.
const UC_FLAGS: u64 = 1 | 2 | 4;
/// Flags of an alternative signal stack that the kernel refuses, so that it leaves the thread's own as it is.
const NO_STACK: u64 = 0x55;
/// How extended state in a signal frame is told apart, and where its description lies.
const MAGIC: [u32; 2] = [0x4650_5853, 0x4650_5845];
const DESCRIPTION: usize = 464;
/// Words of the block before the texts.
const WORDS: usize = 15;

/// What is to lie below the stack of a thread with these registers and signal mask so that it can call `function` of
/// the library at `path`.
pub(super) fn block(
    registers: &Registers,
    mask: u64,
    functions: Functions,
    path: &[u8],
    function: &[u8],
) -> Block {
    let texts = path.len() + function.len() + 2;
    let frame_at = (WORDS * 8 + texts).next_multiple_of(16);
    let extended_at = (frame_at + FRAME).next_multiple_of(64);
    let extended = in_signal_frames(&registers.extended);
    let len = (extended_at + extended.len() + 4).next_multiple_of(64);
    let address = (registers.stack() - RED_ZONE - len as u64) & !63;

    let mut bytes = Vec::with_capacity(len);
    let path_at = address + WORDS as u64 * 8;
    let words: [u64; WORDS] = [
        0,
        0,
        0,
        0,
        0,
        0,
        functions.open,
        functions.symbol,
        functions.error,
        functions.errno,
        path_at,
        path_at + path.len() as u64 + 1,
        functions.flags,
        // `rt_sigreturn` expects the frame's first word to be taken off.
        address + frame_at as u64 + 8,
        STACK,
    ];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    for text in [path, function] {
        bytes.extend_from_slice(text);
        bytes.push(0);
    }
    bytes.resize(frame_at, 0);
    bytes.extend(frame(registers, mask, address + extended_at as u64));
    bytes.resize(extended_at, 0);
    bytes.extend_from_slice(extended);
    describe(&mut bytes, extended_at);
    bytes.extend(MAGIC[1].to_le_bytes());
    bytes.resize(len, 0);
    Block { address, bytes }
}

/// The signal frame. In it the system call has not begun.
fn frame(registers: &Registers, mask: u64, extended: u64) -> Vec<u8> {
    let mut general = registers.general;
    general[RAX] = general[ORIG_RAX];
    general[RIP] -= 2;
    let segments = (general[CS] & 0xffff) | ((general[SS] & 0xffff) << 48);
    let mut words = vec![0, UC_FLAGS, 0, 0, NO_STACK, 0];
    words.extend(IN_FRAME.map(|register| general[register]));
    words.extend([segments, 0, 0, 0, 0, extended]);
    words.resize((8 + 40 + SIGCONTEXT) / 8, 0);
    words.push(mask);
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// The part of the extended state that signal frames have: the tiles of a matrix unit, which come last and are large,
/// only where the thread uses them.
fn in_signal_frames(extended: &[u8]) -> &[u8] {
    const USED: usize = 512;
    const TILES: u32 = 18;
    let used =
        extended.get(USED..USED + 8).and_then(|used| used.try_into().ok()).map_or(0, u64::from_le_bytes);
    if used & (1 << TILES) != 0 {
        return extended;
    }
    let tiles = core::arch::x86_64::__cpuid_count(0xd, TILES).ebx as usize;
    if tiles == 0 { extended } else { extended.get(..tiles).unwrap_or(extended) }
}

/// Says in the extended state at `at`, the last of `bytes`, what it is. ptrace puts the mask of its parts there.
fn describe(bytes: &mut [u8], at: usize) {
    let size = (bytes.len() - at) as u32;
    let Some(description) = bytes.get_mut(at + DESCRIPTION..at + DESCRIPTION + 24) else { return };
    let mut parts = [0; 8];
    parts.copy_from_slice(&description[..8]);
    let words = [MAGIC[0].to_le_bytes(), (size + 4).to_le_bytes()].concat();
    description[..8].copy_from_slice(&words);
    description[8..16].copy_from_slice(&parts);
    description[16..20].copy_from_slice(&size.to_le_bytes());
    description[20..].fill(0);
}

/// Has a thread that stands still begin the routine at `routine` with its block at `block` when it goes on.
pub(super) fn begin(thread: &Traced, registers: &Registers, routine: u64, block: u64) -> Result<(), Errno> {
    let mut general = registers.general;
    general[RIP] = routine;
    general[RSP] = block;
    general[R15] = block;
    general[EFLAGS] &= !FLAGS_OFF;
    // No system call is to be begun again.
    general[ORIG_RAX] = u64::MAX;
    general[RAX] = libc::SYS_mmap.cast_unsigned();
    general[RDI] = 0;
    general[RSI] = STACK;
    general[RDX] = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    general[R10] = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as u64;
    general[R8] = u64::MAX;
    general[R9] = 0;
    Registers::set_general(thread, &general)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routine_ends_in_what_a_signal_handler_ends_in() {
        let routine = routine();
        assert!(routine.len() < 256, "{} bytes", routine.len());
        assert_eq!(routine[..2], [0x0f, 0x05]);
        let done = done_at() as usize;
        assert_eq!(routine[done - 2..done], [0x0f, 0x05]);
        assert_eq!(routine[done..], [0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0x0f, 0x0b]);
    }

    #[test]
    fn the_block_leaves_the_red_zone_alone_and_is_aligned() {
        let mut general = [0; COUNT];
        (general[RSP], general[RIP], general[ORIG_RAX], general[R12]) = (0x7fff_0008, 0x1002, 202, 77);
        let registers = Registers { general, extended: vec![0; 2696] };
        let functions = Functions { open: 1, symbol: 2, error: 3, errno: 4, flags: 5 };
        let block = block(&registers, 0xabc, functions, b"/x/libgtop_shim.so", b"InitializeInjection");
        let end = block.address + block.bytes.len() as u64;
        assert_eq!(block.address % 64, 0);
        assert!(end <= registers.stack() - RED_ZONE);
        let word = |address: u64| {
            let at = (address - block.address) as usize;
            u64::from_le_bytes(block.bytes[at..at + 8].try_into().unwrap())
        };
        let of_block = |index: u64| word(block.address + index * 8);
        assert_eq!((of_block(6), of_block(9), of_block(12)), (1, 4, 5));
        let name = (of_block(11) - block.address) as usize;
        assert!(block.bytes[name..].starts_with(b"InitializeInjection\0"));
        // The frame as `rt_sigreturn` reads it.
        let context = of_block(13);
        let registers_at = context + 40;
        assert_eq!(word(registers_at + 4 * 8), 77, "r12");
        assert_eq!((word(registers_at + 13 * 8), word(registers_at + 16 * 8)), (202, 0x1000));
        assert_eq!(word(registers_at + SIGCONTEXT as u64), 0xabc, "the mask");
        let extended = word(registers_at + 184);
        assert_eq!(extended % 64, 0);
        assert_eq!(word(extended + DESCRIPTION as u64), u64::from(MAGIC[0]) | (2700 << 32));
        assert_eq!(word(extended + DESCRIPTION as u64 + 16), 2696);
    }

    #[test]
    fn a_call_that_gave_up_is_begun_again_and_others_are_left_alone() {
        let with = |call: i64, result: i64| {
            let mut general = [0; COUNT];
            (general[ORIG_RAX], general[RAX], general[CS]) = (call as u64, result as u64, CS_64);
            Registers { general, extended: Vec::new() }
        };
        let mut gave_up = with(232, -4);
        assert!(gave_up.waits_in(232) && !gave_up.waits_in(0));
        gave_up.begin_again();
        assert_eq!(gave_up.general[RAX].cast_signed(), ERESTARTNOHAND);
        let mut connects = with(libc::SYS_connect, -4);
        connects.begin_again();
        assert_eq!(connects.general[RAX].cast_signed(), -4, "it would not do the same once more");
        let mut sleeps = with(35, ERESTART_RESTARTBLOCK);
        sleeps.begin_again();
        assert_eq!(sleeps.general[RAX].cast_signed(), ERESTART_RESTARTBLOCK);
        assert!(!with(0, 17).waits_in(0), "it has ended by itself");
    }
}
