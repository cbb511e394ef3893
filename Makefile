# Every target sets up what it needs: a fresh clone, Python 3.11 or newer, make and the network are enough.
#
#   make demo        a stream that is killed and read again; installs little
#   make chat        a chat in the browser, on SQLite (examples/chat_server); needs Node and npm, too (ARGS="--port 9000 --model …")
#   make ui          a page over a store that examples/filled fills for it, in which two chats go on (ARGS="--port 9000")
#   make test        what proves a change (tests/lanes.py), on SQLite and on Postgres; then the newest frameworks and the browser.
#                    With ARGS, every test that they choose. Where no Postgres can be had it fails; POSTGRES=skip leaves its tests out
#   make test-quick  a part of it, in three quarters of a minute on two cores: rules for the code, and of contracts and units what
#                    needs no server and takes less than a sixteenth of a second (tests/not_quick.txt names the rest), on SQLite,
#                    through the synchronous face
#   make torture     kills, full disks, lost servers, odd values: under ten minutes (ARGS="--seconds 60", ARGS="--seed 7 NAME")
#   make lint        ruff, mypy, import-linter, and whether each planted fault can still be planted
#   make docs        the site on this machine, made anew when a page changes; `make docs-build` makes it strictly, in build/site
#   make bench       the benchmarks, other libraries among them: writes docs/benchmarks.md (ARGS="recording …" only prints these)
#   make bench-quick a look at the most important ones, under two minutes
#   make test-integrations      only the tests of the integrations with frameworks: their newest releases together, then the oldest
#                    that each extra allows alone, in an environment of its own
#   make test-browser           only the tests of that chat in Chromium, which Debian's package chromium has; needs Node and npm, too
#   make test-all    everything: each face of a store on each database, kills, all kept files, the integrations whole, every other
#                    Python found (PYTHONS="python3.12 …" to choose), the oldest dependencies that pyproject.toml allows
#   make test-faults fifty planted faults, and whether the tests find them (ARGS="workflows", ARGS="-- --lane")
#   make clean       removes what these made

PYTHON ?= python3
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
VENV ?= .venv
ARGS ?=
# Test processes side by side, each with a Postgres of its own unless PERSIST_TEST_POSTGRES_URL names one. JOBS=0 is none but make's.
JOBS ?= auto

# A worker that is done takes tests over from one that is not. Where the environment has Python write no bytecode, that of the
# tests is kept beside their interpreter: compiling them takes three times as long as collecting them does.
PYTEST_OPTIONS = -n $(JOBS) --dist worksteal --durations 15
# Options that choose tests choose among all of them, and not among those of the lane.
LANE ?= $(if $(ARGS),,--lane)
kept_bytecode = $(if $(PYTHONDONTWRITEBYTECODE),env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(abspath $(1))/bytecode )
pytest = $(call kept_bytecode,$(1))$(1)/bin/python -m pytest

BIN := $(VENV)/bin
DEMO_READY := $(VENV)/.ready-demo
DEV_READY := $(VENV)/.ready-dev
LOWEST := .venv-lowest
LOWEST_READY := $(LOWEST)/.ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/.ready
# The newest releases of all frameworks, together: with them the tests of everything else would not show what is missing.
FRAMEWORKS := $(VENV)-integrations
FRAMEWORKS_READY := $(FRAMEWORKS)/.ready
FRAMEWORKS_EXTRAS := postgres,cli,ui,test,langgraph,openai-agents,pydantic-ai,claude-agent-sdk,google-adk,mcp,a2a,test-integrations
# The newest of what cannot stand beside the others.
APART := pydantic-ai-harness
APART_READY := $(APART:%=$(VENV)-newest-%/.ready)
APART_FOLDERS := $(foreach extra,$(APART),tests/integrations/$(subst -,_,$(extra)))
# The oldest release that an extra allows, alone: it shows that the extra names all that its integration needs.
FLOORS := langgraph openai-agents pydantic-ai pydantic-ai-harness claude-agent-sdk google-adk mcp a2a
CONFORMANCE_KIT_langgraph := langgraph-checkpoint-conformance
FLOOR_READY := $(FLOORS:%=$(VENV)-floor-%/.ready)
# The site of docs/, which is made from the source without importing a framework.
DOCS := $(VENV)-docs
DOCS_READY := $(DOCS)/.ready
# What a person needs who tries the chat, and its page, bundled.
CHAT := $(VENV)-chat
CHAT_READY := $(CHAT)/.ready
PAGE := examples/chat_server/page
PAGE_READY := $(PAGE)/dist/page.js
PAGE_PACKAGES := $(PAGE)/node_modules/.ready
# The store of `make ui`, which is filled once.
FILLED := build/filled.db
FILLED_LOGS := build/filled-logs
PIP := -m pip --disable-pip-version-check --quiet
CORES = $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
VERSION_OF = -c 'import sys; print("%d.%d" % sys.version_info[:2])'

.PHONY: demo chat ui chat-screenshot ui-pictures test test-quick test-newest test-browser test-integrations test-apart test-floors test-faults frameworks newest test-all test-lowest torture lint docs docs-build bench bench-quick clean
.NOTPARALLEL:

# The full environment can run the demo too, so the small one is only made when there is none.
demo: $(if $(wildcard $(DEV_READY)),$(DEV_READY),$(DEMO_READY))
	$(BIN)/python examples/demo.py $(ARGS)

chat: $(CHAT_READY) $(PAGE_READY)
	$(CHAT)/bin/python -m examples.chat_server $(ARGS)

# Those who talk hear of the end by their process's id, and Ctrl-C is for the page: the shell goes on to tell them.
ui: $(DEV_READY)
	@mkdir -p $(FILLED_LOGS)
	@test -e $(FILLED) || $(BIN)/python -m examples.filled --no-talk --session-logs $(FILLED_LOGS) $(FILLED)
	@$(BIN)/python -m examples.filled $(FILLED) > /dev/null & talking=$$!; trap : INT TERM; \
	$(BIN)/persist ui $(FILLED) --session-logs $(FILLED_LOGS) $(ARGS); code=$$?; kill $$talking 2>/dev/null; wait $$talking; exit $$code

# Options that choose tests choose among everything but the integrations and the browser's, which have options of their own.
test: $(DEV_READY) $(if $(ARGS),,test-newest test-browser)
	$(call pytest,$(VENV)) $(PYTEST_OPTIONS) $(LANE) $(WAYS) $(ARGS)

test-quick: $(DEV_READY)
	$(call pytest,$(VENV)) $(PYTEST_OPTIONS) --quick tests/unit tests/architecture tests/contract $(ARGS)

test-integrations: LANE :=
test-integrations: test-newest $(if $(ARGS),,test-floors)

test-newest: $(FRAMEWORKS_READY) $(if $(ARGS),,test-apart)
	$(call pytest,$(FRAMEWORKS)) $(PYTEST_OPTIONS) $(LANE) $(WAYS) tests/integrations $(addprefix --ignore=,$(APART_FOLDERS)) $(ARGS)

# What these start in each process takes longer than most of their tests.
test-apart test-browser: JOBS := $(if $(filter auto,$(JOBS)),$(CORES),$(JOBS))
test-browser: $(FRAMEWORKS_READY) $(PAGE_READY)
	$(call pytest,$(FRAMEWORKS)) $(PYTEST_OPTIONS) $(LANE) $(WAYS) tests/browser $(ARGS)

test-faults: $(DEV_READY)
	$(BIN)/python -m tests.planted_faults $(ARGS)

# The picture of the README.
chat-screenshot: $(FRAMEWORKS_READY) $(PAGE_READY)
	$(FRAMEWORKS)/bin/python -m tests.browser.screenshot docs/chat-server.png

# Those of the pages, in README and docs.
ui-pictures: $(FRAMEWORKS_READY)
	$(FRAMEWORKS)/bin/python -m tests.browser.ui.pictures docs/pictures

test-apart: $(APART_READY)
	@for extra in $(APART); do \
		echo "== the newest $$extra"; \
		$(call pytest,$(VENV)-newest-$$extra) $(PYTEST_OPTIONS) $(LANE) tests/integrations/$$(echo $$extra | tr - _) $(ARGS) || exit 1; \
	done

# An old release may differ in its interfaces, not in what a database, a face or another process makes of them. Each release has
# a process of its own, and there are as many at once as there are cores; each says what it has to say when it ends.
test-floors: $(FLOOR_READY)
	@printf '%s\n' $(FLOORS) | ARGS="$(ARGS)" xargs -P $(CORES) -I EXTRA sh -c 'eval "set -- $$ARGS"; said=$$( \
		$(call pytest,$(VENV)-floor-EXTRA) --quick tests/integrations/$$(echo EXTRA | tr - _) "$$@" 2>&1); \
		code=$$?; printf "== the oldest EXTRA\n%s\n" "$$said"; exit $$code'

torture: $(DEV_READY)
	$(BIN)/python -m tests.torture $(ARGS)

lint: $(DEV_READY) $(FRAMEWORKS_READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --exclude '^((persist|tests)/integrations|tests/browser)/'
	$(BIN)/mypy --platform win32 --cache-dir .mypy_cache/win32 --exclude '^persist/integrations/' persist
	$(BIN)/mypy --python-executable $(FRAMEWORKS)/bin/python persist/integrations tests/integrations tests/browser
	$(BIN)/lint-imports
	$(BIN)/python -m tests.planted_faults --check

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs serve $(ARGS)

# A link that leads nowhere ends it, and so does a page that would load anything from elsewhere.
docs-build: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/python -m mkdocs build --quiet
	$(DOCS)/bin/python -m website.built build/site

bench: $(PEERS_READY)
	$(PEERS)/bin/python -m benchmarks $(or $(ARGS),--page)

bench-quick: $(DEV_READY)
	$(BIN)/python -m benchmarks --quick $(ARGS)

# A name on the path is no interpreter yet: version managers leave stubs there that only print an error.
test-all: WAYS := --every-way
test-all: LANE :=
test-all: test test-floors
	@done=$$($(BIN)/python $(VERSION_OF)); \
	for python in $(PYTHONS); do \
		version=$$($$python $(VERSION_OF) 2>/dev/null) || { echo "== $$python: not found, left out"; continue; }; \
		case " $$done " in *" $$version "*) continue;; esac; \
		echo "== Python $$version"; \
		$(MAKE) --no-print-directory test LANE= PYTHON=$$python VENV=.venv-$$version || exit 1; \
		done="$$done $$version"; \
	done
	@echo "== lowest direct dependencies"
	@$(MAKE) --no-print-directory test-lowest LANE=

test-lowest: $(LOWEST_READY)
	$(call pytest,$(LOWEST)) $(PYTEST_OPTIONS) $(LANE) $(ARGS)

$(DEMO_READY): pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) install --editable ".[cli]"
	@touch $@

$(DEV_READY): pyproject.toml | $(BIN)/python
	$(BIN)/python $(PIP) install --editable ".[postgres,cli,test,lint]"
	@touch $@

$(CHAT_READY): pyproject.toml examples/chat_server/requirements.txt
	@$(CREATE_VENV) $(CHAT)
	$(CHAT)/bin/python $(PIP) install --editable ".[postgres,pydantic-ai]" --requirement examples/chat_server/requirements.txt
	@touch $@

$(PAGE_PACKAGES): $(PAGE)/package.json
	@command -v npm > /dev/null || { \
		echo "The page of the chat needs Node and npm; on Debian and Ubuntu install the packages nodejs and npm." >&2; exit 1; }
	cd $(PAGE) && npm install --no-package-lock --no-audit --no-fund --loglevel=error
	@touch $@

$(PAGE_READY): $(PAGE_PACKAGES) $(wildcard $(PAGE)/*.jsx $(PAGE)/*.js $(PAGE)/*.css)
	cd $(PAGE) && npm run --silent build

# All environments of frameworks; each is made once.
frameworks: newest $(FLOOR_READY)

newest: $(FRAMEWORKS_READY) $(APART_READY)

$(FRAMEWORKS_READY): pyproject.toml
	@$(CREATE_VENV) $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python $(PIP) install --editable ".[$(FRAMEWORKS_EXTRAS)]"
	@touch $@

$(DOCS_READY): pyproject.toml
	@$(CREATE_VENV) $(DOCS)
	$(DOCS)/bin/python $(PIP) install --editable ".[docs,ui]"
	@touch $@

# What the benchmarks compare with stays out of the environment of the tests.
$(PEERS_READY): pyproject.toml benchmarks/peers.txt
	@$(CREATE_VENV) --clear $(PEERS)
	$(PEERS)/bin/python $(PIP) install --editable ".[bench]" --requirement benchmarks/peers.txt
	@touch $@

# Lower bounds are promised for the oldest Python, which is the only one that all of them have wheels for.
$(LOWEST_READY) $(FLOOR_READY): PYTHON = $(shell python3.11 -c "" 2>/dev/null && echo python3.11 || echo python3)
$(LOWEST_READY): pyproject.toml
	$(call CREATE_LOWEST,$(LOWEST),--editable ".[postgres$(COMMA)cli$(COMMA)test]")
	@touch $@

$(APART_READY): $(VENV)-newest-%/.ready: pyproject.toml
	@$(CREATE_VENV) --clear $(VENV)-newest-$*
	$(VENV)-newest-$*/bin/python $(PIP) install uv
	$(call INSTALL,$(VENV)-newest-$*,--editable ".[postgres$(COMMA)cli$(COMMA)test$(COMMA)$*]")
	@touch $@

$(FLOOR_READY): $(VENV)-floor-%/.ready: pyproject.toml
	$(call CREATE_LOWEST,$(VENV)-floor-$*,$$($(REQUIREMENTS_OF) $*))
	$(call INSTALL,$(VENV)-floor-$*,--editable ".[postgres$(COMMA)cli$(COMMA)test]" $(CONFORMANCE_KIT_$*))
	@touch $@

COMMA := ,
REQUIREMENTS_OF = $(PYTHON) -c 'import sys, tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"][sys.argv[1]])'
# pip cannot resolve to the oldest versions.
define INSTALL
UV_PYTHON_DOWNLOADS=never UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true $(1)/bin/uv pip install --quiet --cache-dir .venv-cache --python $(1)/bin/python $(2)
endef
define CREATE_LOWEST
@$(CREATE_VENV) --clear $(1)
$(1)/bin/python $(PIP) install uv
$(call INSTALL,$(1),--resolution lowest-direct $(2))
endef

$(BIN)/python:
	@$(CREATE_VENV) $(VENV)

define CREATE_VENV
$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	echo "persist needs Python 3.11 or newer, and $(PYTHON) is missing or older." >&2; \
	echo "Name another one: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }; \
$(PYTHON) -c 'import ensurepip, venv' || { \
	echo "$(PYTHON) cannot make virtual environments; on Debian and Ubuntu install the package python3-venv." >&2; exit 1; }; \
$(PYTHON) -m venv
endef

clean:
	rm -rf .venv .venv-* $(PAGE)/node_modules $(PAGE)/dist dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find persist tests alembic examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
