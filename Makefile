# Commands for users and developers. Needs python3 (3.11 or newer), make and a package index, nothing else.
#
#   make run           serve on http://127.0.0.1:8000 with sample data; HOST=, PORT= and WORKERS= change that
#   make test          run the tests of functions, database, HTTP and admin; ARGS= is passed to pytest
#   make test-sdk      run those of the SDK alone, in an environment without Django
#   make test-system   run those with processes, servers, wheels, browsers and the SDKs of others
#   make lint          check style, types and migrations
#   make fuzz          send many generated requests to every operation of the API, EXAMPLES= of each kind, and run the property
#                      tests with 25 times as many examples
#   make lock          compile all lock files; PACKAGE= upgrades one package. Needs uv
#   make sbom          list what a server consists of, in CycloneDX, from requirements-server.lock into SBOM=
#   make audit         look up known vulnerabilities of the packages in the lock files: ARGS='--vulnerability-service osv'
#   make screenshots   take the pictures of README and docs from the sample traces; needs Debian's chromium
#   make setup         make .venv as requirements.lock says, the first step of all others; LOCK=requirements-server.lock
#                      suffices to serve
#   make reset         delete the embedded database of this directory
#
# CONTRIBUTING.md has what takes longer.

HOST ?= 127.0.0.1
PORT ?= 8000
WORKERS ?= 1
ARGS ?=
EXAMPLES ?= 50
LOCK ?= requirements.lock
SBOM ?= dist/tracesite.cdx.json
PACKAGE ?=

PYTHON := .venv/bin/python
INSTALLED := .venv/installed.lock

.PHONY: run test test-sdk test-system compile fuzz lint sbom audit screenshots setup venv sdks lock reset

# A server needs a third of the packages that the tests need.
run: LOCK = requirements-server.lock
run: setup
	@$(PYTHON) manage.py serve --demo --host $(HOST) --port $(PORT) --workers $(WORKERS)

test: setup
	@$(PYTHON) -m pytest -n 3 --maxschedchunk 100 -m 'not system' $(ARGS)

test-sdk: export PYTHONPATH := $(CURDIR)/sdk
test-sdk: .sdks/alone/installed.lock
	@.sdks/alone/bin/python -m pytest -c sdk/pyproject.toml --rootdir . sdk/tests $(ARGS)

test-system: setup sdks
	@$(PYTHON) -m pytest -n 3 --maxschedchunk 100 -m system $(ARGS)

# Whatever each process of the tests would compile by itself.
compile: setup
	@output=$$($(PYTHON) -m pytest --collect-only --quiet 2>&1) || { echo "$$output"; exit 1; }

fuzz: setup
	@FUZZ_EXAMPLES=$(EXAMPLES) $(PYTHON) -m pytest -n 2 tests/tracesite/http/test_api_contract.py $(ARGS)
	@TEST_EXAMPLES=25 $(PYTHON) -m pytest -n 2 --timeout 3600 $$(grep -rl 'hypothesis\|import.*examples' tests sdk/tests --include='test_*.py') $(ARGS)

# Commands that need the settings but no data use the tests' database.
lint: export TRACESITE_DATA_DIR := .tracesite/test
lint: setup
	$(PYTHON) -m ruff check
	$(PYTHON) -m ruff format --check
	DATABASE_URL=postgresql://unused $(PYTHON) -m mypy
	$(PYTHON) manage.py makemigrations --check --dry-run

sbom: .sdks/audit/installed.lock
	@mkdir -p $(dir $(SBOM))
	@.sdks/audit/bin/cyclonedx-py requirements requirements-server.lock --pyproject pyproject.toml --mc-type application \
		--output-reproducible --output-file $(SBOM)
	@echo 'Wrote $(SBOM).'

# Fails also if the advisories cannot be reached.
audit: .sdks/audit/installed.lock
	@for lock in requirements.lock requirements-server.lock requirements-sdk.lock requirements-audit.lock; do \
		.sdks/audit/bin/pip-audit --strict --disable-pip --require-hashes --progress-spinner off -r $$lock $(ARGS) || exit 1; \
	done

screenshots: setup
	@$(PYTHON) docs/screenshots.py

reset: setup
	@printf 'This deletes all data of the embedded database for good. Type yes to go on: '; \
	read answer && [ "$$answer" = yes ] || { echo 'Nothing was deleted.'; exit 1; }; \
	$(PYTHON) -m tracesite.serving.embedded_postgres reset

# Packages must match the hashes in the lock file; then both distributions are installed as they are in this tree, with its command
# `tracesite`. The copy of the lock file is written last and marks a complete installation; the whole lock file has the server's.
# The distribution's Python is preferred because it is compiled with profile-guided optimisation, which most self-compiled ones
# are not: a server then uses a sixth less CPU (docs/benchmarks.md).
setup: venv
	@if ! cmp -s requirements.lock $(INSTALLED) && ! cmp -s $(LOCK) $(INSTALLED); then \
		echo 'Installing $(LOCK) into .venv ...'; \
		$(PYTHON) -m pip install --disable-pip-version-check --no-deps --require-hashes -r $(LOCK) && \
		$(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --no-index --no-build-isolation -e sdk -e . && \
		cp $(LOCK) $(INSTALLED); \
	fi

venv:
	@if ! $(PYTHON) -c '' 2>/dev/null; then \
		for python in /usr/bin/python3 python3.13 python3.12 python3.11 python3; do \
			$$python -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && found=$$python && break; \
		done; \
		if [ -z "$$found" ]; then \
			echo 'Tracesite needs Python 3.11 or newer with venv: no python3 found here is that.' >&2; \
			echo 'On Debian and Ubuntu: apt install python3-venv' >&2; \
			exit 1; \
		fi; \
		echo "Making .venv with $$($$found --version) ..."; \
		$$found -m venv --clear .venv || exit 1; \
	fi

# Each environment below .sdks has versions that fit together. `installed.lock` marks a complete installation.
SDK_LOCKS := $(wildcard tests/tracesite/sdks/requirements/*.lock)
sdks: setup .sdks/audit/installed.lock $(SDK_LOCKS:tests/tracesite/sdks/requirements/%.lock=.sdks/%/installed.lock) $(if $(shell command -v npm),.sdks/node/installed.json .sdks/eko/installed.json)

# The pip of .venv installs into them, because to install pip into each takes 5 s.
.sdks/%/installed.lock: tests/tracesite/sdks/requirements/%.lock | venv
	@echo 'Installing $< into .sdks/$* ...'
	@$(PYTHON) -m venv --clear --without-pip .sdks/$*
	@$(PYTHON) -m pip --python .sdks/$* install --quiet --disable-pip-version-check --no-deps --use-pep517 -r $<
	@cp $< $@

.sdks/audit/installed.lock: requirements-audit.lock
.sdks/alone/installed.lock: requirements-sdk.lock
.sdks/audit/installed.lock .sdks/alone/installed.lock: | venv
	@echo 'Installing $< into $(@D) ...'
	@$(PYTHON) -m venv --clear --without-pip $(@D)
	@$(PYTHON) -m pip --python $(@D) install --quiet --disable-pip-version-check --no-deps --require-hashes -r $<
	@cp $< $@

.sdks/node/installed.json: tests/tracesite/sdks/requirements/node/package-lock.json
.sdks/eko/installed.json: integrations/eko/package-lock.json
.sdks/node/installed.json .sdks/eko/installed.json:
	@echo 'Installing $< into $(@D) ...'
	@mkdir -p $(@D) && cp $(<D)/package.json $(<D)/package-lock.json $(@D)/
	@cd $(@D) && npm ci --silent --no-audit --no-fund --ignore-scripts
	@cp $< $@

# The lock files of server and SDK are compiled from copies of the whole one, so that all pin the same versions.
COMPILE := uv pip compile --quiet --universal --python-version 3.11 --no-annotate --no-header
HASHED := $(COMPILE) --generate-hashes --no-emit-package tracesite-sdk
lock:
	$(HASHED) pyproject.toml --group dev $(if $(PACKAGE),--upgrade-package $(PACKAGE)) -o requirements.lock
	cp requirements.lock requirements-server.lock
	$(HASHED) pyproject.toml --group build -o requirements-server.lock
	cp requirements.lock requirements-sdk.lock
	$(HASHED) sdk/pyproject.toml --group sdk/pyproject.toml:test -o requirements-sdk.lock
	$(HASHED) --group audit -o requirements-audit.lock
	for lock in $(SDK_LOCKS); do $(COMPILE) $${lock%.lock}.in -o $$lock; done
