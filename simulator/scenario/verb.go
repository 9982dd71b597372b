package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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

	read func(*reader, *words) (Statement, error)
}

// Name is the first word.
func (v *Verb) Name() string {
	name, _, _ := strings.Cut(v.Usage, " ")
	return name
}

// Verbs returns all of them, in the order in which a reader should learn them.
func Verbs() []Verb { return append(append(objectVerbs(), jobVerbs()...), runVerbs()...) }

func objectVerbs() []Verb {
	quota := Option{
		"[FLAVOR:]RESOURCE", "AMOUNT[/borrow=AMOUNT][/lend=AMOUNT]",
		"Nominal quota, borrowing limit and lending limit. Flavors are tried in the order of the line; those with the same resources make a resource group.",
	}
	return []Verb{
		{
			Usage: "flavor NAME", Text: "makes a ResourceFlavor. A quota that names no flavor is of the flavor `default`, which need not be declared.",
			Options: described(flavorOptions()), read: declares(Flavor),
		},
		{
			Usage: "cohort NAME", Text: "makes a Cohort. One without quota and parent need not be declared.",
			Options: append(described(cohortOptions()), quota), read: declares(Cohort),
		},
		{
			Usage: "queue NAME", Text: "makes a ClusterQueue, and a LocalQueue of the same name that leads to it.",
			Options: append(described(queueOptions()), quota), read: declares(Queue),
		},
		{
			Usage: "localqueue NAME", Text: "makes one more LocalQueue.",
			Options: described(localQueueOptions()), read: declares(LocalQueue),
		},
		{
			Usage: "namespace NAME", Text: "gives a Namespace labels. One without labels need not be declared.",
			Options: described(namespaceOptions()), read: declares(Namespace),
		},
		{
			Usage: "admissioncheck NAME", Text: "makes an AdmissionCheck, which queues name in their field checks.",
			Options: described(admissionCheckOptions()), read: declares(AdmissionCheck),
		},
		{
			Usage: "priorityclass NAME", Text: "makes a WorkloadPriorityClass.",
			Options: described(priorityClassOptions()), read: declares(PriorityClass),
		},
		{
			Usage: "limitrange NAME", Text: "makes a LimitRange: what the containers of a namespace have to ask for, or its pods with type=Pod.",
			Options: described(limitRangeOptions()), read: declares(LimitRange),
		},
		{
			Usage: "runtimeclass NAME", Text: "makes a RuntimeClass.",
			Options: described(runtimeClassOptions()), read: declares(RuntimeClass),
		},
		{
			Usage: "deviceclass NAME", Text: "makes a DeviceClass. The setting devices=NAME:RESOURCE maps it to a resource of quota.",
			Options: described(deviceClassOptions()), read: declares(DeviceClass),
		},
		{
			Usage: "change KIND NAME",
			Text:  "replaces the given fields of an object. KIND is the verb that makes such an object, and the fields are those of that verb.",
			read:  readChange,
		},
		{
			Usage: "remove KIND NAME", Text: "deletes an object.",
			read: readRemove,
		},
	}
}

func jobVerbs() []Verb {
	verbs := []Verb{
		{
			Usage: "submit NAME", Text: "submits a JobSet, or a job of another kind.",
			Options: described(submitOptions()), read: readSubmit,
		},
		{
			Usage: "resize NAME[/JOB]", Text: "changes how many pods a ReplicatedJob of a JobSet has, as its user does. Its Jobs are Indexed.",
			Options: []Option{{"pods", "COUNT", "How many. What runs with fewer grows: it asks for the others with a quota Workload of their own."}}, read: readResize,
		},
	}
	for _, a := range []struct {
		action Action
		text   string
	}{
		{Ready, "lets the running pods of a job, or of one stage or ReplicatedJob of it, become ready."},
		{Finish, "lets them succeed."},
		{Fail, "lets them fail. A JobSet with restarts left restarts; else it has failed."},
		{Evict, "evicts the job, as an administrator does who wants its nodes. A growth, such as a/train+1, goes alone."},
		{Delete, "deletes the job."},
		{Suspend, "suspends the JobSet, as its user does."},
		{Resume, "lets it queue again."},
	} {
		usage := string(a.action) + " NAME"
		if a.action.takesPart() {
			usage += "[/PART]"
		}
		verbs = append(verbs, Verb{Usage: usage, Text: a.text, read: acts(a.action)})
	}
	return append(verbs,
		Verb{
			Usage: "check NAME[/STAGE]", Text: "lets AdmissionChecks of a job, or of one stage or growth of it, answer.",
			Options: []Option{{
				"CHECK", "Pending|Ready|Retry[/after=TIME]|Rejected",
				"What the check of this name says, and for Retry how long the quota Workload is to stay out of the queue.",
			}}, read: readCheck,
		},
		Verb{
			Usage: "set NAME[/STAGE]", Text: "changes the quota Workload of a job, those of all its stages and growths, or that of one of them.",
			Options: described(setOptions()), read: readSet,
		})
}

func runVerbs() []Verb {
	return []Verb{
		{
			Usage: "config", Text: "sets fields of the configuration, before anything else happens.", Untimed: true,
			Options: []Option{{"SETTING", "VALUE", "A field of admission.Config, or of waitForPodsReady in the manager's configuration: in lower case with dashes, such as stage-admission=Greedy or wait-for-pods-ready.timeout=5m. What is set of wait-for-pods-ready enables it."}}, read: readConfig,
		},
		{
			Usage: "crash", Text: "discards the engine, with its decisions that are not written yet, and creates a new one from the objects.",
			Options: []Option{{"writes", "COUNT", "How many objects the manager still writes for JobSets before it dies. It may die in the middle of a step."}}, read: readCrash,
		},
		{
			Usage: "fail-write NAME[/STAGE]", Text: "lets the write of the next decision to admit or evict fail.",
			read: func(r *reader, w *words) (Statement, error) {
				t, err := r.target(w.args[0])
				return FailWrite{t}, errors.Join(err, w.only())
			},
		},
		{
			Usage: "explain NAME[/STAGE]", Text: "prints why it waits.",
			read: func(r *reader, w *words) (Statement, error) {
				t, err := r.target(w.args[0])
				return Explain{t}, errors.Join(err, w.only())
			},
		},
		{
			Usage: "held [QUEUE]", Text: "prints what is held in a ClusterQueue, or in all of them.",
			read: func(_ *reader, w *words) (Statement, error) { return Held{w.arg(0)}, w.only() },
		},
		{
			Usage: "run", Text: "lets time pass. What comes below happens after that.", Untimed: true,
			Options: []Option{{"until", "TIME", "When to stop; if left out, when nothing is left to come."}}, read: readRun,
		},
	}
}

func kinds() []Kind {
	return []Kind{Flavor, Cohort, Queue, LocalQueue, Namespace, AdmissionCheck, PriorityClass, LimitRange, RuntimeClass, DeviceClass}
}

// takesPart reports whether an action can be applied to a part of a job.
func (a Action) takesPart() bool { return !slices.Contains([]Action{Delete, Suspend, Resume}, a) }

func setOptions() []option[kueue.Workload] {
	return []option[kueue.Workload]{
		{
			Option{"priority", "NUMBER", "Its priority."},
			into(number, func(o *kueue.Workload, v int32) { o.Spec.Priority = &v }),
		},
		{
			Option{"queue", "NAME", "Its LocalQueue."},
			into(name, func(o *kueue.Workload, v string) { o.Spec.QueueName = kueue.LocalQueueName(v) }),
		},
		{
			Option{"active", "true|false", "Its spec.active: false takes it out of the queue, and evicts it."},
			into(truth, func(o *kueue.Workload, v bool) { o.Spec.Active = &v }),
		},
		{
			Option{"reclaim", "COUNT", "How many pods of its first pod set have terminated and no longer need quota (reclaimablePods); for JobSets the manager computes this number."},
			into(count, func(o *kueue.Workload, v int32) {
				if len(o.Spec.PodSets) > 0 {
					o.Status.ReclaimablePods = []kueue.ReclaimablePod{{Name: o.Spec.PodSets[0].Name, Count: v}}
				}
			}),
		},
		{
			Option{"gates", "NAME,...|none", "Its admission gates."},
			into(gates, func(*kueue.Workload, []string) {}),
		},
	}
}

// ApplyWorkload applies the fields of a set line to a quota Workload, except for gates.
func (f Fields) ApplyWorkload(object *kueue.Workload) error { return apply(object, f, setOptions()) }

// Gates returns the value of the field gates of a set line, if it has one.
func (f Fields) Gates() (names []string, ok bool) {
	text := f.Get("gates", "")
	if text == "" {
		return nil, false
	}
	names, err := gates(text)
	return names, err == nil
}

// misspelt returns an error with the verb that the user may have meant.
func misspelt(word string) error {
	verbs := Verbs()
	known := make([]string, len(verbs))
	for i := range verbs {
		known[i] = verbs[i].Name()
	}
	return fmt.Errorf("%q is no verb: write one of %s", word, strings.Join(known, ", "))
}
