use postrider_web::ErrorCatalogue;
use postrider_web::error_code::{ErrorCode, codes};

use crate::support::{bytes, call, default_middleware, get, problem_summary};

#[test]
fn every_code_has_a_page_that_explains_it() {
    for code in codes::ALL {
        let kebab = code
            .code
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b == b'-');
        assert!(kebab, "{}", code.code);
        let title = format!("# {}\n", code.code);
        assert!(code.page.starts_with(&title), "{}", code.code);
        let status = format!("Status {} ", code.status.as_u16());
        assert!(code.page.contains(&status), "{}: {status}", code.code);
        for section in ["## What it means", "## Why it happens", "## What to do"] {
            assert!(code.page.contains(section), "{}: {section}", code.code);
        }
    }
}

#[test]
fn a_duplicate_code_is_rejected() {
    let error = ErrorCatalogue::new([&[codes::NOT_FOUND][..]]).unwrap_err();
    assert!(error.to_string().contains("not-found"));
}

#[tokio::test]
async fn the_page_of_a_problem_is_served_where_its_type_points() {
    const OWN: ErrorCode = ErrorCode {
        code: "own-code",
        page: "# own-code\n",
        ..codes::NOT_FOUND
    };
    let catalogue = ErrorCatalogue::new([&[OWN][..]]).unwrap();
    let router = default_middleware(catalogue.routes());
    for code in codes::ALL.iter().chain([&OWN]) {
        let response = call(&router, get(&code.uri())).await;
        assert_eq!(response.status(), 200);
        assert_eq!(bytes(response).await, code.page.as_bytes());
    }
    let list = String::from_utf8(bytes(call(&router, get("/errors")).await).await).unwrap();
    assert_eq!(list.lines().count(), codes::ALL.len() + 1);
    let missing = problem_summary(call(&router, get("/errors/nonsense")).await).await;
    assert_eq!(missing, (404, "not-found".to_owned(), None));
}
