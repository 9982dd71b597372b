package scenario

import (
	"slices"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A Verb describes the lines that begin with one word.
type Verb struct {
	// Usage begins with the word.
	Usage string
	// Text describes the effect of such a line.
	Text string
	// Options are the fields that it can have, in addition to at.
	Options []Option
	// Untimed is set if it cannot have at.
	Untimed bool

	// withoutFields is the error about a line that has no fields, or empty if there is none.
	withoutFields string
	// readsFields is true if read interprets the fields. If it is false, the Options are set before.
	readsFields bool
	read        func(*reader, *words) (Statement, error)
}

// Name is the first word.
func (v *Verb) Name() string {
	name, _, _ := strings.Cut(v.Usage, " ")
	return name
}

// Verbs returns all of them, in the order in which a reader should learn them. They are for one line, whose fields their Options set.
func Verbs() []Verb { return append(append(objectVerbs(), jobVerbs()...), runVerbs()...) }

func objectVerbs() []Verb {
	quota := Option{
		Key: "[FLAVOR:]RESOURCE", Value: "AMOUNT[/borrow=AMOUNT][/lend=AMOUNT]",
		Text: "Nominal quota, borrowing limit and lending limit. Flavors are tried in the order of the line; those with the same resources make a resource group.",
	}
	var verbs []Verb
	for _, d := range declarations() {
		fields, groups := options(d.empty)
		if groups != nil {
			fields = append(fields, quota)
		}
		verbs = append(verbs, Verb{Usage: string(d.kind) + " NAME", Text: d.text, Options: fields, readsFields: true, read: d.read})
	}
	return append(
		verbs,
		Verb{
			Usage:         "change KIND NAME",
			Text:          "replaces the given fields of an object. KIND is the verb that makes such an object, and the fields are those of that verb.",
			withoutFields: "changes nothing: give the fields to replace", readsFields: true, read: readChange,
		},
		Verb{Usage: "remove KIND NAME", Text: "deletes an object.", read: readRemove},
	)
}

func jobVerbs() []Verb {
	submission, pods := &Submission{Namespace: "default"}, new(int32)
	verbs := []Verb{
		{Usage: "submit NAME", Text: "submits a JobSet, or a job of another kind.", Options: submitOptions(submission), read: readSubmit(submission)},
		{
			Usage: "resize NAME[/JOB]", Text: "sets spec.parallelism and spec.completions of a ReplicatedJob, whose Jobs are Indexed.",
			Options: []Option{
				{"pods", "COUNT", "How many. What runs with fewer grows: it asks for the others with a quota Workload of their own.", into(pods, count)},
			},
			read: concerns(resizes(pods)),
		},
	}
	for _, a := range []struct {
		action Action
		text   string
	}{
		{Ready, "lets the running pods of a job, or of one stage or ReplicatedJob of it, become ready."},
		{Finish, "lets them succeed."},
		{Fail, "lets them fail. A JobSet with restarts left restarts; else it has failed."},
		{Evict, "evicts the job because an administrator drains its nodes. If PART is a growth, such as a/train+1, only the growth is evicted."},
		{Delete, "deletes the job."},
		{Suspend, "sets spec.suspend of the JobSet to true."},
		{Resume, "sets spec.suspend of the JobSet to false, so that it queues again."},
		{Checkpoint, "saves the work of the JobSet: its annotation tranche.dev/checkpointed-at gets the current time."},
	} {
		usage := string(a.action) + " NAME"
		if a.action.takesPart() {
			usage += "[/PART]"
		}
		verbs = append(verbs, Verb{Usage: usage, Text: a.text, read: concerns(acts(a.action))})
	}
	return append(verbs,
		Verb{
			Usage: "check NAME[/STAGE]", Text: "lets AdmissionChecks of a job, or of one stage or growth of it, answer.",
			Options: []Option{{
				Key: "CHECK", Value: "Pending|Ready|Retry[/after=TIME]|Rejected",
				Text: "What the check of this name says, and for Retry how long the quota Workload is to stay out of the queue.",
			}}, withoutFields: "names no check: write CHECK=Ready", readsFields: true, read: concerns(readCheck),
		},
		Verb{
			Usage: "set NAME[/STAGE]", Text: "changes the quota Workload of a job, those of all its stages and growths, or that of one of them.",
			Options: workloadOptions(&kueue.Workload{}), withoutFields: "changes nothing: give the fields to replace", read: concerns(readSet),
		})
}

func runVerbs() []Verb {
	crash, run := &Crash{}, &Run{ToTheEnd: true}
	return []Verb{
		{
			Usage: "config", Text: "sets fields of the configuration, before anything else happens.", Untimed: true,
			Options: []Option{{
				Key: "SETTING", Value: "VALUE",
				Text: "A field of admission.Config, or of waitForPodsReady in the manager's configuration: in lower case with dashes, such as stage-admission=Greedy or wait-for-pods-ready.timeout=5m. What is set of wait-for-pods-ready enables it.",
			}}, withoutFields: "sets nothing: write SETTING=VALUE", readsFields: true, read: readConfig,
		},
		{
			Usage: "crash", Text: "discards the engine, with its decisions that are not written yet, and creates a new one from the objects.",
			Options: []Option{{
				"writes", "COUNT", "How many objects the manager still writes for JobSets before it dies. It may die in the middle of a step.",
				intoPointer(&crash.AfterWrites, count),
			}},
			read: func(*reader, *words) (Statement, error) { return *crash, nil },
		},
		{
			Usage: "fail-write NAME[/STAGE]", Text: "lets the write of the next decision to admit or evict fail.",
			read: concerns(func(_ *words, _ *Submission, t Target) (Statement, error) { return FailWrite{t}, nil }),
		},
		{
			Usage: "explain NAME[/STAGE]", Text: "prints why it waits.",
			read: concerns(func(_ *words, _ *Submission, t Target) (Statement, error) { return Explain{t}, nil }),
		},
		{
			Usage: "held [QUEUE]", Text: "prints what is held in a ClusterQueue, or in all of them.",
			// The usage allows one name at most.
			read: func(_ *reader, w *words) (Statement, error) { return Held{strings.Join(w.args, "")}, nil },
		},
		{
			Usage: "run", Text: "lets time pass. What comes below happens after that.", Untimed: true,
			Options: []Option{
				{"until", "TIME", "When to stop; if left out, when nothing is left to come.", then(duration, func(v time.Duration) { *run = Run{Until: v} })},
			},
			read: readRun(run),
		},
	}
}

// takesPart reports whether an action can be applied to a part of a job.
func (a Action) takesPart() bool {
	return !slices.Contains([]Action{Delete, Suspend, Resume, Checkpoint}, a)
}

// workloadOptions are those of a set line.
func workloadOptions(o *kueue.Workload) []Option {
	return []Option{
		{"priority", "NUMBER", "Its priority.", intoPointer(&o.Spec.Priority, number)},
		{"queue", "NAME", "Its LocalQueue.", into(&o.Spec.QueueName, name)},
		{"active", "true|false", "Its spec.active: false takes it out of the queue, and evicts it.", intoPointer(&o.Spec.Active, truth)},
		{
			"reclaim", "COUNT",
			"How many pods of its first pod set have terminated and no longer need quota (reclaimablePods); for JobSets the manager computes this number.",
			then(count, func(v int32) {
				if len(o.Spec.PodSets) > 0 {
					o.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: o.Spec.PodSets[0].Name, Count: v}}
				}
			}),
		},
		// Fields.Gates returns them: a quota Workload takes them from its job.
		{"gates", "NAME,...|none", "Its admission gates.", into(new([]string), gates)},
	}
}

// Gates returns the value of the field gates of a set line, if it has one.
func (f Fields) Gates() (names []string, ok bool) {
	text := f.Get("gates", "")
	if text == "" {
		return nil, false
	}
	names, err := gates(text)
	return names, err == nil
}
