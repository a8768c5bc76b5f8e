# `make help` lists the targets.

SHELL       := /bin/sh
MODULE      := github.com/weftnet/weft
ifndef VERSION
VERSION      = $(eval VERSION := $$(shell tools/version.sh))$(VERSION)
endif
GO          ?= go
TOOL        := $(GO) tool -modfile=tools/go.mod
LDFLAGS      = -s -w -buildid= -X $(MODULE)/internal/version.version=$(VERSION) -X $(MODULE)/k8s/chart.repository=$(REGISTRY)/weft
BUILD        = $(GO) build -trimpath -ldflags "$(LDFLAGS)"
PROGRAMS    := weft-agent weft-cni weft-vswitch weftctl
BIN         ?= bin
NEEDED      := $(shell sed -n 's/^go //p' go.mod)
RACE         = $(shell [ "$$($(GO) env CGO_ENABLED 2>/dev/null)" = 1 ] && command -v $$($(GO) env CC) >/dev/null && echo -race)
PACKAGES    ?= ./...
N           ?= 100
FUZZTIME    ?= 10s
FUZZPROCS   ?=
ARCH        ?= amd64
REGISTRY    ?= localhost
IMAGE       ?= $(REGISTRY)/weft:$(VERSION)
DIST        ?= dist

comma       := ,

.DEFAULT_GOAL := help
.PHONY: help go version build examples image chart release reproducible peers modules test e2e vm-test verify format lint fmt tidy generated arrows density dead ratchet vet generate demo bench attack soak fuzz mutants clean
MAKEFLAGS   += --no-print-directory

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# Fails with one line if Go is missing or too old. Nothing else needs to be installed.
go:
	@command -v $(GO) >/dev/null 2>&1 || { echo "weft needs Go $(NEEDED) or newer, and there is no '$(GO)' here: see https://go.dev/doc/install" >&2; exit 1; }
	@have=$$($(GO) env GOVERSION 2>/dev/null | sed 's/^go//; s/[^0-9.].*//'); \
	lowest=$$(printf '%s\n%s\n' "$(NEEDED)" "$${have:-0}" | sort -V | head -n 1); \
	[ "$$lowest" = "$(NEEDED)" ] || { echo "weft needs Go $(NEEDED) or newer, and this is $$($(GO) version 2>/dev/null | cut -d' ' -f3): see https://go.dev/doc/install" >&2; exit 1; }

version: ## print the version of the sources: that of the programs, the image and the chart
	@echo $(VERSION)

build: go ## build bin/weft-agent, bin/weft-cni, bin/weft-vswitch, bin/weftctl, and the plugin bin/kubectl-weft with its completion, links
	@echo "build: $(PROGRAMS) $(VERSION)"
	@for program in $(PROGRAMS); do CGO_ENABLED=0 $(BUILD) -tags grpcnotrace -o $(BIN)/$$program ./cmd/$$program || exit 1; done
	@ln -sf weft-cni $(BIN)/weft-ipam
	@ln -sf weftctl $(BIN)/kubectl-weft
	@ln -sf weftctl $(BIN)/kubectl_complete-weft

examples: go ## build the example programs for pods, in bin/
	@CGO_ENABLED=0 $(BUILD) -o $(BIN)/ ./memif/examples/...

# $(call static,ARCH,DIRECTORY) builds static programs for an architecture.
static = for program in $(PROGRAMS); do CGO_ENABLED=0 GOOS=linux GOARCH=$(1) $(BUILD) -tags grpcnotrace -o $(2)/$$program ./cmd/$$program || exit 1; done

image: go ## make a container image, bin/weft-image-ARCH.tar, without a daemon (ARCH=amd64|arm64, IMAGE=name:tag)
	@$(call static,$(ARCH),bin/image/$(ARCH))
	@$(GO) run -C tools ./image -from $(CURDIR)/bin/image/$(ARCH) -arch $(ARCH) -name $(IMAGE) -o $(CURDIR)/bin/weft-image-$(ARCH).tar

chart: go ## package the Helm chart, bin/weft-VERSION.tgz, for the image of make image
	@rm -f bin/weft-*.tgz # of other versions: the pages install bin/weft-*.tgz
	@$(GO) run -C tools ./release -only chart -version $(VERSION) -repository $(REGISTRY)/weft -o $(CURDIR)/bin

release: go ## make programs, image, chart and SBOM for amd64 and arm64 in dist/, with checksums (REGISTRY=ghcr.io/OWNER, DIST=dir)
	@rm -rf $(DIST)
	@for arch in amd64 arm64; do $(call static,$$arch,$(DIST)/programs/$$arch); done
	@$(GO) run -C tools ./release -from $(abspath $(DIST))/programs -version $(VERSION) -repository $(REGISTRY)/weft \
		-time $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null),0) -o $(abspath $(DIST))
	@CGO_ENABLED=0 $(GO) run -trimpath -ldflags "$(LDFLAGS)" ./cmd/weftctl install --dry-run --offline >$(DIST)/install.yaml
	@rm -r $(DIST)/programs && cd $(DIST) && sha256sum * >SHA256SUMS && cat SHA256SUMS
	@$(GO) run -C tools ./release -verify -version $(VERSION) -repository $(REGISTRY)/weft -o $(abspath $(DIST))
	@echo "release: $(VERSION): checksums, images, versions of the programs and their modules in the SBOM are verified"

reproducible: ## make the release twice, in another directory and without cached results, and compare (takes minutes)
	@[ -z "$$(git status --porcelain)" ] || { echo "reproducible: the sources have changes: commit them first, because the second release is made from the commit" >&2; exit 1; }
	@$(MAKE) release DIST=dist/first >/dev/null
	@other=$$(mktemp -d) && trap 'chmod -R u+w "$$other"; rm -rf "$$other"' EXIT && git clone -q . "$$other/clone" && \
		$(MAKE) -C "$$other/clone" release VERSION=$(VERSION) DIST=$(CURDIR)/dist/second GOCACHE="$$other/cache" >/dev/null && \
		diff dist/first/SHA256SUMS dist/second/SHA256SUMS && echo "reproducible: $$(wc -l <dist/first/SHA256SUMS) files are the same"

peers: go ## unpack DPDK's testpmd and CNI plugins for the tests into the user's cache (WEFT_PEERS=installed: use installed ones only)
	@$(GO) run ./test/peers/prepare

# Tests build programs, some of them without network access.
modules: go ## download all modules: tests have no network
	@$(GO) list -m all >/dev/null
	@$(GO) list -C test/chain -deps tool >/dev/null || echo "tests that need the programs of test/chain will be skipped"

# Packages without goroutines, whose tests take ten times as long with the race detector.
SEQUENTIAL = /(policy|test/mutants)$$

# Most tests wait, so one package more than processors is tested at a time.
test: modules peers ## run all tests (PACKAGES=./... selects; WEFT_REQUIRE=root,netns,dpdk,plugins,chromium forbids skips; WEFT_VPP=PREFIX: on VPP, one test at a time)
	@$(if $(RACE),,echo "test: running without the race detector, because there is no C compiler";) out=$$(mktemp -d) && trap 'rm -rf "$$out"' EXIT && \
	options="-count=1 $(if $(WEFT_VPP),-p 1 -parallel 1 -timeout 40m,-p $$(($$(nproc) + 1)) -timeout 30m)" && \
	all=$$($(GO) list $(PACKAGES)) || exit 1; \
	plain=$$(echo "$$all" | grep -E '$(SEQUENTIAL)' || true); \
	raced=$$(echo "$$all" | grep -vE '$(SEQUENTIAL)' || true); \
	{ status=0; \
	if [ -n "$$raced" ]; then $(GO) test $(RACE) $$options $$raced || status=1; fi; \
	if [ -n "$$plain" ]; then $(GO) test $$options $$plain || status=1; fi; \
	for module in $(if $(filter ./...,$(PACKAGES)),test/admission test/multus test/ui tools); do $(GO) test -C $$module -count=1 ./... || status=1; done; \
	echo $$status >"$$out/status"; } | tee "$$out/log"; \
	echo "test: the slowest packages:"; \
	awk '($$1 == "ok" || $$1 == "FAIL") && $$3 ~ /s$$/ { printf "%8.1f s  %s\n", $$3, $$2 }' "$$out/log" | sort -rn | head -n 10; \
	exit "$$(cat "$$out/status")"
	@$(if $(and $(RACE),$(filter ./... ./vswitch/%,$(PACKAGES))),$(GO) test -count=1 -run TestMaliciousClients ./vswitch/forward) # truncates mapped memory, which the detector does not support

# VPP runs few tests at a time, because each of its threads supports 15 veths (docs/vpp.md).
e2e: build examples ## run pods on a real Kubernetes cluster in private namespaces (root; the first run builds Kubernetes; RUN=TestX selects; WEFT_VPP=PREFIX: on VPP)
	@$(MAKE) build BIN=bin/next VERSION=v9.9.9 PROGRAMS="weft-agent weft-cni" # for the upgrade test
	@$(GO) run -C test/e2e ./prepare
	@$(GO) test -C test/e2e -count=1 -timeout $(if $(WEFT_E2E_KEEP),0,$(if $(WEFT_VPP),45m,40m)) -parallel $(if $(WEFT_VPP),2,6) -v $(if $(RUN),-run '$(RUN)') ./...

vm-test: go ## run tests of taps, VLANs, SCTP, tunnels and hugepages in a virtual machine (root, qemu; WEFT_VPP=PREFIX; RUN=vlan,packets,tap,hugepages,workers,replay)
	@WEFT_VPP=$(WEFT_VPP) test/vm/suite $(subst $(comma), ,$(RUN))

verify: format lint vet tidy generated arrows density dead ## check format, lint, vet, modules, generated code, import rules, figures of density, dead functions
	@echo "verify: ok"

format: go ## check the format of the sources
	@echo "verify: format"
	@$(TOOL) golangci-lint fmt --diff

lint: go ## check the rules of CONVENTIONS.md with golangci-lint
	@echo "verify: lint"
	@$(TOOL) golangci-lint run --allow-parallel-runners
	@cd tools && $(GO) tool golangci-lint run --allow-parallel-runners

vet: go ## run go vet
	@echo "verify: vet"
	@$(GO) vet ./...
	@$(GO) vet -C tools ./...

tidy: go ## check that go.mod and go.sum are tidy
	@echo "verify: modules"
	@$(GO) mod tidy -diff

generated: go ## check that generated code and docs/reference are up to date
	@echo "verify: generated code"
	@new=$$(mktemp -d) && trap 'rm -rf "$$new"' EXIT && $(TOOL) buf generate -o "$$new" && \
	for package in k8s/api/v1 k8s/api/npwg k8s/api/adminpolicy; do mkdir -p "$$new/$$package" && \
		$(TOOL) controller-gen object paths=./$$package output:object:dir="$$new/$$package" || exit 1; done && \
	$(TOOL) controller-gen crd paths=./k8s/api/v1 output:crd:dir="$$new/k8s/chart/weft/files/crds" && \
	(cd "$$new" && find . -type f) | while read -r file; do \
		diff -u "$$file" "$$new/$$file" || { echo "$$file is outdated: run make generate" >&2; exit 1; }; done
	@$(GO) run -C tools ./reference -check $(CURDIR)

arrows: go ## check properties of the whole repository, such as the import rules
	@echo "verify: arrows"
	@$(GO) test -count=1 . >/dev/null || $(GO) test -count=1 .

density: go ## check that the figures of tools/ratchet have not grown (PLACES=1: print what they count)
	@echo "verify: density"
	@$(GO) run -C tools ./ratchet $(if $(PLACES),-places) $(CURDIR)

# Package memif is a library: programs outside of the repository call functions that no program here calls.
dead: go ## check that the programs reach each function of the product
	@echo "verify: dead functions"
	@dead=$$($(TOOL) deadcode -f '{{if ne .Name "memif"}}{{range .Funcs}}{{println .Position .Name}}{{end}}{{end}}' \
		./cmd/... ./memif/examples/... ./memif/echo ./k8s/chart/render) || exit 1; \
	[ -z "$$dead" ] || { echo "$$dead"; echo "no program calls these functions: delete them, or move them to the tests that call them" >&2; exit 1; }

ratchet: go ## write the figures of tools/ratchet
	@$(GO) run -C tools ./ratchet -write $(CURDIR)

generate: go ## generate code and docs/reference from the .proto files, the API types, the chart and the sources
	@$(TOOL) buf lint && $(TOOL) buf generate
	@for package in k8s/api/v1 k8s/api/npwg k8s/api/adminpolicy; do $(TOOL) controller-gen object paths=./$$package output:object:dir=$$package || exit 1; done
	@$(TOOL) controller-gen crd paths=./k8s/api/v1 output:crd:dir=k8s/chart/weft/files/crds
	@$(GO) run ./k8s/chart/render
	@$(GO) run -C tools ./reference $(CURDIR)

fmt: go ## format the sources
	@$(TOOL) golangci-lint fmt

# With WEFT_VPP=PREFIX, the prefix of an installed VPP, demo, test and bench run on it instead of weft-vswitch.
demo: build examples ## run a demo with five pods in a private network namespace (KEEP=1 keeps it running; RECORD=FILE: a recording as asciicast; WEFT_VPP=PREFIX: on VPP)
	@$(GO) run ./test/demo $(if $(KEEP),-keep) $(if $(RECORD),-record $(RECORD))

bench: build peers ## measure ADD and DEL, traffic between pods, memif in comparison with DPDK (N=100 ONLY=cni,traffic,memif,versus,replay,replace,audit,observe,policy,slope,limits)
	@$(GO) run ./test/bench -n $(N) $(if $(ONLY),-only $(ONLY))

attack: build ## run hostile pods against a private node, and print the effects (FOR=10s ONLY=close,sparse; DEDICATED=1: a dedicated processor for the dataplane; AGAINST=COMMIT: an older version first; SIEGE=20000 SEED=1: random calls and kills)
	@$(if $(AGAINST),src=$$(mktemp -d) && trap 'rm -rf "$$src"' EXIT && git archive $(AGAINST) | tar x -C "$$src" && cd "$$src" && CGO_ENABLED=0 $(GO) build -o "$(CURDIR)/bin/against/" ./cmd/...)
	@$(GO) run ./test/attack $(if $(FOR),-for $(FOR)) $(if $(ONLY),-only $(ONLY)) $(if $(DEDICATED),-dedicated) $(if $(AGAINST),-against bin/against) $(if $(SIEGE),-siege $(SIEGE)) $(if $(SEED),-seed $(SEED))

soak: modules peers ## kill programs with memifs at random ages up to a minute, and check that the next ones forward packets (KILLS=200 PROGRAM=path: another client)
	@WEFT_MEMIF_KILLS=$(or $(KILLS),200) WEFT_MEMIF_PROGRAM=$(abspath $(PROGRAM)) $(GO) test -count=1 -v -timeout 3h -parallel 8 -run '^TestSuccessorOfAKilled' ./test/memif ./memif

# By default go test minimizes each new input for up to a minute, which blocks the search: 100 executions are enough.
fuzz: go ## run each fuzz test for a limited time, and count the executions (FUZZTIME=10s FUZZPROCS=1 PACKAGES=./...)
	@report=$$(mktemp) && trap 'rm -f "$$report" fuzz.out' EXIT && \
	$(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.Dir}}{{end}}' $(PACKAGES) | while read -r dir; do \
		for name in $$(cat "$$dir"/*_test.go | sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p'); do \
			result=ok; \
			(cd "$$dir" && $(GO) test $(if $(FUZZPROCS),-p $(FUZZPROCS) -parallel $(FUZZPROCS)) -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 100x .) \
				>fuzz.out 2>&1 </dev/null || { result=FAILED; cat fuzz.out >&2; }; \
			execs=$$(sed -n 's/.*execs: \([0-9]*\).*/\1/p' fuzz.out | tail -n 1); \
			echo "fuzz: $${dir#$(CURDIR)/} $$name: $${execs:-0} executions, $$result"; \
			echo "$${dir#$(CURDIR)/} $$name $${execs:-0} $$result" >>"$$report"; \
		done; done; \
	awk '{ printf "%-34s %-34s %12d  %s\n", $$1, $$2, $$3, $$4; all += $$3; failed += $$4 != "ok" } \
		END { printf "fuzz: %d targets, %d executions, %d failed\n", NR, all, failed; exit failed > 0 || NR == 0 }' "$$report"

mutants: go ## run the mutation tests of test/mutants/list.txt, and print the mutations that no test detects (RUN=words of file or promise; PERCENT=10 SEED=text: random ones; WITHIN=4m JOBS=2)
	@$(GO) run ./test/mutants $(if $(RUN),-only '$(RUN)') $(if $(PERCENT),-percent $(PERCENT)) $(if $(SEED),-seed '$(SEED)') $(if $(WITHIN),-within $(WITHIN)) $(if $(JOBS),-jobs $(JOBS))

clean: ## remove build results
	@rm -rf bin dist fuzz.out
