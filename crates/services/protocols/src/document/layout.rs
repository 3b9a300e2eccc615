//! The text of a PDF in reading order: a line break where the position moves down, a space where it jumps ahead.
//!
//! A PDF has no lines and often no spaces, only glyphs at positions. Glyph widths are estimated, which is enough to tell
//! a gap between words from a gap between letters.

use std::collections::BTreeMap;

use lopdf::{Document, Encoding, LoadOptions, Object, content::Content};

/// Maximum size of a decompressed stream.
const MAX_STREAM_BYTES: usize = 128 * 1024 * 1024;

/// Maximum number of pages.
const MAX_PAGES: usize = 5_000;

/// Why a PDF can't be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum PdfError {
    #[error("it has no PDF header")]
    NotPdf,
    #[error("it is encrypted; remove its password first")]
    Encrypted,
    #[error("{0}")]
    Broken(#[from] lopdf::Error),
    #[error("it has no pages")]
    NoPages,
    #[error("it has more than {MAX_PAGES} pages")]
    TooManyPages,
}

/// The text of a PDF, up to `max_bytes`. Pages that can't be read are skipped if others can.
pub(super) fn text(pdf: &[u8], max_bytes: usize) -> Result<String, PdfError> {
    let head = &pdf[..pdf.len().min(1024)];
    if !head.windows(5).any(|window| window == b"%PDF-") {
        return Err(PdfError::NotPdf);
    }
    let options = LoadOptions {
        max_decompressed_size: Some(MAX_STREAM_BYTES),
        ..LoadOptions::default()
    };
    let document = Document::load_mem_with_options(pdf, options)?;
    if document.is_encrypted() {
        return Err(PdfError::Encrypted);
    }
    let pages = document.get_pages();
    if pages.is_empty() {
        return Err(PdfError::NoPages);
    }
    if pages.len() > MAX_PAGES {
        return Err(PdfError::TooManyPages);
    }
    let mut text = String::new();
    let (mut read, mut last_error) = (0, None);
    for page in pages.into_values() {
        match page_text(&document, page) {
            Ok(page) => {
                read += 1;
                text.push_str(&page);
                text.push('\n');
            }
            Err(error) => last_error = Some(error),
        }
        if text.len() > max_bytes {
            text.truncate(text.floor_char_boundary(max_bytes));
            break;
        }
    }
    match last_error {
        Some(error) if read == 0 => Err(error.into()),
        _ => Ok(text),
    }
}

fn page_text(document: &Document, page: lopdf::ObjectId) -> Result<String, lopdf::Error> {
    let fonts = document.get_page_fonts(page)?;
    let encodings: BTreeMap<Vec<u8>, Encoding<'_>> = fonts
        .into_iter()
        .filter_map(|(name, font)| {
            let encoding = font.get_font_encoding_with_limit(document, MAX_STREAM_BYTES);
            encoding.ok().map(|encoding| (name, encoding))
        })
        .collect();
    let content = document.get_page_content_with_limit(page, MAX_STREAM_BYTES)?;
    let mut cursor = TextCursor::default();
    for operation in Content::decode(&content)?.operations {
        cursor.apply(&operation.operator, &operation.operands, &encodings);
    }
    Ok(cursor.text)
}

/// A text matrix: scale and position, as far as horizontal text needs them.
#[derive(Clone, Copy)]
struct TextMatrix {
    scale: f32,
    x: f32,
    y: f32,
}

/// The current transformation matrix: scale and shift. Rotation is not supported.
#[derive(Clone, Copy)]
struct Transform {
    scale: (f32, f32),
    shift: (f32, f32),
}

/// Maximum depth of the graphics state stack.
const MAX_STATE_DEPTH: usize = 256;

struct TextCursor<'a> {
    text: String,
    transform: Transform,
    transforms: Vec<Transform>,
    encoding: Option<&'a Encoding<'a>>,
    size: f32,
    leading: f32,
    /// The start of the line, and the current position.
    line: TextMatrix,
    at: TextMatrix,
    /// The end of the last glyph on the page.
    last: Option<(f32, f32)>,
}

impl Default for TextCursor<'_> {
    fn default() -> Self {
        let origin = TextMatrix {
            scale: 1.0,
            x: 0.0,
            y: 0.0,
        };
        Self {
            text: String::new(),
            transform: Transform {
                scale: (1.0, 1.0),
                shift: (0.0, 0.0),
            },
            transforms: Vec::new(),
            encoding: None,
            size: 10.0,
            leading: 0.0,
            line: origin,
            at: origin,
            last: None,
        }
    }
}

impl<'a> TextCursor<'a> {
    fn apply(
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
            "q" if self.transforms.len() < MAX_STATE_DEPTH => self.transforms.push(self.transform),
            "Q" => self.transform = self.transforms.pop().unwrap_or(self.transform),
            "cm" => {
                let Transform { scale, shift } = self.transform;
                self.transform = Transform {
                    scale: (scale.0 * number(0), scale.1 * number(3)),
                    shift: (shift.0 + number(4) * scale.0, shift.1 + number(5) * scale.1),
                };
            }
            "BT" => self.set(TextMatrix {
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
            "Tm" => self.set(TextMatrix {
                scale: number(0).abs().max(number(1).abs()),
                x: number(4),
                y: number(5),
            }),
            "Td" => self.move_by(number(0), number(1)),
            "TD" => {
                self.leading = -number(1);
                self.move_by(number(0), number(1));
            }
            "T*" => self.move_by(0.0, -self.leading),
            "Tj" => self.show(operands.first()),
            "'" => {
                self.move_by(0.0, -self.leading);
                self.show(operands.first());
            }
            "\"" => {
                self.move_by(0.0, -self.leading);
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
        let Transform { scale, shift } = self.transform;
        (self.at.x * scale.0 + shift.0, self.at.y * scale.1 + shift.1)
    }

    fn set(&mut self, place: TextMatrix) {
        self.line = place;
        self.at = place;
    }

    fn move_by(&mut self, x: f32, y: f32) {
        let scale = self.line.scale;
        self.set(TextMatrix {
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

    /// Writes a line break or a space, by the distance from the last glyph.
    fn separate(&mut self) {
        let em = (self.em() * self.transform.scale.0.abs()).max(1.0);
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

/// The estimated width of a glyph, in em.
fn width(c: char) -> f32 {
    match c {
        'i' | 'j' | 'l' | '\'' | '|' | '!' | '.' | ',' | ':' | ';' | 'I' => 0.25,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | ' ' | '-' | '/' => 0.31,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 0.85,
        'A'..='Z' => 0.69,
        _ => 0.54,
    }
}
