package stages

import (
	"errors"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A Step whose writer yields releases Jobs and leaves what it records to the next one.
func TestWriteYields(t *testing.T) {
	failed := errors.New("no answer")
	for name, c := range map[string]struct {
		yield func(*Step) error
		want  []string
		err   error
	}{
		"yields":     {func(*Step) error { return ErrYield }, []string{"release"}, nil},
		"goes on":    {func(*Step) error { return nil }, []string{"release", "progress", "report"}, nil},
		"always":     {nil, []string{"release", "progress", "report"}, nil},
		"cannot ask": {func(*Step) error { return failed }, []string{"release"}, failed},
	} {
		t.Run(name, func(t *testing.T) {
			var written []string
			part := func(name string) func(*Step) error {
				return func(*Step) error {
					written = append(written, name)
					return nil
				}
			}
			w := Step{ReleaseJobs: []ReleaseJobs{{Jobs: []*batchv1.Job{{}}}}}
			w.Progress(&kueue.Workload{}, metav1.Condition{}, nil)
			err := w.Write(&Writer{
				ReleaseJobs: part("release"), Report: part("report"), Yield: c.yield,
				Quota: func(writes []quotastep.Write) error { return part(writes[0].Kind.String())(&w) },
			})
			if !errors.Is(err, c.err) || !slices.Equal(written, c.want) {
				t.Errorf("wrote %v, error %v, want %v, error %v", written, err, c.want, c.err)
			}
		})
	}
}

// If the API server rejects a quota Workload, no stage that is open from the start holds quota without use.
func TestTheLastStageIsCreatedFirst(t *testing.T) {
	var created []string
	err := Next(world{}.build(t)).Write(&Writer{
		Quota: func(writes []quotastep.Write) error {
			for i := range writes {
				created = append(created, writes[i].Kind.String()+" "+writes[i].Workload.Labels[apis.StageLabel])
			}
			return nil
		},
		Report: func(*Step) error { return nil },
	})
	if err != nil || !slices.Equal(created, []string{"create train", "create init"}) {
		t.Errorf("wrote %v, error %v", created, err)
	}
}

// The Jobs of an admitted stage that do not exist yet are awaited, those of a stage that waits for quota are not.
func TestAwaitsJobs(t *testing.T) {
	for name, c := range map[string]struct {
		workload, job string
		want          bool
	}{
		"it has no Job":          {"admitted", "", true},
		"its Job is held":        {"admitted", "held", false},
		"it waits for quota":     {"waiting", "", false},
		"its Job has succeeded":  {"admitted", "complete", false},
		"the engine is not sure": {"admitted uncharged", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			w := world{started: true, workloads: map[string]string{"init": c.workload, "train": "closed"}, jobs: map[string]string{"train": "held"}}
			if c.job != "" {
				w.jobs["init"] = c.job
			}
			if got := Next(w.build(t)).AwaitsJobs; got != c.want {
				t.Errorf("AwaitsJobs = %t, want %t", got, c.want)
			}
		})
	}
}
