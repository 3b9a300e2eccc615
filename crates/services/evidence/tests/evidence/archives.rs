//! Archives: what is taken, and what is refused without a trace.

use std::io::{Cursor, Write};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use zip::{CompressionMethod, write::SimpleFileOptions};

use crate::support::{House, archive_of, manifest, zip_of};

const ROWS: &[&[&str]] = &[&["a.pdf"]];

/// It is refused, the entry is named, and nothing is left behind.
async fn refused(house: &House, archive: Vec<u8>, entry: &str, reason: &str) {
    let (status, problem) = house.post_zip(archive).await;
    assert!(status.is_client_error(), "{entry}: {status} {problem}");
    assert_eq!(problem["entry"], entry, "{problem}");
    let said = problem["errors"][0]["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{entry}: {said}");
    nothing_left(house).await;
}

async fn nothing_left(house: &House) {
    assert_eq!(house.stored(), Vec::<std::path::PathBuf>::new());
    for sql in [
        "select count(*) from evidence.file_job",
        "select count(*) from evidence.file_job_row",
        "select count(*) from evidence.file_job_artifact",
        "select count(*) from postrider.outbox",
    ] {
        assert_eq!(house.scalar::<i64>(sql).await, 0, "{sql}");
    }
}

fn with_manifest(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let text = manifest(ROWS);
    let mut all: Vec<(&str, &[u8])> = vec![("manifest.csv", text.as_bytes())];
    all.extend_from_slice(entries);
    zip_of(&all)
}

#[tokio::test]
async fn hostile_names_are_refused() {
    let house = House::new().await;
    for name in [
        "../evil.pdf",
        "/etc/passwd",
        "x/../../y",
        "c:\\x",
        "a\\b",
        "x//y",
        "./x",
    ] {
        refused(
            &house,
            with_manifest(&[("a.pdf", b"x"), (name, b"x")]),
            name,
            "name",
        )
        .await;
    }
}

#[tokio::test]
async fn what_the_manifest_and_the_archive_say_must_agree() {
    let house = House::new().await;
    refused(&house, with_manifest(&[]), "a.pdf", "not in the archive").await;
    let extra = with_manifest(&[("a.pdf", b"x"), ("b.pdf", b"x")]);
    refused(&house, extra, "b.pdf", "named by no row").await;
    refused(
        &house,
        zip_of(&[("a.pdf", b"x")]),
        "manifest.csv",
        "missing",
    )
    .await;
    for (text, reason) in [
        ("case_id,files\n", "header"),
        ("case_id,reference,files\n", "no rows"),
        (
            "case_id,reference,files\nnot-a-uuid,R,a.pdf\n",
            "line 2, column case_id",
        ),
    ] {
        let archive = zip_of(&[("manifest.csv", text.as_bytes()), ("a.pdf", b"x")]);
        refused(&house, archive, "manifest.csv", reason).await;
    }
    let formula = manifest(ROWS).replace("R0", "=cmd|' /C calc'!A0");
    let archive = zip_of(&[("manifest.csv", formula.as_bytes()), ("a.pdf", b"x")]);
    refused(&house, archive, "manifest.csv", "formula").await;
    let latin = [manifest(ROWS).as_bytes(), b"\xe4,\xf6,\xfc\n"].concat();
    let archive = zip_of(&[("manifest.csv", &latin), ("a.pdf", b"x")]);
    refused(&house, archive, "manifest.csv", "not UTF-8").await;
}

#[tokio::test]
async fn bombs_are_refused_before_they_are_unpacked() {
    let house = House::with(
        json!({ "ingest": { "max_ratio": 100, "max_unpacked": "8MiB", "max_file": "6MiB" } }),
    )
    .await;
    let zeros = vec![0; 5 << 20];
    refused(
        &house,
        with_manifest(&[("a.pdf", &zeros)]),
        "a.pdf",
        "times its size",
    )
    .await;
    let large = noise(7 << 20);
    refused(
        &house,
        with_manifest(&[("a.pdf", &large)]),
        "a.pdf",
        "larger than",
    )
    .await;
    let half = noise(5 << 20);
    let both = with_manifest(&[("a.pdf", &half), ("b.pdf", &half)]);
    refused(&house, both, "b.pdf", "makes the archive larger").await;
}

#[tokio::test]
async fn an_entry_that_lies_about_its_size_takes_what_was_stored_with_it() {
    let house = House::new().await;
    let text = manifest(&[&["a.pdf", "b.pdf", "c.pdf"]]);
    let content = noise(2 << 20);
    let mut archive = zip_of(&[
        ("manifest.csv", text.as_bytes()),
        ("a.pdf", b"small"),
        ("b.pdf", &content),
        ("c.pdf", b"last"),
    ]);
    // The list says one byte less than there is.
    let told = u32::try_from(content.len()).unwrap().to_le_bytes();
    let lie = u32::try_from(content.len() - 1).unwrap().to_le_bytes();
    let at = archive.windows(4).rposition(|bytes| bytes == told).unwrap();
    archive[at..at + 4].copy_from_slice(&lie);
    refused(&house, archive, "b.pdf", "larger than").await;
}

#[tokio::test]
async fn a_damaged_entry_is_found_while_it_is_unpacked() {
    let house = House::new().await;
    let content = noise(3 << 20);
    let mut archive = with_manifest(&[("a.pdf", &content)]);
    let middle = archive.len() / 2;
    archive[middle] ^= 0x40;
    refused(&house, archive, "a.pdf", "damaged").await;
}

#[tokio::test]
async fn archives_that_are_cut_off_or_none_at_all_are_refused() {
    let house = House::new().await;
    let whole = archive_of(ROWS);
    refused(
        &house,
        whole[..whole.len() - 10].to_vec(),
        "archive",
        "end is missing",
    )
    .await;
    refused(
        &house,
        whole[..whole.len() / 2].to_vec(),
        "archive",
        "end is missing",
    )
    .await;
    refused(&house, b"hello".to_vec(), "archive", "no ZIP").await;
    refused(&house, Vec::new(), "archive", "no ZIP").await;
}

#[tokio::test]
async fn a_name_that_stands_twice_is_refused() {
    let house = House::new().await;
    // The writer refuses to do it: rename an entry afterwards.
    let mut archive = with_manifest(&[("a.pdf", b"x"), ("b.pdf", b"y")]);
    while let Some(at) = archive.windows(5).position(|bytes| bytes == b"b.pdf") {
        archive[at..at + 5].copy_from_slice(b"a.pdf");
    }
    refused(&house, archive, "a.pdf", "twice").await;
}

#[tokio::test]
async fn links_and_encrypted_entries_are_refused() {
    let house = House::new().await;
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("manifest.csv", options).unwrap();
    zip.write_all(manifest(ROWS).as_bytes()).unwrap();
    zip.add_symlink("a.pdf", "/etc/passwd", options).unwrap();
    let linked = zip.finish().unwrap().into_inner();
    refused(&house, linked, "a.pdf", "link").await;

    let mut archive = with_manifest(&[("a.pdf", b"secret")]);
    // The flag in the list of entries: the second entry's.
    let at = archive
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    archive[at + 8] |= 1;
    refused(&house, archive, "a.pdf", "encrypted").await;
}

#[tokio::test]
async fn a_hundred_thousand_entries_are_refused_without_being_read() {
    let house = House::new().await;
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for n in 0..100_000 {
        zip.start_file(format!("f{n}"), options).unwrap();
    }
    let archive = zip.finish().unwrap().into_inner();
    refused(&house, archive, "archive", "100000 entries").await;
}

#[tokio::test]
async fn an_archive_that_is_too_large_is_refused_while_it_arrives() {
    let house = House::with(json!({ "ingest": { "max_archive": "64KiB" } })).await;
    let (status, problem) = house
        .post_zip(with_manifest(&[("a.pdf", &noise(200 << 10))]))
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("body-too-large"))
    );
    nothing_left(&house).await;
}

#[tokio::test]
async fn a_form_is_taken_like_the_archive_itself() {
    let house = House::new().await;
    let form = |fields: &[(&str, &[u8])]| {
        let mut body = Vec::new();
        for (name, value) in fields {
            let file = if *name == "file" {
                "; filename=\"e.zip\""
            } else {
                ""
            };
            body.extend_from_slice(
                format!("--XX\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n")
                    .as_bytes(),
            );
            body.extend_from_slice(value);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--XX--\r\n");
        body
    };
    let post = async |body| {
        let media = Some("multipart/form-data; boundary=XX");
        house.call(Method::POST, "/file-jobs", media, body).await
    };
    let archive = archive_of(&[&["a.pdf", "b.pdf"]]);
    for (fields, field) in [
        (vec![("file", archive.as_slice())], "merchant_id"),
        (vec![("merchant_id", b"m-1".as_slice())], "file"),
        (vec![("merchant", b"m-1".as_slice())], "merchant"),
    ] {
        let (status, problem): (_, Value) = post(form(&fields)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], field);
    }
    nothing_left(&house).await;
    let (status, answer) = post(form(&[("merchant_id", b"m-1"), ("file", &archive)])).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    assert_eq!(
        (&answer["rows"], &answer["artifacts"]),
        (&json!(1), &json!(2))
    );
    let cut = form(&[("merchant_id", b"m-1"), ("file", &archive)]);
    let (status, _) = post(cut[..cut.len() - 30].to_vec()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = house
        .call(
            Method::POST,
            "/file-jobs?merchant_id=m",
            Some("text/plain"),
            archive,
        )
        .await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// Bytes that can't be packed.
fn noise(size: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(size + 8);
    while bytes.len() < size {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}
