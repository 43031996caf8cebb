//! `talon-agent place FD... -- PROGRAM ARGS...`: puts descriptors at 3, 4, … and becomes the program.
//!
//! The worker starts OCI runtimes through it, because a Python parent cannot choose a child's descriptor numbers and
//! the runtime hands on exactly those from 3 up.

use std::os::unix::process::CommandExt;
use std::process::Command;

use crate::sys_mount;

const FIRST: i32 = 3;

/// Returns only when something is wrong.
pub fn main(arguments: impl Iterator<Item = String>) -> u8 {
    let arguments: Vec<String> = arguments.collect();
    let Some(split) = arguments.iter().position(|argument| argument == "--") else { return usage() };
    let numbers: Result<Vec<i32>, _> = arguments[..split].iter().map(|number| number.parse()).collect();
    let (Ok(numbers), Some(program)) = (numbers, arguments.get(split + 1)) else { return usage() };
    if let Err(error) = sys_mount::place_descriptors(&numbers, FIRST) {
        eprintln!("talon-agent place: {error}");
        return 1;
    }
    let error = Command::new(program).args(&arguments[split + 2..]).exec();
    eprintln!("talon-agent place: {program}: {error}");
    127
}

fn usage() -> u8 {
    eprintln!("usage: talon-agent place FD... -- PROGRAM ARGS...");
    2
}
