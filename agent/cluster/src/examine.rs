//! An examination of the cluster by one of its nodes.

use tenure_wire::Check;

use crate::node::{Node, Verdict};

const QUORUM: &str = "cluster.quorum";
const NODES: &str = "cluster.nodes";
const ALIKE: &str = "cluster.alike";
const BYTES: &str = "cluster.bytes";
/// Entries by which a node may be behind while it keeps up.
const BEHIND_MAX: u64 = 1000;

/// The findings, in the order in which they are worth reading.
pub(crate) async fn checks(node: &Node) -> Vec<Check> {
    let view = node.view();
    let quorum = match view.leader {
        Some(leader) => {
            let (count, advice) =
                (view.voters.len(), even_voters(view.voters.len()).unwrap_or_default());
            let nodes =
                if count == 1 { "itself alone".to_owned() } else { format!("{count} nodes") };
            Check::ok(QUORUM, format!("node {leader:x} leads {nodes}{advice}"))
        }
        None => Check::failure(
            QUORUM,
            node.leaderless(),
            "start the nodes that are down, or mend the network between them; nothing is granted or renewed before that. \
             If most of them are gone for good: `tenured-gateway cluster recover --help`",
        ),
    };
    let mut silent = Vec::new();
    let mut lagging = Vec::new();
    let members = node.members();
    for (id, told) in node.ask_others(view.applied).await {
        let address = members.get(&id).map_or("", String::as_str);
        match told {
            Some(_) if let Some(cause) = node.undelivered(id) => {
                lagging.push(format!("node {id:x} at {address} has not taken its image: {cause}"));
            }
            None => silent.push(format!("node {id:x} at {address} does not answer")),
            Some(told) if told.applied + BEHIND_MAX < view.applied => {
                let behind = view.applied - told.applied;
                lagging.push(format!("node {id:x} at {address} is {behind} entries behind"));
            }
            Some(_) => {}
        }
    }
    let nodes = match (&silent[..], &lagging[..]) {
        ([], []) => Check::ok(NODES, format!("all {} nodes answer and keep up", members.len())),
        ([], lagging) => Check::warning(
            NODES,
            lagging.join("; "),
            "look at the disk and the network of that node; it catches up by itself",
        ),
        (silent, _) => Check::warning(
            NODES,
            silent.join("; "),
            "start it; or, if it is gone for good, take it out and add another one: until then one more loss may stop \
             the cluster",
        ),
    };
    let alike = match node.compare().await {
        Verdict::Alike => Check::ok(ALIKE, "the nodes have become the same"),
        Verdict::Unsure => {
            Check::unknown(ALIKE, "too few nodes answer to compare them", "see cluster.nodes")
        }
        Verdict::Split | Verdict::Alone => Check::failure(
            ALIKE,
            "nodes that have applied the same entries differ",
            "stop the node that stands alone, wipe its folder and add it as a new node; keep a copy of the folder and \
             report this: it must never happen",
        ),
    };
    vec![quorum, nodes, alike, room(node)]
}

/// PURE. The words about an even number of voters, which survives no more losses than one voter fewer.
pub fn even_voters(voters: usize) -> Option<String> {
    let is_even = voters > 0 && voters.is_multiple_of(2);
    is_even.then(|| {
        let (fewer, more) = (voters - 1, voters + 1);
        format!("; {voters} are no safer than {fewer}: add a node, to have {more}, or take one out")
    })
}

/// The room that is left.
fn room(node: &Node) -> Check {
    let (bytes, bytes_max) = node.bytes();
    let finding = format!("the cluster holds {bytes} of {bytes_max} bytes (cluster.bytes_max)");
    if node.is_nearly_full() {
        return Check::warning(
            BYTES,
            finding,
            "release holds and end sessions that nobody needs, bound what principals may keep, or raise it on all nodes: \
             beyond it no session and no claim is taken",
        );
    }
    Check::ok(BYTES, finding)
}
