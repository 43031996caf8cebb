//! talon-agent: PID 1 of a sandbox (`init`), and the privileged helper of its host (`host`).
//!
//! Started by the worker. `init` takes a listening HTTP socket as descriptor 3 and a listening control socket as descriptor 4.

mod agent;
mod clock;
mod code;
mod commands;
mod control;
mod environment;
mod error;
mod execd;
mod files;
mod host;
mod http;
mod init;
mod isolated;
mod loopback;
mod metrics;
mod ports;
mod proxy;
mod pty;
mod record;
mod rootfs;
mod router;
mod seal;
mod seccomp;
mod seccomp_table;
mod sessions;
mod sys;
mod sys_caps;
mod sys_files;
mod sys_host;
mod sys_isolate;
mod sys_landlock;
mod sys_mount;
mod sys_paths;
mod sys_pty;
mod sys_socket;
mod sys_spawn;
mod users;
mod v2;

const USAGE: &str = "usage: talon-agent init | host [SCRATCH] | place FD... -- PROGRAM... | version";

fn main() -> std::process::ExitCode {
    let mut args = std::env::args().skip(1);
    let code = match args.next().as_deref() {
        Some("init") => init::main(),
        Some("host") => host::main(args),
        Some("place") => host::place::main(args),
        Some("probe") => isolated::probe::main(),
        Some("isolate") => isolated::enter::main(args.next()),
        Some("version") => {
            println!("{}", env!("CARGO_PKG_VERSION"));
            0
        }
        _ => {
            eprintln!("{USAGE}");
            2
        }
    };
    std::process::ExitCode::from(code)
}
