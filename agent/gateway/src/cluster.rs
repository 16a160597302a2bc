//! Commands about a cluster: each asks a node, as a rule the one of this host.

mod backup;
mod recovery;

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Error};
use clap::{Args, Subcommand};
use tenure_cluster::control::{Client, Control, MemberStatus, Report, Status};
use tenure_stores::settings::Stores;

use self::backup::BackupArgs;

/// The pause between two looks at a node that is given everything.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A command, and the node that it is for.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ClusterArgs {
    /// Node to ask, HOST:PORT; the one of this host, at cluster.address, if it is not given.
    #[arg(long, value_name = "ADDRESS", global = true, value_parser = tenure_cluster::address)]
    node: Option<String>,
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
enum ClusterCommand {
    /// Begin a cluster of this node alone. Others are added to it.
    Init,
    /// Add a node, which runs with --cluster and belongs to no cluster yet. It is given everything, and votes then.
    Add {
        /// The node's cluster.address, HOST:PORT.
        #[arg(value_parser = tenure_cluster::address)]
        address: String,
    },
    /// Take a node out, by its id or its address. It may be gone for good.
    Remove {
        /// The id as in status, or the address.
        #[arg(value_name = "NODE")]
        member: String,
    },
    /// Show the nodes: who leads, who votes, who is behind, who does not answer. Ends with status 69 where no node leads.
    Status {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Write a backup of everything to a file that is not there yet.
    Backup(BackupArgs),
    /// Begin a cluster of this node alone with a backup; the node belongs to no cluster yet.
    ///
    /// Nothing is granted until the quarantine is over: what was granted after the backup may be valid so long. Tokens
    /// are greater than all before. Nodes of the old cluster must not run any more.
    Restore {
        file: PathBuf,
        /// The time in which nothing is granted. Default: the longest ttl that anybody had asked for before the backup, 90s at
        /// least; give more if a program may have asked for a longer one after it.
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        quarantine: Option<Duration>,
    },
    /// Begin a cluster of this node alone with the folder of a node whose cluster has lost its majority for good.
    ///
    /// The old node must have stopped, and this node must belong to no cluster yet: move the folder aside, and start
    /// the gateway with an empty one. As with restore, nothing is granted until the quarantine is over, and new tokens
    /// are greater than all old ones. Nodes of the old cluster must never run again: the command refuses while one
    /// answers.
    Recover {
        /// The folder, cluster.folder of the node that has stopped; run this as its owner.
        #[arg(long, value_name = "FOLDER")]
        from_folder: PathBuf,
        /// The time in which nothing is granted. Default: the longest ttl that the folder knows of, 90s at least; give more if
        /// a program may have asked for a longer one since.
        #[arg(long, value_name = "DURATION", value_parser = humantime::parse_duration)]
        quarantine: Option<Duration>,
    },
}

impl ClusterArgs {
    /// Carries the command out.
    ///
    /// # Errors
    ///
    /// For people.
    pub fn run(&self, stores: &Stores) -> anyhow::Result<()> {
        let client = way(stores, self.node.as_deref())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.context("cannot start")?.block_on(self.command.run(&client, stores))
    }
}

impl ClusterCommand {
    async fn run(&self, client: &Client, stores: &Stores) -> anyhow::Result<()> {
        match self {
            ClusterCommand::Init => match client.ask(Control::Init).await? {
                Report::Founded(cluster) => say(&format!(
                    "cluster {cluster} has begun; add other nodes with `tenured-gateway cluster add HOST:PORT`"
                )),
                _ => Err(astray()),
            },
            ClusterCommand::Add { address } => add(client, address).await,
            ClusterCommand::Remove { member } => {
                let status = status(client).await?;
                let node = found(&status, member)?;
                client.ask(Control::remove(node)).await?;
                say(&format!(
                    "node {node:x} is out; stop it, and wipe its folder before it is used again"
                ))
            }
            ClusterCommand::Status { json } => {
                let status = status(client).await?;
                match json {
                    true => say(&serde_json::to_string_pretty(&shape(&status))?)?,
                    false => say(table(&status).trim_end())?,
                }
                led(&status)
            }
            ClusterCommand::Backup(backup) => backup.run(client).await,
            ClusterCommand::Recover { from_folder, quarantine } => {
                recovery::recover(client, stores, from_folder, *quarantine).await
            }
            ClusterCommand::Restore { file, quarantine } => {
                let text = fs::read(file).with_context(|| format!("{}", file.display()))?;
                match client.restore(text, *quarantine).await? {
                    Report::Restored { cluster, quarantine } => {
                        let quarantine = humantime::format_duration(quarantine);
                        say(&format!(
                            "cluster {cluster} has begun with the backup; it grants nothing for {quarantine}"
                        ))
                    }
                    _ => Err(astray()),
                }
            }
        }
    }
}

/// The way to a node, by default to this host's.
fn way(stores: &Stores, node: Option<&str>) -> anyhow::Result<Client> {
    let client = tenure_cluster::client(stores, node);
    client.map_err(|broken| Error::msg(format!("{} {}", broken.key, broken.rule)))
}

async fn status(client: &Client) -> anyhow::Result<Status> {
    match client.ask(Control::Status).await? {
        Report::Status(status) => Ok(*status),
        _ => Err(astray()),
    }
}

/// Fails where no node leads: scripts go by the exit status.
fn led(status: &Status) -> anyhow::Result<()> {
    match (status.leader, status.cluster) {
        (Some(_), _) => Ok(()),
        (None, None) => Err(Error::msg("the node belongs to no cluster")),
        (None, Some(_)) => Err(Error::msg(
            "no node leads, and nothing is granted or renewed: start the nodes that are down; if most of them are gone for \
             good, `tenured-gateway cluster recover --help` says what is left to do",
        )),
    }
}

/// Adds a node, and says meanwhile how far it is.
async fn add(client: &Client, address: &str) -> anyhow::Result<()> {
    let adding = client.ask(Control::add(address.to_owned()));
    tokio::pin!(adding);
    loop {
        match tokio::time::timeout(LOOK_EVERY, &mut adding).await {
            Ok(Ok(Report::Added(node))) => {
                let voters = status(client).await.map(|status| voters(&status)).unwrap_or_default();
                let even = tenure_cluster::even_voters(voters).unwrap_or_default();
                return say(&format!("node {node:x} at {address} votes{even}"));
            }
            Ok(Ok(_)) => return Err(astray()),
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {}
        }
        // It goes on all the same.
        if let Ok(status) = status(client).await
            && let Some(latest) = latest(&status)
        {
            let mut members = status.members.values();
            let member = members.find(|it| it.address == address);
            let applied = member.and_then(|it| it.applied).unwrap_or_default();
            let trouble = member.and_then(|it| it.trouble.as_deref());
            let trouble = trouble.map(|it| format!(", and takes no image: {it}"));
            let trouble = trouble.unwrap_or_default();
            eprintln!("the node at {address} has {applied} of {latest} entries{trouble}");
        }
    }
}

/// The node with this id or address.
fn found(status: &Status, member: &str) -> anyhow::Result<u64> {
    let mut members = status.members.iter();
    let found = members.find(|(id, it)| format!("{id:x}") == member || it.address == member);
    found.map(|(id, _)| *id).with_context(|| {
        let known = status.members.iter().map(|(id, it)| format!("{id:x} at {}", it.address));
        format!("no node {member} in the cluster: it has {}", known.collect::<Vec<_>>().join(", "))
    })
}

fn voters(status: &Status) -> usize {
    status.members.values().filter(|member| member.votes).count()
}

fn latest(status: &Status) -> Option<u64> {
    status.members.values().filter_map(|member| member.applied).max()
}

/// The role of a member, and what is to be said of it.
fn words(status: &Status, id: u64, member: &MemberStatus) -> (&'static str, String) {
    let role = match member.votes {
        _ if status.leader == Some(id) => "leader",
        true => "follower",
        false => "joining",
    };
    let state = match (member.applied, latest(status)) {
        (Some(_), _) if let Some(trouble) = &member.trouble => format!("takes no image: {trouble}"),
        (None, _) => "does not answer".to_owned(),
        (Some(applied), Some(latest)) if applied < latest => {
            format!("{} entries behind", latest - applied)
        }
        _ => "ok".to_owned(),
    };
    (role, state)
}

fn table(status: &Status) -> String {
    let mut text = String::new();
    let Some(cluster) = status.cluster else {
        return format!(
            "node {:x} belongs to no cluster yet: begin one with `tenured-gateway cluster init`, or add the node to one \
             with `tenured-gateway cluster add` there",
            status.node
        );
    };
    let voters = voters(status);
    let needed = voters / 2 + 1;
    let leader = if status.leader.is_some() { "" } else { "; NONE LEADS" };
    let vote = match voters {
        1 => "1 node votes".to_owned(),
        _ => format!("{voters} nodes vote, {needed} must reach each other"),
    };
    let even = tenure_cluster::even_voters(voters).unwrap_or_default();
    // Writing to a text cannot fail.
    let _ = writeln!(text, "cluster {cluster}: {vote}{even}{leader}");
    if let Some(stopped) = &status.stopped {
        let _ = writeln!(text, "node {:x} serves nobody: {stopped}", status.node);
    }
    let wide = status.members.values().map(|it| it.address.len()).max().unwrap_or_default().max(7);
    let _ = writeln!(
        text,
        "{:<16}  {:<wide$}  {:<8}  {:>12}  STATE",
        "NODE", "ADDRESS", "ROLE", "ENTRIES"
    );
    for (id, member) in &status.members {
        let (role, state) = words(status, *id, member);
        let applied = member.applied.map_or_else(|| "-".to_owned(), |it| it.to_string());
        let address = &member.address;
        let _ = writeln!(text, "{id:<16x}  {address:<wide$}  {role:<8}  {applied:>12}  {state}");
    }
    let knows = |member: &MemberStatus| member.known.filter(|known| Some(*known) > status.version);
    if let (Some(version), Some(next)) =
        (status.version, status.members.values().filter_map(knows).min())
    {
        let earlier =
            status.members.iter().filter(|(_, member)| member.known.is_some_and(|it| it < next));
        let earlier: Vec<_> = earlier.map(|(_, member)| member.address.as_str()).collect();
        // Writing to a text cannot fail.
        let _ = writeln!(
            text,
            "an upgrade is under way: the cluster goes by version {version}, and by {next} once all nodes know it and \
             answer; to be upgraded still: {}",
            if earlier.is_empty() { "none".to_owned() } else { earlier.join(", ") }
        );
    }
    text
}

/// The status for programs.
fn shape(status: &Status) -> serde_json::Value {
    let members = status.members.iter().map(|(id, member)| {
        serde_json::json!({
            "id": format!("{id:x}"),
            "address": member.address,
            "role": words(status, *id, member).0,
            "applied": member.applied,
            "known_version": member.known,
            "trouble": member.trouble,
            "behind": member.applied.and_then(|it| Some(latest(status)?.saturating_sub(it))),
        })
    });
    serde_json::json!({
        "node": format!("{:x}", status.node),
        "cluster": status.cluster,
        "leader": status.leader.map(|id| format!("{id:x}")),
        "stopped": status.stopped,
        "version": status.version,
        "bytes": status.bytes,
        "bytes_max": status.bytes_max,
        "members": members.collect::<Vec<_>>(),
    })
}

fn say(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot write")
}

fn astray() -> Error {
    Error::msg("the node answers another question: it is of another release")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status_of(members: &[(u64, &str, bool, Option<u64>)]) -> Status {
        let members = members.iter().map(|(id, address, votes, applied)| {
            let (address, known) = ((*address).to_owned(), applied.map(|_| 2));
            (*id, MemberStatus { address, votes: *votes, applied: *applied, known, trouble: None })
        });
        Status {
            node: 0xa,
            cluster: Some(uuid::Uuid::nil()),
            leader: Some(0xa),
            stopped: None,
            version: Some(2),
            members: members.collect(),
            bytes: 0,
            bytes_max: 0,
        }
    }

    #[test]
    fn a_status_names_who_is_behind_and_who_is_silent() {
        let status = status_of(&[
            (0xa, "one:8741", true, Some(30)),
            (0xb, "two:8741", true, Some(10)),
            (0xc, "three:8741", false, None),
        ]);
        let expected = "\
cluster 00000000-0000-0000-0000-000000000000: 2 nodes vote, 2 must reach each other; 2 are no safer than 1: add a node, to have 3, or take one out
NODE              ADDRESS     ROLE           ENTRIES  STATE
a                 one:8741    leader              30  ok
b                 two:8741    follower            10  20 entries behind
c                 three:8741  joining              -  does not answer
";
        assert_eq!(table(&status), expected);
        let mut upgrading = status.clone();
        for (id, known) in [(0xa, Some(3)), (0xb, Some(3)), (0xc, Some(2))] {
            upgrading.members.get_mut(&id).unwrap().known = known;
        }
        let words = "goes by version 2, and by 3 once all nodes know it and answer; to be upgraded still: three:8741\n";
        assert!(table(&upgrading).ends_with(words), "{}", table(&upgrading));
        let mut alone = status.clone();
        alone.leader = None;
        alone.members.retain(|id, _| *id == 0xa);
        assert!(table(&alone).contains(": 1 node votes; NONE LEADS\n"), "{}", table(&alone));
        assert!(led(&status).is_ok());
        let words = led(&alone).unwrap_err().to_string();
        assert!(words.contains("no node leads") && words.contains("cluster recover"), "{words}");
        assert_eq!(found(&status, "two:8741").unwrap(), 0xb);
        assert_eq!(found(&status, "c").unwrap(), 0xc);
        let error = found(&status, "d").unwrap_err().to_string();
        assert!(error.contains("b at two:8741"), "{error}");
    }
}
