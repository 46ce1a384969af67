//! What a filter of system calls (seccomp) says to one: an interpreter of the classic BPF that the kernel allows there.

use libc::sock_filter;

/// Words a filter may keep (`BPF_MEMWORDS`).
const WORDS: usize = 16;
/// What a filter looks at, bytes (`struct seccomp_data`).
const LOOKED_AT: usize = 64;

/// A system call as a filter sees it, in words as they lie in `struct seccomp_data` on a little-endian machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call([u32; LOOKED_AT / 4]);

impl Call {
    /// The call with this number and these arguments, as `architecture` (`AUDIT_ARCH_…`) makes it.
    pub(super) fn new(architecture: u32, number: u32, arguments: [u64; 6]) -> Self {
        let mut words = [0; LOOKED_AT / 4];
        (words[0], words[1]) = (number, architecture);
        for (at, argument) in arguments.into_iter().enumerate() {
            (words[4 + 2 * at], words[5 + 2 * at]) = (argument as u32, (argument >> 32) as u32);
        }
        Self(words)
    }
}

/// What one filter answers to a call (`SECCOMP_RET_…`); `None` is that this is no program of a filter.
pub(super) fn run(program: &[sock_filter], call: &Call) -> Option<u32> {
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; WORDS]);
    let mut at = 0usize;
    // Jumps lead forward alone, so each step is made once at most.
    loop {
        let step = program.get(at)?;
        at += 1;
        let (code, k) = (u32::from(step.code), step.k);
        let by_x = code & libc::BPF_X != 0;
        match code & 0x07 {
            libc::BPF_LD => {
                a = match code & 0xe0 {
                    libc::BPF_ABS if k.is_multiple_of(4) => *call.0.get(k as usize / 4)?,
                    libc::BPF_LEN => LOOKED_AT as u32,
                    libc::BPF_IMM => k,
                    libc::BPF_MEM => *memory.get(k as usize)?,
                    _ => return None,
                }
            }
            libc::BPF_LDX => {
                x = match code & 0xe0 {
                    libc::BPF_LEN => LOOKED_AT as u32,
                    libc::BPF_IMM => k,
                    libc::BPF_MEM => *memory.get(k as usize)?,
                    _ => return None,
                }
            }
            libc::BPF_ST => *memory.get_mut(k as usize)? = a,
            libc::BPF_STX => *memory.get_mut(k as usize)? = x,
            libc::BPF_ALU => a = calculate(code & 0xf0, a, if by_x { x } else { k })?,
            libc::BPF_JMP => {
                let other = if by_x { x } else { k };
                let jump = |yes| if yes { u32::from(step.jt) } else { u32::from(step.jf) };
                let by = match code & 0xf0 {
                    libc::BPF_JA => k,
                    libc::BPF_JEQ => jump(a == other),
                    libc::BPF_JGT => jump(a > other),
                    libc::BPF_JGE => jump(a >= other),
                    libc::BPF_JSET => jump(a & other != 0),
                    _ => return None,
                };
                at = at.checked_add(by as usize)?;
            }
            libc::BPF_RET => return Some(if code & 0x18 == libc::BPF_A { a } else { k }),
            // TAX and TXA.
            _ if code & 0xf8 == 0 => x = a,
            _ => a = x,
        }
    }
}

fn calculate(operation: u32, a: u32, by: u32) -> Option<u32> {
    Some(match operation {
        libc::BPF_ADD => a.wrapping_add(by),
        libc::BPF_SUB => a.wrapping_sub(by),
        libc::BPF_MUL => a.wrapping_mul(by),
        // As the kernel has it.
        libc::BPF_DIV => a.checked_div(by).unwrap_or(0),
        libc::BPF_AND => a & by,
        libc::BPF_OR => a | by,
        libc::BPF_XOR => a ^ by,
        libc::BPF_LSH => a.wrapping_shl(by),
        libc::BPF_RSH => a.wrapping_shr(by),
        libc::BPF_NEG => a.wrapping_neg(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NATIVE: u32 = 0xc000_003e;
    const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
    const KILL: u32 = libc::SECCOMP_RET_KILL_PROCESS;

    fn step(code: u32, jt: u8, jf: u8, k: u32) -> sock_filter {
        sock_filter { code: code as u16, jt, jf, k }
    }

    fn load(at: u32) -> sock_filter {
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
    }

    fn ret(value: u32) -> sock_filter {
        step(libc::BPF_RET | libc::BPF_K, 0, 0, value)
    }

    fn equal(k: u32, jt: u8, jf: u8) -> sock_filter {
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, jt, jf, k)
    }

    #[test]
    fn a_filter_looks_at_architecture_number_and_arguments() {
        // Kills other architectures, and call 41 but for its first argument 1.
        let program =
            [load(4), equal(NATIVE, 1, 0), ret(KILL), load(0), equal(41, 0, 3), load(16), equal(1, 1, 0)];
        let program = [&program[..], &[ret(KILL), ret(ALLOW)]].concat();
        let answer = |architecture, number, first| {
            run(&program, &Call::new(architecture, number, [first, 0, 0, 0, 0, 0]))
        };
        assert_eq!(answer(NATIVE, 41, 1), Some(ALLOW));
        assert_eq!(answer(NATIVE, 41, 2), Some(KILL));
        assert_eq!(answer(NATIVE, 42, 2), Some(ALLOW));
        assert_eq!(answer(0x4000_0003, 42, 1), Some(KILL));
    }

    #[test]
    fn arithmetic_is_that_of_the_kernel() {
        let by_k = |operation, k| step(libc::BPF_ALU | operation | libc::BPF_K, 0, 0, k);
        let by_x = |operation| step(libc::BPF_ALU | operation | libc::BPF_X, 0, 0, 0);
        let ret_a = step(libc::BPF_RET | libc::BPF_A, 0, 0, 0);
        let of = |steps: &[sock_filter]| run(&[steps, &[ret_a]].concat(), &Call::new(0, 7, [u64::MAX; 6]));
        let imm = |k| step(libc::BPF_LD | libc::BPF_IMM, 0, 0, k);
        let (tax, txa) =
            (step(libc::BPF_MISC | libc::BPF_TAX, 0, 0, 0), step(libc::BPF_MISC | libc::BPF_TXA, 0, 0, 0));
        assert_eq!(of(&[load(0), by_k(libc::BPF_ADD, u32::MAX)]), Some(6));
        assert_eq!(of(&[load(20), by_k(libc::BPF_AND, 0xf0), by_k(libc::BPF_RSH, 4)]), Some(15));
        assert_eq!(of(&[imm(6), tax, imm(3), by_x(libc::BPF_MUL), by_x(libc::BPF_SUB)]), Some(12));
        assert_eq!(of(&[imm(6), tax, imm(9), txa]), Some(6));
        assert_eq!(of(&[imm(9), by_x(libc::BPF_DIV)]), Some(0));
        assert_eq!(of(&[imm(1), by_k(libc::BPF_NEG, 0)]), Some(u32::MAX));
        let store = step(libc::BPF_ST, 0, 0, 15);
        let fetch = step(libc::BPF_LDX | libc::BPF_MEM, 0, 0, 15);
        assert_eq!(of(&[imm(4), store, imm(0), fetch, txa]), Some(4));
        assert_eq!(of(&[step(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0)]), Some(64));
        let above = step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_X, 1, 0, 0);
        assert_eq!(of(&[imm(2), tax, imm(3), above, ret(1)]), Some(3));
    }

    #[test]
    fn what_is_no_filter_has_no_answer() {
        let call = Call::new(NATIVE, 1, [0; 6]);
        let jump = step(libc::BPF_JMP | libc::BPF_JA, 0, 0, u32::MAX);
        let packet = step(libc::BPF_LD | libc::BPF_B | libc::BPF_IND, 0, 0, 0);
        let far = step(libc::BPF_ST, 0, 0, 16);
        for bad in [&[][..], &[load(0)], &[load(64), ret(0)], &[load(2), ret(0)], &[jump], &[packet], &[far]]
        {
            assert_eq!(run(bad, &call), None, "{bad:?}");
        }
    }
}
