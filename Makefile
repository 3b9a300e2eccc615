# Commands for people and CI. `make` lists them.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test verify check deny bench screenshots fmt alerts openapi clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install missing tools (PostgreSQL; for tests NATS, RabbitMQ, Kafka, PgBouncer, Chromium, promtool, schemathesis)
	@scripts/setup

build: ## build the program
	@scripts/setup program
	$(CARGO) build --locked -p postrider-cli

demo: build ## run the demo, about a minute
	@$(TARGET)/debug/postrider demo

test: setup ## run all tests against real servers
	@scripts/test

verify: setup ## run the long crash tests, for hours (docs/verification.md)
	POSTRIDER_MODEL=long $(CARGO) test --locked -p postrider --test model -- --show-output
	POSTRIDER_STORM=10000 POSTRIDER_TEST_EVIDENCE=1000 $(CARGO) test --locked -p postrider-cli --test program -- payments_storm evidence_crashes
	POSTRIDER_PROOF=long $(CARGO) test --locked -p postrider --test proof -- --show-output

check: ## check formatting, lints and documentation
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps

deny: ## check licences, banned crates and sources of dependencies (needs cargo-deny)
	$(CARGO) deny check licenses bans sources

bench: setup ## compare with other systems (QUICK=1 SCENARIO=drain PEERS=ours,pgmq ROUNDS=5)
	$(CARGO) build --locked --release -p postrider-cli -p postrider-bench
	@$(TARGET)/release/postrider-bench

screenshots: setup ## regenerate the pictures of docs/console.md (MINUTES=15 of load)
	mkdir -p docs/console
	POSTRIDER_PICTURES=$(CURDIR)/docs/console POSTRIDER_PICTURES_MINUTES=$(or $(MINUTES),15) $(CARGO) test --locked -p postrider-cli --test program console::pictures

fmt: ## format the code
	$(CARGO) fmt --all

alerts: ## regenerate deploy/alerts.yml and its tests
	WRITE=1 $(CARGO) test --locked -q -p postrider-cli --test program -- alert_rules

openapi: ## regenerate docs/openapi.json
	$(CARGO) run --locked -q -p postrider-cli -- openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

clean: ## remove build artifacts
	$(CARGO) clean
