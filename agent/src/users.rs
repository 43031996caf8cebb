//! Who a process or a file operation runs as: looks users and groups up in the sandbox's own /etc/passwd and /etc/group.
//!
//! Read on each use, because in-sandbox root may add users. Invariant: an unknown numeric id is valid; an unknown name is not.

use std::fs;

use crate::error::{Error, Result};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    pub home: String,
    pub shell: String,
}

impl Identity {
    pub fn root() -> Self {
        Self { name: "root".into(), uid: 0, gid: 0, groups: vec![], home: "/root".into(), shell: "/bin/sh".into() }
    }
}

/// A `user` as requests give it: "", "name", "uid", "name:group", "uid:gid".
///
/// # Errors
/// 400 for a name that is in neither file.
pub fn identify(user: &str) -> Result<Identity> {
    let (user, group) = user.split_once(':').map_or((user, None), |(user, group)| (user, Some(group)));
    let mut identity = find_user(user)?;
    if let Some(group) = group.filter(|g| !g.is_empty()) {
        identity.gid = group_id(group).ok_or_else(|| unknown("group", group))?;
    }
    Ok(identity)
}

/// As above from numbers, as the execd routes give them; without `gid` the user's own.
pub fn identify_ids(uid: u32, gid: Option<u32>) -> Identity {
    let mut identity = by_uid(uid);
    if let Some(gid) = gid {
        identity.gid = gid;
    }
    identity
}

fn find_user(user: &str) -> Result<Identity> {
    if user.is_empty() {
        return Ok(by_uid(0));
    }
    if let Some(found) = passwd().into_iter().find(|u| u.name == user) {
        return Ok(with_groups(found));
    }
    user.parse().map(by_uid).map_err(|_| unknown("user", user))
}

fn by_uid(uid: u32) -> Identity {
    match passwd().into_iter().find(|u| u.uid == uid) {
        Some(found) => with_groups(found),
        None if uid == 0 => Identity::root(),
        None => {
            let (name, shell) = (uid.to_string(), "/bin/sh".to_owned());
            Identity { name, uid, gid: uid, groups: vec![], home: "/".into(), shell }
        }
    }
}

fn unknown(kind: &str, name: &str) -> Error {
    Error::invalid(format!("no {kind} '{name}' in the sandbox"))
        .code("unknown_user")
        .remedy(format!("use a numeric id, or a {kind} of the image's /etc/passwd and /etc/group"))
}

/// Name of a user id, the number itself when it has none.
pub fn user_name(uid: u32) -> String {
    passwd().into_iter().find(|u| u.uid == uid).map_or_else(|| uid.to_string(), |u| u.name)
}

pub fn group_name(gid: u32) -> String {
    groups().into_iter().find(|g| g.gid == gid).map_or_else(|| gid.to_string(), |g| g.name)
}

/// Id of a user by name or number.
pub fn user_id(user: &str) -> Option<u32> {
    passwd().into_iter().find(|u| u.name == user).map(|u| u.uid).or_else(|| user.parse().ok())
}

pub fn group_id(group: &str) -> Option<u32> {
    groups().into_iter().find(|g| g.name == group).map(|g| g.gid).or_else(|| group.parse().ok())
}

struct Group {
    name: String,
    gid: u32,
    members: Vec<String>,
}

fn passwd() -> Vec<Identity> {
    lines("/etc/passwd").iter().filter_map(|line| parse_passwd(line)).collect()
}

fn parse_passwd(line: &str) -> Option<Identity> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, shell, ..] = fields[..] else { return None };
    let shell = if shell.is_empty() { "/bin/sh" } else { shell };
    Some(Identity {
        name: name.into(),
        uid: uid.parse().ok()?,
        gid: gid.parse().ok()?,
        groups: vec![],
        home: home.into(),
        shell: shell.into(),
    })
}

fn groups() -> Vec<Group> {
    lines("/etc/group").iter().filter_map(|line| parse_group(line)).collect()
}

fn parse_group(line: &str) -> Option<Group> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, gid, members, ..] = fields[..] else { return None };
    let members = members.split(',').filter(|m| !m.is_empty()).map(str::to_owned).collect();
    Some(Group { name: name.into(), gid: gid.parse().ok()?, members })
}

fn with_groups(mut user: Identity) -> Identity {
    user.groups = groups().into_iter().filter(|g| g.members.contains(&user.name)).map(|g| g.gid).collect();
    user
}

fn lines(path: &str) -> Vec<String> {
    let text = fs::read(path).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_need_no_entry_but_names_do() {
        let identity = identify("4242:77").unwrap();
        assert_eq!((identity.uid, identity.gid), (4242, 77));
        assert_eq!(identify("no-such-user").unwrap_err().status, 400);
        assert_eq!(identify("").unwrap().uid, 0);
    }

    #[test]
    fn passwd_lines_are_read_as_they_are() {
        let user = parse_passwd("sandbox:x:1000:1000:,,,:/home/sandbox:").unwrap();
        assert_eq!((user.uid, user.home.as_str(), user.shell.as_str()), (1000, "/home/sandbox", "/bin/sh"));
        assert!(parse_passwd("broken:x").is_none());
    }
}
