//! The report as text: a line for each service, and the total.

use postrider_sim::demo::{Report, Tally};

use crate::cli::output::{Output, Tone};

const COLUMNS: [&str; 8] = [
    "accepted",
    "done",
    "retried",
    "recovered",
    "dead",
    "still dead",
    "lost",
    "done twice",
];

/// The table, with the violations below it.
pub fn text(report: &Report, output: &Output) -> String {
    let head = COLUMNS.map(|column| format!("  {column}")).concat();
    let mut text = format!(
        "\n{}\n",
        output.paint(Tone::Dim, &format!("  {:<9}{head}", ""))
    );
    for (name, tally) in &report.services {
        text.push_str(&line(name, tally, output));
    }
    text.push_str(&line("total", &report.total, output));
    for violation in &report.violations {
        text.push_str(&format!("\n  {}", output.paint(Tone::Bad, violation)));
    }
    text
}

fn line(name: &str, tally: &Tally, output: &Output) -> String {
    let all = Some(tally.done == tally.accepted);
    let none = |n: usize| Some(n == 0);
    let cells = [
        (tally.accepted, None),
        (tally.done, all),
        (tally.retried, None),
        (tally.recovered, None),
        (tally.dead, None),
        (tally.still_dead, none(tally.still_dead)),
        (tally.lost, none(tally.lost)),
        (tally.done_twice, none(tally.done_twice)),
    ];
    let mut line = format!("  {name:<9}");
    for ((figure, good), column) in cells.into_iter().zip(COLUMNS) {
        let text = format!("  {figure:>width$}", width = column.len());
        line.push_str(&match good {
            Some(true) => output.paint(Tone::Good, &text),
            Some(false) => output.paint(Tone::Bad, &text),
            None => text,
        });
    }
    line.push('\n');
    line
}
