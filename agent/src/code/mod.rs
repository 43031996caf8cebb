//! Running code: `/code` of the OpenSandbox protocol and `/v2/contexts`, over the kernels of the sandbox's image.
//!
//! Called by `router`. `bridge` speaks to the program that drives the kernels, `execution` holds the events of one cell. Invariant:
//! without use, or in an image without kernels, this costs nothing.

mod bridge;
mod execd;
mod execution;
mod native;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use serde_json::{json, Value};
use tokio::sync::Mutex;

use bridge::Bridge;
use execution::{Client, Execution};

pub use execd::handle as execd;
pub use native::handle as native;

use crate::agent::Agent;
use crate::commands::process::new_id;
use crate::environment;
use crate::error::Result;

/// Present in images whose sandboxes are for running code: their kernels are warmed at the claim.
const EARLY: &str = "/opt/talon/code/early";

/// The kernels of the sandbox.
#[derive(Default)]
pub struct Kernels {
    bridge: RefCell<Option<Rc<Bridge>>>,
    /// Contexts that `/code` made for a language.
    defaults: Mutex<BTreeMap<String, String>>,
}

/// The sandbox is claimed.
pub fn claimed(agent: &Rc<Agent>) {
    if Path::new(EARLY).exists() {
        // What is wrong with it is told to the first who wants to run code.
        let _later = bridge(agent);
    }
}

/// The living bridge.
fn bridge(agent: &Rc<Agent>) -> Result<Rc<Bridge>> {
    let known = agent.kernels.bridge.borrow().clone().filter(|bridge| !bridge.is_dead());
    if let Some(bridge) = known {
        return Ok(bridge);
    }
    let bridge = Bridge::start(agent)?;
    agent.kernels.bridge.replace(Some(bridge.clone()));
    Ok(bridge)
}

/// What a new context is asked for.
#[derive(Default)]
struct Wanted {
    language: String,
    cwd: Option<String>,
    env: BTreeMap<String, String>,
    idle_timeout_s: Option<f64>,
}

/// A new context as the bridge describes it.
async fn create(agent: &Rc<Agent>, wanted: Wanted) -> Result<Value> {
    let identity = agent.identity(None)?;
    let workdir = agent.workdir();
    let cwd = Path::new(&workdir).join(wanted.cwd.unwrap_or_default());
    let cwd = cwd.to_string_lossy().trim_end_matches('/').to_owned();
    let request = json!({
        "id": format!("ctx_{}", &new_id()?[..16]),
        "language": wanted.language,
        "cwd": if cwd.is_empty() { "/" } else { &cwd },
        "env": environment::compose(agent, &identity, &wanted.env),
        "idle_timeout_s": wanted.idle_timeout_s,
    });
    let mut answer = bridge(agent)?.ask("create", request).await?;
    Ok(answer["context"].take())
}

/// What runs in a context.
struct Cell {
    context: String,
    code: String,
    timeout_s: Option<f64>,
    stdin: bool,
    outlives: bool,
    /// A context whose kernel has ended gets a fresh one.
    revive: bool,
}

/// Starts an execution; its client ends it by leaving.
async fn execute(agent: &Rc<Agent>, cell: Cell) -> Result<(Client, Value)> {
    let bridge = bridge(agent)?;
    bridge.forget_ended(&cell.context);
    let execution = Execution::new(new_id()?, cell.context.clone(), cell.outlives);
    bridge.expect(execution.clone());
    let request = json!({
        "id": cell.context,
        "x": execution.id,
        "code": cell.code,
        "timeout_s": cell.timeout_s,
        "stdin": cell.stdin,
        "revive": cell.revive,
    });
    let client = Client::new(execution, bridge.clone());
    let mut answer = bridge.ask("execute", request).await?;
    Ok((client, answer["context"].take()))
}
