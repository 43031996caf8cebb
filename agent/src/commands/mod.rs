//! Processes of the sandbox: starting, watching, feeding, logging and ending them.
//!
//! `spawn` starts one (also for sessions and terminals), `process` supervises one with its log, `table` remembers them,
//! `tree` finds all that descends from one, `reaper` collects the dead. Invariant: every child is reaped, by `reaper` alone.

pub mod follow;
pub mod process;
mod pump;
pub mod reaper;
pub mod spawn;
pub mod spool;
pub mod table;
pub mod text;
pub mod tree;
