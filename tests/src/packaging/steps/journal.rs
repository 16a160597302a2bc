use serde_json::Value;

use super::super::World;

pub(super) fn fields(world: &mut World) {
    let machine = &world.machine;
    let log = &machine.log;
    let lines = machine.look("journalctl --unit=tenured --output=json --no-pager").ok();
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("journalctl prints JSON"))
        .collect();
    let of_agent: Vec<&Value> =
        lines.iter().filter(|line| line["SYSLOG_IDENTIFIER"] == "tenured").collect();
    log.expect("the agent's lines have its identifier", !of_agent.is_empty());
    for field in ["MESSAGE", "PRIORITY", "CODE_MODULE"] {
        let all = of_agent.iter().filter(|line| line["TENURE_HOLD"].is_string());
        let all = all.clone().count() > 0 && all.clone().all(|line| line[field].is_string());
        log.expect(&format!("lines about holds have {field}"), all);
    }
    for field in [
        "TENURE_SESSION",
        "TENURE_HOLD",
        "TENURE_TENANT",
        "TENURE_KIND",
        "TENURE_NAME",
        "TENURE_TOKEN",
        "TENURE_REASON",
        "TENURE_UID",
        "TENURE_PID",
    ] {
        let example = of_agent.iter().find(|line| line[field].is_string());
        let shown = example.map(|line| format!("{}: {}", line["MESSAGE"], line[field]));
        log.expect(
            &format!("{field} is there: {}", shown.as_deref().unwrap_or_default()),
            shown.is_some(),
        );
    }
    let ended = of_agent.iter().find(|line| line["TENURE_EXIT_STATUS"] == "137");
    log.expect("a killed client's line has TENURE_EXIT_STATUS=137", ended.is_some());
    machine
        .run("journalctl --unit=tenured --output=json --no-pager TENURE_EXIT_STATUS=137 | head -1")
        .ok();
}
