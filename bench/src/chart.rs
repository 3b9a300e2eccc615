//! The SVG chart: one panel per measurement, one bar per system.

use std::fmt::Write;
use std::path::Path;

use anyhow::Result;

use crate::peer::OURS;
use crate::results::{CALLS, Figure, LIMIT, PREPARED, Results};

/// The panels: measurement and heading.
const PANELS: [(&str, &str); 8] = [
    ("drain/tiny/1", "Drain, tiny items, one process (items/s)"),
    ("drain/tiny/2", "Drain, tiny items, two processes (items/s)"),
    ("drain/1KB/1", "Drain, 1 KB (items/s)"),
    ("defaults/tiny/1", "Drain with default settings (items/s)"),
    ("enqueue/single/8", "Single enqueue, 8 clients (items/s)"),
    ("enqueue/bulk", "Bulk enqueue (items/s)"),
    (
        "wal/bulk+drain",
        "Write-ahead log, bulk enqueue and drain (bytes/item, less is better)",
    ),
    (
        "pickup/p95",
        "Pick-up time, 95th percentile (ms, less is better)",
    ),
];

const WIDTH: usize = 720;
const LABEL: usize = 130;
const BAR: usize = 18;
const HEAD: usize = 34;

/// Writes `latest.svg`.
pub fn write(results: &Results, folder: &Path) -> Result<()> {
    std::fs::write(folder.join("latest.svg"), draw(results))?;
    Ok(())
}

fn draw(results: &Results) -> String {
    let mut body = String::new();
    let mut top = 16;
    for (measure, heading) in PANELS {
        let mut bars: Vec<&Figure> = results
            .figures
            .iter()
            .filter(|figure| {
                figure.measure == measure && results.get(measure, &figure.peer).is_some()
            })
            .collect();
        if bars.is_empty() {
            continue;
        }
        bars.sort_by(|a, b| b.median.total_cmp(&a.median));
        panel(&mut body, top, heading, &bars);
        top += HEAD + bars.len() * BAR + 16;
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {top}\" width=\"{WIDTH}\" height=\"{top}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{body}</svg>\n"
    )
}

fn panel(body: &mut String, top: usize, heading: &str, bars: &[&Figure]) {
    let max = bars.iter().map(|figure| figure.median).fold(1e-9, f64::max);
    let _ = writeln!(
        body,
        "<text x=\"8\" y=\"{}\" font-weight=\"bold\">{heading}</text>",
        top + 16
    );
    for (index, figure) in bars.iter().enumerate() {
        let y = top + HEAD - 8 + index * BAR;
        let room = (WIDTH - LABEL - 90) as f64;
        let length = (figure.median / max * room).max(1.0);
        let colour = match figure.peer.as_str() {
            OURS => "#1f6f5c",
            LIMIT | PREPARED | CALLS => "#9aa0a6",
            _ => "#c9a227",
        };
        let name = if figure.peer == OURS {
            "postrider"
        } else {
            &figure.peer
        };
        let text = y + 13;
        let _ = writeln!(
            body,
            "<text x=\"{}\" y=\"{text}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{LABEL}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{text}\">{}</text>",
            LABEL - 6,
            BAR - 4,
            LABEL as f64 + length + 5.0,
            number(figure.median),
        );
    }
}

fn number(value: f64) -> String {
    if value >= 1000.0 {
        format!("{:.1}k", value / 1000.0)
    } else if value >= 10.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
