package simulator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/admission"
	"github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/simulator"
	"github.com/tranche-dev/tranche/simulator/unblock"
)

// answered returns the sets that are found for a quota Workload, one line each, and what else is said.
func answered(t *testing.T, text, name string) []string {
	t.Helper()
	p, err := simulator.Pause("# story\n"+text, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range p.Pending() {
		if key.Name != name && !strings.HasPrefix(key.Name, "jobset-"+name+"-") {
			continue
		}
		a, err := unblock.Find(simulator.NewLaboratory(p.Taken, &simulator.Durations{}, key))
		if err != nil {
			t.Fatal(err)
		}
		var lines []string
		if a.Why != "" {
			lines = append(lines, a.Why)
		}
		for i := range a.Sets {
			lines = append(lines, setLine(&a.Sets[i]))
		}
		return lines
	}
	t.Fatalf("%s is not pending", name)
	return nil
}

func setLine(set *unblock.Set) string {
	var parts []string
	for i := range set.Succeed {
		parts = append(parts, "end "+strings.TrimSuffix(set.Succeed[i].JobSet+"/"+set.Succeed[i].Stage, "/")+set.Succeed[i].Workload.Name[strings.LastIndex(set.Succeed[i].Workload.Name, "-")+1:])
	}
	for i := range set.Raise {
		r := &set.Raise[i]
		parts = append(parts, fmt.Sprintf("%s %s %s %s %s->%s", r.Limit.Kind, r.Limit.Name, r.Limit.Field, r.Limit.Flavor, r.From.String(), r.To.String()))
	}
	line := strings.Join(parts, " and ")
	if set.Evicts > 0 {
		line += fmt.Sprintf(" evicting %d", set.Evicts)
	}
	return line
}

func TestUnblock(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"the least quota first, then the earliest end": {
			"queue ml gpu=8\nsubmit a queue=ml pods=gpu:4 max-time=1h\nsubmit b queue=ml pods=gpu:4 max-time=30m\nsubmit x queue=ml pods=gpu:3 at=1m\n",
			[]string{"ClusterQueue ml nominalQuota default 8->11", "end b", "end a"},
		},
		"two that end": {
			"queue ml gpu=4\nsubmit a queue=ml pods=gpu:2\nsubmit b queue=ml pods=gpu:1\nsubmit c queue=ml pods=gpu:1\nsubmit x queue=ml pods=gpu:3 at=1m\n",
			[]string{"ClusterQueue ml nominalQuota default 4->7", "end a and end b", "end a and end c"},
		},
		"a later stage takes what an earlier one releases": {
			"queue ml gpu=4\nsubmit a queue=ml stages=p(gpu=2)=Succeeded=>q(gpu=2)\nsubmit b queue=ml pods=gpu:2\nsubmit x queue=ml pods=gpu:2 at=1m\n",
			[]string{"ClusterQueue ml nominalQuota default 4->6", "end b"},
		},
		"a limit to borrow": {
			"cohort lab\nqueue ml gpu=2/borrow=1 cohort=lab\nqueue other gpu=4 cohort=lab\nsubmit a queue=ml pods=gpu:2\nsubmit x queue=ml pods=gpu:2 at=1m\n",
			[]string{"ClusterQueue ml borrowingLimit default 1->2", "ClusterQueue ml nominalQuota default 2->3", "end a"},
		},
		"a limit to lend": {
			"cohort lab\nqueue ml gpu=2 cohort=lab\nqueue other gpu=4/lend=0 cohort=lab\nsubmit a queue=ml pods=gpu:2\nsubmit x queue=ml pods=gpu:2 at=1m\n",
			[]string{"ClusterQueue ml nominalQuota default 2->4", "ClusterQueue other lendingLimit default 0->2", "end a"},
		},
		"a borrower": {
			"cohort lab\nqueue ml gpu=2 cohort=lab\nqueue other gpu=2 cohort=lab\nsubmit a queue=other pods=gpu:4\nsubmit x queue=ml pods=gpu:2 at=1m\n",
			[]string{"ClusterQueue ml nominalQuota default 2->4", "end a"},
		},
		"more than there can ever be": {
			"queue ml gpu=2\nsubmit a queue=ml pods=gpu:1\nsubmit x queue=ml pods=gpu:3 at=1m\n",
			[]string{"no completion lets it in: it asks for more than these queues can ever have; ask for less, or raise the limits", "ClusterQueue ml nominalQuota default 2->4"},
		},
		"a stopped queue": {
			"queue ml gpu=2\nsubmit x queue=ml pods=gpu:1 at=2m\nchange queue ml stop=Hold at=1m\n",
			[]string{"check ClusterQueueIsActive fails, which is not about missing quota: completions and limits were not searched"},
		},
		"a resource without quota": {
			"queue ml gpu=2\nsubmit x queue=ml pods=tpu:1 at=1m\n",
			[]string{"check ResourcesAreCovered fails, which is not about missing quota: completions and limits were not searched"},
		},
		"behind another one": {
			"queue ml gpu=2 strategy=StrictFIFO\nsubmit a queue=ml pods=gpu:1\nsubmit b queue=ml pods=gpu:2 at=1m\nsubmit x queue=ml pods=gpu:1 at=2m\n",
			[]string{"quota Workload default/b is ahead in the queue and must be admitted first: explain that one"},
		},
		"behind a stage for which quota is reserved": {
			"queue ml gpu=4 reserve-after=2m\nsubmit a queue=ml pods=gpu:3\nsubmit b queue=ml pods=gpu:4\nsubmit x queue=ml pods=gpu:1 at=3m\n",
			[]string{"quota is reserved for quota Workload default/b, which must be admitted first: explain that one"},
		},
		"too many small ones": {
			"queue ml gpu=6\n" + small(6) + "submit x queue=ml pods=gpu:5 at=1m\n",
			[]string{"ClusterQueue ml nominalQuota default 6->11"},
		},
		"others that come first": {
			"queue ml gpu=4\nsubmit a queue=ml pods=gpu:4\nsubmit b queue=ml pods=gpu:3 at=1m\nsubmit c queue=ml pods=gpu:4 at=1m\nsubmit x queue=ml pods=gpu:2 at=2m\n",
			[]string{"ClusterQueue ml nominalQuota default 4->6"},
		},
		"others that come first and fit": {
			"queue ml gpu=4\nsubmit a queue=ml pods=gpu:4\nsubmit b queue=ml pods=gpu:2 at=1m\nsubmit c queue=ml pods=gpu:1 at=1m\nsubmit x queue=ml pods=gpu:2 at=2m\n",
			[]string{"ClusterQueue ml nominalQuota default 4->9"},
		},
		"many that come first": {
			"cohort lab\nqueue ml gpu=8 cohort=lab\nqueue other gpu=8 cohort=lab\n" + small(4) + "submit a queue=ml pods=gpu:4\nsubmit b queue=other pods=gpu:8\n" +
				jobs("w", "gpu:2 at=1m", 50) + "submit x queue=ml pods=gpu:2 at=2m\n",
			[]string{"ClusterQueue ml nominalQuota default 8->110"},
		},
		"quota that is being released": {
			"queue ml gpu=2\nsubmit a queue=ml pods=gpu:2 stop-after=10m\nsubmit x queue=ml pods=gpu:2 at=1m\ndelete a at=2m\n",
			[]string{"nothing has to change: quota that is free or being released is enough"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := gocmp.Diff(c.want, answered(t, c.text, "x")); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// A stepped laboratory has one limit that several flavor alternatives exceed by different amounts. It admits from an amount on.
type stepped struct {
	limit   simulator.Limit
	missing []string
	enough  int64
}

func (w stepped) Try(changes ...simulator.Change) (r simulator.TrialResult, err error) {
	r.IsAdmitted = len(changes) == 1 && changes[0].To.Value() >= w.enough
	r.Explanation.Check = "QuotaFits"
	for _, missing := range w.missing {
		r.Explanation.Alternatives = append(r.Explanation.Alternatives, visibility.Alternative{Shortages: []visibility.Shortage{{
			Flavor: w.limit.Flavor, Resource: w.limit.Resource, Missing: resource.MustParse(missing),
			Constraint: visibility.Constraint{Kind: w.limit.Kind, Name: w.limit.Name, Limit: w.limit.Field},
		}}})
	}
	return r, nil
}
func (stepped) Running() []simulator.Running { return nil }
func (stepped) Value(simulator.Limit) (resource.Quantity, bool) {
	return resource.MustParse("20"), true
}
func (stepped) ClusterQueue() *kueue.ClusterQueue                  { return nil }
func (stepped) Ahead(corev1.ResourceName) (none resource.Quantity) { return none }

// Of the sets that raise the same limit, only the one that raises it least is an answer. The search says if it was cut off, whether or not it has found a set.
func TestRaisesOfALimit(t *testing.T) {
	const cut = "the search was stopped after 40 trials"
	many := []string{"1k", "11k", "13k", "17k", "19k", "23k"}
	for name, c := range map[string]struct {
		missing []string
		enough  int64
		want    []string
	}{
		"one set":      {[]string{"10", "25"}, 30, []string{"", "ClusterQueue ml nominalQuota a100 20->30"}},
		"a cut search": {many, 70_020, []string{cut + ": there may be other sets, also cheaper ones", "ClusterQueue ml nominalQuota a100 20->70020"}},
		"no set":       {many, 1e15, []string{"no set of at most 4 completions or raised limits was found that lets it in: " + cut + ", so there may be one"}},
	} {
		t.Run(name, func(t *testing.T) {
			limit := simulator.Limit{Kind: visibility.ClusterQueue, Name: "ml", Flavor: "a100", Resource: "gpu", Field: visibility.NominalQuota}
			a, err := unblock.Find(stepped{limit, c.missing, c.enough})
			if err != nil {
				t.Fatal(err)
			}
			got := []string{a.Why}
			for i := range a.Sets {
				got = append(got, setLine(&a.Sets[i]))
			}
			if diff := gocmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// small submits jobs of one GPU each.
func small(count int) string { return jobs("s", "gpu:1", count) }

// jobs submits jobs of one kind.
func jobs(name, kind string, count int) string {
	text := ""
	for i := range count {
		text += fmt.Sprintf("submit %s%d queue=ml pods=%s\n", name, i, kind)
	}
	return text
}

// TestRandomUnblock applies each set that is found for pending quota Workloads of random scenarios, and each part of it.
func TestRandomUnblock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := slices.DeleteFunc(randomLines(t), func(line string) bool { return strings.HasPrefix(line, "fail-write") })
		text := strings.Join(lines, "")
		p, err := simulator.Pause(text, time.Duration(rapid.IntRange(0, 1500).Draw(t, "snapshot"))*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if p.IsTerminating() {
			return // for an answer, termination takes no time
		}
		for _, key := range p.Pending() {
			a, err := unblock.Find(simulator.NewLaboratory(p.Taken, &simulator.Durations{}, key))
			if err != nil {
				t.Fatal(err)
			}
			if len(a.Sets) == 0 && a.Why == "" || len(a.Sets) > 3 {
				t.Fatalf("%s: %v\n%s", key, a, text)
			}
			for i := range a.Sets {
				comesTrueExactly(t, p, key, a.Sets[i].Changes(), text)
			}
		}
	})
}

// comesTrueExactly checks that a quota Workload is admitted after some changes, and not after a part of them.
func comesTrueExactly(t *rapid.T, p *simulator.Paused, key admission.StageKey, changes []simulator.Change, text string) {
	for mask := range 1 << len(changes) {
		var part []simulator.Change
		for i := range changes {
			if mask&(1<<i) != 0 {
				part = append(part, changes[i])
			}
		}
		got, err := p.IsAdmittedAfter(key, part)
		if err != nil {
			t.Fatal(err)
		}
		if want := len(part) == len(changes); got != want {
			t.Fatalf("%s is admitted after %v of %v: %t\n%s", key, part, changes, got, text)
		}
	}
}
