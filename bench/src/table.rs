//! The printed table: figures with ratios, then the targets.

use std::fmt::Write;

use crate::peer::OURS;
use crate::results::{CALLS, LIMIT, PREPARED, Results};
use crate::targets::Verdict;

/// Renders the table.
pub fn render(results: &Results, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    figures(&mut text, results);
    for (peer, reason) in &results.absent {
        let _ = writeln!(text, "{peer} was unavailable: {reason}");
    }
    for failure in &results.failures {
        let _ = writeln!(
            text,
            "{}: {}: no figure: {}",
            failure.measure, failure.peer, failure.reason
        );
    }
    targets(&mut text, verdicts);
    text
}

/// One row per measurement; in brackets: ours as a multiple.
fn figures(text: &mut String, results: &Results) {
    let mut names: Vec<&str> = vec![OURS, LIMIT, PREPARED, CALLS];
    names.extend(
        results
            .peers
            .keys()
            .map(String::as_str)
            .filter(|name| *name != OURS),
    );
    names.retain(|name| results.figures.iter().any(|figure| figure.peer == *name));
    let mut rows = vec![
        std::iter::once("")
            .chain(names.iter().copied())
            .map(str::to_owned)
            .collect::<Vec<_>>(),
    ];
    for (measure, unit) in results.measures() {
        let mut row = vec![format!("{measure}, {unit}")];
        for name in &names {
            let times = results.ratio((measure, OURS), (measure, name));
            row.push(match (results.get(measure, name), times) {
                (Some(value), Some(times)) if *name != OURS => {
                    format!("{} ({}×)", amount(value), ratio(times))
                }
                (Some(value), _) => amount(value),
                (None, _) if results.failed(measure, name).is_some() => "failed".to_owned(),
                (None, _) => "–".to_owned(),
            });
        }
        rows.push(row);
    }
    grid(text, &rows);
    let _ = writeln!(text, "in brackets: ours as a multiple of that figure");
}

fn targets(text: &mut String, verdicts: &[Verdict]) {
    let mut rows = vec![["target", "asked", "got", ""].map(str::to_owned).to_vec()];
    let measured = |verdict: &&Verdict| verdict.got.is_some();
    for verdict in verdicts.iter().filter(measured) {
        let bound = if verdict.at_most { "≤" } else { "≥" };
        rows.push(vec![
            verdict.target.clone(),
            format!("{bound} {}", ratio(verdict.asked)),
            verdict.got.map_or_else(|| "–".to_owned(), ratio),
            match verdict.reached {
                Some(true) => "reached".to_owned(),
                Some(false) | None => "missed".to_owned(),
            },
        ]);
    }
    text.push('\n');
    grid(text, &rows);
    let missing = verdicts.len() + 1 - rows.len();
    if missing > 0 {
        let _ = writeln!(text, "not measured in this run: {missing} targets");
    }
}

/// Aligns columns; the first is left-aligned.
fn grid(text: &mut String, rows: &[Vec<String>]) {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = widths.get(column).copied().unwrap_or(0);
            let _ = if column == 0 {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "  {cell:>width$}")
            };
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Three significant digits.
fn amount(value: f64) -> String {
    match value.abs() {
        big if big >= 10_000.0 => format!("{:.0}k", value / 1000.0),
        big if big >= 1_000.0 => format!("{:.1}k", value / 1000.0),
        big if big >= 100.0 => format!("{value:.0}"),
        big if big >= 1.0 => format!("{value:.1}"),
        _ => format!("{value:.4}"),
    }
}

fn ratio(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
