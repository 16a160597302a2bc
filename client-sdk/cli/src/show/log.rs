//! `tenure log`.

use tenure::client::Client;
use tenure::wire::LogFilter;

use super::ask;
use super::table::visible;
use crate::args::LogArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

/// Shows what the agent logs, after changing it if that is asked for.
///
/// # Errors
///
/// When the agent cannot be asked, or refuses.
pub(crate) async fn log(args: &LogArgs, client: &Client) -> Result<(), Failure> {
    let filter = args.filter.as_deref();
    let present = if filter.is_some() || args.reset {
        ask(client, "log", client.set_log_filter(filter)).await?
    } else {
        ask(client, "log", client.log_filter()).await?
    };
    if args.output.json { print_json(&present) } else { print(&render(&present)) }
}

fn render(LogFilter { filter, configured }: &LogFilter) -> String {
    let filter = visible(filter);
    if filter == visible(configured) {
        format!("logs {filter}, as configured\n")
    } else {
        let configured = visible(configured);
        format!(
            "logs {filter} for the time being; configured is {configured} (tenure log --reset)\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_says_how_long_it_lasts() {
        let render = |filter: &str| {
            render(&LogFilter { filter: filter.to_owned(), configured: "info".to_owned() })
        };
        assert_eq!(render("info"), "logs info, as configured\n");
        assert_eq!(
            render("debug"),
            "logs debug for the time being; configured is info (tenure log --reset)\n"
        );
    }
}
