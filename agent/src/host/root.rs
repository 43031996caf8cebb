//! Builds a sandbox's root file system and puts it into its shell's mount namespace, at `/newroot`.
//!
//! The root is an overlay of the image's layers under the sandbox's own upper directory, all shown with the ids of the
//! shell's user namespace; volumes are mounted over it. Everything is built detached, so the host's mount table stays
//! as it is, and goes with the shell. Source: mount_setattr(2), fsopen(2), Documentation/filesystems/overlayfs.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{directory, Failure, Step};
use crate::sys_mount::{self, FileSystem, NO_DEV, NO_SUID, READ_ONLY};

/// What root a shell is to get.
#[derive(Deserialize)]
pub struct Order {
    /// The shell's first process, in the host's numbering.
    pid: i32,
    /// Host ids of the sandbox's root user and group.
    uid: u32,
    gid: u32,
    /// Topmost first.
    layers: Vec<PathBuf>,
    /// Holds `upper` and `work`.
    upper: PathBuf,
    #[serde(default)]
    volumes: Vec<Volume>,
}

/// A directory of the host that the sandbox sees at `target`.
#[derive(Deserialize)]
struct Volume {
    source: PathBuf,
    #[serde(default)]
    subpath: String,
    target: String,
    #[serde(default)]
    read_only: bool,
}

pub struct Builder {
    own: File,
    /// Layers are attached here on kernels whose overlay takes no detached ones.
    scratch: PathBuf,
}

impl Builder {
    pub fn new(scratch: &Path) -> io::Result<Builder> {
        fs::create_dir_all(scratch)?;
        Ok(Builder { own: File::open("/proc/self/ns/mnt")?, scratch: scratch.to_owned() })
    }

    pub fn build(&self, order: &Order) -> Result<(), Failure> {
        let userns = File::open(format!("/proc/{}/ns/user", order.pid)).step("open the user namespace")?;
        let mountns = File::open(format!("/proc/{}/ns/mnt", order.pid)).step("open the mount namespace")?;
        let root = self.overlay(order, &userns)?;
        let volumes: Vec<(OwnedFd, &Volume)> = order
            .volumes
            .iter()
            .map(|volume| Ok((source(volume, &userns)?, volume)))
            .collect::<Result<_, Failure>>()?;
        sys_mount::join(&mountns).step("join the mount namespace")?;
        let done = place(&root, &volumes, order);
        if sys_mount::join(&self.own).is_err() {
            // Going on in a sandbox's namespace is the one thing that must not happen.
            std::process::abort();
        }
        done
    }

    fn overlay(&self, order: &Order, userns: &File) -> Result<OwnedFd, Failure> {
        let mut lower = Vec::with_capacity(order.layers.len());
        for layer in &order.layers {
            let tree = sys_mount::clone_tree(layer).step(format!("open layer {}", layer.display()))?;
            sys_mount::map_ids(&tree, userns, READ_ONLY).step("map the ids of a layer")?;
            lower.push(tree);
        }
        let upper = sys_mount::clone_tree(&order.upper).step("open the upper directory")?;
        sys_mount::map_ids(&upper, userns, 0).step("map the ids of the upper directory")?;
        let detached: Vec<PathBuf> = lower.iter().chain([&upper]).map(by_descriptor).collect();
        match mount(order, &detached) {
            Err(failure) if failure.error.raw_os_error() == Some(libc::EINVAL) => self.attached(order, lower, &upper),
            other => other,
        }
    }

    /// The same over mounts that are attached for as long as it takes: what kernels before 6.15 need.
    fn attached(&self, order: &Order, lower: Vec<OwnedFd>, upper: &OwnedFd) -> Result<OwnedFd, Failure> {
        let mut places = Vec::new();
        let mut done = Ok(());
        for (number, tree) in lower.iter().chain([upper]).enumerate() {
            let place = self.scratch.join(number.to_string());
            done = fs::create_dir_all(&place)
                .and_then(|()| directory(&place))
                .and_then(|target| sys_mount::attach(tree, &target))
                .step("attach a layer");
            if done.is_err() {
                break;
            }
            places.push(place);
        }
        let result = done.and_then(|()| mount(order, &places));
        for place in places {
            sys_mount::detach(&place).step("detach a layer")?;
        }
        result
    }
}

/// The overlay over `places`: the layers, topmost first, then the directory of the upper one.
fn mount(order: &Order, places: &[PathBuf]) -> Result<OwnedFd, Failure> {
    let Some((upper, lower)) = places.split_last() else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput)).step("an image has layers");
    };
    let overlay = FileSystem::open(c"overlay").step("open an overlay")?;
    let lower: Vec<String> = lower.iter().map(|place| place.display().to_string()).collect();
    sys_mount::with_ids(order.uid, order.gid, || {
        overlay.set(c"source", "talon")?;
        stack(&overlay, &lower)?;
        overlay.set(c"upperdir", &upper.join("upper").display().to_string())?;
        overlay.set(c"workdir", &upper.join("work").display().to_string())?;
        overlay.create(NO_SUID | NO_DEV)
    })
    .map_err(|error| Failure { step: format!("mount the overlay: {}", overlay.complaint()), error })
}

/// One option names all layers while it fits the kernel's 256 bytes; more need one option each (Linux 6.5).
fn stack(overlay: &FileSystem, lower: &[String]) -> io::Result<()> {
    let joined = lower.join(":");
    if joined.len() < 255 {
        return overlay.set(c"lowerdir", &joined);
    }
    lower.iter().try_for_each(|layer| overlay.set(c"lowerdir+", layer))
}

fn by_descriptor(fd: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()))
}

fn source(volume: &Volume, userns: &File) -> Result<OwnedFd, Failure> {
    let name = || format!("open volume {}", volume.source.display());
    let whole = directory(&volume.source).step(name())?;
    let wanted = sys_mount::open_within(&whole, &volume.subpath).step(name())?;
    let tree = sys_mount::clone_tree(&by_descriptor(&wanted)).step(name())?;
    let read_only = if volume.read_only { READ_ONLY } else { 0 };
    sys_mount::map_ids(&tree, userns, NO_SUID | NO_DEV | read_only).step("map the ids of a volume")?;
    Ok(tree)
}

fn place(root: &OwnedFd, volumes: &[(OwnedFd, &Volume)], order: &Order) -> Result<(), Failure> {
    let newroot = directory(Path::new("/newroot")).step("open /newroot")?;
    sys_mount::attach(root, &newroot).step("attach the root")?;
    let root = directory(Path::new("/newroot")).step("open the root")?;
    for (tree, volume) in volumes {
        let target = sys_mount::with_ids(order.uid, order.gid, || make_path(&root, &volume.target))
            .step(format!("make {}", volume.target))?;
        sys_mount::attach(tree, &target).step(format!("mount at {}", volume.target))?;
    }
    Ok(())
}

/// The directory `path` below `root`, made with its parents where missing.
fn make_path(root: &OwnedFd, path: &str) -> io::Result<OwnedFd> {
    let mut whole = String::new();
    let mut parent = sys_mount::open_within(root, "")?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        if name == ".." || name == "." {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        whole = format!("{whole}/{name}");
        parent = match sys_mount::open_within(root, &whole) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                sys_mount::make_directory(&parent, name)?;
                sys_mount::open_within(root, &whole)?
            }
            other => other?,
        };
    }
    Ok(parent)
}
