//! The OpenSandbox file routes: `/files…`, `/directories…`, and the same below `/v1/filesystem/{uid}/{gid}`.
//!
//! Called by `files::execd`. Wire details: the OpenSandbox execd specification. Invariant: everything is done with the permissions of the
//! identity asked for, the sandbox's default user where none is.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{json, Map, Value};

use super::draft::Attributes;
use super::glob::Glob;
use super::info::Describer;
use super::record::Change;
use super::work::{self, Out};
use super::{download, edit, fault, modes, path, replace, upload, walk};
use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Query, Request, Response};
use crate::users::{self, Identity};

const BATCH_BYTES: usize = 64 << 10;

/// One request with whom and what it is for.
pub struct Call<'a> {
    pub agent: &'a Agent,
    pub identity: Identity,
}

#[derive(Deserialize)]
struct Permission {
    owner: Option<String>,
    group: Option<String>,
    mode: Option<Value>,
}

#[derive(Deserialize)]
struct Rename {
    src: String,
    dest: String,
}

#[derive(Deserialize)]
struct Replacement {
    old: String,
    new: String,
}

impl Call<'_> {
    pub async fn answer(&self, mut request: Request, path: &[&str]) -> Result<Response> {
        let method = if request.method == "HEAD" { "GET" } else { request.method.as_str() };
        match (method, path) {
            ("GET", ["files", "info"]) => self.info(&request.query),
            ("GET", ["files", "search"]) => self.search(&request.query),
            ("GET", ["files", "download"]) => self.download(&request),
            ("GET", ["directories", "list"]) => self.list(&request.query),
            ("DELETE", ["files"]) => self.delete(&request.query, "delete", edit::delete_file).await,
            ("DELETE", ["directories"]) => self.delete(&request.query, "delete", edit::delete_tree).await,
            ("POST", ["files", "permissions"]) => self.permissions(request.json().await?, edit::set, "chmod").await,
            ("POST", ["directories"]) => self.permissions(request.json().await?, edit::make_directory, "mkdir").await,
            ("POST", ["files", "mv"]) => self.rename(request.json().await?).await,
            ("POST", ["files", "replace"]) => {
                let body = request.json().await?;
                self.replace(body, request.query.flag("verbose")).await
            }
            ("POST", ["files", "upload"]) => {
                upload::receive(self.agent, &self.identity, &mut request).await?;
                Ok(Response::empty(200))
            }
            (_, ["files"] | ["directories"] | ["directories", "list"])
            | (_, ["files", "info" | "search" | "download" | "permissions" | "mv" | "replace" | "upload"]) => {
                Err(Error::method_not_allowed(&request.method, &request.path))
            }
            _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
        }
    }

    fn path(&self, path: &str) -> Result<PathBuf> {
        path::resolve(self.agent, &self.identity, path)
    }

    /// All values of `path`, at least one.
    fn paths(&self, query: &Query) -> Result<Vec<(String, PathBuf)>> {
        query.required("path")?;
        query.all("path").map(|given| Ok((given.to_owned(), self.path(given)?))).collect()
    }

    fn info(&self, query: &Query) -> Result<Response> {
        let paths = self.paths(query)?;
        let mut about = Describer::default();
        let infos = paths.iter().map(|(given, path)| {
            let info = work::brief(&self.identity, || about.info(path))?;
            Ok((given.clone(), serde_json::to_value(info)?))
        });
        Ok(Response::json(200, &infos.collect::<Result<Map<_, _>>>()?))
    }

    fn download(&self, request: &Request) -> Result<Response> {
        let path = self.path(request.query.required("path")?)?;
        let (offset, limit) = (request.query.number::<u64>("offset")?, request.query.number::<u64>("limit")?);
        let range = request.headers.get("range");
        match (offset, limit, range) {
            (None, None, range) => download::bytes(&self.identity, &path, range),
            (_, _, Some(_)) => {
                Err(Error::invalid("offset and limit count lines and exclude a Range header").execd("INVALID_FILE"))
            }
            (offset, limit, None) => {
                download::lines(&self.identity, &path, offset.unwrap_or(1), limit.unwrap_or(u64::MAX))
            }
        }
    }

    fn list(&self, query: &Query) -> Result<Response> {
        let root = self.path(query.required("path")?)?;
        let depth = query.number::<u32>("depth")?.unwrap_or(1) as usize;
        work::brief(&self.identity, || directory(&root))?;
        self.infos(move |emit| {
            let mut about = Describer::default();
            walk::walk(&root, depth, &mut |path, meta| emit(&about.info_of(path, meta)));
        })
    }

    /// Files (no directories) whose base name matches.
    fn search(&self, query: &Query) -> Result<Response> {
        let root = self.path(query.required("path")?)?;
        let glob = Glob::new(query.get("pattern").filter(|p| !p.is_empty()).unwrap_or("**"))?;
        work::brief(&self.identity, || fs::metadata(&root).map_err(fault::on(&root)))?;
        self.infos(move |emit| {
            let mut about = Describer::default();
            walk::walk(&root, usize::MAX, &mut |path, meta| {
                meta.is_dir() || !hits(&glob, &root, path) || emit(&about.info_of(path, meta))
            });
        })
    }

    /// A JSON array, made on a thread and sent as it grows.
    fn infos<T: serde::Serialize>(
        &self,
        work: impl FnOnce(&mut dyn FnMut(&T) -> bool) + Send + 'static,
    ) -> Result<Response> {
        let pieces = work::stream(&self.identity, move |out| {
            let mut items = Items::new(out, "[");
            work(&mut |item| items.add(item));
            items.end("]");
            Ok(())
        })?;
        Ok(download::streamed(200, "application/json", pieces))
    }

    async fn delete(&self, query: &Query, action: &'static str, delete: fn(&Path) -> Result<()>) -> Result<Response> {
        for (_, path) in self.paths(query)? {
            let change = Change::begin(self.agent)?;
            let doomed = path.clone();
            work::long(&self.identity, move || delete(&doomed)).await?;
            change.done(action, &path);
        }
        Ok(Response::empty(200))
    }

    async fn permissions(
        &self,
        body: BTreeMap<String, Permission>,
        set: fn(&Path, &Attributes) -> Result<()>,
        action: &'static str,
    ) -> Result<Response> {
        for (given, wanted) in body {
            let path = self.path(&given)?;
            let wanted = attributes(&wanted)?;
            let change = Change::begin(self.agent)?;
            work::brief(&self.identity, || set(&path, &wanted))?;
            change.done(action, &path);
        }
        Ok(Response::empty(200))
    }

    async fn rename(&self, body: Vec<Rename>) -> Result<Response> {
        for item in body {
            let (from, to) = (self.path(&item.src)?, self.path(&item.dest)?);
            let change = Change::begin(self.agent)?;
            let (source, target) = (from.clone(), to.clone());
            work::long(&self.identity, move || edit::rename(&source, &target, false)).await?;
            change.moved(&from, &to);
        }
        Ok(Response::empty(200))
    }

    async fn replace(&self, body: BTreeMap<String, Replacement>, verbose: bool) -> Result<Response> {
        let mut counts = Map::new();
        for (given, item) in body {
            let path = self.path(&given)?;
            let change = Change::begin(self.agent)?;
            let file = path.clone();
            let count = work::long(&self.identity, move || replace::replace(&file, &item.old, &item.new)).await?;
            if count > 0 {
                change.done("write", &path);
            }
            counts.insert(given, json!({"replacedCount": count}));
        }
        Ok(if verbose { Response::json(200, &counts) } else { Response::empty(200) })
    }
}

/// A pattern with a slash is about the path below the root, another about the base name.
pub fn hits(glob: &Glob, root: &Path, path: &Path) -> bool {
    let subject = if glob.has_slash { path.strip_prefix(root).ok() } else { path.file_name().map(Path::new) };
    subject.is_some_and(|subject| glob.matches(&subject.to_string_lossy()))
}

/// `path` must be a directory itself, not a link to one.
fn directory(path: &Path) -> Result<()> {
    let about = fs::symlink_metadata(path).map_err(fault::on(path))?;
    if about.is_dir() {
        return fs::read_dir(path).map(drop).map_err(fault::on(path));
    }
    let error = fault::on(path)(io::Error::from_raw_os_error(libc::ENOTDIR));
    Err(if about.is_symlink() { error.remedy("it is a symbolic link: give the directory it leads to") } else { error })
}

fn attributes(wanted: &Permission) -> Result<Attributes> {
    let (uid, gid) = owner_ids(wanted.owner.as_deref(), wanted.group.as_deref())?;
    let mode = wanted.mode.as_ref().filter(|mode| !mode.is_null()).map(modes::from_execd).transpose()?;
    Ok(Attributes { mode, uid, gid })
}

/// Ids of owner and group by name or number; empty ones are not wanted.
pub fn owner_ids(owner: Option<&str>, group: Option<&str>) -> Result<(Option<u32>, Option<u32>)> {
    let find =
        |kind: &str, name: Option<&str>, look_up: fn(&str) -> Option<u32>| match name.filter(|name| !name.is_empty()) {
            None => Ok(None),
            Some(name) => look_up(name).map(Some).ok_or_else(|| {
                Error::invalid(format!("no {kind} '{name}' in the sandbox"))
                    .code("unknown_user")
                    .remedy("give a numeric id, or a name of /etc/passwd and /etc/group")
            }),
        };
    Ok((find("user", owner, users::user_id)?, find("group", group, users::group_id)?))
}

/// The items of a JSON array, sent in batches.
pub struct Items<'a> {
    out: &'a Out,
    batch: Vec<u8>,
    first: bool,
}

impl<'a> Items<'a> {
    pub fn new(out: &'a Out, opening: &str) -> Self {
        Self { out, batch: opening.as_bytes().to_vec(), first: true }
    }

    /// `false` when nobody reads any more.
    pub fn add<T: serde::Serialize>(&mut self, item: &T) -> bool {
        if !std::mem::take(&mut self.first) {
            self.batch.push(b',');
        }
        serde_json::to_writer(&mut self.batch, item).is_ok()
            && (self.batch.len() < BATCH_BYTES || self.out.send(std::mem::take(&mut self.batch)))
    }

    pub fn end(mut self, closing: &str) {
        self.batch.extend_from_slice(closing.as_bytes());
        self.out.send(self.batch);
    }
}
