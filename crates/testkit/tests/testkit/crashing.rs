use postrider_crashpoint::{Injected, point};
use postrider_testkit::crash;

async fn work() -> Result<(), Injected> {
    point!("kit.before")?;
    point!("kit.after")
}

#[tokio::test]
async fn a_test_can_visit_all_crash_points_of_a_crate() {
    let declared = crash::declared_in(concat!(env!("CARGO_MANIFEST_DIR"), "/tests"));
    assert_eq!(declared, ["kit.after", "kit.before"]);
    for point in &declared {
        let trap = crash::at(point).error();
        assert_eq!(work().await.unwrap_err().point(), point);
        assert_eq!(trap.fired(), 1);
    }
    work().await.unwrap();
    let seen: Vec<&str> = crash::seen().into_keys().collect();
    assert_eq!(seen, declared);
}
