//! `POST /files/upload`: files and their metadata as parts of one form, in any order and number.
//!
//! The n-th metadata part belongs to the n-th file part. Invariant: data goes to disk as it comes; a file whose metadata came first is
//! written beside its place, another one into /tmp until its metadata comes; each file appears whole or not at all.

use std::collections::VecDeque;

use serde::Deserialize;
use serde_json::Value;

use super::draft::{Attributes, Draft, Place};
use super::multipart::{Event, Parser};
use super::record::Change;
use super::{execd, modes, path, work};
use crate::agent::Agent;
use crate::error::{Error, Result};
use crate::http::Request;
use crate::users::Identity;

const MAX_METADATA_BYTES: usize = 64 << 10;

#[derive(Deserialize)]
struct Metadata {
    path: String,
    owner: Option<String>,
    group: Option<String>,
    mode: Option<Value>,
}

/// The part whose data is coming in.
enum Part {
    Metadata(Vec<u8>),
    File(Box<(Draft, Option<Place>)>),
    Ignored,
}

pub struct Upload<'a> {
    agent: &'a Agent,
    identity: &'a Identity,
    part: Part,
    places: VecDeque<Place>,
    drafts: VecDeque<Draft>,
    files: usize,
}

/// Reads the whole form.
pub async fn receive(agent: &Agent, identity: &Identity, request: &mut Request) -> Result<()> {
    let mut parser = Parser::new(request.headers.get("content-type"))?;
    let (places, drafts) = (VecDeque::new(), VecDeque::new());
    let mut upload = Upload { agent, identity, part: Part::Ignored, places, drafts, files: 0 };
    while let Some(chunk) = request.body.chunk().await? {
        for event in parser.feed(&chunk)? {
            upload.take(event).await?;
        }
    }
    parser.finish()?;
    upload.finish()
}

impl Upload<'_> {
    async fn take(&mut self, event: Event) -> Result<()> {
        match event {
            Event::Part { name, filename } => self.begin(&name, filename.as_deref())?,
            Event::Data(data) => self.data(&data).await?,
            Event::End => self.end().await?,
        }
        Ok(())
    }

    fn begin(&mut self, name: &str, filename: Option<&str>) -> Result<()> {
        self.part = match (name, filename) {
            ("metadata", _) => Part::Metadata(Vec::new()),
            ("file", _) | (_, Some(_)) => {
                let place = self.places.pop_front();
                let draft = match &place {
                    Some(place) => Draft::beside(self.identity, place)?,
                    None => Draft::aside(self.identity)?,
                };
                Part::File(Box::new((draft.hashed(self.agent.recorder.commands()), place)))
            }
            _ => Part::Ignored,
        };
        Ok(())
    }

    async fn data(&mut self, data: &[u8]) -> Result<()> {
        match &mut self.part {
            Part::Metadata(text) if text.len() + data.len() > MAX_METADATA_BYTES => {
                return Err(metadata("it is larger than 64 KiB"))
            }
            Part::Metadata(text) => text.extend_from_slice(data),
            Part::File(file) => file.0.write(data).await?,
            Part::Ignored => {}
        }
        Ok(())
    }

    async fn end(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.part, Part::Ignored) {
            Part::Metadata(text) => {
                let place = self.place(&text)?;
                match self.drafts.pop_front() {
                    Some(draft) => self.publish(draft, &place).await?,
                    None => self.places.push_back(place),
                }
            }
            Part::File(file) => match *file {
                (draft, Some(place)) => self.publish(draft, &place).await?,
                (draft, None) => self.drafts.push_back(draft),
            },
            Part::Ignored => {}
        }
        Ok(())
    }

    fn place(&self, text: &[u8]) -> Result<Place> {
        let wanted: Metadata = serde_json::from_slice(text).map_err(|error| metadata(&error.to_string()))?;
        let mode = wanted.mode.as_ref().filter(|mode| !mode.is_null() && mode.as_u64() != Some(0));
        let mode = mode.map(modes::from_execd).transpose()?;
        let (uid, gid) = execd::owner_ids(wanted.owner.as_deref(), wanted.group.as_deref())?;
        let path = path::resolve(self.agent, self.identity, &wanted.path)?;
        work::brief(self.identity, || Place::find(&path, Attributes { mode, uid, gid }, true))
    }

    async fn publish(&mut self, draft: Draft, place: &Place) -> Result<()> {
        let change = Change::begin(self.agent)?;
        let published = draft.publish(place).await?;
        change.wrote(place.path(), &published);
        self.files += 1;
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        match (self.files, self.places.len(), self.drafts.len()) {
            (0, 0, 0) => Err(metadata("the form has no file").execd("INVALID_FILE")),
            (_, 0, 0) => Ok(()),
            (_, 0, files) => Err(metadata(&format!("{files} file part(s) have no metadata part"))),
            (_, missing, _) => {
                Err(metadata(&format!("{missing} metadata part(s) have no file part")).execd("INVALID_FILE"))
            }
        }
    }
}

fn metadata(why: &str) -> Error {
    Error::invalid(format!("the upload cannot be used: {why}"))
        .execd("INVALID_FILE_METADATA")
        .remedy("send pairs of a 'metadata' part, {\"path\": …} as JSON, and a 'file' part")
}
