//! The system-call filter of everything that runs in a sandbox, generated as a classic BPF program.
//!
//! `seal` asks for it once; the kernel evaluates it. An allow-list: what is not in `seccomp_table` answers EPERM, what is newer than
//! the table ENOSYS, so that C libraries fall back. The program is a search tree over the call number: the kernel runs it for every
//! known number whenever a process is started, so its depth counts.

use crate::seccomp_table::{self, Rule};

#[cfg(target_arch = "x86_64")]
const ARCH: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const ARCH: u32 = 0xC000_00B7;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AT_LEAST: u16 = (libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K) as u16;
const ANY_BIT: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
const MASK: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const JUMP: u16 = (libc::BPF_JMP | libc::BPF_JA) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
const REFUSE: u32 = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
/// What programs take for a kernel without the protocol: useradd and su go on without auditing then.
const NO_PROTOCOL: u32 = libc::SECCOMP_RET_ERRNO | libc::EPROTONOSUPPORT as u32;
const UNKNOWN: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32;

/// CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET.
const NAMESPACES: u32 = 0x7E02_0000;
const CLONE_NEWTIME: u32 = 0x80;
const NETLINK_ROUTE: u32 = 0;
/// The old way to raw frames.
const SOCK_PACKET: u32 = 10;
/// Personalities that only change how a program is laid out or what `uname` says.
const PERSONALITIES: [u32; 6] = [0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff];

type Code = Vec<libc::sock_filter>;

/// The whole filter.
pub fn program() -> Code {
    let segments = segments(&seccomp_table::rules());
    let mut code = vec![load(ARCHITECTURE), test(EQUAL, ARCH, 1, 0), give(REFUSE), load(NUMBER)];
    code.extend(search(&segments));
    code
}

/// From its number up to the next segment's, one rule holds.
type Segment = (u32, Rule);

fn segments(rules: &[(u32, Rule)]) -> Vec<Segment> {
    let end = rules.last().map_or(0, |(number, _)| number + 1);
    let mut all: Vec<Segment> = Vec::new();
    for number in 0..end {
        let found = rules.binary_search_by_key(&number, |(number, _)| *number);
        let rule = found.map_or(Rule::Refuse, |at| rules[at].1);
        if all.last().is_none_or(|(_, last)| *last != rule) {
            all.push((number, rule));
        }
    }
    all.push((end, Rule::Unknown));
    all
}

fn search(segments: &[Segment]) -> Code {
    if let [(_, rule)] = segments {
        return leaf(*rule);
    }
    let (low, high) = segments.split_at(segments.len() / 2);
    let (low, first_high) = (search(low), high[0].0);
    let mut code = match u8::try_from(low.len()) {
        Ok(over) => vec![test(AT_LEAST, first_high, over, 0)],
        Err(_) => vec![test(AT_LEAST, first_high, 0, 1), op(JUMP, low.len() as u32)],
    };
    code.extend(low);
    code.extend(search(high));
    code
}

fn leaf(rule: Rule) -> Code {
    match rule {
        Rule::Allow => vec![give(ALLOW)],
        Rule::Refuse => vec![give(REFUSE)],
        Rule::Unknown => vec![give(UNKNOWN)],
        Rule::Clone => refuse_bits(NAMESPACES),
        Rule::Unshare => refuse_bits(NAMESPACES | CLONE_NEWTIME),
        Rule::Ioctl => {
            [vec![argument(1)], one_of(&[libc::TIOCSTI as u32, libc::TIOCLINUX as u32], REFUSE, ALLOW)].concat()
        }
        Rule::Personality => [vec![argument(0)], one_of(&PERSONALITIES, ALLOW, REFUSE)].concat(),
        Rule::Socket => socket(),
    }
}

fn refuse_bits(bits: u32) -> Code {
    vec![argument(0), test(ANY_BIT, bits, 0, 1), give(REFUSE), give(ALLOW)]
}

/// Unix and IP sockets but no raw ones, and of netlink only the one that looks up addresses and routes.
fn socket() -> Code {
    let [unix, inet, inet6, netlink] =
        [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(|f| f as u32);
    let raw = libc::SOCK_RAW as u32;
    let ip = [vec![argument(1), op(MASK, 0xf)], one_of(&[raw, SOCK_PACKET], REFUSE, ALLOW)].concat();
    let route = [vec![argument(2)], one_of(&[NETLINK_ROUTE], ALLOW, NO_PROTOCOL)].concat();
    let (ip_length, route_length) = (ip.len() as u8, route.len() as u8);
    let mut code = vec![
        argument(0),
        test(EQUAL, unix, 4 + ip_length + route_length, 0),
        test(EQUAL, inet, 3, 0),
        test(EQUAL, inet6, 2, 0),
        test(EQUAL, netlink, 1 + ip_length, 0),
        give(REFUSE),
    ];
    code.extend(ip);
    code.extend(route);
    code.push(give(ALLOW));
    code
}

/// `hit` when the loaded value is one of `values`, else `miss`.
fn one_of(values: &[u32], hit: u32, miss: u32) -> Code {
    let count = values.len();
    let tests = values.iter().enumerate().map(|(i, &value)| test(EQUAL, value, (count - i) as u8, 0));
    tests.chain([give(miss), give(hit)]).collect()
}

fn op(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

fn test(code: u16, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

fn load(offset: u32) -> libc::sock_filter {
    op(LOAD, offset)
}

/// Low half of an argument: all that the kernel looks at in those checked here.
fn argument(index: u32) -> libc::sock_filter {
    load(ARGUMENTS + 8 * index)
}

fn give(action: u32) -> libc::sock_filter {
    op(RETURN, action)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program as the kernel would; panics on a jump out of it.
    fn run(number: i64, arguments: [u32; 3], arch: u32) -> u32 {
        let (code, mut at, mut value) = (program(), 0, 0);
        loop {
            let op = code[at];
            at += 1;
            match op.code {
                LOAD => {
                    value = match op.k {
                        NUMBER => number as u32,
                        ARCHITECTURE => arch,
                        offset => arguments[((offset - ARGUMENTS) / 8) as usize],
                    }
                }
                MASK => value &= op.k,
                JUMP => at += op.k as usize,
                RETURN => return op.k,
                test => {
                    let hit = match test {
                        EQUAL => value == op.k,
                        AT_LEAST => value >= op.k,
                        ANY_BIT => value & op.k != 0,
                        other => panic!("unknown operation {other}"),
                    };
                    at += usize::from(if hit { op.jt } else { op.jf });
                }
            }
        }
    }

    fn call(number: i64, arguments: [u32; 3]) -> u32 {
        run(number, arguments, ARCH)
    }

    #[test]
    fn every_number_gets_its_rule() {
        let rules = seccomp_table::rules();
        for number in 0..1024_u32 {
            let rule = rules.iter().find(|(n, _)| *n == number).map(|(_, rule)| *rule);
            let last = rules.last().unwrap().0;
            let expected = match rule {
                Some(Rule::Allow) => ALLOW,
                Some(Rule::Unknown) => UNKNOWN,
                Some(Rule::Refuse) => REFUSE,
                Some(_) => continue,
                None if number > last => UNKNOWN,
                None => REFUSE,
            };
            assert_eq!(call(i64::from(number), [0; 3]), expected, "system call {number}");
        }
        assert_eq!(call(0x4000_0000, [0; 3]), UNKNOWN);
    }

    #[test]
    fn namespaces_are_refused_and_threads_are_not() {
        assert_eq!(call(libc::SYS_clone, [libc::CLONE_NEWUSER as u32 | 17, 0, 0]), REFUSE);
        assert_eq!(call(libc::SYS_clone, [(libc::CLONE_VM | libc::CLONE_THREAD) as u32, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_unshare, [CLONE_NEWTIME, 0, 0]), REFUSE);
        assert_eq!(call(libc::SYS_unshare, [libc::CLONE_FILES as u32, 0, 0]), ALLOW);
        assert_eq!(call(libc::SYS_clone3, [0; 3]), UNKNOWN);
        assert_eq!(call(libc::SYS_setns, [0; 3]), REFUSE);
    }

    #[test]
    fn sockets_are_of_the_plain_kinds_only() {
        let socket =
            |family: i32, kind: i32, protocol: u32| call(libc::SYS_socket, [family as u32, kind as u32, protocol]);
        let cloexec = libc::SOCK_CLOEXEC;
        assert_eq!(socket(libc::AF_UNIX, libc::SOCK_STREAM, 0), ALLOW);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_STREAM | cloexec, 6), ALLOW);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_DGRAM, 17), ALLOW);
        assert_eq!(socket(libc::AF_INET, libc::SOCK_RAW | cloexec, 1), REFUSE);
        assert_eq!(socket(libc::AF_INET6, libc::SOCK_RAW, 58), REFUSE);
        assert_eq!(socket(libc::AF_INET, 10, 3), REFUSE);
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 0), ALLOW);
        assert_eq!(socket(libc::AF_NETLINK, libc::SOCK_RAW, 12), NO_PROTOCOL);
        for family in [libc::AF_PACKET, libc::AF_ALG, libc::AF_VSOCK, libc::AF_BLUETOOTH, libc::AF_XDP] {
            assert_eq!(socket(family, libc::SOCK_DGRAM, 0), REFUSE);
        }
    }

    #[test]
    fn terminals_cannot_be_typed_into() {
        assert_eq!(call(libc::SYS_ioctl, [0, libc::TIOCSTI as u32, 0]), REFUSE);
        assert_eq!(call(libc::SYS_ioctl, [0, libc::TIOCGWINSZ as u32, 0]), ALLOW);
        assert_eq!(call(libc::SYS_personality, [0x0800_0000, 0, 0]), REFUSE);
        assert_eq!(call(libc::SYS_personality, [0xffff_ffff, 0, 0]), ALLOW);
    }

    #[test]
    fn a_foreign_architecture_gets_nothing() {
        assert_eq!(run(libc::SYS_getpid, [0; 3], 0x4000_0003), REFUSE);
    }

    #[test]
    fn the_kernel_takes_the_program() {
        assert!(program().len() < 1024);
    }
}
