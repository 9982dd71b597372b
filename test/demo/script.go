package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/ledger"
	"github.com/tranche-dev/tranche/test/testenv"
)

// A script is what the demo submits.
type script struct {
	// teams are the namespaces.
	teams []string
	// samples are the JobSets of config/samples/demo.
	samples []jobsetapi.JobSet
	// jobSets are all copies, in the order of submission.
	jobSets []jobsetapi.JobSet
	// quota of each team's ClusterQueue, which has the name of the team, in GPUs.
	quota map[string]int64
}

// teams returns the namespaces of config/samples/queues.
func teams() []string { return []string{"team-a", "team-b"} }

// loadScript applies the queues of config/samples/demo, and makes copies of its JobSets for each team.
func loadScript(ctx context.Context, w *testenv.World) (*script, error) {
	dir := filepath.Join(w.Root, "config", "samples", "demo")
	if err := w.Kubectl(ctx, "apply", "--server-side", "-k", filepath.Join(dir, "queues")); err != nil {
		return nil, err
	}
	rendered, err := w.KubectlOutput(ctx, "kustomize", filepath.Join(dir, "jobsets"))
	if err != nil {
		return nil, err
	}
	s := &script{teams: teams(), quota: map[string]int64{}}
	for _, team := range s.teams {
		var queue kueue.ClusterQueue
		if err := w.Admin.Get(ctx, client.ObjectKey{Name: team}, &queue); err != nil {
			return nil, fmt.Errorf("read ClusterQueue %s: %w", team, err)
		}
		s.quota[team] = gpuQuota(&queue)
	}
	reader := utilyaml.NewYAMLReader(newReader(rendered))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the samples: %w", err)
		}
		var kind unstructured.Unstructured
		if err := yaml.Unmarshal(document, &kind.Object); err != nil || kind.GetKind() != "JobSet" {
			continue
		}
		var js jobsetapi.JobSet
		if err := yaml.UnmarshalStrict(document, &js); err != nil {
			return nil, fmt.Errorf("read sample JobSet %s: %w", kind.GetName(), err)
		}
		s.samples = append(s.samples, js)
	}
	s.copy()
	return s, nil
}

func gpuQuota(queue *kueue.ClusterQueue) int64 {
	var sum int64
	for fr, of := range ledger.QuotasOf(queue.Spec.ResourceGroups) {
		if fr.Resource == gpu {
			sum += of.NominalQuota.Value()
		}
	}
	return sum
}

func (s *script) copy() {
	for n := 1; n <= copies; n++ {
		for _, team := range s.teams {
			for i := range s.samples {
				js := s.samples[i].DeepCopy()
				js.Namespace, js.Name = team, fmt.Sprintf("%s-%d", js.Name, n)
				s.jobSets = append(s.jobSets, *js)
			}
		}
	}
}

// submit creates the JobSets. From then on the script has them as the API server does, with all defaults.
func (s *script) submit(ctx context.Context, w *testenv.World) error {
	for i := range s.jobSets {
		if err := w.Admin.Create(ctx, &s.jobSets[i]); err != nil {
			return fmt.Errorf("submit JobSet %s/%s: %w", s.jobSets[i].Namespace, s.jobSets[i].Name, err)
		}
	}
	return nil
}

func newReader(data []byte) *bufio.Reader { return bufio.NewReader(bytes.NewReader(data)) }

// String describes what was submitted.
func (s *script) String() string {
	var quota int64
	for _, team := range s.teams {
		quota += s.quota[team]
	}
	return fmt.Sprintf("Submitted %d JobSets: %d samples, %d copies each, from %d teams with a total quota of %d GPUs",
		len(s.jobSets), len(s.samples), copies, len(s.teams), quota)
}
