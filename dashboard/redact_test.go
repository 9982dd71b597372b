package dashboard_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/dashboard"
)

// tenants is the number of namespaces of a random Model. The names of all objects of one begin with its name, which occurs in no other text.
const tenants = 4

func tenant(i int) string { return fmt.Sprintf("ns%dx", i) }

// gossip returns a text that names objects of random namespaces.
func gossip(t *rapid.T) string {
	words := []string{"Preempted", "by", "7/10", "nvidia.com/gpu", "in", "quota"}
	for i := range rapid.IntRange(0, 3).Draw(t, "names") {
		name := tenant(rapid.IntRange(0, tenants-1).Draw(t, fmt.Sprint("named ", i)))
		form := rapid.SampledFrom([]string{"%[1]s/%[1]s-js", "held by %[1]s/%[1]s-w,", "namespace %[1]s.", `Namespace "%[1]s"`, "(%[1]s/%[1]s-w/train)", "x/%[1]s/%[1]s-js."})
		words = append(words, fmt.Sprintf(form.Draw(t, fmt.Sprint("form ", i)), name))
	}
	return strings.Join(rapid.Permutation(words).Draw(t, "words"), " ")
}

// A population is a Model with random objects, and the JobSets that a view can show.
type population struct {
	model   *dashboard.Model
	jobSets []*dashboard.JobSetObjects
}

func populate(t *rapid.T) *population {
	p := &population{model: dashboard.New()}
	for _, name := range []string{"qa", "qb"} {
		q := clusterQueue(name, "cohort-of-"+name, "10")
		q.Status.Conditions = []metav1.Condition{{Type: kueue.ClusterQueueActive, Status: metav1.ConditionFalse, Reason: "R", Message: gossip(t)}}
		p.model.Observe(q)
	}
	for i := range tenants {
		name := tenant(i)
		// The objects name a LocalQueue of their namespace.
		lq := localQueue(name, "lq", rapid.SampledFrom([]string{"qa", "qb"}).Draw(t, "queue of "+name))
		lq.Status.Conditions = []metav1.Condition{{Type: kueue.LocalQueueActive, Status: metav1.ConditionFalse, Reason: "R", Message: gossip(t)}}
		p.model.Observe(lq)
		js := jobSet(name, name+"-js", "train", "eval")
		js.Status.Conditions = []metav1.Condition{
			{Type: "StageAdmitted", Status: metav1.ConditionFalse, Reason: "R", Message: gossip(t)},
			{Type: "StageInProgress", Status: metav1.ConditionTrue, Reason: "R", Message: gossip(t)},
		}
		p.model.Observe(js)
		w := stageWorkload(js, "train", p.conditions(t)...)
		p.model.Observe(w)
		p.model.Observe(workload(name, name+"-w", "lq"))
		p.jobSets = append(p.jobSets, &dashboard.JobSetObjects{
			JobSet: js, Workloads: []*kueue.Workload{w}, Gap: gossip(t), Explanations: map[string]*visibilityapi.Explanation{w.Name: explanation(t)},
			LetIn: map[string]*dashboard.LetIn{w.Name: letIn(t)},
		})
	}
	return p
}

func (p *population) conditions(t *rapid.T) []metav1.Condition {
	waits := condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, "Pending", 1)
	holds := condition(kueue.WorkloadQuotaReserved, metav1.ConditionTrue, "Reserved", 1)
	evicted := condition(kueue.WorkloadEvicted, metav1.ConditionTrue, "Preempted", 2)
	waits.Message, holds.Message, evicted.Message = gossip(t), gossip(t), gossip(t)
	return rapid.SampledFrom([][]metav1.Condition{{waits}, {holds}, {holds, evicted}}).Draw(t, "conditions")
}

func explanation(t *rapid.T) *visibilityapi.Explanation {
	reference := func(what string) visibilityapi.Reference {
		name := tenant(rapid.IntRange(0, tenants-1).Draw(t, what))
		return visibilityapi.Reference{Namespace: name, Name: name + "-js"}
	}
	behind := reference("behind")
	holder := func(what string) visibilityapi.Holder {
		return visibilityapi.Holder{Reference: reference(what), ClusterQueue: rapid.SampledFrom([]string{"qa", "qb"}).Draw(t, "queue of "+what)}
	}
	constraint := rapid.SampledFrom([]visibilityapi.Constraint{
		{Kind: visibilityapi.ClusterQueue, Name: "qa"},
		{Kind: visibilityapi.ClusterQueue, Name: "qb"},
		{Kind: visibilityapi.Cohort, Name: "cohort-of-qa"},
		{Kind: visibilityapi.Cohort, Name: "cohort-of-qb"},
	}).Draw(t, "constraint")
	return &visibilityapi.Explanation{Message: gossip(t), Behind: &behind, Alternatives: []visibilityapi.Alternative{{
		Shortages: []visibilityapi.Shortage{{Constraint: constraint, Holders: []visibilityapi.Holder{holder("holder 1"), holder("holder 2")}}},
	}}}
}

// letIn returns a set in which a quota Workload ends and a limit is raised.
func letIn(t *rapid.T) *dashboard.LetIn {
	name := tenant(rapid.IntRange(0, tenants-1).Draw(t, "ends"))
	in := rapid.SampledFrom([]string{"qa", "qb"}).Draw(t, "queue of what ends")
	raised := rapid.SampledFrom([]visibilityapi.Constraint{
		{Kind: visibilityapi.ClusterQueue, Name: "qa"}, {Kind: visibilityapi.Cohort, Name: "cohort-of-qb"},
	}).Draw(t, "raised limit")
	changes := []dashboard.Change{
		{
			Text: name + "/" + name + "-js ends in " + in, Bare: name + "/" + name + "-js ends", Namespace: name,
			Node: visibilityapi.Constraint{Kind: visibilityapi.ClusterQueue, Name: in},
		},
		{Text: "raise quota of " + raised.Name, Bare: "raise quota", Node: raised},
	}
	text := changes[0].Text + "; and " + changes[1].Text
	return &dashboard.LetIn{Why: gossip(t), Sets: []string{text}, Changes: []dashboard.ChangeSet{{Changes: changes}}}
}

// answers returns what a viewer gets for all requests, each of them with all names as filters.
func (p *population) answers(v dashboard.Viewer) map[string]any {
	m, all := p.model, map[string]any{}
	names := []string{"", "ns", "js", "lq"}
	for i := range tenants {
		names = append(names, tenant(i), tenant(i)+"-js", tenant(i)+"-w", tenant(i)+"-js-train")
	}
	for _, name := range names {
		all["namespaces "+name] = m.Namespaces(v, name, dashboard.Window{})
		all["search "+name] = m.Search(v, name)
		all["jobsets "+name] = []any{
			m.JobSets(v, dashboard.JobSetFilter{Text: name}, dashboard.Window{}), m.JobSets(v, dashboard.JobSetFilter{Namespace: name}, dashboard.Window{}),
		}
		all["localqueues "+name] = []any{
			m.LocalQueues(v, dashboard.LocalQueueFilter{Text: name}, dashboard.Window{}), m.LocalQueues(v, dashboard.LocalQueueFilter{Namespace: name}, dashboard.Window{}),
		}
		for _, list := range []string{dashboard.ListPending, dashboard.ListHolding} {
			key := types.NamespacedName{Namespace: name, Name: "lq"}
			one, isSeen := m.LocalQueue(v, key)
			line, _ := m.LocalQueueWorkloads(v, key, dashboard.WorkloadFilter{List: list}, dashboard.Window{})
			all["localqueue "+list+name] = []any{one, line, isSeen}
		}
		all["queues "+name] = []any{
			m.Queues(v, dashboard.QueueFilter{Text: name}, dashboard.Window{}), m.Queues(v, dashboard.QueueFilter{Namespace: name}, dashboard.Window{}),
		}
		for _, queue := range []string{"qa", "qb"} {
			for _, list := range []string{dashboard.ListPending, dashboard.ListHolding, dashboard.ListOther} {
				one, isSeen := m.Workloads(v, queue, dashboard.WorkloadFilter{List: list, Text: name}, dashboard.Window{})
				two, _ := m.Workloads(v, queue, dashboard.WorkloadFilter{List: list, Namespace: name}, dashboard.Window{})
				all[fmt.Sprint(queue, list, name)] = []any{one, two, isSeen}
			}
		}
	}
	for _, queue := range []string{"qa", "qb"} {
		all[queue], _ = m.Queue(v, queue, start)
	}
	if overview, isSeen := m.Overview(v, start); isSeen {
		all["overview"] = overview
	}
	for _, objects := range p.jobSets {
		if v.SeesJobSets(objects.JobSet.Namespace) {
			all["jobset "+objects.JobSet.Name] = m.JobSet(v, objects, start)
		}
	}
	return all
}

// Whatever the objects say, no answer to a viewer has a name of a namespace that the viewer does not see, and the counts remain.
func TestNoAnswerNamesWhatIsHidden(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := populate(t)
		sees := rapid.SliceOfN(rapid.Bool(), tenants, tenants).Draw(t, "sees")
		seesJobSets := rapid.SliceOfN(rapid.Bool(), tenants, tenants).Draw(t, "sees JobSets")
		allowed := func(of []bool) func(string) bool {
			return func(name string) bool {
				return slices.ContainsFunc([]int{0, 1, 2, 3}, func(i int) bool { return of[i] && tenant(i) == name })
			}
		}
		v := dashboard.Viewer{Namespace: allowed(sees), JobSets: allowed(seesJobSets)}
		seesQueue := map[string]bool{"qa": rapid.Bool().Draw(t, "sees qa"), "qb": rapid.Bool().Draw(t, "sees qb")}
		v.ClusterQueue = func(name string) bool { return seesQueue[name] }
		if rapid.Bool().Draw(t, "sees all namespaces") {
			v.Namespace, sees = nil, []bool{true, true, true, true}
		}
		text, err := json.Marshal(p.answers(v))
		if err != nil {
			t.Fatal(err)
		}
		for i := range tenants {
			// The keys of the answers have the names of the filters.
			if named := strings.Count(withoutKeys(string(text)), tenant(i)); !sees[i] && named > 0 {
				t.Errorf("namespace %s is named %d times", tenant(i), named)
			} else if sees[i] && named == 0 {
				t.Errorf("namespace %s is not named", tenant(i))
			}
		}
		for queue, isSeen := range seesQueue {
			// The name of its Cohort has its name.
			if named := strings.Count(withoutKeys(string(text)), queue); !isSeen && named > 0 {
				t.Errorf("ClusterQueue %s is named %d times", queue, named)
			} else if !isSeen {
				continue
			} else if named == 0 {
				t.Errorf("ClusterQueue %s is not named", queue)
			}
			full, _ := p.model.Queue(dashboard.Viewer{}, queue, start)
			got, _ := p.model.Queue(v, queue, start)
			if fmt.Sprint(full.States) != fmt.Sprint(got.States) || len(full.LocalQueues) != len(got.LocalQueues)+got.HiddenLocalQueues {
				t.Errorf("the counts of %s: %v and %d hidden, want %v", queue, got.States, got.HiddenLocalQueues, full.States)
			}
		}
		v.ClusterQueue = nil // then the overview is shown
		text, err = json.Marshal(p.answers(v))
		if err != nil {
			t.Fatal(err)
		}
		for i := range tenants {
			if named := strings.Count(withoutKeys(string(text)), tenant(i)); !sees[i] && named > 0 {
				t.Errorf("namespace %s is named %d times to a reader of all ClusterQueues", tenant(i), named)
			}
		}
		if got := p.model.JobSets(v, dashboard.JobSetFilter{}, dashboard.Window{}); got.Total+got.Hidden != tenants {
			t.Errorf("%d JobSets and %d hidden", got.Total, got.Hidden)
		}
	})
}

// withoutKeys removes the keys of the map of answers.
func withoutKeys(text string) string {
	var all map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		return text
	}
	var values strings.Builder
	for _, value := range all {
		values.Write(value)
	}
	return values.String()
}

// A message keeps what is no name of another namespace.
func TestMessages(t *testing.T) {
	v := dashboard.Viewer{Namespace: func(name string) bool { return name == "mine" }}
	for message, want := range map[string]string{
		"7/10 nvidia.com/gpu of a100 are used": "7/10 nvidia.com/gpu of a100 are used",
		"held by other/train, and mine/eval.":  "held by an object of another namespace, and mine/eval.",
		"in namespace other.":                  "in namespace (hidden).",
		`in Namespace "mine" and other`:        `in Namespace "mine" and other`,
		"preempted by (other/a/b)":             "preempted by (an object of another namespace)",
		"ünicode other/train":                  "ünicode an object of another namespace",
		"gone/train":                           "gone/train",
		"other/":                               "other/",
	} {
		m := dashboard.New()
		js := jobSet("mine", "a", "train")
		js.Status.Conditions = []metav1.Condition{{Type: "StageAdmitted", Status: metav1.ConditionFalse, Reason: "R", Message: message}}
		for _, object := range []metav1.Object{js, localQueue("other", "lq", "q")} {
			m.Observe(object)
		}
		if got := m.JobSets(v, dashboard.JobSetFilter{}, dashboard.Window{}).Items[0].Message; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		if got := m.JobSets(dashboard.Viewer{}, dashboard.JobSetFilter{}, dashboard.Window{}).Items[0].Message; got != message {
			t.Errorf("%q for a reader of all, want %q", got, message)
		}
	}
}

// A viewer of the quota Workloads of a namespace may not see its JobSets, or the ClusterQueue to which they lead.
func TestPartOfTheRights(t *testing.T) {
	m := dashboard.New()
	for _, object := range []metav1.Object{clusterQueue("q", "", "1"), localQueue("mine", "lq", "q"), jobSet("mine", "js", "train"), workload("mine", "w", "lq")} {
		m.Observe(object)
	}
	none := func(string) bool { return false }
	if got := m.JobSets(dashboard.Viewer{JobSets: none}, dashboard.JobSetFilter{}, dashboard.Window{}); got.Total != 0 || got.Hidden != 1 {
		t.Errorf("%d JobSets and %d hidden", got.Total, got.Hidden)
	}
	if got := m.Search(dashboard.Viewer{JobSets: none}, "js"); len(got) != 0 {
		t.Errorf("found %v", got)
	}
	if got := m.JobSets(dashboard.Viewer{ClusterQueue: none}, dashboard.JobSetFilter{}, dashboard.Window{}); got.Items[0].ClusterQueue != "" {
		t.Errorf("the ClusterQueue %s", got.Items[0].ClusterQueue)
	}
	if got := m.JobSets(dashboard.Viewer{ClusterQueue: none}, dashboard.JobSetFilter{ClusterQueue: "q"}, dashboard.Window{}); got.Total != 0 {
		t.Errorf("a filter finds %d JobSets", got.Total)
	}
	if got := m.Search(dashboard.Viewer{ClusterQueue: none}, "lq"); len(got) != 1 || got[0].ClusterQueue != "" {
		t.Errorf("found %v", got)
	}
	if _, isSeen := m.Overview(dashboard.Viewer{ClusterQueue: func(string) bool { return true }}, start); isSeen {
		t.Error("the overview is shown to a viewer who may not read all ClusterQueues")
	}
	if got := m.LocalQueues(dashboard.Viewer{ClusterQueue: none}, dashboard.LocalQueueFilter{}, dashboard.Window{}).Items; len(got) != 1 || got[0].ClusterQueue != "" {
		t.Errorf("LocalQueues %+v", got)
	}
	if got := m.LocalQueues(dashboard.Viewer{ClusterQueue: none}, dashboard.LocalQueueFilter{ClusterQueue: "q"}, dashboard.Window{}); got.Total != 0 {
		t.Errorf("a filter finds %d LocalQueues", got.Total)
	}
	v := dashboard.Viewer{ClusterQueue: none}
	objects := &dashboard.JobSetObjects{JobSet: jobSet("mine", "js", "train"), Workloads: []*kueue.Workload{stageWorkload(jobSet("mine", "js"), "train")}}
	limit := visibilityapi.Constraint{Kind: visibilityapi.ClusterQueue, Name: "q"}
	x := &visibilityapi.Explanation{Alternatives: []visibilityapi.Alternative{{Shortages: []visibilityapi.Shortage{{Constraint: limit}}}}}
	objects.Explanations = map[string]*visibilityapi.Explanation{objects.Workloads[0].Name: x}
	if got := m.JobSet(v, objects, start); got.Stages[0].Explanation.Alternatives[0].Shortages[0].Constraint.Name != "" {
		t.Error("the limit names the ClusterQueue")
	}
	if s := &x.Alternatives[0].Shortages[0]; s.Constraint.Name != "q" {
		t.Error("the explanation, which others share, is changed")
	}
	if got := m.JobSet(v, objects, start); got.Stages[0].ClusterQueue != "" {
		t.Errorf("the stage is in ClusterQueue %s", got.Stages[0].ClusterQueue)
	}
}

// A viewer gets what would let a JobSet in with the names that they may read, and sets that then look the same once.
func TestLetInOfAViewer(t *testing.T) {
	m := dashboard.New()
	js := jobSet("mine", "js", "train")
	w := stageWorkload(js, "train")
	for _, object := range []metav1.Object{clusterQueue("q", "c", "1"), localQueue("mine", "lq", "q"), localQueue("other", "lq", "q"), js, w} {
		m.Observe(object)
	}
	in := visibilityapi.Constraint{Kind: visibilityapi.ClusterQueue, Name: "q"}
	ends := func(namespace, name string) dashboard.Change {
		bare := "JobSet " + namespace + "/" + name + " ends"
		return dashboard.Change{Text: bare + " in q", Bare: bare, Namespace: namespace, Node: in}
	}
	raise := dashboard.Change{Text: "raise quota of c", Bare: "raise quota of a Cohort", Node: visibilityapi.Constraint{Kind: visibilityapi.Cohort, Name: "c"}}
	x := &dashboard.LetIn{Why: "other/js is ahead", Sets: []string{"all that is in the first", "second", "third", "fourth"}, Changes: []dashboard.ChangeSet{
		{Changes: []dashboard.Change{ends("mine", "a"), raise}, Evicts: 2},
		{Changes: []dashboard.Change{ends("other", "b")}},
		{Changes: []dashboard.Change{ends("other", "c")}},
		{Changes: []dashboard.Change{raise}},
	}}
	objects := &dashboard.JobSetObjects{JobSet: js, Workloads: []*kueue.Workload{w}, LetIn: map[string]*dashboard.LetIn{w.Name: x}}
	isMine, none := func(name string) bool { return name == "mine" }, func(string) bool { return false }
	const ahead, hidden = "an object of another namespace is ahead", "a quota Workload of another namespace ends"
	for name, tc := range map[string]struct {
		viewer dashboard.Viewer
		why    string
		sets   []string
	}{
		"all": {viewer: dashboard.Viewer{}, why: x.Why, sets: x.Sets},
		"one namespace": {viewer: dashboard.Viewer{Namespace: isMine}, why: ahead, sets: []string{
			"JobSet mine/a ends in q; and raise quota of c (the engine then evicts 2 quota Workloads)", hidden, "raise quota of c",
		}},
		"one namespace and no ClusterQueue": {viewer: dashboard.Viewer{Namespace: isMine, ClusterQueue: none}, why: ahead, sets: []string{
			"JobSet mine/a ends; and raise quota of a Cohort (the engine then evicts 2 quota Workloads)", hidden, "raise quota of a Cohort",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := m.JobSet(tc.viewer, objects, start).Stages[0].LetIn
			if got.Why != tc.why || !slices.Equal(got.Sets, tc.sets) {
				t.Errorf("%q, %q, want %q, %q", got.Why, got.Sets, tc.why, tc.sets)
			}
		})
	}
	if x.Sets[1] != "second" {
		t.Error("what others share is changed")
	}
}

// A quota Workload of another namespace does not belong to a JobSet, though its controller has the UID of the JobSet.
func TestOwnerOfAnotherNamespace(t *testing.T) {
	m := dashboard.New()
	js := jobSet("mine", "js", "train")
	mine, other := stageWorkload(js, "train"), stageWorkload(js, "train")
	other.Namespace, other.Name, other.UID = "secret", "secret-w", "secret-w"
	for _, object := range []metav1.Object{clusterQueue("q", "", "1"), localQueue("mine", "lq", "q"), localQueue("secret", "lq", "q"), js, mine, other} {
		m.Observe(object)
	}
	if got := fmt.Sprint(m.WorkloadsOf("mine", js.UID)); got != "[mine/js-train]" {
		t.Errorf("the JobSet has %s", got)
	}
}
