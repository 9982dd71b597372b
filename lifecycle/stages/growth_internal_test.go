package stages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission/quotaworkload"
	"github.com/tranche-dev/tranche/admission/stageplan"
	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	"github.com/tranche-dev/tranche/lifecycle/elastic"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstate"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// An elasticWorld is a world whose first stage has Indexed Jobs.
type elasticWorld struct {
	world
	// want is how many pods each Job of the first stage should have, paid for how many of them its quota Workload pays, and sizes how many
	// each Job has now.
	want, paid int32
	sizes      []int32
	// growths has for each growth how many pods it asks for, and words about it.
	growths []string
}

func (w elasticWorld) build(t *testing.T) *jobsetstate.Snapshot {
	t.Helper()
	s := w.world.build(t)
	template := &s.JobSet.Spec.ReplicatedJobs[0].Template.Spec
	template.CompletionMode = ptr.To(batchv1.IndexedCompletion)
	template.Parallelism, template.Completions = &w.want, &w.want
	plan, err := stageplan.New(&s.JobSet.Spec)
	if err != nil {
		t.Fatal(err)
	}
	s.Plan = plan
	base := s.Owned.Workloads[0]
	base.Spec.PodSets[0].Count = w.paid
	if base.Status.Admission != nil {
		base.Status.Admission.PodSetAssignments[0].Count = &w.paid
	}
	for i, size := range w.sizes {
		spec := &s.Owned.Jobs[i].Spec
		spec.CompletionMode, spec.Parallelism, spec.Completions = template.CompletionMode, &size, &size
		if s.Owned.Jobs[i].Status.Ready != nil {
			s.Owned.Jobs[i].Status.Ready = &size
		}
	}
	for i, words := range w.growths {
		s.Owned.Workloads = append(s.Owned.Workloads, w.growth(s, i+1, strings.Fields(words)))
	}
	// Stages with ready Jobs already have the condition PodsReady with the controller's message.
	for _, workload := range s.Owned.Workloads {
		if c := apimeta.FindStatusCondition(workload.Status.Conditions, kueue.WorkloadPodsReady); c != nil {
			*c = workloadstatus.PodsReady(nil, true)
		}
	}
	return s
}

func (w elasticWorld) growth(s *jobsetstate.Snapshot, number int, words []string) *kueue.Workload {
	growth := w.workload(s, 0, words[1:])
	pods, _ := strconv.ParseInt(words[0], 10, 32)
	growth.Name = fmt.Sprintf("growth-%d", number)
	growth.Labels[apis.GrowthLabel] = strconv.Itoa(number)
	growth.Spec.PodSets[0].Count = int32(pods)
	delete(s.Charged, growth.UID)
	growth.UID = types.UID(growth.Name)
	if slices.Contains(words, "admitted") {
		growth.Status.Admission.PodSetAssignments[0].Count = new(int32(pods))
		s.Charged[growth.UID] = !slices.Contains(words, "uncharged")
	}
	s.Charged["init"] = true
	if slices.Contains(words, "labels") {
		growth.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "provision", State: kueue.CheckStateReady, PodSetUpdates: []kueue.PodSetUpdate{
			{Name: "init", Labels: map[string]string{"booking": "7"}},
		}}}
	}
	return growth
}

func TestGrowth(t *testing.T) {
	running := func(jobs string, pods ...string) world {
		return world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": jobs, "train": "held"}, pods: pods}
	}
	evicted := running("running")
	evicted.workloads = map[string]string{"init": "admitted evicted", "train": "closed"}
	over := evicted
	over.jobs = map[string]string{"init": "held", "train": "held"}
	suspended := running("held")
	suspended.suspended = true
	suspended.workloads = map[string]string{"init": "admitted suspended", "train": "closed suspended"}
	gang := running("running up")
	gang.gang = true
	restarted := running("held")
	restarted.workloads = map[string]string{"init": "admitted", "train": "closed"}
	cases := map[string]struct {
		world elasticWorld
		want  []string
	}{
		"more pods than are paid for are asked for, on the same flavors": {
			elasticWorld{running("running up"), 4, 2, []int32{2}, nil},
			[]string{"ask 1=2 on init/cpu=a100"},
		},
		"what is asked for is not asked for again": {
			elasticWorld{running("running up"), 4, 2, []int32{2}, []string{"2 waiting"}}, nil,
		},
		"more while it waits is one growth": {
			elasticWorld{running("running up"), 5, 2, []int32{2}, []string{"2 waiting"}},
			[]string{"resize growth-1=3"},
		},
		"more after it was admitted is another": {
			elasticWorld{running("running up"), 5, 2, []int32{4}, []string{"2 admitted ready"}},
			[]string{"ask 2=1 on init/cpu=a100"},
		},
		"less while it waits is asked for less": {
			elasticWorld{running("running up"), 3, 2, []int32{2}, []string{"2 waiting"}},
			[]string{"resize growth-1=1"},
		},
		"nothing more is asked for": {
			elasticWorld{running("running up"), 2, 2, []int32{2}, []string{"2 waiting"}},
			[]string{"drop growth-1"},
		},
		"an admitted growth makes the Job larger": {
			elasticWorld{running("running up"), 4, 2, []int32{2}, []string{"2 admitted"}},
			[]string{"grow init-0=4/4"},
		},
		"a Job that was made smaller grows back on the quota of the stage": {
			elasticWorld{running("running up", "init:init-0:0"), 2, 2, []int32{1}, nil},
			[]string{"grow init-0=2/2"},
		},
		"a Job does not grow back while a pod that it lost terminates": {
			elasticWorld{running("running up", "init:init-0:0", "init:init-0:1"), 2, 2, []int32{1}, nil}, nil,
		},
		"not before the engine charges it": {
			elasticWorld{running("running up"), 4, 2, []int32{2}, []string{"2 admitted uncharged"}}, nil,
		},
		"not if it asks for what the pods that run do not have": {
			elasticWorld{running("running up"), 4, 2, []int32{2}, []string{"2 admitted labels"}},
			[]string{`complain the Job "init-0" stays as it is: the podSetUpdates of AdmissionCheck "provision" ask for what the pods that run do not have`},
		},
		"it is ready when all pods are": {
			elasticWorld{running("running up"), 4, 2, []int32{4}, []string{"2 admitted"}},
			[]string{"ready init=True"},
		},
		"Jobs that have succeeded need no more pods": {
			elasticWorld{running("complete / running up"), 4, 4, []int32{2, 2}, nil},
			[]string{"reclaim init init=2", "ask 1=2 on init/cpu=a100"},
		},
		"the newest is given up first": {
			elasticWorld{running("running up"), 3, 2, []int32{3}, []string{"2 admitted ready"}},
			[]string{"reclaim growth-1 init=1"},
		},
		"not while the Job is larger": {
			elasticWorld{running("running up"), 3, 2, []int32{4}, []string{"2 admitted ready"}},
			[]string{"grow init-0=3/3"},
		},
		"not while a pod too many runs": {
			elasticWorld{running("running up", "init:init-0:0", "init:init-0:3"), 3, 2, []int32{3}, []string{"2 admitted ready"}}, nil,
		},
		"the whole growth is given up": {
			elasticWorld{running("running up", "init:init-0:1"), 2, 2, []int32{2}, []string{"2 admitted ready"}},
			[]string{"drop growth-1"},
		},
		"not with a pod of it": {
			elasticWorld{running("running up", "init:init-0:2"), 2, 2, []int32{2}, []string{"2 admitted ready"}}, nil,
		},
		"and then what it began with": {
			elasticWorld{running("running up", "init:init-0:0"), 1, 2, []int32{1}, []string{"2 admitted ready", "1 waiting"}},
			[]string{"reclaim init init=1", "drop growth-1", "drop growth-2"},
		},
		"what was given up is asked for again": {
			elasticWorld{reclaimed(running("running up")), 2, 2, []int32{1}, nil},
			[]string{"ask 1=1 on init/cpu=a100"},
		},
		"a growth that is evicted leaves the rest": {
			elasticWorld{running("running up", "init:init-0:3"), 4, 2, []int32{4}, []string{"2 admitted ready evicted"}},
			[]string{"grow init-0=2/2"},
		},
		"it releases its quota when its pods have terminated": {
			elasticWorld{running("running up", "init:init-0:1"), 4, 2, []int32{2}, []string{"2 admitted ready evicted"}},
			[]string{"give back growth-1"},
		},
		"a growth that is deleted goes when its pods have terminated": {
			elasticWorld{running("running up", "init:init-0:1"), 4, 2, []int32{2}, []string{"2 admitted ready deleted pinned"}},
			[]string{"unpin growth-1"},
		},
		"an evicted stage drops what waits": {
			elasticWorld{evicted, 4, 2, []int32{3}, []string{"1 admitted", "1 waiting"}},
			[]string{"gate init=tranche.dev/resize", "hold init-0", "drop growth-2"},
		},
		"its growths go before it gives its quota back": {
			elasticWorld{over, 4, 2, []int32{3}, []string{"1 admitted"}},
			[]string{"gate init=tranche.dev/resize", "drop growth-1"},
		},
		"then it gives its own back": {
			elasticWorld{over, 4, 2, []int32{3}, nil},
			[]string{"gate init=tranche.dev/resize", "give back init"},
		},
		"the growths of a suspended stage go before it gives its quota back": {
			elasticWorld{suspended, 4, 2, []int32{4}, []string{"1 admitted", "1 waiting"}},
			[]string{"drop growth-1", "drop growth-2"},
		},
		"a restarted stage begins with what is admitted": {
			elasticWorld{restarted, 5, 2, []int32{5}, []string{"2 admitted", "1 waiting"}},
			[]string{"release init-0 node=a100 pods=4"},
		},
		"and with what is its own where the growth asks for more than quota": {
			elasticWorld{restarted, 4, 2, []int32{4}, []string{"2 admitted labels"}},
			[]string{"release init-0 node=a100 pods=2"},
		},
		"a gang queues for all of it": {
			elasticWorld{gang, 4, 2, []int32{2}, nil},
			[]string{"remove init"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := Next(c.world.build(t))
			got := render(w)
			for i, line := range got {
				if strings.HasPrefix(line, "release") {
					got[i] += fmt.Sprintf(" pods=%d", *w.ReleaseJobs[0].Jobs[0].Spec.Parallelism)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("writes differ (-want +got):\n%s", diff)
			}
		})
	}
}

// reclaimed makes the quota Workload of the first stage report one pod as reclaimable.
func reclaimed(w world) world {
	w.workloads = map[string]string{"init": "admitted ready reclaimed1", "train": "closed"}
	return w
}

// The new pods of a growth have their own timeout to become ready: until then the readiness of the stage does not change.
func TestGrowthIsNotHeldAgainstItsStage(t *testing.T) {
	w := elasticWorld{
		world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running up", "train": "held"}},
		4, 2,
		[]int32{4},
		[]string{"2 admitted ready"},
	}
	s := w.build(t)
	s.Owned.Jobs[0].Status.Ready = new(int32(2))
	if diff := cmp.Diff([]string{"ready init=False"}, render(Next(s))); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
	if p := Next(s).Of(quotastep.Progress)[0]; p.Workload.Name != "growth-1" {
		t.Errorf("%s is not ready, want growth-1", p.Workload.Name)
	}
	s.Owned.Jobs[0].Status.Ready = new(int32(1))
	if got := len(Next(s).Of(quotastep.Progress)); got != 2 {
		t.Errorf("%d quota Workloads are not ready, want both", got)
	}
}

// A gang is admitted as a whole, even if only the ReplicatedJob or each of its Jobs is a gang.
func TestIsElastic(t *testing.T) {
	gang := func(mode jobsetapi.GangMode) *jobsetapi.GangConfig { return &jobsetapi.GangConfig{GangMode: mode} }
	for name, c := range map[string]struct {
		change func(*jobsetapi.JobSet)
		want   bool
	}{
		"an Indexed Job":      {func(*jobsetapi.JobSet) {}, true},
		"not an Indexed Job":  {func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[0].Template.Spec.CompletionMode = nil }, false},
		"the JobSet is one":   {func(js *jobsetapi.JobSet) { js.Spec.GangConfig = gang(jobsetapi.GangModeGang) }, false},
		"gangs are off":       {func(js *jobsetapi.JobSet) { js.Spec.GangConfig = gang(jobsetapi.GangModeOff) }, true},
		"a gang of its Jobs":  {func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[0].GangConfig = gang(jobsetapi.GangModeGang) }, false},
		"each Job is a gang":  {func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[0].GangConfig = gang("ReplicatedGang") }, false},
		"another one is gang": {func(js *jobsetapi.JobSet) { js.Spec.ReplicatedJobs[1].GangConfig = gang(jobsetapi.GangModeGang) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := elasticWorld{world: world{workloads: map[string]string{"init": "waiting", "train": "closed"}}, want: 1, paid: 1}.build(t)
			c.change(s.JobSet)
			if got := isElastic(s.JobSet, "init"); got != c.want {
				t.Errorf("isElastic = %t, want %t", got, c.want)
			}
		})
	}
}

// If the cache shows the admission before the engine has observed it, and the conditions of the JobSet do not change, only a requeue
// releases the Jobs of an admitted stage.
func TestStageAwaitsTheEngine(t *testing.T) {
	for words, want := range map[string]bool{"admitted": false, "admitted uncharged": true, "waiting": false} {
		w := world{started: true, workloads: map[string]string{"init": words, "train": "closed"}, jobs: map[string]string{"init": "held", "train": "held"}}
		if got := Next(w.build(t)).AwaitsEngine; got != want {
			t.Errorf("%s: awaitsEngine = %t, want %t", words, got, want)
		}
	}
}

// The engine may observe an admission after the cache has shown it, and no watch would report that.
func TestGrowthAwaitsTheEngine(t *testing.T) {
	for words, want := range map[string]bool{"2 admitted": false, "2 admitted uncharged": true, "2 waiting": false} {
		w := elasticWorld{
			world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "running", "train": "held"}},
			4, 2,
			[]int32{2},
			[]string{words},
		}
		if got := Next(w.build(t)).AwaitsEngine; got != want {
			t.Errorf("%s: awaitsEngine = %t, want %t", words, got, want)
		}
	}
}

// The timeline of the stage records how long a deleted growth held quota.
func TestTimelineOfGrowth(t *testing.T) {
	w := elasticWorld{
		world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running up", "train": "held"}},
		2, 2,
		[]int32{2},
		[]string{"2 admitted ready"},
	}
	ended := Next(w.build(t)).EndedHolds
	if len(ended) != 1 || ended[0].Workload.Name != "init" || len(ended[0].Growths) != 1 || !ended[0].End.IsZero() {
		t.Errorf("ended %+v, want the hold of init with its growth, until now", ended)
	}
}

// In every combination of requested, admitted, released and wanted pods: no pod runs without quota, missing quota is requested once, and
// released quota is not taken back.
func TestSizesAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		count := func(most int32, what string) int32 { return rapid.Int32Range(0, most).Draw(rt, what) }
		jobs, paid := 1+count(2, "more Jobs"), 1+count(4, "paid per Job")
		w := elasticWorld{
			world: world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"train": "held"}},
			want:  1 + count(7, "more wanted"), paid: paid * jobs,
		}
		var words []string
		for range jobs {
			words = append(words, rapid.SampledFrom([]string{"running up", "running", "complete", "held"}).Draw(rt, "Job"))
			w.sizes = append(w.sizes, 1+count(7, "more pods"))
		}
		w.jobs["init"] = strings.Join(words, "/")
		for range count(3, "growths") {
			state := rapid.SampledFrom([]string{"waiting", "admitted", "admitted uncharged", "admitted evicted", "admitted deleted", "admitted labels"}).Draw(rt, "growth")
			w.growths = append(w.growths, fmt.Sprintf("%d %s", jobs*(1+count(3, "more asked for")), state))
		}
		s := w.build(t)
		for _, workload := range s.Owned.Workloads {
			if said := count(workload.Spec.PodSets[0].Count, "given up"); workload.Status.Admission != nil && said > 0 {
				workload.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: "init", Count: said}}
			}
		}
		stages, _ := stagesOf(s)
		st := &stages[0]
		if st.succeeded() || st.lacksQuota(s) {
			return
		}
		checkSizes(rt, s, st)
	})
}

func checkSizes(t *rapid.T, s *jobsetstate.Snapshot, st *stage) {
	z := st.sizes[0]
	sum, paid := z.Base+z.Missing, elastic.Held(st.workload, st.PodSets[0].Name)
	for k, growth := range st.growths {
		sum += z.Growths[k]
		if s.MayUse(growth) {
			paid += elastic.Held(growth, st.PodSets[0].Name)
		}
	}
	if z.Base <= 0 || z.First < z.Base || z.Now < z.First || z.Want < z.Now {
		t.Errorf("0 < base <= first <= now <= want does not hold in %+v", z)
	}
	if len(st.growths) > 0 && sum != z.Want {
		t.Errorf("%d of %d pods are accounted for in %+v", sum, z.Want, z)
	}
	if z.Now*z.Live > paid {
		t.Errorf("%d Jobs may have %d pods each, and %d are paid for", z.Live, z.Now, paid)
	}
	if !quotaworkload.Covers(st.reclaimable(s), st.workload.Status.ReclaimablePods) {
		t.Errorf("the stage would take back what it has given up: %v", st.workload.Status.ReclaimablePods)
	}
	waiting := 0
	for k, growth := range st.growths {
		if !quotaworkload.HoldsQuota(growth) && pays(st.sizes, k) {
			waiting++
		}
		if quotaworkload.HoldsQuota(growth) && !quotaworkload.Covers(st.reclaimableOf(s, growth, func(z elastic.Size) int32 { return z.Growths[k] }), growth.Status.ReclaimablePods) {
			t.Errorf("growth %d would take back what it has given up: %v", k+1, growth.Status.ReclaimablePods)
		}
	}
	if waiting > 1 || waiting > 0 && z.Missing > 0 {
		t.Errorf("%d growths ask for what is missing, and %d pods are left", waiting, z.Missing)
	}
}

// Jobs that were made smaller are read past the cache before their quota is released.
func TestGivingUpPodsIsCheckedLive(t *testing.T) {
	for want, wants := range map[int32]bool{3: true, 4: false} {
		w := elasticWorld{
			world{started: true, workloads: map[string]string{"init": "admitted ready", "train": "closed"}, jobs: map[string]string{"init": "running up", "train": "held"}},
			want, 2,
			[]int32{want},
			[]string{"2 admitted ready"},
		}
		if got := Next(w.build(t)).EndsQuota(); got != wants {
			t.Errorf("%d pods are wanted: endsQuota = %t, want %t", want, got, wants)
		}
	}
}

// A stage without growths that was made smaller reads its Jobs past the cache, too. The cache may show a Job as held that the manager has
// released with more pods.
func TestReclaimOfShrunkStageIsCheckedLive(t *testing.T) {
	for want, wants := range map[int32]bool{1: true, 2: false} {
		w := elasticWorld{
			world{started: true, workloads: map[string]string{"init": "admitted", "train": "closed"}, jobs: map[string]string{"init": "held", "train": "held"}},
			want, 2,
			[]int32{2},
			nil,
		}
		if got := Next(w.build(t)).EndsQuota(); got != wants {
			t.Errorf("%d pods are wanted: EndsQuota() = %t, want %t", want, got, wants)
		}
	}
}
