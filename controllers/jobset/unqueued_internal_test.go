package jobset

import (
	"slices"
	"testing"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
)

func TestFinishedStages(t *testing.T) {
	cases := map[string]struct {
		annotation string
		want       []string
	}{
		"nothing":            {"", nil},
		"of this attempt":    {`{"attempt":2,"stages":["init","launch"]}`, []string{"init", "launch"}},
		"of another attempt": {`{"attempt":1,"stages":["init"]}`, nil},
		"not of the manager": {`{"attempt":"2"`, nil},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{}
			js.Status.Restarts, js.Annotations = 2, map[string]string{apis.FinishedStagesAnnotation: c.annotation}
			if got := finishedStages(js); !slices.Equal(got, c.want) {
				t.Errorf("finishedStages = %q, want %q", got, c.want)
			}
		})
	}
}
