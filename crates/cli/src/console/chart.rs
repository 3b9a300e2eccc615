//! Charts as plain SVG, rendered by the server.

use std::fmt::Write as _;

/// Size of the drawing; the page scales it.
const WIDTH: f64 = 100.0;
const HEIGHT: f64 = 30.0;

/// A line with the area under it and a label.
pub(super) struct Spark {
    /// The line's path.
    pub line: String,
    /// The area's path.
    pub area: String,
    /// For screen readers.
    pub words: String,
}

impl Spark {
    /// These values, oldest first. The scale goes from zero to the maximum, at least to `least`.
    pub fn of(values: &[f64], least: f64, words: impl Into<String>) -> Self {
        let top = top(values, least);
        let line = path(values, top);
        let area = if values.len() < 2 {
            String::new()
        } else {
            format!("{line}V{HEIGHT}H0Z")
        };
        Self {
            line,
            area,
            words: words.into(),
        }
    }
}

/// Several lines on one scale.
pub(super) struct Chart {
    /// Done.
    pub done: Spark,
    /// Failed attempts.
    pub retries: Spark,
    /// Dead letters.
    pub dead: Spark,
    /// The maximum.
    pub top: f64,
}

impl Chart {
    /// Lines of the same length on one scale.
    pub fn of(done: &[f64], retries: &[f64], dead: &[f64]) -> Self {
        let top = [done, retries, dead]
            .into_iter()
            .map(|values| top(values, 1.0))
            .fold(1.0, f64::max);
        let spark = |values: &[f64]| Spark::of(values, top, "");
        Self {
            done: spark(done),
            retries: spark(retries),
            dead: spark(dead),
            top,
        }
    }
}

fn top(values: &[f64], least: f64) -> f64 {
    values.iter().copied().fold(least, f64::max)
}

fn path(values: &[f64], top: f64) -> String {
    if values.len() < 2 {
        return String::new();
    }
    #[expect(clippy::cast_precision_loss, reason = "a position on a screen")]
    let step = WIDTH / (values.len() - 1) as f64;
    let mut path = String::with_capacity(values.len() * 10);
    for (place, value) in values.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "a position on a screen")]
        let x = place as f64 * step;
        let y = HEIGHT - (value / top).clamp(0.0, 1.0) * HEIGHT;
        let letter = if place == 0 { 'M' } else { 'L' };
        // Writing to a string can't fail.
        let _ = write!(path, "{letter}{x:.1} {y:.1}");
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_fills_the_chart_and_its_maximum_is_at_the_top() {
        let spark = Spark::of(&[0.0, 5.0, 10.0], 1.0, "rising");
        assert_eq!(spark.line, "M0.0 30.0L50.0 15.0L100.0 0.0");
        assert_eq!(spark.area, "M0.0 30.0L50.0 15.0L100.0 0.0V30H0Z");
    }

    #[test]
    fn fewer_than_two_values_draw_no_line() {
        assert_eq!(Spark::of(&[1.0], 1.0, "").line, "");
        assert_eq!(Spark::of(&[], 1.0, "").area, "");
    }

    #[test]
    fn lines_of_a_chart_share_one_scale() {
        let chart = Chart::of(&[10.0, 10.0], &[5.0, 0.0], &[0.0, 0.0]);
        assert!(chart.retries.line.starts_with("M0.0 15.0"));
        assert!((chart.top - 10.0).abs() < f64::EPSILON);
    }
}
