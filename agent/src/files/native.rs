//! The native file routes below `/v2/fs`. Specification: api/agent.yaml.
//!
//! Called by `files::native`. Invariant: everything is done as the `user` of the query, the sandbox's default user where none is given.

use std::fs;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::draft::{Attributes, Draft, Place};
use super::execd::{hits, owner_ids, Items};
use super::glob::Glob;
use super::info::{Describer, Stat};
use super::record::Change;
use super::{archive, download, edit, fault, modes, path, walk, work};
use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::{Query, Request, Response};
use crate::users::Identity;

const DEFAULT_LIMIT: usize = 10_000;
const MAX_LINE_BYTES: u64 = 64 << 10;
const SHOWN_LINE_CHARS: usize = 500;

pub struct Call<'a> {
    pub agent: &'a Agent,
    pub identity: Identity,
}

#[derive(Deserialize)]
struct MakeDirectory {
    path: String,
    #[serde(default)]
    parents: bool,
    mode: Option<String>,
}

#[derive(Deserialize)]
struct Move {
    from: String,
    to: String,
    #[serde(default)]
    overwrite: bool,
}

#[derive(Deserialize)]
struct Chmod {
    path: String,
    mode: Option<String>,
    owner: Option<String>,
    group: Option<String>,
}

/// A line in which the wanted content is.
#[derive(Serialize)]
struct Hit<'a> {
    path: &'a str,
    line: u64,
    text: String,
}

impl Call<'_> {
    pub async fn answer(&self, mut request: Request, path: &[&str]) -> Result<Response> {
        let method = if request.method == "HEAD" { "GET" } else { request.method.as_str() };
        match (method, path) {
            ("GET", []) => {
                download::bytes(&self.identity, &self.path_of(&request.query)?, request.headers.get("range"))
            }
            ("PUT", []) => self.write(&mut request).await,
            ("DELETE", []) => self.delete(&request.query).await,
            ("GET", ["stat"]) => self.stat(&self.path_of(&request.query)?),
            ("GET", ["list"]) => self.list(&request.query),
            ("GET", ["search"]) => self.search(&request.query),
            ("GET", ["archive"]) => archive::pack(&self.identity, &self.path_of(&request.query)?),
            ("PUT", ["archive"]) => self.unpack(&mut request).await,
            ("POST", ["mkdir"]) => self.make_directory(request.json().await?),
            ("POST", ["move"]) => self.rename(request.json().await?).await,
            ("POST", ["chmod"]) => self.chmod(&request.json().await?),
            (_, [] | ["stat" | "list" | "search" | "archive" | "mkdir" | "move" | "chmod"]) => {
                Err(Error::method_not_allowed(&request.method, &request.path))
            }
            _ => Err(Error::not_found(format!("no route {} {}", request.method, request.path))),
        }
    }

    fn path(&self, path: &str) -> Result<PathBuf> {
        path::resolve(self.agent, &self.identity, path)
    }

    fn path_of(&self, query: &Query) -> Result<PathBuf> {
        self.path(query.required("path")?)
    }

    async fn write(&self, request: &mut Request) -> Result<Response> {
        let path = self.path_of(&request.query)?;
        let mode = request.query.get("mode").filter(|mode| !mode.is_empty()).map(modes::from_text).transpose()?;
        let parents = request.query.get("parents").is_none() || request.query.flag("parents");
        let change = Change::begin(self.agent)?;
        let place =
            work::brief(&self.identity, || Place::find(&path, Attributes { mode, uid: None, gid: None }, parents))?;
        let mut draft = Draft::beside(&self.identity, &place)?.hashed(self.agent.recorder.commands());
        while let Some(chunk) = request.body.chunk().await? {
            draft.write(&chunk).await?;
        }
        let published = draft.publish(&place).await?;
        change.wrote(&path, &published);
        Ok(Response::json(200, &json!({"path": path.to_string_lossy(), "size": published.size})))
    }

    async fn delete(&self, query: &Query) -> Result<Response> {
        let path = self.path_of(query)?;
        let recursive = query.flag("recursive");
        let change = Change::begin(self.agent)?;
        let doomed = path.clone();
        work::long(&self.identity, move || {
            fs::symlink_metadata(&doomed).map_err(fault::on(&doomed))?;
            if recursive {
                edit::delete_tree(&doomed)
            } else {
                edit::delete_one(&doomed)
            }
        })
        .await?;
        change.done("delete", &path);
        Ok(Response::empty(204))
    }

    fn stat(&self, path: &Path) -> Result<Response> {
        let stat = work::brief(&self.identity, || Describer::default().stat(path))?;
        Ok(Response::json(200, &stat))
    }

    fn list(&self, query: &Query) -> Result<Response> {
        let root = self.path_of(query)?;
        let depth = query.number::<u32>("depth")?.unwrap_or(1) as usize;
        let limit = query.number("limit")?.unwrap_or(DEFAULT_LIMIT);
        work::brief(&self.identity, || enterable(&root))?;
        self.page(limit, move |emit| {
            let mut about = Describer::default();
            walk::walk(&root, depth, &mut |path, meta| emit(Item::File(&about.stat_of(path, meta))));
            Ok(())
        })
    }

    fn search(&self, query: &Query) -> Result<Response> {
        let root = self.path_of(query)?;
        let glob = Glob::new(query.get("pattern").filter(|p| !p.is_empty()).unwrap_or("**"))?;
        let content = query.get("content").filter(|c| !c.is_empty()).map(|c| c.as_bytes().to_vec());
        let limit = query.number("limit")?.unwrap_or(DEFAULT_LIMIT);
        work::brief(&self.identity, || enterable(&root))?;
        self.page(limit, move |emit| {
            let mut about = Describer::default();
            walk::walk(&root, usize::MAX, &mut |path, meta| match &content {
                _ if !hits(&glob, &root, path) => true,
                None => emit(Item::File(&about.stat_of(path, meta))),
                Some(content) => !meta.is_file() || grep(path, content, emit).unwrap_or(true),
            });
            Ok(())
        })
    }

    /// `{"items": […], "truncated": …}`, made on a thread and sent as it grows.
    fn page(
        &self,
        limit: usize,
        work: impl FnOnce(&mut dyn FnMut(Item<'_>) -> bool) -> Result<()> + Send + 'static,
    ) -> Result<Response> {
        let pieces = work::stream(&self.identity, move |out| {
            let (mut items, mut count, mut truncated) = (Items::new(out, "{\"items\":["), 0, false);
            work(&mut |item| {
                truncated = count == limit;
                count += 1;
                !truncated && items.add(&item)
            })?;
            items.end(&format!("],\"truncated\":{truncated}}}"));
            Ok(())
        })?;
        Ok(download::streamed(200, "application/json", pieces))
    }

    fn make_directory(&self, wanted: MakeDirectory) -> Result<Response> {
        let path = self.path(&wanted.path)?;
        let mode = wanted.mode.as_deref().map(modes::from_text).transpose()?;
        let attributes = Attributes { mode, uid: None, gid: None };
        let change = Change::begin(self.agent)?;
        let stat = work::brief(&self.identity, || {
            if wanted.parents {
                edit::make_directory(&path, &attributes)?;
            } else if fs::symlink_metadata(&path).is_ok() {
                return Err(fault::on(&path)(io::Error::from_raw_os_error(libc::EEXIST)));
            } else {
                edit::make_one(&path, &attributes)?;
            }
            Describer::default().stat(&path)
        })?;
        change.done("mkdir", &path);
        Ok(Response::json(201, &stat))
    }

    async fn rename(&self, wanted: Move) -> Result<Response> {
        let (from, to) = (self.path(&wanted.from)?, self.path(&wanted.to)?);
        let change = Change::begin(self.agent)?;
        let (source, target) = (from.clone(), to.clone());
        let stat = work::long(&self.identity, move || {
            edit::rename(&source, &target, wanted.overwrite)?;
            Describer::default().stat(&target)
        })
        .await?;
        change.moved(&from, &to);
        Ok(Response::json(200, &stat))
    }

    fn chmod(&self, wanted: &Chmod) -> Result<Response> {
        let path = self.path(&wanted.path)?;
        let (uid, gid) = owner_ids(wanted.owner.as_deref(), wanted.group.as_deref())?;
        let mode = wanted.mode.as_deref().map(modes::from_text).transpose()?;
        let change = Change::begin(self.agent)?;
        let stat = work::brief(&self.identity, || {
            edit::set(&path, &Attributes { mode, uid, gid })?;
            Describer::default().stat(&path)
        })?;
        change.done("chmod", &path);
        Ok(Response::json(200, &stat))
    }

    async fn unpack(&self, request: &mut Request) -> Result<Response> {
        let path = self.path_of(&request.query)?;
        let change = Change::begin(self.agent)?;
        let unpacked = archive::unpack(&self.identity, &path, &mut request.body).await?;
        change.done("unpack", &path);
        Ok(Response::json(
            200,
            &json!({"path": path.to_string_lossy(), "entries": unpacked.entries, "size": unpacked.bytes}),
        ))
    }
}

/// `path` must be, or lead to, a directory that may be read.
fn enterable(path: &Path) -> Result<()> {
    fs::read_dir(path).map(drop).map_err(fault::on(path))
}

#[derive(Serialize)]
#[serde(untagged)]
enum Item<'a> {
    File(&'a Stat),
    Hit(Hit<'a>),
}

/// Emits each line with `content`; `false` when no more are wanted. Long lines are looked at in pieces, files with NUL bytes left out.
fn grep(path: &Path, content: &[u8], emit: &mut dyn FnMut(Item<'_>) -> bool) -> Result<bool> {
    let (file, _) = download::open_regular(path)?;
    let (mut reader, mut line, mut number) = (BufReader::new(file), Vec::new(), 1);
    let (finder, shown) = (memchr::memmem::Finder::new(content), path.to_string_lossy());
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut line).map_err(fault::on(path))? == 0
            || line.contains(&0)
        {
            return Ok(true);
        }
        if finder.find(&line).is_some() {
            let text =
                String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).chars().take(SHOWN_LINE_CHARS).collect();
            if !emit(Item::Hit(Hit { path: &shown, line: number, text })) {
                return Ok(false);
            }
        }
        number += u64::from(line.last() == Some(&b'\n'));
    }
}
