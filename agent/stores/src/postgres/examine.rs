//! A look at the server for `tenure doctor`.

use tenure_wire::Check;
use tokio_postgres::Row;

use super::connection::Connection;
use super::durability::Durability;

/// Facts in one question. Replication is seen by roles with `pg_monitor` only.
const LOOK: &str = "select current_setting('server_version'), current_setting('fsync'), \
    current_setting('synchronous_commit'), current_setting('synchronous_standby_names'), \
    current_setting('max_connections')::bigint, (select count(*) from pg_stat_activity where datid is not null), \
    pg_notification_queue_usage(), tenure.read_clock(), \
    (select max(extract(epoch from replay_lag))::float8 from pg_stat_replication), \
    (select count(*) from pg_stat_replication where sync_state in ('sync', 'quorum')), \
    pg_has_role('pg_read_all_stats', 'usage')";

/// Part of the notification queue that is left to slow listeners before the operator is told.
const QUEUE_MAX: f64 = 0.5;
/// Connections that are left before the operator is told: those of one agent more.
const CONNECTIONS_LEFT_MIN: i64 = 4;
/// Nothing goes by the agent's wall clock, but people compare logs.
const SKEW_MAX_S: u64 = 5;

pub(super) async fn look(connection: Connection, checks: &mut Vec<Check>) {
    let row = match connection.client.query_one(LOOK, &[]).await {
        Ok(row) => row,
        Err(error) => {
            let detail = super::connection::words(&error);
            let way_out = "see the server's log, and run this again";
            return checks.push(Check::unknown("postgres.settings", detail, way_out));
        }
    };
    checks.push(Check::ok("postgres.version", format!("Postgres {}", row.get::<_, &str>(0))));
    checks.push(durability(&row));
    checks.push(standbys(&row));
    checks.push(connections(&row));
    checks.push(queue(&row));
    checks.push(clock(&row));
}

fn durability(row: &Row) -> Check {
    let (fsync, commit): (&str, &str) = (row.get(1), row.get(2));
    let name = "postgres.durability";
    if fsync == "off" {
        let detail = "fsync is off: a crash of the server's host can lose grants, or all data";
        return Check::failure(name, detail, "set fsync = on in postgresql.conf, and reload");
    }
    if commit == "off" {
        let detail = "synchronous_commit is off: a crash of the server can lose the last grants";
        let way_out = "alter role … set synchronous_commit = on, for the role of upstream";
        return Check::failure(name, detail, way_out);
    }
    Check::ok(name, format!("a grant is on disk when it is told (synchronous_commit = {commit})"))
}

fn standbys(row: &Row) -> Check {
    let (commit, names): (&str, &str) = (row.get(2), row.get(3));
    let lag: Option<f64> = row.get(8);
    let lag = lag.map_or(String::new(), |lag| format!("; the slowest replays {lag:.1} s late"));
    let name = "postgres.standbys";
    if Durability::of("on", commit, names) != Durability::Standby {
        let detail =
            format!("no synchronous standby: an asynchronous failover can lose a grant{lag}");
        return Check::ok(name, detail);
    }
    let (connected, sees_them): (i64, bool) = (row.get(9), row.get(10));
    if sees_them && connected == 0 {
        let detail =
            format!("no synchronous standby ({names}) is connected: every commit waits for one");
        let way_out = "start it, or take it out of synchronous_standby_names and reload; what failovers lose then is \
                       in docs/postgres.md";
        return Check::failure(name, detail, way_out);
    }
    Check::ok(name, format!("a grant survives a failover to a synchronous standby ({names}){lag}"))
}

fn connections(row: &Row) -> Check {
    let (most, taken): (i64, i64) = (row.get(4), row.get(5));
    let detail = format!("{taken} of {most} connections are taken");
    match most - taken < CONNECTIONS_LEFT_MIN {
        true => Check::warning(
            "postgres.connections",
            detail,
            "raise max_connections, or have hosts use a gateway: each agent has four",
        ),
        false => Check::ok("postgres.connections", detail),
    }
}

fn queue(row: &Row) -> Check {
    let used: f64 = row.get(6);
    let detail = format!("{:.0} % of the queue of notifications is taken", used * 100.0);
    match used > QUEUE_MAX {
        true => Check::warning(
            "postgres.notifications",
            detail,
            "a session that listens stays in a transaction: end it (pg_stat_activity); when the queue is full, \
             nothing can be granted",
        ),
        false => Check::ok("postgres.notifications", detail),
    }
}

fn clock(row: &Row) -> Check {
    let server = row.get::<_, i64>(7).unsigned_abs() / 1_000_000;
    let own = std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_secs());
    let skew = server.abs_diff(own);
    let detail = format!("the clocks of the server and this host are {skew} s apart");
    match skew > SKEW_MAX_S {
        true => Check::warning(
            "postgres.clock",
            detail,
            "no hold goes by that, but times in logs do: see to the time service of both",
        ),
        false => Check::ok("postgres.clock", detail),
    }
}
