package integration_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/test/document"
)

// elsewhere lists the beginnings of kubectl commands in the documents that are not run here, each with the reason.
var elsewhere = map[string]string{
	"kubectl apply --server-side --force-conflicts -k config/crd":    "the suite has installed it",
	"kubectl apply --server-side --force-conflicts -k config/beside": "test/kueue installs it where Kueue is",
	"kubectl apply --server-side -k ../overlay":                      "test/manifests builds the overlay",
	"kubectl apply --server-side --force-conflicts -k ../overlay":    "test/manifests builds the overlay, test/kueue installs config/beside where Kueue is",
	"kubectl delete -k config/default":                               "test/install runs it",
	"kubectl apply --server-side -k config/monitoring":               "it needs the CRDs of the Prometheus operator",
	"kubectl create -f tune.yaml":                                    "the manifest above it is applied",
	"kubectl -n tranche-system rollout restart":                      "it needs the Deployment of the manager",
	"kubectl logs":                           "it needs the Deployment of the manager",
	"kubectl get --raw":                      "it needs the visibility API, test/integration/visibility_test.go asks for the same paths",
	"kubectl -n kueue-system scale":          "it is about a cluster with Kueue",
	"kubectl delete mutatingwebhook":         "it is about a cluster with Kueue: test/kueue/migration",
	"kubectl delete validatingwebhook":       "it is about a cluster with Kueue: test/kueue/migration",
	"kubectl replace -f 'config/crd/":        "test/kueue/migration runs it",
	"kubectl tranche":                        "test/integration/visibility_test.go runs the plugin",
	"kubectl -n tranche-system port-forward": "it needs pods that run",
	"kubectl wait jobset":                    "it waits for a preemption: test/e2e/preemption_test.go runs it",
	"kubectl create token":                   "test/integration/dashboard_test.go requests tokens by the same API",
}

var _ = Describe("The documents", Ordered, func() {
	var manifests, reading, writing, creating []string
	var sh documentShell

	BeforeAll(func(ctx SpecContext) {
		blocks, err := document.Blocks(env.Root)
		Expect(err).NotTo(HaveOccurred())
		for i := range blocks {
			switch blocks[i].Language {
			case "yaml":
				for _, object := range blocks[i].Objects() {
					if isManifest(object) {
						manifests = append(manifests, object)
					}
				}
			case "sh":
				for _, line := range blocks[i].Commands() {
					command, _, _ := strings.Cut(line, " | ")
					switch verb := kubectlVerb(command); verb {
					case "get", "describe":
						reading = append(reading, command)
					case "create", "apply":
						creating = append(creating, command)
					case "":
					default:
						writing = append(writing, command)
					}
				}
			}
		}
		Expect(env.Kubectl(ctx, "apply", "--server-side", "--force-conflicts", "-k", filepath.Join(env.Root, "config/samples/queues"))).To(Succeed())
		sh = newDocumentShell(ctx)
	}, NodeTimeout(patience))

	It("contain manifests that the API server accepts", func(ctx SpecContext) {
		Expect(len(manifests)).To(BeNumerically(">=", 4))
		for i, manifest := range manifests {
			Expect(env.Kubectl(ctx, "apply", "--server-side", "--dry-run=server", "-f", writeManifest(i, manifest))).To(Succeed(), manifest)
		}
	}, SpecTimeout(patience))

	It("contain kubectl commands that create objects", func(ctx SpecContext) {
		Expect(creating).NotTo(BeEmpty())
		for _, command := range creating {
			if strings.Contains(command, "--server-side") {
				command += " --force-conflicts" // other specs write the same policies
			}
			sh.run(ctx, command+" --dry-run=server")
		}
	}, SpecTimeout(patience))

	It("contain kubectl commands that read and change these objects", func(ctx SpecContext) {
		var files []string
		for _, sample := range []string{"fine-tune-llm.yaml", "three-stages.yaml"} {
			files = append(files, filepath.Join(env.Root, "config/samples/jobsets", sample))
		}
		for i, manifest := range manifests {
			files = append(files, writeManifest(i, manifest))
		}
		for _, file := range files {
			Expect(env.Kubectl(ctx, "apply", "--server-side", "-f", file)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) {
				Expect(env.Kubectl(ctx, "delete", "--ignore-not-found", "-f", file)).To(Succeed())
			}, NodeTimeout(patience))
		}
		Expect(reading).NotTo(BeEmpty())
		for _, command := range reading {
			sh.run(ctx, command)
		}
		Expect(writing).NotTo(BeEmpty())
		for _, command := range writing {
			sh.run(ctx, command+" --dry-run=server")
		}
	}, SpecTimeout(patience))
})

// isManifest reports whether a YAML document is an object that a user applies to a cluster with Tranche.
func isManifest(text string) bool {
	var object struct{ APIVersion, Kind string }
	if yaml.Unmarshal([]byte(text), &object) != nil || object.Kind == "" {
		return false
	}
	group, _, _ := strings.Cut(object.APIVersion, "/")
	// The configuration, a kustomization, and an object of Flux.
	return !slices.Contains([]string{"config.tranche.dev", "kustomize.config.k8s.io", "kustomize.toolkit.fluxcd.io"}, group)
}

// kubectlVerb returns the verb of a command of kubectl that is run here, or "".
func kubectlVerb(command string) string {
	words := strings.Fields(command)
	if words[0] != "kubectl" {
		return ""
	}
	for begin := range elsewhere {
		if strings.HasPrefix(command, begin) {
			return ""
		}
	}
	return words[1]
}

func writeManifest(i int, manifest string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), fmt.Sprintf("manifest-%d.yaml", i))
	Expect(os.WriteFile(file, []byte(manifest), 0o600)).To(Succeed())
	return file
}

// A documentShell runs command lines of the documents in the root of the repository, with team-a as the current namespace.
type documentShell struct{ kubeconfig string }

func newDocumentShell(ctx SpecContext) documentShell {
	GinkgoHelper()
	content, err := os.ReadFile(env.AdminKubeconfig)
	Expect(err).NotTo(HaveOccurred())
	sh := documentShell{filepath.Join(GinkgoT().TempDir(), "kubeconfig")}
	Expect(os.WriteFile(sh.kubeconfig, content, 0o600)).To(Succeed())
	sh.run(ctx, "kubectl config set-context --current --namespace=team-a")
	return sh
}

// run runs a command line up to its first pipe. NAME is replaced by a JobSet.
func (s documentShell) run(ctx SpecContext, command string) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "bash", "-c", strings.ReplaceAll(command, "NAME ", "fine-tune-llm "))
	cmd.Dir = env.Root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "PATH="+env.Plane.BinDir()+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s: %s", command, out)
}
