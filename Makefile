# `make` alone prints this help.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# One set of flags for all builds: packages that the manager, the control plane, the tests and the linters share are compiled once.
export CGO_ENABLED := 0
export GOFLAGS := $(filter-out -trimpath,$(GOFLAGS)) -trimpath

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
# `make lint` includes go vet. Here it would analyze every package that the tests import a second time.
GO_TEST := go test -vet=off -tags invariants
# With Go's default, the API servers of the tests collect garbage for a sixth of their time. Benchmarks have the default, also as a part of `make test`.
test test-unit test-manifests test-integration test-e2e test-kueue: export GOGC := 800
test test-unit test-manifests test-integration test-e2e test-kueue: export GOMEMLIMIT := 2GiB
lint: export GOGC := 400
bench-smoke: export GOGC := 100
bench-smoke: export GOMEMLIMIT := off
SEED_OF_TESTS := $(or $(SEED),$(shell od -An -N4 -tu4 /dev/urandom | tr -d ' '))
comma := ,

.PHONY: help
help: ## Print this help.
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: build
build: ## Build bin/tranche, the binary of the image.
	go build -ldflags '$(LDFLAGS)' -o bin/tranche ./cmd/tranche

.PHONY: race
race: ## Build bin/tranche-race, the same with the race detector. Needs a C compiler.
	CGO_ENABLED=1 go build -race -o bin/tranche-race ./cmd/tranche

.PHONY: cluster
cluster: ## Build the control plane that tests and the demo run on (minutes, once).
	@cd test/cluster && go run ./build

.PHONY: kueue
kueue: ## Build Kueue's manager and command line, which test/kueue runs beside Tranche (minutes, once).
	@cd test/cluster && go run ./build -kueue

.PHONY: schedulers
schedulers: ## Build Coscheduling and Volcano, which test/e2e/gang runs beside the scheduler of Kubernetes (minutes, once).
	@cd test/cluster && go run ./build -schedulers

.PHONY: demo
demo: ## Run sample JobSets on a real control plane with fake GPU nodes. KEEP=1 leaves it running, KUEUE=1 shows them beside Kueue, and a takeover.
	@cd test/cluster && go run ./build -with ../.. -version '$(VERSION)' > /dev/null
	@$(if $(KUEUE),cd test/cluster && go run ./build -kueue > /dev/null)
	@bin/demo $(if $(KEEP),--keep) $(if $(KUEUE),--kueue)

.PHONY: browser
browser: ## Install the browser of the dashboard's tests, if it is missing and apt-get can.
	@if ! command -v chromium > /dev/null || ! command -v chromedriver > /dev/null; then \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver > /dev/null || \
	  echo 'Install chromium and chromedriver: without them test/e2e/dashboard fails.'; \
	fi

# npm writes this file when it has installed what package-lock.json names.
MODULES := dashboard/page/node_modules/.package-lock.json
$(MODULES): dashboard/page/package-lock.json
	cd dashboard/page && npm ci --no-audit --no-fund --ignore-scripts
	touch $@

.PHONY: axe
axe: ## Install axe-core, with which the dashboard's tests check its accessibility, if it is missing and npm is there.
	@$(MAKE) --no-print-directory $(MODULES) || echo 'Install npm: without axe-core the specs of test/e2e/dashboard about accessibility fail.'

# On a machine with systemd, dpkg would start the services of the packages. What is called policy-rc.d forbids that.
.PHONY: node
node: ## Install what the real node of the tests runs on, if it is missing and apt-get can. Starts no service.
	@if ! command -v containerd > /dev/null || ! command -v runc > /dev/null || [ ! -x /usr/lib/cni/ptp ]; then \
	  policy=/usr/sbin/policy-rc.d; \
	  if [ ! -e $$policy ] && printf '#!/bin/sh\nexit 101\n' 2> /dev/null > $$policy; then trap "rm $$policy" EXIT; chmod 755 $$policy; fi; \
	  apt-get update -qq && apt-get install -y -qq --no-install-recommends containerd runc containernetworking-plugins > /dev/null || \
	  echo 'Install containerd, runc and containernetworking-plugins: without them test/e2e/node fails.'; \
	fi

.PHONY: screenshots
screenshots: cluster build browser axe ## Take the screenshots of docs/dashboard.md again.
	SCREENSHOTS=$(CURDIR)/docs/images $(GO_TEST) -count=1 ./test/e2e/dashboard

.PHONY: test
test: cluster kueue schedulers build race browser axe node test-unit test-race fuzz bench-smoke test-manifests ## Run every test, several packages at a time, since each mostly waits. Prints how far it is every 20 seconds.
	@echo 'Repeat the randomized tests with SEED=$(SEED_OF_TESTS).'
	SOAK_SEED=$(or $(SOAK_SEED),$(SEED_OF_TESTS)) SOAK_BINARY=$(CURDIR)/bin/tranche-race go run ./test/run

# Packages outside test/ with randomized tests, and those without. Tests of either may import packages below test/.
IMPORTS := go list -f '{{.ImportPath}} {{.TestImports}} {{.XTestImports}}' ./... | grep -v '^[^ ]*/tranche/test/'
DRAWN   := $(IMPORTS) | grep 'pgregory.net/rapid' | cut -d' ' -f1
PLAIN   := $(IMPORTS) | grep -v 'pgregory.net/rapid' | cut -d' ' -f1

.PHONY: test-unit
test-unit: ## Run the tests that need no control plane. Randomized tests draw a new seed each time and print it; SEED=... repeats a run.
	$(GO_TEST) $$($(PLAIN))
	@echo 'Repeat the randomized tests with SEED=$(SEED_OF_TESTS).'
	$(GO_TEST) $$($(DRAWN)) -rapid.seed=$(SEED_OF_TESTS)

.PHONY: test-race
test-race: ## Run the tests of packages with goroutines under the race detector.
	CGO_ENABLED=1 go test -race -vet=off ./cmd/... ./controllers/... ./dashboard/... ./shadow/... ./snapshot/...

.PHONY: test-random
test-random: ## Run the randomized tests with a new seed and ten times as many cases.
	$(GO_TEST) -count=1 -timeout 1h $$($(DRAWN)) -rapid.checks=1000

.PHONY: explore
explore: ## Run the engine and the lifecycle through every interleaving of small worlds. Prints states, depth and time. Takes 30 minutes.
	$(GO_TEST) -v -count=1 -timeout 2h ./simulator -run TestExplore -explore

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME=3s. Prints an input that fails: commit its file below testdata/fuzz.
	grep -rE --include='*_test.go' '^func Fuzz[A-Za-z]+\(' . | sed -E 's|/[^/]*:func (\w+).*| \1|' | while read -r dir target; do \
	  echo "fuzz $$dir $$target"; \
	  $(GO_TEST) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(or $(FUZZTIME),3s) $$dir < /dev/null || { \
	    git ls-files --others $$dir/testdata/fuzz | while read -r input; do echo "commit $$input:"; cat $$input; done; exit 1; }; \
	done

.PHONY: test-manifests
test-manifests: ## Render config/ and the chart and compare them, and check alerts, dashboard, the commands in the documents, what the demo prints, the driver of the benchmarks and the study of scheduling policies.
	go test -vet=off ./test/manifests/... ./test/document/... ./test/run/... ./test/demo/... ./test/bench/e2e/... ./test/bench/mixed/... ./test/bench/scheduling/... ./test/testenv/...
	cd test/monitoring && GOWORK=off go test ./...
	cd tools/release && GOWORK=off go test ./...

.PHONY: test-integration
test-integration: cluster kueue build node ## Run the tests of admission policies and controllers on a real control plane.
	$(GO_TEST) -count=1 -timeout 20m ./test/controlplane/... ./test/integration/... ./test/install/...

.PHONY: test-e2e
test-e2e: cluster schedulers build browser axe node ## Run whole JobSets through the real binary on a real control plane.
	$(GO_TEST) -count=1 -timeout 45m -p 1 ./test/invariants/... ./test/e2e/...

.PHONY: test-kueue
test-kueue: cluster kueue build ## Run Tranche beside the real Kueue manager on a real control plane.
	$(GO_TEST) -count=1 -timeout 20m ./test/kueue/...

.PHONY: test-soak
test-soak: cluster race ## Run 25 JobSets and gangs of pods through one minute of chaos on a real control plane. The race detector watches the manager.
	SOAK_BINARY=$(CURDIR)/bin/tranche-race go test -v -count=1 -timeout 20m ./test/soak/...

.PHONY: soak
soak: cluster build ## The same with 375 JobSets and gangs for 15 minutes. SOAK_DURATION=1h and SOAK_SEED=1 change that.
	SOAK_DURATION=$(or $(SOAK_DURATION),15m) go test -v -count=1 -timeout 0 ./test/soak/...

.PHONY: soak-kueue
soak-kueue: cluster kueue build ## Kill Tranche's and Kueue's managers for 3 minutes while JobSets and Jobs run. SOAK_DURATION=1h and SOAK_SEED=1 change that.
	SOAK_DURATION=$(or $(SOAK_DURATION),3m) go test -v -count=1 -timeout 0 ./test/kueue -ginkgo.v -ginkgo.focus 'Both managers are killed'

# The benchmarks that test/bench/bounds.yaml compares with BenchmarkCalibration. The best of five counts.
CALIBRATED := Calibration$$|Admit$$/shapes=1/pending=10000$$|AdmitSafely/holders=1000$$|SafetyCheck/(at_once|never)/holders=1000$$|Due$$/limit=0/shapes=1$$/pending=10000$$|IdleEvent/pending=10000$$|Fit/queues=1$$/running=10000$$

.PHONY: bench
bench: ## Measure the engine and check the bounds in test/bench/bounds.yaml.
	go test -run '^$$' -bench . -skip '^BenchmarkCalibration$$' -benchmem -benchtime 100ms ./test/bench/...
	go test -run '^$$' -bench '$(CALIBRATED)' -count 5 -benchtime 100ms ./test/bench

# Those of CALIBRATED, and the smaller size that a bound compares them with.
SMOKE := $(CALIBRATED)|Admit$$/shapes=1/pending=100$$|AdmitSafely/holders=10$$|SafetyCheck/(at_once|never)/holders=10$$|Due$$/limit=0/shapes=1$$/pending=100$$|Fit/queues=1$$/running=100$$

.PHONY: bench-smoke
bench-smoke: ## Measure some benchmarks for a moment. Fails if one takes 1.75 times what its bound allows, as after an accident that makes it three times as slow.
	go test -run '^$$' -bench '$(SMOKE)' -count 5 -benchtime 50ms ./test/bench -slack 1.75

.PHONY: bench-e2e
bench-e2e: cluster build ## Measure the manager on a real control plane. SHAPE=baseline (or staged, guards, stages, handover, held, mixed, verbs, start), COUNT=3 and ATONCE=1 change the load.
	go test ./test/bench/e2e/...
	go run ./test/bench/e2e -shape $(or $(SHAPE),baseline-tenth$(comma)staged) -count $(or $(COUNT),1) $(if $(ATONCE),-at-once) -seed $(or $(SEED),1) -out $(or $(OUT),bin/comparison)

.PHONY: bench-peers
bench-peers: cluster kueue build ## Measure the same with Kueue's manager, in turn, and compare. SHAPE=baseline and COUNT=1 change the load and the rounds.
	go run ./test/bench/e2e -peers -shape $(or $(SHAPE),baseline-tenth) -count $(or $(COUNT),3) $(if $(ATONCE),-at-once)

TOOL := go tool -modfile=tools/go.mod

.PHONY: generate
generate: ## Regenerate deep copies and reference documents.
	$(TOOL) controller-gen object paths=./apis/...
	go test ./apis/config/v1alpha1 ./controllers/events ./simulator/scenario ./controllers/metrics -run TestReference -update

.PHONY: golden
golden: ## Rewrite the expected output of scenarios and the objects of gangs. Review the difference like code.
	$(GO_TEST) ./simulator -run TestScenarios -update
	go test ./lifecycle/schedulergang -run TestGolden -update
	go test ./simulator/scenario -run TestReference -update

.PHONY: manifests
manifests: ## Regenerate the CRDs of Kueue and JobSet, those of PodGroups for tests, and the chart's copies of config.
	cd tools && go run ./crdgen -root ..
	$(TOOL) kustomize build config/crd > charts/tranche/files/crds.yaml
	$(TOOL) kustomize build config/policies > charts/tranche/files/policies.yaml
	$(TOOL) kustomize build config/rbac > charts/tranche/files/rbac.yaml
	awk 'FNR == 1 && NR > 1 { print "---" } 1' $(filter-out %/kustomization.yaml,$(wildcard config/beside/policies/*.yaml)) > charts/tranche/files/beside_policies.yaml
	cp config/beside/rbac/version_role.yaml charts/tranche/files/beside_rbac.yaml
	$(TOOL) kustomize build config/visibility > charts/tranche/files/visibility.yaml
	$(TOOL) kustomize build config/dashboard > charts/tranche/files/dashboard.yaml
	$(TOOL) kustomize build config/monitoring > charts/tranche/files/monitoring.yaml
	$(TOOL) kustomize build config/shadow > charts/tranche/files/shadow.yaml

.PHONY: page
page: $(MODULES) ## Rebuild the page of the dashboard with npm and esbuild. Its files are committed, so that a build of Tranche needs neither.
	rm -rf dashboard/page/dist && mkdir dashboard/page/dist
	cp dashboard/page/src/index.html dashboard/page/src/icon.svg dashboard/page/dist/
	cat dashboard/page/node_modules/{preact,uplot}/LICENSE > dashboard/page/dist/licenses.txt
	$(TOOL) esbuild dashboard/page/src/main.jsx --bundle --minify --target=es2022 --jsx=automatic --jsx-import-source=preact --legal-comments=eof \
	  --charset=utf8 --log-level=warning --outfile=dashboard/page/dist/app.js

.PHONY: lint
lint: ## Run the linters.
	go tool -modfile=tools/golangci/go.mod golangci-lint run

.PHONY: verify
verify: generate manifests page ## Check that all generated files are committed.
	git diff --exit-code

.PHONY: chart
chart: ## Package the Helm chart into dist/.
	mkdir -p dist
	$(TOOL) helm package charts/tranche --destination dist

IMAGE ?= ghcr.io/tranche-dev/tranche:$(VERSION)

.PHONY: image
image: ## Build and push the image IMAGE with docker buildx. PUSH=--load keeps it on this machine instead.
	docker buildx build $(or $(PUSH),--push) --build-arg VERSION=$(VERSION) --tag $(IMAGE) .

.PHONY: release
release: ## Build all files of VERSION=v0.1.0 into dist/release: image, manifests, chart, command line. IMAGE is the image's repository, PUSH=1 pushes it there.
	rm -rf dist/release
	cd tools/release && GOWORK=off go run . -root $(CURDIR) -out $(CURDIR)/dist/release -version '$(VERSION)' -image '$(patsubst %:$(VERSION),%,$(IMAGE))' $(if $(filter 1,$(PUSH)),-push)

KUBECTL ?= kubectl
OVERLAY ?= default

.PHONY: deploy
deploy: ## Install or upgrade Tranche, running IMAGE, on the cluster of kubectl. OVERLAY=with-visibility also serves the visibility API, OVERLAY=with-dashboard the dashboard, OVERLAY=with-visibility-and-dashboard both.
	rm -rf dist/config && mkdir -p dist && cp -r config dist/config && find dist/config -name "*.go" -delete
	cd dist/config/manager && go tool -modfile=$(CURDIR)/tools/go.mod kustomize edit set image ghcr.io/tranche-dev/tranche=$(IMAGE)
	$(KUBECTL) apply --server-side --force-conflicts -k dist/config/crd
	$(KUBECTL) wait --for=condition=Established --timeout=1m -f config/crd/kueue.x-k8s.io_workloads.yaml -f config/crd/jobset.x-k8s.io_jobsets.yaml
	$(KUBECTL) apply --server-side --force-conflicts -k dist/config/$(OVERLAY)
	$(KUBECTL) --namespace tranche-system rollout status deployment tranche-manager

.PHONY: undeploy
undeploy: build ## Uninstall Tranche from the cluster of kubectl: running JobSets continue, and CRDs and queues stay. EVERYTHING=1 deletes them.
	bin/tranche uninstall --check $(if $(EVERYTHING),--everything) || true
	$(KUBECTL) delete --ignore-not-found -k config/dashboard
	$(KUBECTL) delete --ignore-not-found -k config/with-visibility
	bin/tranche uninstall $(if $(EVERYTHING),--everything --yes)
