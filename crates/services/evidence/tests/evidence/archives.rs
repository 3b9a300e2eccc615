//! Archives: valid ones are accepted, invalid ones leave nothing behind.

use std::io::{Cursor, Write};

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};
use zip::{CompressionMethod, write::SimpleFileOptions};

use crate::support::{Fixture, job_archive, manifest, zip_archive};

const ROWS: &[&[&str]] = &[&["a.pdf"]];

/// The archive is rejected, the response names the entry, and nothing is stored.
async fn assert_rejected(fixture: &Fixture, archive: Vec<u8>, entry: &str, reason: &str) {
    let (status, problem) = fixture.post_zip(archive).await;
    assert!(status.is_client_error(), "{entry}: {status} {problem}");
    assert_eq!(problem["entry"], entry, "{problem}");
    let said = problem["errors"][0]["reason"].as_str().unwrap();
    assert!(said.contains(reason), "{entry}: {said}");
    assert_nothing_stored(fixture).await;
}

async fn assert_nothing_stored(fixture: &Fixture) {
    assert_eq!(fixture.stored_files(), Vec::<std::path::PathBuf>::new());
    for sql in [
        "select count(*) from evidence.file_job",
        "select count(*) from evidence.file_job_row",
        "select count(*) from evidence.file_job_artifact",
        "select count(*) from postrider.outbox",
    ] {
        assert_eq!(fixture.scalar::<i64>(sql).await, 0, "{sql}");
    }
}

fn with_manifest(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let text = manifest(ROWS);
    let mut all: Vec<(&str, &[u8])> = vec![("manifest.csv", text.as_bytes())];
    all.extend_from_slice(entries);
    zip_archive(&all)
}

#[tokio::test]
async fn entries_with_hostile_names_are_rejected() {
    let fixture = Fixture::new().await;
    for name in [
        "../evil.pdf",
        "/etc/passwd",
        "x/../../y",
        "c:\\x",
        "a\\b",
        "x//y",
        "./x",
    ] {
        assert_rejected(
            &fixture,
            with_manifest(&[("a.pdf", b"x"), (name, b"x")]),
            name,
            "name",
        )
        .await;
    }
}

#[tokio::test]
async fn manifest_and_archive_must_match() {
    let fixture = Fixture::new().await;
    assert_rejected(
        &fixture,
        with_manifest(&[]),
        "a.pdf",
        "missing from the archive",
    )
    .await;
    let extra = with_manifest(&[("a.pdf", b"x"), ("b.pdf", b"x")]);
    assert_rejected(&fixture, extra, "b.pdf", "isn't listed").await;
    assert_rejected(
        &fixture,
        zip_archive(&[("a.pdf", b"x")]),
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
        let archive = zip_archive(&[("manifest.csv", text.as_bytes()), ("a.pdf", b"x")]);
        assert_rejected(&fixture, archive, "manifest.csv", reason).await;
    }
    let formula = manifest(ROWS).replace("R0", "=cmd|' /C calc'!A0");
    let archive = zip_archive(&[("manifest.csv", formula.as_bytes()), ("a.pdf", b"x")]);
    assert_rejected(&fixture, archive, "manifest.csv", "formula").await;
    let latin = [manifest(ROWS).as_bytes(), b"\xe4,\xf6,\xfc\n"].concat();
    let archive = zip_archive(&[("manifest.csv", &latin), ("a.pdf", b"x")]);
    assert_rejected(&fixture, archive, "manifest.csv", "not UTF-8").await;
}

#[tokio::test]
async fn zip_bombs_are_rejected_before_unpacking() {
    let fixture = Fixture::with(
        json!({ "ingest": { "max_ratio": 100, "max_unpacked": "8MiB", "max_file": "6MiB" } }),
    )
    .await;
    let zeros = vec![0; 5 << 20];
    assert_rejected(
        &fixture,
        with_manifest(&[("a.pdf", &zeros)]),
        "a.pdf",
        "times its size",
    )
    .await;
    let large = random_bytes(7 << 20);
    assert_rejected(
        &fixture,
        with_manifest(&[("a.pdf", &large)]),
        "a.pdf",
        "larger than",
    )
    .await;
    let half = random_bytes(5 << 20);
    let both = with_manifest(&[("a.pdf", &half), ("b.pdf", &half)]);
    assert_rejected(&fixture, both, "b.pdf", "makes the archive larger").await;
}

#[tokio::test]
async fn entry_with_a_wrong_size_removes_everything_stored_before() {
    let fixture = Fixture::new().await;
    let text = manifest(&[&["a.pdf", "b.pdf", "c.pdf"]]);
    let content = random_bytes(2 << 20);
    let mut archive = zip_archive(&[
        ("manifest.csv", text.as_bytes()),
        ("a.pdf", b"small"),
        ("b.pdf", &content),
        ("c.pdf", b"last"),
    ]);
    // The directory declares one byte less than there is.
    let actual = u32::try_from(content.len()).unwrap().to_le_bytes();
    let wrong = u32::try_from(content.len() - 1).unwrap().to_le_bytes();
    let at = archive
        .windows(4)
        .rposition(|bytes| bytes == actual)
        .unwrap();
    archive[at..at + 4].copy_from_slice(&wrong);
    assert_rejected(&fixture, archive, "b.pdf", "larger than").await;
}

#[tokio::test]
async fn damaged_entry_is_detected_while_unpacking() {
    let fixture = Fixture::new().await;
    let content = random_bytes(3 << 20);
    let mut archive = with_manifest(&[("a.pdf", &content)]);
    let middle = archive.len() / 2;
    archive[middle] ^= 0x40;
    assert_rejected(&fixture, archive, "a.pdf", "damaged").await;
}

#[tokio::test]
async fn truncated_archives_and_other_files_are_rejected() {
    let fixture = Fixture::new().await;
    let whole = job_archive(ROWS);
    assert_rejected(
        &fixture,
        whole[..whole.len() - 10].to_vec(),
        "archive",
        "truncated",
    )
    .await;
    assert_rejected(
        &fixture,
        whole[..whole.len() / 2].to_vec(),
        "archive",
        "truncated",
    )
    .await;
    assert_rejected(&fixture, b"hello".to_vec(), "archive", "isn't a ZIP").await;
    assert_rejected(&fixture, Vec::new(), "archive", "isn't a ZIP").await;
}

#[tokio::test]
async fn duplicate_entry_names_are_rejected() {
    let fixture = Fixture::new().await;
    // The writer doesn't allow it: rename an entry afterwards.
    let mut archive = with_manifest(&[("a.pdf", b"x"), ("b.pdf", b"y")]);
    while let Some(at) = archive.windows(5).position(|bytes| bytes == b"b.pdf") {
        archive[at..at + 5].copy_from_slice(b"a.pdf");
    }
    assert_rejected(&fixture, archive, "a.pdf", "twice").await;
}

#[tokio::test]
async fn links_and_encrypted_entries_are_rejected() {
    let fixture = Fixture::new().await;
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default();
    zip.start_file("manifest.csv", options).unwrap();
    zip.write_all(manifest(ROWS).as_bytes()).unwrap();
    zip.add_symlink("a.pdf", "/etc/passwd", options).unwrap();
    let linked = zip.finish().unwrap().into_inner();
    assert_rejected(&fixture, linked, "a.pdf", "link").await;

    let mut archive = with_manifest(&[("a.pdf", b"secret")]);
    // The flag of the second entry in the directory.
    let at = archive
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    archive[at + 8] |= 1;
    assert_rejected(&fixture, archive, "a.pdf", "encrypted").await;
}

#[tokio::test]
async fn too_many_entries_are_rejected_without_reading_them() {
    let fixture = Fixture::new().await;
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    for n in 0..100_000 {
        zip.start_file(format!("f{n}"), options).unwrap();
    }
    let archive = zip.finish().unwrap().into_inner();
    assert_rejected(&fixture, archive, "archive", "100000 entries").await;
}

#[tokio::test]
async fn oversized_archive_is_rejected_while_it_is_received() {
    let fixture = Fixture::with(json!({ "ingest": { "max_archive": "64KiB" } })).await;
    let (status, problem) = fixture
        .post_zip(with_manifest(&[("a.pdf", &random_bytes(200 << 10))]))
        .await;
    assert_eq!(
        (status, &problem["code"]),
        (StatusCode::PAYLOAD_TOO_LARGE, &json!("body-too-large"))
    );
    assert_nothing_stored(&fixture).await;
}

#[tokio::test]
async fn multipart_form_is_accepted_like_a_plain_archive() {
    let fixture = Fixture::new().await;
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
        fixture.call(Method::POST, "/file-jobs", media, body).await
    };
    let archive = job_archive(&[&["a.pdf", "b.pdf"]]);
    for (fields, field) in [
        (vec![("file", archive.as_slice())], "merchant_id"),
        (vec![("merchant_id", b"m-1".as_slice())], "file"),
        (vec![("merchant", b"m-1".as_slice())], "merchant"),
    ] {
        let (status, problem): (_, Value) = post(form(&fields)).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{problem}");
        assert_eq!(problem["errors"][0]["field"], field);
    }
    assert_nothing_stored(&fixture).await;
    let (status, answer) = post(form(&[("merchant_id", b"m-1"), ("file", &archive)])).await;
    assert_eq!(status, StatusCode::ACCEPTED, "{answer}");
    assert_eq!(
        (&answer["rows"], &answer["artifacts"]),
        (&json!(1), &json!(2))
    );
    let cut = form(&[("merchant_id", b"m-1"), ("file", &archive)]);
    let (status, _) = post(cut[..cut.len() - 30].to_vec()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let (status, _) = fixture
        .call(
            Method::POST,
            "/file-jobs?merchant_id=m",
            Some("text/plain"),
            archive,
        )
        .await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
}

/// Bytes that can't be compressed.
fn random_bytes(size: usize) -> Vec<u8> {
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
