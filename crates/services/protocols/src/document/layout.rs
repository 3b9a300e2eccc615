//! The text of a PDF in reading order: lines where the pen moves down, spaces where it jumps ahead.
//!
//! PDF knows no lines and often no spaces, only glyphs at places. Widths are estimated, which is enough to tell a gap
//! between words from one between letters.

use std::collections::BTreeMap;

use lopdf::{Document, Encoding, LoadOptions, Object, content::Content};

/// No stream of a protocol inflates to more.
const LONGEST_STREAM: usize = 128 * 1024 * 1024;

/// No protocol has more pages.
const MOST_PAGES: usize = 5_000;

/// Why there is no text.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unreadable {
    #[error("it does not begin as a PDF does")]
    NotPdf,
    #[error("it is encrypted; remove its password first")]
    Encrypted,
    #[error("{0}")]
    Broken(#[from] lopdf::Error),
    #[error("it has no pages")]
    NoPages,
    #[error("it has more than {MOST_PAGES} pages")]
    TooManyPages,
}

/// The text of a PDF, at most so many bytes of it. A page that can't be read is left out if others can.
pub(super) fn text(pdf: &[u8], longest: usize) -> Result<String, Unreadable> {
    let head = &pdf[..pdf.len().min(1024)];
    if !head.windows(5).any(|window| window == b"%PDF-") {
        return Err(Unreadable::NotPdf);
    }
    let options = LoadOptions {
        max_decompressed_size: Some(LONGEST_STREAM),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(pdf, options)?;
    if document.is_encrypted() {
        return Err(Unreadable::Encrypted);
    }
    let pages = document.get_pages();
    if pages.is_empty() {
        return Err(Unreadable::NoPages);
    }
    if pages.len() > MOST_PAGES {
        return Err(Unreadable::TooManyPages);
    }
    let mut text = String::new();
    let (mut read, mut refused) = (0, None);
    for page in pages.into_values() {
        match page_text(&document, page) {
            Ok(page) => {
                read += 1;
                text.push_str(&page);
                text.push('\n');
            }
            Err(error) => refused = Some(error),
        }
        if text.len() > longest {
            text.truncate(text.floor_char_boundary(longest));
            break;
        }
    }
    match refused {
        Some(error) if read == 0 => Err(error.into()),
        _ => Ok(text),
    }
}

fn page_text(document: &Document, page: lopdf::ObjectId) -> Result<String, lopdf::Error> {
    let fonts = document.get_page_fonts(page)?;
    let encodings: BTreeMap<Vec<u8>, Encoding<'_>> = fonts
        .into_iter()
        .filter_map(|(name, font)| {
            let encoding = font.get_font_encoding_with_limit(document, LONGEST_STREAM);
            encoding.ok().map(|encoding| (name, encoding))
        })
        .collect();
    let content = document.get_page_content_with_limit(page, LONGEST_STREAM)?;
    let mut pen = Pen::default();
    for operation in Content::decode(&content)?.operations {
        pen.follow(&operation.operator, &operation.operands, &encodings);
    }
    Ok(pen.text)
}

/// A text matrix: scale and place, as far as horizontal writing needs them.
#[derive(Clone, Copy)]
struct Place {
    scale: f32,
    x: f32,
    y: f32,
}

/// What `cm` has done so far: scales and shifts; a turned page reads badly in any case.
#[derive(Clone, Copy)]
struct Frame {
    scale: (f32, f32),
    shift: (f32, f32),
}

/// So deep may frames stand in each other.
const DEEPEST: usize = 256;

struct Pen<'a> {
    text: String,
    frame: Frame,
    frames: Vec<Frame>,
    encoding: Option<&'a Encoding<'a>>,
    size: f32,
    leading: f32,
    /// Where the line begins, and where the pen is.
    line: Place,
    at: Place,
    /// Where on the page the last glyph ended.
    last: Option<(f32, f32)>,
}

impl Default for Pen<'_> {
    fn default() -> Self {
        let origin = Place {
            scale: 1.0,
            x: 0.0,
            y: 0.0,
        };
        Self {
            text: String::new(),
            frame: Frame {
                scale: (1.0, 1.0),
                shift: (0.0, 0.0),
            },
            frames: Vec::new(),
            encoding: None,
            size: 10.0,
            leading: 0.0,
            line: origin,
            at: origin,
            last: None,
        }
    }
}

impl<'a> Pen<'a> {
    fn follow(
        &mut self,
        operator: &str,
        operands: &[Object],
        encodings: &'a BTreeMap<Vec<u8>, Encoding<'a>>,
    ) {
        let number = |index: usize| {
            let operand = operands.get(index);
            operand.and_then(|o| o.as_float().ok()).unwrap_or_default()
        };
        match operator {
            "q" if self.frames.len() < DEEPEST => self.frames.push(self.frame),
            "Q" => self.frame = self.frames.pop().unwrap_or(self.frame),
            "cm" => {
                let Frame { scale, shift } = self.frame;
                self.frame = Frame {
                    scale: (scale.0 * number(0), scale.1 * number(3)),
                    shift: (shift.0 + number(4) * scale.0, shift.1 + number(5) * scale.1),
                };
            }
            "BT" => self.set(Place {
                scale: 1.0,
                x: 0.0,
                y: 0.0,
            }),
            "Tf" => {
                let name = operands.first().and_then(|name| name.as_name().ok());
                self.encoding = name.and_then(|name| encodings.get(name));
                self.size = number(1).abs();
            }
            "TL" => self.leading = number(0),
            "Tm" => self.set(Place {
                scale: number(0).abs().max(number(1).abs()),
                x: number(4),
                y: number(5),
            }),
            "Td" => self.go(number(0), number(1)),
            "TD" => {
                self.leading = -number(1);
                self.go(number(0), number(1));
            }
            "T*" => self.go(0.0, -self.leading),
            "Tj" => self.show(operands.first()),
            "'" => {
                self.go(0.0, -self.leading);
                self.show(operands.first());
            }
            "\"" => {
                self.go(0.0, -self.leading);
                self.show(operands.get(2));
            }
            "TJ" => {
                for part in operands
                    .first()
                    .and_then(|o| o.as_array().ok())
                    .into_iter()
                    .flatten()
                {
                    match part.as_float() {
                        Ok(back) => self.at.x -= back / 1000.0 * self.em(),
                        Err(_) => self.show(Some(part)),
                    }
                }
            }
            _ => {}
        }
    }

    fn em(&self) -> f32 {
        self.size * self.at.scale
    }

    fn on_page(&self) -> (f32, f32) {
        let Frame { scale, shift } = self.frame;
        (self.at.x * scale.0 + shift.0, self.at.y * scale.1 + shift.1)
    }

    fn set(&mut self, place: Place) {
        self.line = place;
        self.at = place;
    }

    fn go(&mut self, x: f32, y: f32) {
        let scale = self.line.scale;
        self.set(Place {
            scale,
            x: self.line.x + x * scale,
            y: self.line.y + y * scale,
        });
    }

    fn show(&mut self, operand: Option<&Object>) {
        let (Some(encoding), Some(Ok(bytes))) = (self.encoding, operand.map(Object::as_str)) else {
            return;
        };
        let Ok(shown) = Document::decode_text(encoding, bytes) else {
            return;
        };
        if shown.is_empty() {
            return;
        }
        self.separate();
        let width: f32 = shown.chars().map(width).sum();
        self.text.push_str(&shown);
        self.at.x += width * self.em();
        self.last = Some(self.on_page());
    }

    /// What the way from the last glyph to the next one means.
    fn separate(&mut self) {
        let em = (self.em() * self.frame.scale.0.abs()).max(1.0);
        let Some((last_x, last_y)) = self.last else {
            return;
        };
        let (x, y) = self.on_page();
        let down = (last_y - y).abs();
        if down > 0.45 * em {
            let lines = if down > 2.2 * em { "\n\n" } else { "\n" };
            self.text.push_str(lines);
        } else if x - last_x > 0.25 * em && !self.text.ends_with(char::is_whitespace) {
            self.text.push(' ');
        }
    }
}

/// About how wide a glyph is, in em.
fn width(c: char) -> f32 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' | '!' | '.' | ',' | ':' | ';' | 'I' => 0.25,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | ' ' | '-' | '/' => 0.31,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.85,
        'A'..='Z' => 0.69,
        _ => 0.54,
    }
}
