package scenario_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/simulator/scenario"
)

// story is what every scenario begins with.
const story = "# story\n"

func TestParseProblems(t *testing.T) {
	cases := map[string]struct {
		text string
		// want are parts of the error.
		want []string
	}{
		"no story":                       {"queue ml gpu=1\n", []string{"line 1", "begins with its story"}},
		"nothing at all":                 {"", []string{"line 1", "story"}},
		"an unknown verb":                {story + "quue ml\n", []string{"line 2", `"quue" is no verb`, "queue"}},
		"an unknown field":               {story + "queue ml gpu=1 strateg=StrictFIFO\n", []string{"line 2", "queue ml", `"strateg" is no field here`, "strategy"}},
		"a misspelt resource":            {story + "queue ml gpx=1\n", []string{`"gpx" is no field here`}},
		"a misspelt resource of flavor":  {story + "queue ml a:gpx=1\n", []string{`"gpx" is no resource`, "nvidia.com/gpu"}},
		"a bad value":                    {story + "queue ml strategy=FIFO\n", []string{"strategy", "StrictFIFO or BestEffortFIFO"}},
		"a bad amount":                   {story + "queue ml gpu=many\n", []string{"gpu", `"many" is no amount`}},
		"a negative amount":              {story + "queue ml gpu=-1\n", []string{`"-1" is no amount`}},
		"a bad limit":                    {story + "queue ml gpu=1/max=2\n", []string{`"max=2" is no limit`, "/borrow="}},
		"flavors that differ":            {story + "queue ml a:gpu=1 a:cpu=1 b:gpu=1\n", []string{"flavor a", "flavor b", "write 0"}},
		"no name":                        {story + "queue gpu=1\n", []string{"write queue NAME"}},
		"two names":                      {story + "queue ml research gpu=1\n", []string{"write queue NAME"}},
		"a bad name":                     {story + "queue ML gpu=1\n", []string{`"ML" is no name`}},
		"a name of no object":            {story + "queue a..b gpu=1\n", []string{`"a..b" is no name`}},
		"a field twice":                  {story + "queue ml gpu=1 gpu=2\n", []string{"gpu is there twice"}},
		"a queue twice":                  {story + "queue ml gpu=1\nqueue ml gpu=2\n", []string{"line 3", "declared in line 2", "change queue ml"}},
		"a name after fields":            {story + "queue gpu=1 ml\n", []string{`"ml" must be KEY=VALUE`}},
		"an empty value":                 {story + "queue ml gpu=\n", []string{`"gpu=" must be KEY=VALUE`}},
		"a localqueue to nowhere":        {story + "localqueue ml\n", []string{"leads nowhere", "queue=NAME"}},
		"change of an unknown kind":      {story + "change pod ml gpu=1\n", []string{`"pod" must be flavor or`}},
		"change of nothing":              {story + "change queue ml\n", []string{"changes nothing"}},
		"a job without pods":             {story + "submit a queue=ml\n", []string{"either stages=", "or pods="}},
		"a job with both":                {story + "submit a queue=ml pods=gpu:1 stages=a(gpu=1)\n", []string{"either stages="}},
		"a job twice":                    {story + "submit a pods=gpu:1\nsubmit a pods=gpu:1\n", []string{"line 3", "submitted above"}},
		"stages without brackets":        {story + "submit a stages=ps=Ready=>train(gpu=1)\n", []string{`"ps" asks for nothing`}},
		"stages that wait for nothing":   {story + "submit a stages=ps(gpu=1)=Done=>train(gpu=1)\n", []string{"what to wait for", "Ready or Succeeded"}},
		"an arrow too short":             {story + "submit a stages=ps(gpu)=>train(gpu=1)\n", []string{"=Ready=>"}},
		"a stage twice":                  {story + "submit a stages=ps(gpu=1)=Ready=>ps(gpu=1)\n", []string{`"ps" is there twice`}},
		"an open bracket":                {story + "submit a stages=ps(gpu=1\n", []string{"no closing bracket"}},
		"a stage that waits for itself":  {story + "submit a stages=ps(gpu=1)=Ready=>ps\n", []string{"submit a", "ps"}},
		"pods that wait":                 {story + "submit a pods=a(gpu=1)=Ready=>b(gpu=1)\n", []string{"write stages instead"}},
		"a run time of an unknown job":   {story + "submit a stages=ps(gpu=1) run=pss:1m\n", []string{`no ReplicatedJob "pss"`}},
		"restarts of no JobSet":          {story + "submit a pods=gpu:1 restarts=1\n", []string{"restarts, policy, order, rules and success are for JobSets"}},
		"rules without a status":         {story + "submit a stages=ps(gpu=1)+train(gpu=1) rules=ps\n", []string{`rules: "ps": what to wait for`, "Ready or Succeeded"}},
		"a rule about an unknown job":    {story + "submit a stages=ps(gpu=1)+train(gpu=1) rules=pss:Ready\n", []string{"spec.startupPolicy.rules[0]", `"pss"`}},
		"a success of an unknown job":    {story + "submit a stages=ps(gpu=1) success=pss\n", []string{`no ReplicatedJob "pss"`}},
		"an unknown order":               {story + "submit a stages=ps(gpu=1) order=Any\n", []string{"order", "AnyOrder or InOrder"}},
		"a job that is not there":        {story + "ready a at=1m\n", []string{`"a" is not submitted above`}},
		"a stage that is not there":      {story + "submit a stages=ps(gpu=1)\nready a/pss\n", []string{"line 3", `no stage or ReplicatedJob "pss"`}},
		"a stage of no JobSet":           {story + "submit a pods=gpu:1\nready a/main\n", []string{"has no stages"}},
		"a part of a whole":              {story + "submit a stages=ps(gpu=1)\ndelete a/ps\n", []string{"write delete a"}},
		"suspension of no JobSet":        {story + "submit a pods=gpu:1\nsuspend a\n", []string{"is for JobSets"}},
		"a check without a state":        {story + "submit a pods=gpu:1\ncheck a\n", []string{"names no check"}},
		"a pause after no retry":         {story + "submit a pods=gpu:1\ncheck a x=Ready/after=5m\n", []string{"only Retry"}},
		"a growth of no stage":           {story + "submit a stages=ps(gpu=1)+log(gpu=1)\nexplain a/ps+1\n", []string{`"a/ps+1" names no growth`, "write NAME/STAGE+NUMBER"}},
		"a growth without a number":      {story + "submit a stages=ps(gpu=1)\nexplain a/ps+0\n", []string{`"a/ps+0" names no growth`}},
		"pods of a growth":               {story + "submit a stages=ps(gpu=1)\nfinish a/ps+1\n", []string{"only a quota Workload", "write finish a/ps"}},
		"gates of a growth":              {story + "submit a stages=ps(gpu=1)\nset a/ps+1 gates=x\n", []string{"those of its stage"}},
		"reclaimed pods of a JobSet":     {story + "submit a stages=ps(gpu=1)\nset a reclaim=1\n", []string{"is for jobs of another kind"}},
		"a size of no JobSet":            {story + "submit a pods=gpu:1\nresize a pods=2\n", []string{"is for JobSets"}},
		"a size of two at once":          {story + "submit a stages=ps(gpu=1)+log(gpu=1)\nresize a/ps.log pods=2\n", []string{"write resize a/JOB with one of ps, log"}},
		"a size of a growth":             {story + "submit a stages=ps(gpu=1)\nresize a/ps+1 pods=2\n", []string{"write resize a/JOB with one of ps"}},
		"no size":                        {story + "submit a stages=ps(gpu=1)\nresize a/ps\n", []string{"write pods=COUNT"}},
		"a size of nothing":              {story + "submit a stages=ps(gpu=1)\nresize a/ps pods=0\n", []string{"at least 1"}},
		"a bad size":                     {story + "submit a stages=ps(gpu=1)\nresize a/ps pods=-1\n", []string{"pods", `"-1" is no count`}},
		"an affinity without a value":    {story + "submit a pods=gpu:1 affinity=zone\n", []string{"no label"}},
		"a check with an unknown state":  {story + "submit a pods=gpu:1\ncheck a x=Done\n", []string{"Pending or Ready"}},
		"a bad time":                     {story + "queue ml gpu=1 at=5\n", []string{"at", `"5" is no time`, "90s"}},
		"a time that has passed":         {story + "run until=2m\nqueue ml gpu=1 at=1m\n", []string{"line 3", "has passed", "2m"}},
		"a run that goes back":           {story + "run until=2m\nrun until=1m\n", []string{"line 3", "has passed"}},
		"a time after the end":           {story + "run\nqueue ml gpu=1 at=1m\n", []string{"line 3", "write until=TIME there"}},
		"at in a run line":               {story + "run at=1m\n", []string{`"at" is no field here`, "until"}},
		"an unknown setting":             {story + "config speed=9\n", []string{"line 2", `config: "speed" is no setting`, "stage-admission"}},
		"a late config":                  {story + "queue ml gpu=1\nconfig stage-admission=Safe\n", []string{"line 3", "too late"}},
		"a field of a verb without any":  {story + "crash now=true\n", []string{`"now" is no field here`}},
		"all problems of a file at once": {story + "quue ml\nqueue ml gpu=x\n", []string{"line 2", "line 3"}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := scenario.Parse(c.text)
			if err == nil {
				t.Fatal("there is no error")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("got %q, want something with %q", err, part)
				}
			}
			var problem *scenario.Error
			if !errors.As(err, &problem) || problem.Line == 0 {
				t.Errorf("%v names no line", err)
			}
		})
	}
}

func TestParseKeepsLinesAndGolden(t *testing.T) {
	const text = "# story\n\nqueue   ml\tgpu=1   # nine\nrun until=1m\n----\n0m  as it is\n"
	s, err := scenario.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	want := "# story\n\nqueue ml gpu=1 # nine\nrun until=1m\n----\n0m  as it is\n"
	if diff := cmp.Diff(want, s.String()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if s.Golden != "0m  as it is\n" || !s.HasGolden {
		t.Errorf("golden is %q, %t", s.Golden, s.HasGolden)
	}
}

func TestTimes(t *testing.T) {
	s, err := scenario.Parse(story + "queue a gpu=1\nrun until=2m\nqueue b gpu=1\nqueue c gpu=1 at=3m\n")
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[int]time.Duration{1: 0, 3: 2 * time.Minute, 4: 3 * time.Minute} {
		if got := s.Lines[line].At; got != want {
			t.Errorf("%q is at %v, want %v", s.Lines[line].String(), got, want)
		}
	}
}

func TestQueueFields(t *testing.T) {
	s, err := scenario.Parse(story + "queue ml cohort=lab strategy=StrictFIFO a100:gpu=8/borrow=4/lend=2 h100:gpu=2 cpus:cpu=500m within=LowerPriority borrow-within=LowerPriority:10 checks=x,y@a100\n")
	if err != nil {
		t.Fatal(err)
	}
	declare, ok := s.Lines[1].Statement.(scenario.Declare)
	if !ok {
		t.Fatalf("statement is %T", s.Lines[1].Statement)
	}
	var q kueue.ClusterQueue
	if err := declare.Fields.Apply(&q); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"lab StrictFIFO LowerPriority Never LowerPriority:10", "[gpu]", "a100 gpu 8 4 2", "h100 gpu 2 - -", "[cpu]", "cpus cpu 500m - -", "x []", "y [a100]",
	}
	if diff := cmp.Diff(want, summary(&q)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	// A change replaces what it names, and leaves the rest.
	change := scenario.Fields{{Key: "h100:gpu", Value: "3"}, {Key: "strategy", Value: "BestEffortFIFO"}}
	if err := change.Apply(&q); err != nil {
		t.Fatal(err)
	}
	want[0], want[3] = "lab BestEffortFIFO LowerPriority Never LowerPriority:10", "h100 gpu 3 - -"
	if diff := cmp.Diff(want, summary(&q)); diff != "" {
		t.Errorf("after the change: -want +got\n%s", diff)
	}
}

func TestSubmission(t *testing.T) {
	s, err := scenario.Parse(story + "submit a queue=ml stages=ps(cpu=4)+log(cpu=1)=Ready=>train(2*gpu=3) run=10m,ps:1m fails=train:1 restarts=1 priority=3\n")
	if err != nil {
		t.Fatal(err)
	}
	submit, ok := s.Lines[1].Statement.(scenario.Submit)
	if !ok {
		t.Fatalf("statement is %T", s.Lines[1].Statement)
	}
	a := submit.Submission
	if got, want := a.Plan.String(), "ps.log -Ready-> train"; got != want {
		t.Errorf("plan is %q, want %q", got, want)
	}
	train := a.Plan.Stages[1].PodSets[0]
	if gpus := train.Requests["gpu"]; train.Count != 2 || gpus.Value() != 3 {
		t.Errorf("train has %d pods with %s GPUs each, want 2 with 3", train.Count, gpus.String())
	}
	ps, _ := a.RunTime("ps")
	other, _ := a.RunTime("train")
	ready, isReady := a.ReadyAfter("train")
	if ps != time.Minute || other != 10*time.Minute || ready != 0 || !isReady {
		t.Errorf("ps runs %v, train %v and is ready after %v, %t", ps, other, ready, isReady)
	}
	if !a.Fails("train", 0) || a.Fails("train", 1) || a.Fails("ps", 0) {
		t.Error("only the first attempt of train should fail")
	}
	if a.Priority != 3 || a.MaxRestarts != 1 || a.Namespace != corev1.NamespaceDefault {
		t.Errorf("priority %d, restarts %d, namespace %q", a.Priority, a.MaxRestarts, a.Namespace)
	}
}

// Resizing a submission returns another one, with the same stages.
func TestResized(t *testing.T) {
	s, err := scenario.Parse(story + "submit a stages=ps(gpu=1)=Ready=>train(2*gpu=3)\nresize a/train pods=5\nresize a/ps pods=2\nset a/train+2 active=false\n")
	if err != nil {
		t.Fatal(err)
	}
	before := s.Lines[1].Statement.(scenario.Submit).Submission
	after := before
	for _, line := range s.Lines[2:4] {
		resize, ok := line.Statement.(scenario.Resize)
		if !ok {
			t.Fatalf("statement is %T", line.Statement)
		}
		if after, err = after.Resized(resize.Target.Part, resize.Pods); err != nil {
			t.Fatal(err)
		}
	}
	counts := func(s *scenario.Submission) [2]int32 {
		return [2]int32{s.Plan.Stages[0].PodSets[0].Count, s.Plan.Stages[1].PodSets[0].Count}
	}
	if got, want := counts(after), [2]int32{2, 5}; got != want {
		t.Errorf("resized to %v, want %v", got, want)
	}
	if got, want := counts(before), [2]int32{1, 2}; got != want {
		t.Errorf("what was resized has %v pods, want %v", got, want)
	}
	if got, want := after.Plan.String(), before.Plan.String(); got != want {
		t.Errorf("plan is %q, want %q", got, want)
	}
	set, ok := s.Lines[4].Statement.(scenario.Set)
	if want := (scenario.Target{Namespace: "default", Name: "a", Part: "train", Growth: 2}); !ok || set.Target != want || want.String() != "a/train+2" {
		t.Errorf("the growth is %+v, want %+v", set.Target, want)
	}
}

func TestDiff(t *testing.T) {
	if diff := scenario.Diff("a\nb\n", "a\nb\n"); diff != "" {
		t.Errorf("the same differs: %q", diff)
	}
	want := "  a\n- b\n+ x\n  c\n+ d\n"
	if got := scenario.Diff("a\nb\nc\n", "a\nx\nc\nd\n"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzParse reads random texts: it must not panic, and a text that it accepts prints back to the same.
func FuzzParse(f *testing.F) {
	paths, err := filepath.Glob("../testdata/*/*.txt")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := scenario.Parse(text)
		if err != nil {
			return
		}
		again, err := scenario.Parse(s.String())
		if err != nil {
			t.Fatalf("%q is read, and then not: %v", s, err)
		}
		if diff := cmp.Diff(s.String(), again.String()); diff != "" {
			t.Fatalf("-printed +printed again\n%s", diff)
		}
		for i := range s.Lines {
			if s.Lines[i].At != again.Lines[i].At {
				t.Fatalf("%q is at %v, and then at %v", s.Lines[i].String(), s.Lines[i].At, again.Lines[i].At)
			}
		}
	})
}
