// Package manifests_test checks that there is one Tranche, however it is installed: kustomize and Helm make the same objects.
package manifests_test

import (
	"errors"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

const root = "../.."

func TestChartEqualsKustomize(t *testing.T) {
	compare(t, []string{"config/default"})
}

func TestChartEqualsKustomizeWithVisibility(t *testing.T) {
	compare(t, []string{"config/with-visibility"}, "--set=visibility.enable=true")
}

func TestChartEqualsKustomizeWithDashboard(t *testing.T) {
	compare(t, []string{"config/with-dashboard"}, "--set=dashboard.enable=true")
	compare(t, []string{"config/with-visibility-and-dashboard"}, "--set=visibility.enable=true", "--set=dashboard.enable=true")
}

func TestChartEqualsKustomizeWithMonitoring(t *testing.T) {
	compare(t, []string{"config/default", "config/monitoring"}, "--set=monitoring.enabled=true")
}

// In the mode Shadow the chart has the objects of config/shadow and nothing else. They write nothing.
func TestChartInModeShadow(t *testing.T) {
	want := objects(t, kustomize(t, "config/shadow"))
	delete(want, "Namespace//tranche-system") // helm install --create-namespace makes it
	got := objects(t, helm(t, "--set=mode=Shadow", "--set=visibility.enable=true", "--set=dashboard.enable=true", "--set=monitoring.enabled=true"))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-kustomize +helm\n%.2000s", diff)
	}
	for _, rule := range field(t, want["ClusterRole//tranche-shadow-reader"], "rules").([]any) {
		if verbs := rule.(map[string]any)["verbs"]; !cmp.Equal([]any{"list", "watch"}, verbs) {
			t.Errorf("the role allows %v", verbs)
		}
	}
	cmd := tool("helm", "template", "tranche", "charts/tranche", "--namespace=tranche-system", "--kube-version=1.36.0", "--set=mode=Both")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), `mode is "Both": write Instead, Beside, or Shadow`) {
		t.Errorf("an unknown mode: %v, %s", err, out)
	}
}

// In the mode Beside the chart has the objects of config/beside, and none of Kueue's CRDs. The manager writes nothing to queues, and the policies concern
// JobSets, their Jobs and the pods of these.
func TestChartInModeBeside(t *testing.T) {
	want := objects(t, kustomize(t, "config/beside"))
	maps.Copy(want, objects(t, kustomize(t, "config/beside/crd")))
	delete(want, "Namespace//tranche-system") // helm install --create-namespace makes it
	got := objects(t, helm(t, "--set=mode=Beside"))
	delete(got, "ConfigMap/tranche-system/tranche-crds") // what Helm has installed of them
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-kustomize +helm\n%.2000s", diff)
	}
	for key, object := range want {
		if strings.HasSuffix(key, ".kueue.x-k8s.io") {
			t.Errorf("%s belongs to Kueue", key)
		}
		if !strings.HasPrefix(key, "ClusterRole/") || !strings.Contains(key, "manager") {
			continue
		}
		for _, item := range field(t, object, "rules").([]any) {
			rule := item.(map[string]any)
			for _, resource := range []any{"clusterqueues", "localqueues", "cohorts", "resourceflavors", "clusterqueues/status", "localqueues/status", "clusterqueues/finalizers"} {
				if slices.Contains(rule["resources"].([]any), resource) && !cmp.Equal([]any{"get", "list", "watch"}, rule["verbs"]) {
					t.Errorf("%s allows %v of %v", key, rule["verbs"], resource)
				}
			}
		}
	}
	instead := objects(t, kustomize(t, "config/default"))
	if user := field(t, instead["ConfigMap/tranche-system/tranche-guards"], "data", "kueueManager"); user != "" {
		t.Errorf("in the mode Instead, the policies let user %v through", user)
	}
	other := objects(t, helm(t, "--set=mode=Beside", "--set=kueue.managerUser=another"))
	if user := field(t, other["ConfigMap/tranche-system/tranche-guards"], "data", "kueueManager"); user != "another" {
		t.Errorf("kueueManager is %v, want that of kueue.managerUser", user)
	}
	for key := range objects(t, helm(t, "--set=kueue.crds=false")) {
		if strings.HasSuffix(key, ".kueue.x-k8s.io") {
			t.Errorf("kueue.crds=false installs %s", key)
		}
	}
}

// TestChartRefusesModes checks that the chart refuses what the manager would refuse when it starts beside Kueue.
func TestChartRefusesModes(t *testing.T) {
	for value, want := range map[string]string{
		"visibility.enable=true":                                           "visibility.enable has no effect in mode Beside",
		"configuration.expectedStart.enable=true":                          "configuration.expectedStart.enable has no effect",
		"configuration.waitForPodsReady.enable=true":                       "configuration.waitForPodsReady has no effect",
		"configuration.fairSharing.x=y":                                    "configuration.fairSharing has no effect",
		"configuration.podGroups.status=Leave":                             "configuration.podGroups.status has no effect in mode Beside; remove it: the pod integration of Kueue's manager queues pods",
		"configuration.podGroups.waitingTime=5m":                           "configuration.podGroups.waitingTime has no effect",
		"configuration.podGroups.other=x":                                  "configuration.podGroups.other has no effect",
		"configuration.featureGates.UnadmittedWorkloadsObservability=true": "configuration.featureGates.UnadmittedWorkloadsObservability has no effect in mode Beside; set it in the configuration of Kueue's manager",
		"kueue.managerUser=":                                               "kueue.managerUser is empty",
	} {
		refuses(t, want, "--set=mode=Beside", "--set="+value)
	}
	accepted := objects(t, helm(t, "--set=mode=Beside", "--set=configuration.podGroups.status=Manage", "--set=configuration.podGroups.afterTimeout=Requeue",
		"--set=configuration.podGroups.waitingTime=10m", "--set=configuration.featureGates.UnadmittedWorkloadsObservability=false"))
	file := field(t, accepted["ConfigMap/tranche-system/tranche-manager"], "data", "config.yaml").(map[string]any)
	if diff := cmp.Diff(map[string]any{"status": "Manage", "afterTimeout": "Requeue", "waitingTime": "10m"}, file["podGroups"]); diff != "" {
		t.Errorf("podGroups with its defaults (-want +got):\n%s", diff)
	}
}

// TestChartRefusesDoubles checks that the chart refuses fields of the configuration that its values set.
func TestChartRefusesDoubles(t *testing.T) {
	for value, want := range map[string]string{
		"mode=Beside": "configuration.mode has no effect; set the value mode",
		"managedNamespaceSelector.matchLabels.team=a": "configuration.managedNamespaceSelector has no effect; set the value namespaceSelector",
		"manageJobSetsWithoutQueueName=true":          "configuration.manageJobSetsWithoutQueueName has no effect; set the value manageJobSetsWithoutQueueName",
		"gang.provider=Volcano":                       "configuration.gang.provider has no effect; set the value gangProvider",
	} {
		refuses(t, want, "--set=configuration."+value)
	}
}

// refuses checks that the chart fails with a message.
func refuses(t *testing.T, want string, values ...string) {
	t.Helper()
	args := append([]string{"template", "tranche", "charts/tranche", "--namespace=tranche-system", "--kube-version=1.36.0"}, values...)
	if out, err := tool("helm", args...).CombinedOutput(); err == nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: error %v, want %q:\n%.300s", values, err, want, out)
	}
}

// compare compares the objects of directories in config with those that the chart makes of some values.
func compare(t *testing.T, directories []string, values ...string) {
	t.Helper()
	want := map[string]map[string]any{}
	for _, directory := range directories {
		maps.Copy(want, objects(t, kustomize(t, directory)))
	}
	for key := range want {
		if strings.HasPrefix(key, "CustomResourceDefinition/") {
			t.Errorf("%v has %s: who deletes it would delete the objects of others", directories, key)
		}
	}
	maps.Copy(want, objects(t, kustomize(t, "config/crd")))
	delete(want, "Namespace//tranche-system") // helm install --create-namespace makes it
	got := objects(t, helm(t, values...))
	delete(got, "ConfigMap/tranche-system/tranche-crds") // what Helm has installed of them
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s is in the chart only", key)
		}
	}
	for key, object := range want {
		if diff := cmp.Diff(object, got[key]); diff != "" {
			t.Errorf("%s of the chart differs from %v (-kustomize +helm):\n%.2000s", key, directories, diff)
		}
	}
	if len(want) < 30 {
		t.Errorf("%v has %d objects, want at least 30", directories, len(want))
	}
}

// With a certificate of the user, the API server verifies it.
func TestChartWithACertificate(t *testing.T) {
	got := objects(t, helm(t, "--set=visibility.enable=true", "--set=visibility.certSecret=certs", "--set=visibility.caBundle=QUFB"))
	spec := field(t, got["APIService//v1beta2.visibility.kueue.x-k8s.io"], "spec")
	want := map[string]any{
		"group": "visibility.kueue.x-k8s.io", "version": "v1beta2", "groupPriorityMinimum": float64(100), "versionPriority": float64(100),
		"caBundle": "QUFB", "service": map[string]any{"namespace": "tranche-system", "name": "tranche-visibility", "port": float64(443)},
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("APIService (-want +got):\n%s", diff)
	}
	served := field(t, got["ConfigMap/tranche-system/tranche-manager"], "data", "config.yaml").(map[string]any)["visibility"]
	if diff := cmp.Diff(map[string]any{"enable": true, "certDir": "/etc/tranche-visibility"}, served); diff != "" {
		t.Errorf("configuration of the manager (-want +got):\n%s", diff)
	}
	pod := field(t, got["Deployment/tranche-system/tranche-manager"], "spec", "template", "spec").(map[string]any)
	mounts := pod["containers"].([]any)[0].(map[string]any)["volumeMounts"].([]any)
	volumes := pod["volumes"].([]any)
	want = map[string]any{"name": "visibility", "secret": map[string]any{"secretName": "certs"}}
	if diff := cmp.Diff(want, volumes[len(volumes)-1]); diff != "" || mounts[len(mounts)-1].(map[string]any)["mountPath"] != "/etc/tranche-visibility" {
		t.Errorf("volumes %v and mounts %v", volumes, mounts)
	}
}

// With a certificate of the user, the dashboard has it.
func TestChartWithACertificateOfTheDashboard(t *testing.T) {
	got := objects(t, helm(t, "--set=dashboard.enable=true", "--set=dashboard.certSecret=page"))
	served := field(t, got["ConfigMap/tranche-system/tranche-manager"], "data", "config.yaml").(map[string]any)["dashboard"]
	if diff := cmp.Diff(map[string]any{"enable": true, "certDir": "/etc/tranche-dashboard"}, served); diff != "" {
		t.Errorf("configuration of the manager (-want +got):\n%s", diff)
	}
	pod := field(t, got["Deployment/tranche-system/tranche-manager"], "spec", "template", "spec").(map[string]any)
	mounts, volumes := pod["containers"].([]any)[0].(map[string]any)["volumeMounts"].([]any), pod["volumes"].([]any)
	want := map[string]any{"name": "dashboard", "secret": map[string]any{"secretName": "page"}}
	if diff := cmp.Diff(want, volumes[len(volumes)-1]); diff != "" || mounts[len(mounts)-1].(map[string]any)["mountPath"] != "/etc/tranche-dashboard" {
		t.Errorf("volumes %v and mounts %v", volumes, mounts)
	}
}

// excluded is what the values of the chart select, and what a label is added to.
func excluded(labels map[string]any) map[string]any {
	return map[string]any{"matchLabels": labels, "matchExpressions": []any{map[string]any{
		"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []any{"kube-system", "tranche-system"},
	}}}
}

// Each value of the chart reaches every object that it concerns.
func TestChartValues(t *testing.T) {
	got := objects(t, helm(t,
		"--set=managerUser=another-user", "--set=manageJobSetsWithoutQueueName=true", "--set=gangProvider=Volcano", "--set=gangSchedulerName=mine", "--set=image.tag=v9",
		"--set=maxTerminationGracePeriod=90s", "--set=maxJobs=1000000", "--set=maxPods=9",
		"--set=usersWithoutQueue={a,b}", "--set=configuration.coStart.accelerators={example.com/gpu,example.com/tpu}",
		"--set=groupStart.command={a,b c}", "--set=groupStart.cpu=1", "--set=groupStart.memory=16Mi",
		"--set=configuration.stageAdmission=Greedy", "--set-json=namespaceSelector={\"matchLabels\":{\"team\":\"ml\"}}",
	))
	parameters := field(t, got["ConfigMap/tranche-system/tranche-guards"], "data")
	want := map[string]any{
		"manager": "another-user", "kueueManager": "", "manageJobSetsWithoutQueueName": "true", "gangProvider": "Volcano", "gangSchedulerName": "mine",
		"maxTerminationGracePeriod": "90s", "maxJobs": "1000000", "maxPods": "9",
		"accelerators": "example.com/gpu\nexample.com/tpu", "usersWithoutQueue": "a\nb",
		"groupStartImage": "ghcr.io/tranche-dev/tranche:v9", "groupStartCommand": "a\nb c", "groupStartCPU": "1", "groupStartMemory": "16Mi",
	}
	if diff := cmp.Diff(want, parameters); diff != "" {
		t.Errorf("parameters of the guards (-want +got):\n%s", diff)
	}
	configuration := map[string]any{
		"apiVersion": "config.tranche.dev/v1alpha1", "kind": "Configuration", "stageAdmission": "Greedy",
		"manageJobSetsWithoutQueueName": true,
		"coStart":                       map[string]any{"accelerators": []any{"example.com/gpu", "example.com/tpu"}},
		"gang":                          map[string]any{"provider": "Volcano", "volcano": map[string]any{"schedulerName": "mine"}},
		"managedNamespaceSelector":      excluded(map[string]any{"team": "ml"}),
	}
	if diff := cmp.Diff(configuration, field(t, got["ConfigMap/tranche-system/tranche-manager"], "data", "config.yaml")); diff != "" {
		t.Errorf("configuration of the manager (-want +got):\n%s", diff)
	}
	bindings := 0
	for key, object := range got {
		if !strings.Contains(key, "PolicyBinding/") || strings.HasSuffix(key, "/tranche-keep-parameters") {
			continue
		}
		// A policy that completes a CRD applies where the CRD does: everywhere.
		if strings.HasSuffix(key, "-schema") && field(t, object, "spec", "matchResources") == nil {
			continue
		}
		bindings++
		labels := map[string]any{"team": "ml"}
		if field(t, object, "spec", "matchResources", "namespaceSelector", "matchLabels", "tranche.dev/require-queue") != nil {
			labels["tranche.dev/require-queue"] = "true"
		}
		if diff := cmp.Diff(excluded(labels), field(t, object, "spec", "matchResources", "namespaceSelector")); diff != "" {
			t.Errorf("namespaces of %s (-want +got):\n%s", key, diff)
		}
	}
	if bindings == 0 {
		t.Error("the chart has no policy bindings")
	}
}

// Values that turn group start off, or set another image for it, take effect.
func TestChartGroupStart(t *testing.T) {
	for value, want := range map[string]string{"groupStart.enable=false": "", "groupStart.image=mine:v1": "mine:v1"} {
		got := objects(t, helm(t, "--set="+value))
		if image := field(t, got["ConfigMap/tranche-system/tranche-guards"], "data", "groupStartImage"); image != want {
			t.Errorf("with %s the image is %q, want %q", value, image, want)
		}
	}
}

// The image has the tag of the values, else their digest, wherever it is named.
func TestChartImageByDigest(t *testing.T) {
	const digest = "--set=image.digest=sha256:12ab"
	for want, values := range map[string][]string{
		"ghcr.io/tranche-dev/tranche@sha256:12ab": {digest}, "mine@sha256:12ab": {digest, "--set=image.repository=mine"}, "mine:dev": {digest, "--set=image.repository=mine", "--set=image.tag=dev"},
	} {
		for mode, count := range map[string]int{"Instead": 2, "Shadow": 1} {
			if got := strings.Count(helm(t, append(values, "--set=mode="+mode)...), "mage: "+want+"\n"); got != count {
				t.Errorf("in the mode %s, %v name the image %s %d times, want %d", mode, values, want, got, count)
			}
		}
	}
}

// Without these, the CRDs and policies of the chart would be those of an older revision.
func TestChartIsGenerated(t *testing.T) {
	for file, overlay := range map[string]string{
		"files/crds.yaml": "config/crd", "files/policies.yaml": "config/policies", "files/rbac.yaml": "config/rbac",
		"files/visibility.yaml": "config/visibility", "files/shadow.yaml": "config/shadow",
		"files/dashboard.yaml": "config/dashboard",
	} {
		got := run(t, "cat", "charts/tranche/"+file)
		if diff := cmp.Diff(kustomize(t, overlay), got); diff != "" {
			t.Errorf("charts/tranche/%s is not what %s renders to: run make manifests", file, overlay)
		}
	}
}

func TestChartRefusesAnotherNamespace(t *testing.T) {
	cmd := tool("helm", "template", "tranche", "charts/tranche", "--namespace=default", "--kube-version=1.36.0")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--namespace tranche-system") {
		t.Errorf("got %v and %q, want an error that names the namespace", err, out)
	}
}

// Both the samples and what the demo makes of them must render.
func TestSamples(t *testing.T) {
	plain := objects(t, kustomize(t, "config/samples/jobsets"))
	demo := objects(t, kustomize(t, "config/samples/demo/jobsets"))
	if len(plain) == 0 || len(plain) != len(demo) {
		t.Errorf("got %d samples and %d in the demo, want as many", len(plain), len(demo))
	}
	for key, object := range demo {
		for _, replicatedJob := range field(t, object, "spec", "replicatedJobs").([]any) {
			pod := map[string]any{"template": replicatedJob}
			if field(t, pod, "template", "template", "spec", "template", "metadata", "annotations", "tranche.dev/fake-run-time") == nil {
				t.Errorf("%s has a ReplicatedJob without a run time for the demo", key)
			}
		}
		if strings.Contains(run(t, "cat", "config/samples/jobsets/"+key[strings.LastIndex(key, "/")+1:]+".yaml"), "fake") {
			t.Errorf("the plain sample of %s speaks of fakes", key)
		}
	}
	if queues := objects(t, kustomize(t, "config/samples")); len(queues) == 0 {
		t.Error("config/samples has no queues")
	}
}

func kustomize(t *testing.T, overlay string) string {
	t.Helper()
	return output(t, tool("kustomize", "build", overlay))
}

func helm(t *testing.T, args ...string) string {
	t.Helper()
	fixed := []string{"template", "tranche", "charts/tranche", "--namespace=tranche-system", "--kube-version=1.36.0"}
	return output(t, tool("helm", append(fixed, args...)...))
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = root
	return output(t, cmd)
}

func tool(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", append([]string{"tool", "-modfile=tools/go.mod", name}, args...)...)
	cmd.Dir = root
	return cmd
}

func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, stderr.String())
	}
	return string(out)
}

// objects reads a stream of YAML documents, by kind, namespace and name.
func objects(t *testing.T, stream string) map[string]map[string]any {
	t.Helper()
	all := map[string]map[string]any{}
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(stream), 4096)
	for {
		var object unstructured.Unstructured
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatalf("decode manifests: %v", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		key := object.GetKind() + "/" + object.GetNamespace() + "/" + object.GetName()
		if all[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		normalize(t, object.Object)
		all[key] = object.Object
	}
}

// normalize removes what may differ: the layout of embedded files, what Helm keeps at its uninstallation, and the checksum by which it restarts
// the manager.
func normalize(t *testing.T, object map[string]any) {
	t.Helper()
	if file, ok := field(t, object, "data", "config.yaml").(string); ok {
		var content any
		if err := yaml.Unmarshal([]byte(file), &content); err != nil {
			t.Fatalf("decode an embedded file: %v", err)
		}
		object["data"].(map[string]any)["config.yaml"] = content
	}
	if policy, _, _ := unstructured.NestedString(object, "metadata", "annotations", "helm.sh/resource-policy"); policy == "keep" {
		unstructured.RemoveNestedField(object, "metadata", "annotations", "helm.sh/resource-policy")
		if annotations, ok := field(t, object, "metadata", "annotations").(map[string]any); ok && len(annotations) == 0 {
			unstructured.RemoveNestedField(object, "metadata", "annotations")
		}
	}
	if object["kind"] == "Deployment" {
		unstructured.RemoveNestedField(object, "spec", "template", "metadata", "annotations")
	}
}

func field(t *testing.T, object map[string]any, path ...string) any {
	t.Helper()
	value, _, err := unstructured.NestedFieldNoCopy(object, path...)
	if err != nil {
		t.Fatalf("read %v: %v", path, err)
	}
	return value
}
