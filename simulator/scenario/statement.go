package scenario

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A Statement is what a line asks for.
//
//sumtype:decl
type Statement interface{ statement() }

// Declare makes an object.
type Declare struct {
	Kind   Kind
	Name   string
	Fields Fields
}

// Change replaces fields of an object that exists.
type Change struct {
	Kind   Kind
	Name   string
	Fields Fields
}

// Remove deletes an object.
type Remove struct {
	Kind Kind
	Name string
}

// Submit hands in a JobSet or another job.
type Submit struct{ Submission *Submission }

// Set changes the spec of quota Workloads.
type Set struct {
	Target Target
	Fields Fields
}

// Resize changes how many pods the Job of a ReplicatedJob has. The target names one.
type Resize struct {
	Target Target
	Pods   int32
}

// Act applies an action to a job, or to one stage of it.
type Act struct {
	Action Action
	Target Target
}

// Check gives states to AdmissionChecks of quota Workloads.
type Check struct {
	Target Target
	// States by the name of the check, in the order of the line.
	States []CheckState
}

// A CheckState is the state of one AdmissionCheck.
type CheckState struct {
	Check string
	State kueue.CheckState
	// AfterSeconds is how long a check that says Retry wants the quota Workload to stay out of the queue, or 0.
	AfterSeconds int32
}

// Crash discards the engine, including decisions that are not written yet, and creates a new one from the objects.
type Crash struct {
	// AfterWrites is how many objects the manager still writes for JobSets before it dies, or nil if it dies at once.
	AfterWrites *int32
}

// FailWrite makes the write of the next decision about a quota Workload fail.
type FailWrite struct{ Target Target }

// Explain prints why stages wait.
type Explain struct{ Target Target }

// Held prints the held quota of a ClusterQueue, or of all of them if it names none.
type Held struct{ Queue string }

// Run advances the time.
type Run struct {
	// Until is the time at which the run stops.
	Until time.Duration
	// ToTheEnd is true if the run continues until no event is left, instead.
	ToTheEnd bool
}

func (Declare) statement()   {}
func (Change) statement()    {}
func (Remove) statement()    {}
func (Submit) statement()    {}
func (Set) statement()       {}
func (Resize) statement()    {}
func (Act) statement()       {}
func (Check) statement()     {}
func (Crash) statement()     {}
func (FailWrite) statement() {}
func (Explain) statement()   {}
func (Held) statement()      {}
func (Run) statement()       {}

// A Target names a job and, where Part is not empty, one stage or ReplicatedJob of it. Where Growth is not 0 it is the growth of a stage
// with that number.
type Target struct {
	Name, Part string
	Growth     int
	// Namespace is that of the job. An empty one is the namespace default.
	Namespace string
}

// Key returns the namespace and the name of the job.
func (t Target) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: cmp.Or(t.Namespace, metav1.NamespaceDefault), Name: t.Name}
}

func (t Target) String() string {
	switch {
	case t.Part == "":
		return t.Name
	case t.Growth == 0:
		return t.Name + "/" + t.Part
	}
	return fmt.Sprintf("%s/%s+%d", t.Name, t.Part, t.Growth)
}

// An Action is a verb that changes the state of a job.
type Action string

// The actions.
const (
	Ready      Action = "ready"
	Finish     Action = "finish"
	Fail       Action = "fail"
	Evict      Action = "evict"
	Delete     Action = "delete"
	Suspend    Action = "suspend"
	Resume     Action = "resume"
	Checkpoint Action = "checkpoint"
)

// A Kind is the kind of an object in a scenario.
type Kind string

// The kinds.
const (
	Namespace      Kind = "namespace"
	Flavor         Kind = "flavor"
	Cohort         Kind = "cohort"
	Queue          Kind = "queue"
	LocalQueue     Kind = "localqueue"
	AdmissionCheck Kind = "admissioncheck"
	PriorityClass  Kind = "priorityclass"
	LimitRange     Kind = "limitrange"
	RuntimeClass   Kind = "runtimeclass"
	DeviceClass    Kind = "deviceclass"
)

// A Field is a word of the form KEY=VALUE.
type Field struct{ Key, Value string }

// Fields are those of one line, in its order. Each key occurs once.
type Fields []Field

// Get returns the value of a field, or otherwise if it is missing.
func (f Fields) Get(key, otherwise string) string {
	for i := range f {
		if f[i].Key == key {
			return f[i].Value
		}
	}
	return otherwise
}
