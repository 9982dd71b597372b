package stages

import (
	"errors"
	"slices"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
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
			w := Step{ReleaseJobs: []ReleaseJobs{{Jobs: []*batchv1.Job{{}}}}, Progress: []ReportProgress{{}}}
			err := w.Write(&Writer{ReleaseJobs: part("release"), Progress: part("progress"), Report: part("report"), Yield: c.yield})
			if !errors.Is(err, c.err) || !slices.Equal(written, c.want) {
				t.Errorf("wrote %v, error %v, want %v, error %v", written, err, c.want, c.err)
			}
		})
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
