package v1alpha1_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis/config/v1alpha1"
)

const header = "apiVersion: config.tranche.dev/v1alpha1\nkind: Configuration\n"

// The sample sets every field to its default value, so this test also verifies the documented defaults.
func TestDefaultsAreTheSample(t *testing.T) {
	sample, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := yaml.UnmarshalStrict(sample, &want); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no path": "", "the sample": filepath.Join("testdata", "full.yaml")} {
		t.Run(name, func(t *testing.T) {
			c, err := v1alpha1.Load(path)
			if err != nil {
				t.Fatalf("Load(%q): %v", path, err)
			}
			rendered, err := yaml.Marshal(c)
			if err != nil {
				t.Fatal(err)
			}
			got = nil
			if err := yaml.Unmarshal(rendered, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Load(%q): -sample +loaded\n%s", path, diff)
			}
		})
	}
}

func TestSetDefaultsKeepsWhatIsSet(t *testing.T) {
	c, err := v1alpha1.Decode([]byte(header + `
clientConnection: {qps: 1.5}
concurrency: {workers: {localQueue: 3}, writers: 1}
leaderElection: {leaderElect: false, retryPeriod: 1s}
metrics: {bindAddress: "0"}
visibility: {enable: true, certDir: /certs}
dashboard: {enable: true}
managedNamespaceSelector: {}
manageJobSetsWithoutQueueName: true
stageAdmission: Greedy
gang: {provider: Volcano, volcano: {queue: research}, koordinator: {mode: NonStrict}}
waitForPodsReady: {enable: true, timeout: 5m, requeuingStrategy: {backoffLimitCount: 3}}
admissionFairSharing: {usageHalfLifeTime: 1h}
`))
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	again := c.DeepCopy()
	again.SetDefaults()
	if diff := cmp.Diff(c, again); diff != "" {
		t.Errorf("SetDefaults changes a defaulted Configuration: -once +twice\n%s", diff)
	}
	for _, want := range []string{
		"qps: 1.5\n", "burst: 2000\n", "localQueue: 3\n", "jobSet: 8\n", "writers: 1\n", "leaderElect: false\n", "retryPeriod: 1s\n",
		"bindAddress: \"0\"\n", "visibility:\n  bindAddress: :8082\n  certDir: /certs\n  enable: true\n", "dashboard:\n  bindAddress: :8084\n  enable: true\n",
		"managedNamespaceSelector: {}\n", "manageJobSetsWithoutQueueName: true\n", "stageAdmission: Greedy\n", "provider: Volcano\n", "queue: research\n", "schedulerName: volcano\n", "mode: NonStrict\n",
		"  enable: true\n", "  timeout: 5m0s\n", "  recoveryTimeout: 5m0s\n", "backoffLimitCount: 3\n", "backoffMaxSeconds: 3600\n",
		"usageHalfLifeTime: 1h0m0s\n", "usageSamplingInterval: 5m0s\n",
	} {
		if !strings.Contains(string(rendered), want) {
			t.Errorf("want %q in\n%s", want, rendered)
		}
	}
}

func TestDecode(t *testing.T) {
	tests := map[string]struct {
		content string
		wantErr string
	}{
		"empty":                      {content: ""},
		"only comments":              {content: "# nothing\n---\n# still nothing\n"},
		"header only":                {content: header},
		"leading separator":          {content: "---\n" + header},
		"JSON":                       {content: `{"apiVersion": "config.tranche.dev/v1alpha1", "kind": "Configuration"}`},
		"no apiVersion":              {content: "kind: Configuration\n", wantErr: `apiVersion: Unsupported value: ""`},
		"other version":              {content: strings.Replace(header, "v1alpha1", "v1", 1), wantErr: `apiVersion: Unsupported value: "config.tranche.dev/v1"`},
		"unknown gate":               {content: header + "featureGates: {TopologyAwareScheduling: true}\n", wantErr: `featureGates: Unsupported value: "TopologyAwareScheduling"`},
		"gate without another":       {content: header + "featureGates: {UnadmittedWorkloadsExplicitStatus: true}\n", wantErr: "requires UnadmittedWorkloadsObservability: true"},
		"other kind":                 {content: strings.Replace(header, "kind: C", "kind: c", 1), wantErr: `kind: Unsupported value: "configuration"`},
		"other program's file":       {content: "apiVersion: v1\nkind: Pod\nspec: {}\n", wantErr: `kind: Unsupported value: "Pod"`},
		"unknown field":              {content: header + "stageAdmision: Safe\n", wantErr: `unknown field "stageAdmision"`},
		"unknown nested field":       {content: header + "concurrency: {workers: {pod: 1}}\n", wantErr: `unknown field "concurrency.workers.pod"`},
		"field in the wrong case":    {content: header + "StageAdmission: Safe\n", wantErr: `unknown field "StageAdmission"`},
		"duplicate field":            {content: header + "metrics: {}\nmetrics: {}\n", wantErr: `key "metrics" already set`},
		"duplicate nested field":     {content: header + "metrics: {bindAddress: a, bindAddress: b}\n", wantErr: `key "bindAddress" already set`},
		"wrong type":                 {content: header + "concurrency: {writers: many}\n", wantErr: "field Concurrency.concurrency.writers"},
		"fraction":                   {content: header + "concurrency: {writers: 1.5}\n", wantErr: "field Concurrency.concurrency.writers"},
		"number too large":           {content: header + "concurrency: {writers: 99999999999}\n", wantErr: "field Concurrency.concurrency.writers"},
		"bad duration":               {content: header + "leaderElection: {leaseDuration: 15}\n", wantErr: "cannot unmarshal number"},
		"list":                       {content: "- a\n", wantErr: "apiVersion and kind"},
		"two documents":              {content: header + "---\n" + header, wantErr: "more than one YAML document"},
		"not YAML":                   {content: header + "a: [", wantErr: "decode YAML"},
		"validation runs on loading": {content: header + "stageAdmission: Bold\n", wantErr: `stageAdmission: Unsupported value: "Bold"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := v1alpha1.Decode([]byte(tt.content))
			if tt.wantErr == "" {
				if err != nil {
					t.Fatalf("Decode: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("Decode: %v, want an error with %q", err, tt.wantErr)
			}
			if c != nil {
				t.Errorf("Decode: returned a Configuration with the error")
			}
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte(header+"nonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{bad: `unknown field "nonsense"`, filepath.Join(dir, "none.yaml"): "no such file"} {
		_, err := v1alpha1.Load(path)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), want) {
			t.Errorf("Load(%q): %v, want an error with the path and %q", path, err, want)
		}
	}
}

// Metrics are served without authentication only if the file sets that, and then by default on port 8080.
func TestMetricsDefaults(t *testing.T) {
	for content, want := range map[string]string{
		"":                               ":8443 true",
		"metrics: {secure: true}":        ":8443 true",
		"metrics: {secure: false}":       ":8080 false",
		"metrics: {bindAddress: \":9\"}": ":9 true",
		"metrics: {bindAddress: \"0\"}":  "0 true",
		"metrics: {bindAddress: a:1, secure: false}": "a:1 false",
	} {
		c, err := v1alpha1.Decode([]byte(header + content))
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(c.Metrics.BindAddress, " ", *c.Metrics.Secure); got != want {
			t.Errorf("%q: metrics are served at %s, want %s", content, got, want)
		}
	}
}

func TestValidate(t *testing.T) {
	tests := map[string]struct {
		content string
		want    []string
	}{
		"sane values": {content: `
clientConnection: {qps: 0.5, burst: 1}
concurrency: {writers: 1000, releases: 1, workers: {jobSet: 1000}}
metrics: {bindAddress: "127.0.0.1:0"}
health: {healthProbeBindAddress: "[::1]:65535"}
logging: {verbosity: 10, format: text}
stageAdmission: Reserve
reservation: {after: 8760h}
waitForPodsReady:
  {enable: true, timeout: 1s, recoveryTimeout: 0s, requeuingStrategy: {timestamp: Creation, backoffLimitCount: 0, backoffBaseSeconds: 0, backoffMaxSeconds: 0}}
fairSharing: {preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 0s, usageSamplingInterval: 1s, resourceWeights: {cpu: 0, nvidia.com/gpu: 2.5}}
`},
		"reservation at once":     {"reservation: {after: 0s}", nil},
		"no reservation":          {"reservation: {after: Never}", nil},
		"negative notice":         {"preemption: {notice: -1s}", []string{"preemption.notice"}},
		"notice in years":         {"preemption: {notice: 8761h}", []string{"preemption.notice"}},
		"look-ahead of 2 stages":  {"lookAhead: {stages: 2}", []string{"lookAhead.stages"}},
		"negative look-ahead":     {"lookAhead: {maxAhead: -1}", []string{"lookAhead.maxAhead"}},
		"absurd look-ahead":       {"lookAhead: {maxAhead: 1000001}", []string{"lookAhead.maxAhead"}},
		"high pod priority":       {"maxPodPriority: 1000000001", []string{"maxPodPriority"}},
		"low pod priority":        {"maxPodPriority: -1", []string{"maxPodPriority"}},
		"negative stall":          {"lookAhead: {stalledAfter: -1s}", []string{"lookAhead.stalledAfter"}},
		"negative reservation":    {"reservation: {after: -1s}", []string{"reservation.after"}},
		"reservation in years":    {"reservation: {after: 8761h}", []string{"reservation.after"}},
		"reservation in words":    {"reservation: {after: soon}", []string{"reservation.after"}},
		"timeout zero":            {"waitForPodsReady: {timeout: 0s}", []string{"waitForPodsReady.timeout"}},
		"timeout when off":        {"waitForPodsReady: {enable: false, timeout: -1s}", []string{"waitForPodsReady.timeout", "waitForPodsReady.recoveryTimeout"}},
		"recoveryTimeout":         {"waitForPodsReady: {recoveryTimeout: -1s}", []string{"waitForPodsReady.recoveryTimeout"}},
		"timestamp":               {"waitForPodsReady: {requeuingStrategy: {timestamp: Now}}", []string{"waitForPodsReady.requeuingStrategy.timestamp"}},
		"backoffLimitCount":       {"waitForPodsReady: {requeuingStrategy: {backoffLimitCount: -1}}", []string{"waitForPodsReady.requeuingStrategy.backoffLimitCount"}},
		"backoffBaseSeconds":      {"waitForPodsReady: {requeuingStrategy: {backoffBaseSeconds: -1}}", []string{"waitForPodsReady.requeuingStrategy.backoffBaseSeconds"}},
		"backoffMaxSeconds":       {"waitForPodsReady: {requeuingStrategy: {backoffMaxSeconds: -1}}", []string{"waitForPodsReady.requeuingStrategy.backoffMaxSeconds"}},
		"no strategies":           {"fairSharing: {}", []string{"fairSharing.preemptionStrategies"}},
		"unknown strategy":        {"fairSharing: {preemptionStrategies: [Least]}", []string{"fairSharing.preemptionStrategies[0]"}},
		"strategies swapped":      {"fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanOrEqualToFinalShare]}", []string{"fairSharing.preemptionStrategies"}},
		"strategy twice":          {"fairSharing: {preemptionStrategies: [LessThanInitialShare, LessThanInitialShare]}", []string{"fairSharing.preemptionStrategies"}},
		"one strategy":            {"fairSharing: {preemptionStrategies: [LessThanInitialShare]}", nil},
		"usageHalfLifeTime":       {"admissionFairSharing: {usageHalfLifeTime: -1s}", []string{"admissionFairSharing.usageHalfLifeTime"}},
		"sampling interval":       {"admissionFairSharing: {usageSamplingInterval: 0s}", []string{"admissionFairSharing.usageSamplingInterval"}},
		"resource weight":         {"admissionFairSharing: {resourceWeights: {cpu: -1, memory: 1}}", []string{"admissionFairSharing.resourceWeights[cpu]"}},
		"workload workers":        {"concurrency: {workers: {workload: 0}}", []string{"concurrency.workers.workload"}},
		"admissionCheck":          {"concurrency: {workers: {admissionCheck: 0}}", []string{"concurrency.workers.admissionCheck"}},
		"qps zero":                {"clientConnection: {qps: 0}", []string{"clientConnection.qps"}},
		"qps negative":            {"clientConnection: {qps: -1}", []string{"clientConnection.qps"}},
		"burst":                   {"clientConnection: {burst: 0}", []string{"clientConnection.burst"}},
		"jobSet workers":          {"concurrency: {workers: {jobSet: 0}}", []string{"concurrency.workers.jobSet"}},
		"clusterQueue":            {"concurrency: {workers: {clusterQueue: 1001}}", []string{"concurrency.workers.clusterQueue"}},
		"localQueue":              {"concurrency: {workers: {localQueue: 0}}", []string{"concurrency.workers.localQueue"}},
		"resourceFlavor":          {"concurrency: {workers: {resourceFlavor: 0}}", []string{"concurrency.workers.resourceFlavor"}},
		"writers":                 {"concurrency: {writers: 0}", []string{"concurrency.writers"}},
		"releases":                {"concurrency: {releases: 1001}", []string{"concurrency.releases"}},
		"lease not positive":      {"leaderElection: {leaseDuration: 0s}", []string{"leaderElection.leaseDuration"}},
		"renew not positive":      {"leaderElection: {renewDeadline: -1s}", []string{"leaderElection.renewDeadline"}},
		"retry not positive":      {"leaderElection: {retryPeriod: 0s}", []string{"leaderElection.retryPeriod"}},
		"renew equals lease":      {"leaderElection: {renewDeadline: 15s}", []string{"leaderElection.renewDeadline"}},
		"retry equals renew":      {"leaderElection: {retryPeriod: 10s}", []string{"leaderElection.retryPeriod"}},
		"retry near renew":        {"leaderElection: {retryPeriod: 8500ms}", []string{"leaderElection.retryPeriod"}},
		"retry in time":           {"leaderElection: {retryPeriod: 8300ms}", nil},
		"times when off":          {"leaderElection: {leaderElect: false, retryPeriod: 1h}", []string{"leaderElection.retryPeriod"}},
		"resourceLock":            {"leaderElection: {resourceLock: endpoints}", []string{"leaderElection.resourceLock"}},
		"resourceName":            {"leaderElection: {resourceName: A_b}", []string{"leaderElection.resourceName"}},
		"resourceNamespace":       {"leaderElection: {resourceNamespace: a.b}", []string{"leaderElection.resourceNamespace"}},
		"metrics in the open":     {"metrics: {secure: false}", nil},
		"no port":                 {"metrics: {bindAddress: localhost}", []string{"metrics.bindAddress"}},
		"port not a number":       {"metrics: {bindAddress: \":http\"}", []string{"metrics.bindAddress"}},
		"port too large":          {"health: {healthProbeBindAddress: \":65536\"}", []string{"health.healthProbeBindAddress"}},
		"visibility port":         {"visibility: {bindAddress: \"localhost\"}", []string{"visibility.bindAddress"}},
		"dashboard port":          {"dashboard: {bindAddress: \"localhost\"}", []string{"dashboard.bindAddress"}},
		"dashboard nowhere":       {"dashboard: {bindAddress: \"0\"}", []string{"dashboard.bindAddress"}},
		"visibility nowhere":      {"visibility: {bindAddress: \"0\"}", []string{"visibility.bindAddress"}},
		"predicts too often":      {"expectedStart: {interval: 999ms}", []string{"expectedStart.interval"}},
		"predicts nothing":        {"expectedStart: {horizon: 0s, first: 0, maxWorkloads: 0}", []string{"expectedStart.horizon", "expectedStart.first", "expectedStart.maxWorkloads"}},
		"writes no predictions":   {"expectedStart: {enable: false, writesPerSecond: 0}", []string{"expectedStart.writesPerSecond"}},
		"verbosity low":           {"logging: {verbosity: -1}", []string{"logging.verbosity"}},
		"verbosity high":          {"logging: {verbosity: 11}", []string{"logging.verbosity"}},
		"log format":              {"logging: {format: xml}", []string{"logging.format"}},
		"stageAdmission":          {"stageAdmission: safe", []string{"stageAdmission"}},
		"gang provider":           {"gang: {provider: kube}", []string{"gang.provider"}},
		"gang scheduler name":     {"gang: {koordinator: {schedulerName: A_b}}", []string{"gang.koordinator.schedulerName"}},
		"gang mode":               {"gang: {koordinator: {mode: strict}}", []string{"gang.koordinator.mode"}},
		"gang timeout":            {"gang: {coscheduling: {timeoutSeconds: 0}}", []string{"gang.coscheduling.timeoutSeconds"}},
		"gang queue":              {"gang: {volcano: {queue: a_b}}", []string{"gang.volcano.queue"}},
		"gang diagnosis":          {"gang: {diagnoseAfter: -1s}", []string{"gang.diagnoseAfter"}},
		"podGroups status":        {"podGroups: {status: manage}", []string{"podGroups.status"}},
		"podGroups timeout":       {"podGroups: {afterTimeout: stop}", []string{"podGroups.afterTimeout"}},
		"podGroups waiting":       {"podGroups: {waitingTime: 0s}", []string{"podGroups.waitingTime"}},
		"group start":             {"groupStart: {bindAddress: here, address: \":8083\", maxWaiters: 0}", []string{"groupStart.bindAddress", "groupStart.maxWaiters", "groupStart.address"}},
		"group start port":        {"groupStart: {address: \"tranche:0\"}", []string{"groupStart.address"}},
		"group start host":        {"groupStart: {address: \"a/b:1\"}", []string{"groupStart.address"}},
		"selector operator":       {"managedNamespaceSelector: {matchExpressions: [{key: a, operator: Like}]}", []string{"managedNamespaceSelector.matchExpressions[0].operator"}},
		"selector values":         {"managedNamespaceSelector: {matchExpressions: [{key: a, operator: In}]}", []string{"managedNamespaceSelector.matchExpressions[0].values"}},
		"selector label":          {"managedNamespaceSelector: {matchLabels: {a/b/c: d}}", []string{"managedNamespaceSelector.matchLabels"}},
		"all errors are reported": {"stageAdmission: x\nlogging: {format: y}", []string{"logging.format", "stageAdmission"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := &v1alpha1.Configuration{}
			if err := yaml.UnmarshalStrict([]byte(tt.content), c); err != nil {
				t.Fatal(err)
			}
			c.SetDefaults()
			if diff := cmp.Diff(tt.want, fields(c.Validate())); diff != "" {
				t.Errorf("Validate: fields, -want +got\n%s", diff)
			}
		})
	}
}

// Beside Kueue's manager, the fields that only the engine reads are refused, and an error says what to do instead.
// The block of Kueue's configuration has no field enable.
func TestWaitForPodsReadyOfKueue(t *testing.T) {
	for content, want := range map[string]bool{
		"": false, "waitForPodsReady: {}": false, "waitForPodsReady: {timeout: 5m}": true, "waitForPodsReady: {blockAdmission: true}": true,
		"waitForPodsReady: {requeuingStrategy: {backoffLimitCount: 5}}": true, "waitForPodsReady: {enable: false, timeout: 5m}": false,
	} {
		c, err := v1alpha1.Decode([]byte(header + content))
		if err != nil {
			t.Fatal(err)
		}
		if got := *c.WaitForPodsReady.Enable; got != want {
			t.Errorf("%q enables timeouts: %t, want %t", content, got, want)
		}
	}
}

func TestModeBeside(t *testing.T) {
	for name, tt := range map[string]struct {
		content string
		want    []string
	}{
		"defaults": {content: ""},
		"fields that are off": {content: `
visibility: {enable: false}
expectedStart: {enable: false}
waitForPodsReady: {enable: false}
featureGates: {UnadmittedWorkloadsObservability: false}
`},
		"fields of the engine": {`
visibility: {enable: true}
expectedStart: {enable: true}
waitForPodsReady: {enable: true}
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
admissionFairSharing: {usageHalfLifeTime: 1h}
podGroups: {status: Leave}
featureGates: {UnadmittedWorkloadsObservability: true}
`, []string{"visibility.enable", "expectedStart.enable", "waitForPodsReady.enable", "fairSharing", "admissionFairSharing", "podGroups", "featureGates"}},
	} {
		c := &v1alpha1.Configuration{Mode: v1alpha1.ModeBeside}
		if err := yaml.UnmarshalStrict([]byte(tt.content), c); err != nil {
			t.Fatal(err)
		}
		c.SetDefaults()
		if diff := cmp.Diff(tt.want, fields(c.Validate())); diff != "" {
			t.Errorf("%s: Validate: fields, -want +got\n%s", name, diff)
		}
	}
	_, err := v1alpha1.Decode([]byte(header + "mode: Beside\nfairSharing: {preemptionStrategies: [LessThanInitialShare]}\n"))
	want := "fairSharing: Forbidden: has no effect in mode Beside; set fairSharing in the configuration of Kueue's manager"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Decode: %v, want an error with %q", err, want)
	}
	if _, err := v1alpha1.Decode([]byte(header + "mode: beside\n")); err == nil || !strings.Contains(err.Error(), `mode: Unsupported value: "beside"`) {
		t.Errorf("Decode: %v, want an error about the mode", err)
	}
}

func fields(errs field.ErrorList) []string {
	var paths []string
	for _, err := range errs {
		paths = append(paths, err.Field)
	}
	return paths
}

func FuzzDecode(f *testing.F) {
	sample, err := os.ReadFile(filepath.Join("testdata", "full.yaml"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sample)
	f.Add([]byte(""))
	f.Add([]byte("---\n---"))
	f.Add([]byte(header + "leaderElection: {leaseDuration: 1h1h}"))
	f.Add([]byte(header + "clientConnection: {qps: .nan}"))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := v1alpha1.Decode(content)
		if (c == nil) == (err == nil) {
			t.Fatalf("Decode(%q) = %v, %v: want either a Configuration or an error", content, c, err)
		}
		if err != nil {
			return
		}
		rendered, err := yaml.Marshal(c)
		if err != nil {
			t.Fatalf("marshalling what Decode(%q) gave: %v", content, err)
		}
		again, err := v1alpha1.Decode(rendered)
		if err != nil {
			t.Fatalf("Decode of its own result: %v\n%s", err, rendered)
		}
		if diff := cmp.Diff(c, again); diff != "" {
			t.Errorf("decoded twice: -first +second\n%s", diff)
		}
	})
}
