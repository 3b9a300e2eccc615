# The same commands for people and for CI. `make` alone lists them.

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help setup build demo test verify check bench screenshots fmt alerts openapi clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: ## install what is missing (PostgreSQL; for tests NATS, RabbitMQ, Kafka, PgBouncer, Chromium, promtool, schemathesis)
	@scripts/setup

build: ## build the program
	@scripts/setup program
	$(CARGO) build --locked -p postrider-cli

demo: build ## show what it does; ends by itself
	@$(TARGET)/debug/postrider demo

test: setup ## run all tests against real servers
	@scripts/test

verify: setup ## the long proof under crashes, for hours (docs/verification.md has its figures)
	POSTRIDER_MODEL=long $(CARGO) test --locked -p postrider --test model -- --show-output
	POSTRIDER_STORM=10000 POSTRIDER_TEST_EVIDENCE=1000 $(CARGO) test --locked -p postrider-cli --test program -- payments_storm evidence_crashes
	POSTRIDER_PROOF=long $(CARGO) test --locked -p postrider --test proof -- --show-output

check: ## formatting and lints, as strict as CI
	$(CARGO) fmt --all --check
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings

bench: setup ## measure against peers and the limit (QUICK=1 SCENARIO=drain PEERS=ours,pgmq ROUNDS=5)
	$(CARGO) build --locked --release -p postrider-cli -p postrider-bench
	@$(TARGET)/release/postrider-bench

screenshots: setup ## take the pictures of docs/console.md anew, which takes as long as the charts show (MINUTES=15)
	mkdir -p docs/console
	POSTRIDER_PICTURES=$(CURDIR)/docs/console POSTRIDER_PICTURES_MINUTES=$(or $(MINUTES),15) $(CARGO) test --locked -p postrider-cli --test program console::pictures

fmt: ## format the code
	$(CARGO) fmt --all

alerts: ## write deploy/alerts.yml and its tests anew
	WRITE=1 $(CARGO) test --locked -q -p postrider-cli --test program -- alert_rules

openapi: ## write docs/openapi.json anew
	$(CARGO) run --locked -q -p postrider-cli -- openapi > docs/openapi.json.new
	mv docs/openapi.json.new docs/openapi.json

clean: ## remove everything that was built
	$(CARGO) clean
