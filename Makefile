# Every command a person needs; `make help` lists them. The lines with ## are its text.

PYTHON ?= /usr/bin/python3
PREFIX ?= /opt/joblens
BINDIR ?= /usr/bin
# Where HTCondor has its helpers, and the last of its configuration folders: the site's.
LIBEXEC ?= $(or $(shell condor_config_val LIBEXEC 2>/dev/null),/usr/libexec/condor)
CONFIGDIR ?= $(or $(lastword $(subst $(comma), ,$(shell condor_config_val LOCAL_CONFIG_DIR 2>/dev/null))),/etc/condor/config.d)
# What this machine is for HTCondor: an execute node (ep), an access point (ap), or both.
daemons = $(shell condor_config_val DAEMON_LIST 2>/dev/null)
ROLES ?= $(if $(or $(DESTDIR),$(daemons)),$(if $(or $(DESTDIR),$(findstring STARTD,$(daemons))),ep) \
	$(if $(or $(DESTDIR),$(findstring SCHEDD,$(daemons))),ap),ep ap)
# Client libraries of sinks to install besides: kafka,opensearch,otlp; Kafka's other compressions: compression
EXTRAS ?=
# Wheels for `make install`: a file that `make bundle` made elsewhere, if it is not in dist/; yes: fetch them from the network
BUNDLE ?=
ONLINE ?=
# For which Pythons to make bundles: 3.9,3.11
PYTHONS ?= $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])')
# The test layers to run: each is a folder of tests/.
LAYERS ?= unit fuzzers browser kernel guest pool service
# yes: every core is kept busy while the tests run
BUSY ?=
# What `make fuzz` takes: how many examples a property-based test, a seed of an earlier run, and seconds for each fuzzer
EXAMPLES ?= 2000
SEED ?=
SECONDS ?= 30

# Everything that is kept between runs and is not the checkout's.
cache := $(or $(JOBLENS_CACHE),$(if $(filter 0,$(shell id -u)),/var/cache,$(HOME)/.cache)/condor_joblens)
export JOBLENS_CACHE := $(cache)
export PYTHON

comma := ,
# These are also written in the programs that read them.
data := /usr/share/joblens
site := /etc/joblens
state := /var/lib/joblens
sysusers := /usr/lib/sysusers.d
completions := /usr/share/bash-completion/completions
version := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' condor_joblens/__init__.py)
wheel := dist/condor_joblens-$(version)-cp39-abi3-linux_$(shell uname -m).whl
objects := $(addprefix condor_joblens/tracer/objects/,$(patsubst %.c,%.o,$(notdir $(wildcard bpf_programs/*/*.bpf.c))))
compiled := build
activate := $(compiled)/joblens_activate
# What is loaded into Pythons of jobs that ask for it.
python_hooks := $(compiled)/joblens_python.so $(compiled)/joblens_calls.so
environments := $(cache)/python/$(shell cat setup.cfg pyproject.toml tests/dependencies | sha256sum | cut -c1-8)
build_venv := $(environments)-build
test_venv := $(environments)-test
uv_venv := $(cache)/python/uv-0.13.9
bpf_architecture := $(patsubst aarch64,arm64,$(patsubst x86_64,x86,$(shell uname -m)))
bpf_cpu := v2

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Installing has an order: no step may overtake another.
.NOTPARALLEL:
.PHONY: help build bundle lock install uninstall demo pool pool-stop pool-site check test soak fuzz test-kernels test-hub test-aarch64 test-python test-env lint bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo '  Settings: PREFIX=$(PREFIX) DESTDIR= SUITE= (Debian suite of the pool) LAYERS="$(LAYERS)" JOBLENS_CACHE=$(cache)'

# --- Building: BPF objects, the wheel with its two C modules, and the wrapper's helper ---

build: $(wheel) $(activate) $(python_hooks) ## compile everything (as root it installs the compilers that are missing)

$(build_venv)/complete:
	@tests/dependencies build $(@D)

$(test_venv)/complete:
	@tests/dependencies test $(@D)

# All objects lie in one folder, so the names of the sources are unique.
vpath %.bpf.c $(wildcard bpf_programs/*)
condor_joblens/tracer/objects/%.bpf.o: %.bpf.c $(wildcard bpf_programs/*/*.h) | $(build_venv)/complete
	@echo "Compiling $<"
	@mkdir -p $(@D)
	@clang -O2 -g -Wall -Werror -target bpf -mcpu=$(bpf_cpu) -D__TARGET_ARCH_$(bpf_architecture) -I bpf_programs/lib -c $< -o $@
	@llvm-strip -g $@

# Atomic exchanges, which kernels have from 5.12 on: on others the recorder is missing, and nothing else. Traces need
# Linux 6.6 in any case.
$(addprefix condor_joblens/tracer/objects/,recorder.bpf.o calls.bpf.o commands.bpf.o throws.bpf.o): bpf_cpu := v3

# Programs that are compiled once more, for other kernels.
$(addprefix condor_joblens/tracer/objects/,switch_reads.bpf.o syscalls_reads.bpf.o fuse_channels.bpf.o $(addsuffix _old.bpf.o,sample waits crash)): $(addprefix bpf_programs/,io/switch.bpf.c io/syscalls.bpf.c servers/fuse.bpf.c $(addprefix profile/,sample.bpf.c waits.bpf.c crash.bpf.c))

# Every job waits for this one: with musl it starts in a third of the time, and not every machine has a static libc.
$(activate): hooks/joblens_activate.c | $(build_venv)/complete
	@echo "Compiling $<"
	@mkdir -p $(@D)
	@for with in 'musl-gcc -static' '$(CC) -static' '$(CC)'; do \
		$$with -O2 -Wall -Wextra -Werror -o $@ $< 2>$@.log && exit; \
	done; cat $@.log; exit 1

# One file serves the Pythons of all jobs: the limited API of 3.6, and nothing of a C library that is newer than jobs' containers.
$(python_hooks): $(compiled)/%.so: hooks/python/%.c $(wildcard hooks/python/*.h) | $(build_venv)/complete
	@echo "Compiling $<"
	@mkdir -p $(@D)
	@$(CC) -O2 -Wall -Wextra -Werror -Wno-missing-field-initializers -shared -fPIC -fvisibility=hidden \
		-I"$$($(build_venv)/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')" -o $@ $<

# One wheel serves every Python from 3.9 on; the modules are left in the checkout too, where the tests import them.
$(wheel): $(objects) $(shell find condor_joblens -name '*.py' -o -name '*.h') setup.cfg setup.py pyproject.toml | $(build_venv)/complete
	@echo "Building $@"
	@rm -rf build/lib* build/bdist*
	@$(build_venv)/bin/python setup.py --quiet build_ext --inplace
	@$(build_venv)/bin/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation -w $(@D) .
	@touch $@

# --- What is installed besides: pinned in requirements/, and wheels alone ---

bundle: $(wheel) $(activate) $(python_hooks) ## put the wheels for `make install` on nodes without a network into dist/ (PYTHONS=3.9,3.11 EXTRAS=kafka,otlp,htcondor)
	@$(build_venv)/bin/python -B requirements/bundle.py $(wheel) $(cache)/wheels '$(PYTHONS)' '$(EXTRAS)'

lock: $(uv_venv)/bin/uv ## pin the newest versions that setup.cfg allows, with hashes, in requirements/
	@UV=$< UV_NATIVE_TLS=true $(PYTHON) -B requirements/lock.py

$(uv_venv)/bin/uv:
	@$(PYTHON) -m venv $(uv_venv)
	@$(uv_venv)/bin/pip install --quiet --disable-pip-version-check --only-binary :all: $(subst -,==,$(notdir $(uv_venv)))

# --- Installing: what an administrator runs on an execute node or an access point ---

install: check-install install-users install-python install-files install-hooks install-config ## install on this machine, for its HTCondor (DESTDIR: only stage the files)
	@$(if $(DESTDIR),echo 'Staged in $(DESTDIR)',echo 'Done. Now: condor_reconfig (running jobs go on; condor_q shows those that start after it), then: joblens doctor')

# Nothing is begun that could not be ended.
.PHONY: check-install
check-install:
	@test -f $(wheel) && test -f $(activate) && $(foreach each,$(python_hooks),test -f $(each) &&) true || { echo 'install: nothing is built here yet: run make build first'; exit 1; }
	@test -n '$(DESTDIR)' || test "$$(id -u)" = 0 || { echo 'install: this writes to system folders: run it as root'; exit 1; }
	@test -n '$(DESTDIR)' || command -v condor_config_val >/dev/null || { echo 'install: condor_config_val is not found: install HTCondor first'; exit 1; }
	@$(pinned) check $(wheel) $(PREFIX)

# put MODE,FILE,TARGET: a running file is replaced by a rename, never written over or missing for a moment.
define put
install -D -m $(1) $(2) $(DESTDIR)$(3).new && mv -f $(DESTDIR)$(3).new $(DESTDIR)$(3)
endef

.PHONY: install-users
install-users:
	@$(call put,644,hooks/joblens.sysusers,$(sysusers)/joblens.conf)
ifndef DESTDIR
	@echo 'The system users joblens, joblens-policy, joblens-files, joblens-door, joblens-relay and joblens-agent, with their groups'
	@if command -v systemd-sysusers >/dev/null; then systemd-sysusers joblens.conf; else \
		getent group joblens >/dev/null || groupadd --system joblens; \
		getent passwd joblens >/dev/null || useradd --system -g joblens -d /nonexistent -s /usr/sbin/nologin joblens; \
		for user in joblens-policy joblens-files joblens-door joblens-relay joblens-agent; do \
			getent passwd $$user >/dev/null || useradd --system -U -d /nonexistent -s /usr/sbin/nologin $$user; \
		done; \
	fi
endif

# Everybody can read what is installed, and root alone change it, whatever umask root has.
for_all = umask 022

# The distribution's htcondor2 and classad2 are those that fit its HTCondor: the venv sees them. Only where there are none, PyPI's.
pinned = DESTDIR='$(DESTDIR)' EXTRAS='$(EXTRAS)' BUNDLE='$(BUNDLE)' ONLINE='$(ONLINE)' $(PYTHON) -B requirements/install.py
.PHONY: install-python
# An environment that can't be filled is taken away again, if it was not there before.
install-python:
	@echo 'The Python environment in $(DESTDIR)$(PREFIX)'
	@$(for_all); had=no; test ! -e $(DESTDIR)$(PREFIX) || had=yes; \
	{ test -x $(DESTDIR)$(PREFIX)/bin/python || $(PYTHON) -m venv --system-site-packages $(DESTDIR)$(PREFIX); } && \
	$(pinned) install $(wheel) $(PREFIX) || { test $$had = yes || rm -rf $(DESTDIR)$(PREFIX); exit 1; }
ifdef DESTDIR
	@grep -rlIF '$(DESTDIR)' $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/pyvenv.cfg | xargs -r sed -i 's|$(DESTDIR)||g'
endif

.PHONY: install-files
install-files:
	@echo 'Policies, print formats, rules and dashboards in $(DESTDIR)$(data), the command joblens in $(DESTDIR)$(BINDIR)'
	@$(foreach policy,$(wildcard lua_policies/*.* lua_policies/examples/* lua_policies/triggers/*),$(call put,644,$(policy),$(data)/$(policy:lua_%=%)) &&) true
	@$(foreach format,$(wildcard condor_config.d/print_formats/*),$(call put,644,$(format),$(data)/print_formats/$(notdir $(format))) &&) true
	@$(call put,644,docs/prometheus/joblens.rules.yml,$(data)/prometheus/joblens.rules.yml)
	@$(call put,644,docs/alerts.md,$(data)/prometheus/alerts.md)
	@$(call put,644,docs/grafana/joblens.json,$(data)/grafana/joblens.json)
	@$(foreach file,$(wildcard docs/opensearch/*.*),$(call put,644,$(file),$(data)/opensearch/$(notdir $(file))) &&) true
	@$(foreach file,$(wildcard docs/ask/*.c),$(call put,644,$(file),$(data)/ask/$(notdir $(file))) &&) true
	@$(call put,755,docs/opensearch/delete_old_indices,$(data)/opensearch/delete_old_indices)
	@$(foreach unit,$(wildcard docs/systemd/*.service),$(call put,644,$(unit),$(data)/systemd/$(notdir $(unit))) &&) true
	@$(call put,644,condor_config.d/60-joblens-relay.conf.example,$(data)/60-joblens-relay.conf.example)
	@$(call put,644,condor_config.d/60-joblens-eventlog.conf.example,$(data)/60-joblens-eventlog.conf.example)
	@$(call put,644,docs/completion/joblens.bash,$(completions)/joblens)
	@install -d $(DESTDIR)$(site)/policies.d $(DESTDIR)$(site)/triggers.d $(DESTDIR)$(BINDIR)
	@$(foreach command,joblens joblens-hub,ln -sfn $(PREFIX)/bin/$(command) $(DESTDIR)$(BINDIR)/$(command) &&) true

# The hooks name the Python that runs them. The wrapper that the site has now is written down for ours to run: never ourselves.
hooks := joblens_wrapper joblens_publish joblensd joblens-export joblens-door joblens-relay joblens-eventlog
.PHONY: install-hooks
install-hooks:
	@echo "The hooks in HTCondor's $(DESTDIR)$(LIBEXEC)"
	@$(foreach hook,$(hooks),install -D -m 755 hooks/$(hook) $(DESTDIR)$(LIBEXEC)/$(hook).new && \
		sed -i 's|/opt/joblens|$(PREFIX)|g' $(DESTDIR)$(LIBEXEC)/$(hook).new && mv -f $(DESTDIR)$(LIBEXEC)/$(hook).new $(DESTDIR)$(LIBEXEC)/$(hook) &&) true
	@$(call put,755,$(activate),$(LIBEXEC)/joblens_activate)
	@$(foreach folder,joblens_python joblens_python_calls,$(call put,644,$(compiled)/joblens_python.so,$(LIBEXEC)/$(folder)/joblens_python.so) && \
		$(call put,644,hooks/python/sitecustomize.py,$(LIBEXEC)/$(folder)/sitecustomize.py) &&) true
	@$(call put,644,$(compiled)/joblens_calls.so,$(LIBEXEC)/joblens_python_calls/joblens_calls.so)
ifndef DESTDIR
	@$(for_all); wrapper=$$(condor_config_val -subsystem STARTER USER_JOB_WRAPPER 2>/dev/null); \
	if [ -z "$$wrapper" ]; then rm -f $(site)/chained_wrapper; \
	elif [ "$$(readlink -f "$$wrapper")" != "$$(readlink -f $(LIBEXEC)/joblens_wrapper)" ]; then \
		printf '%s\n' "$$wrapper" >$(site)/chained_wrapper.new && mv -f $(site)/chained_wrapper.new $(site)/chained_wrapper; \
	fi
endif

# Last: a configuration that names a wrapper which is not there makes jobs restart for ever.
.PHONY: install-config
install-config:
	@$(foreach role,$(ROLES),echo 'The configuration $(DESTDIR)$(CONFIGDIR)/50-joblens-$(role).conf' && \
		$(call put,644,condor_config.d/50-joblens-$(role).conf,$(CONFIGDIR)/50-joblens-$(role).conf) &&) true
ifeq ($(DESTDIR)$(filter ep,$(ROLES)),ep)
	@wrapper=$$(condor_config_val -subsystem STARTER USER_JOB_WRAPPER 2>/dev/null); \
	if [ -n "$$wrapper" ] && [ "$$(readlink -f "$$wrapper")" != "$$(readlink -f $(LIBEXEC)/joblens_wrapper)" ]; then \
		at=$$(condor_config_val -v -subsystem STARTER USER_JOB_WRAPPER 2>/dev/null | sed -n 's/^ *# at: //p'); \
		echo "USER_JOB_WRAPPER = $$wrapper ($$at) overrides 50-joblens-ep.conf: take that line away, so that ours runs it, then condor_reconfig"; \
	elif [ -n "$$wrapper" ] && [ -s $(site)/chained_wrapper ]; then \
		echo "The site's job wrapper $$(cat $(site)/chained_wrapper) goes on: ours runs it (noted in $(site)/chained_wrapper)"; \
	fi
endif

# Of our users alone: any other can call a process as ours are called.
our_processes = pgrep -u "root,$$(getent passwd joblens joblens-policy joblens-files joblens-door joblens-relay joblens-agent condor | cut -d: -f1 | paste -sd,)" -f '^[^ ]*python[^ ]* .*-m condor_joblens\.(agent|owner_files|export|publish|accesspoint|relay|eventlog)'
uninstall: ## take everything of ours away again; running jobs go on
	@test "$$(id -u)" = 0 || { echo 'uninstall: this changes system folders: run it as root'; exit 1; }
	@echo 'The configuration first; HTCondor then stops joblensd by itself'
	@rm -f $(CONFIGDIR)/50-joblens-ep.conf $(CONFIGDIR)/50-joblens-ap.conf $(CONFIGDIR)/60-joblens-door.conf $(CONFIGDIR)/60-joblens-relay.conf $(CONFIGDIR)/60-joblens-eventlog.conf
	@! pgrep -x condor_master >/dev/null || condor_reconfig
	@for _ in $$(seq 30); do $(our_processes) >/dev/null || break; sleep 1; done
	@! $(our_processes) >/dev/null || { echo 'uninstall: joblensd still runs after 30 s: look into its log, then call this again'; exit 1; }
	@rm -rf $(PREFIX) $(data) $(BINDIR)/joblens $(BINDIR)/joblens-hub $(sysusers)/joblens.conf $(completions)/joblens /run/joblens $(state)-agent
	@! test -d /sys/fs/bpf/joblens || rmdir --ignore-fail-on-non-empty /sys/fs/bpf/joblens
	@rm -f $(addprefix $(LIBEXEC)/,$(filter-out joblens_wrapper,$(hooks)) joblens_activate)
	@rm -rf $(LIBEXEC)/joblens_python $(LIBEXEC)/joblens_python_calls
	@if pgrep -af '^condor_starter ' | grep -qv -e -classad; then \
		echo 'Left: $(LIBEXEC)/joblens_wrapper, for starters that were told of it before. Call this again when their jobs have ended.'; \
	else \
		rm -f $(LIBEXEC)/joblens_wrapper $(site)/chained_wrapper; \
		rmdir $(site)/policies.d $(site)/triggers.d $(site) 2>/dev/null; \
		test ! -d $(site) || echo "Left: the site's own files in $(site)"; \
	fi
	@test ! -d $(state) || echo 'Left: $(state), with what sinks have not delivered and files that they wrote'
	@echo 'Left: the system users joblens, joblens-policy, joblens-files, joblens-door, joblens-relay and joblens-agent (userdel NAME)'

# --- A real pool on this machine ---

pool: check-pool build ## start an HTCondor pool of one machine with the product in it (SUITE=trixie: HTCondor 23.9)
	@tests/dependencies pool && tests/pool/start && tests/pool/install
	@echo 'The pool runs. A command in it: tests/pool/run --as alice condor_q    The end of it: make pool-stop'

pool-stop: ## end that pool
	@tests/pool/stop

pool-site: check-pool build $(test_venv)/complete ## start an access point with a relay server, and a node behind NAT, until Ctrl-C: to try commands from afar and entries
	@tests/dependencies pool && $(testing) PYTHONPATH=. python tests/pool/site.py

.PHONY: check-pool
check-pool:
	@tests/pool/check

demo: ## show the product at work in such a pool, and clean up (HUB=yes: with the hub's pages for a browser)
	@PATH="$(build_venv)/bin:$$PATH" tests/pool/demo

# --- Checking ---

# The test environment's commands come first, and every core is used.
testing = PATH="$(test_venv)/bin:$$PATH"

check: lint ## what to run after each change: lint and the quick unit tests, in a minute
	@QUICK=yes $(MAKE) --no-print-directory test LAYERS=unit

test: build $(test_venv)/complete ## run every test (LAYERS="unit kernel" for some, BUSY=yes with every core kept busy)
	@$(testing) BUSY=$(BUSY) tests/layers $(LAYERS)

soak: build $(test_venv)/complete ## run the long storms, and then every test with every core kept busy (hours)
	@$(testing); export PATH; failed=; SOAK=yes tests/layers $(LAYERS) || failed=yes; BUSY=yes tests/layers $(LAYERS) || failed=yes; test -z "$$failed"

fuzz: build $(test_venv)/complete ## run property-based tests with EXAMPLES random examples each, and each fuzzer for SECONDS; findings become tests
	@$(testing) EXAMPLES=$(EXAMPLES) SEED=$(SEED) FUZZ_SECONDS=$(SECONDS) tests/fuzz

test-kernels: build $(test_venv)/complete ## run the kernel's tests under Debian's 5.10, 6.1, 6.12 and newest kernel
	@$(testing) GUEST_SUITES="bullseye bookworm trixie sid" GUEST_TESTS=marked tests/layers guest

test-hub: build $(test_venv)/complete ## run the browser layer with every page of the hub, theme, width and hostile text, and schemathesis for longer
	@$(testing) HUB_WHOLE=yes tests/layers browser
	@$(testing) HUB_WHOLE=yes python -m pytest -q tests/service/test_hub_openapi.py

test-aarch64: build $(test_venv)/complete ## run tests of the kernel and the unit layer on aarch64, in an emulated machine (GUEST_TESTS=marked: all such kernel tests)
	@$(testing) tests/layers aarch64

test-python: build $(test_venv)/complete ## run the unit tests under Python 3.9, the oldest that a node may have (Debian bullseye's)
	@python=$$(tests/python39) && $(testing) PYTHONPATH=. PYTEST="$$python -m pytest" tests/layers unit

test-env: ## print the folder of the test environment, and make it first if it is missing
	@$(MAKE) --no-print-directory $(test_venv)/complete >&2
	@echo $(test_venv)

lint: $(test_venv)/complete ## check the style, types and prose of everything
	@$(test_venv)/bin/ruff check .
	@$(test_venv)/bin/ruff format --quiet --check .
	@$(test_venv)/bin/mypy
	@said=$$(PYTHONPATH=. $(test_venv)/bin/lint-imports --no-cache) || { echo "$$said"; exit 1; }
	@tests/prose
	@shellcheck -x -P SCRIPTDIR $$(git grep -lE '^#!/bin/(ba)?sh' -- ':!*.py' ':!*.md')

bench: build $(test_venv)/complete ## measure what it costs (benchmarks/)
	@for benchmark in $(sort $(wildcard benchmarks/bench_*.py)); do $(test_venv)/bin/python $$benchmark || missed="$$missed $$benchmark"; done; \
		$(test_venv)/bin/python benchmarks/report.py; \
		[ -z "$$missed" ] || { echo "Targets missed in:$$missed"; exit 1; }

clean: ## remove what was built (the cache of pools and environments stays: $JOBLENS_CACHE)
	@rm -rf build dist *.egg-info condor_joblens/tracer/objects condor_joblens/*/_*.abi3.so condor_joblens/*/_*.[co]
	@find . -name __pycache__ -prune -exec rm -rf {} +
