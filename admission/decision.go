package admission

import (
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// A StageKey names a stage by the quota Workload that stands for it.
type StageKey = types.NamespacedName

// A DecisionID names a decision that has not been settled yet. Zero names none.
type DecisionID uint64

// A Decision is a change that the Engine has made to its own state and that must now be written to the API. Its owner writes the
// decisions of one stage in the order in which they came, and calls Settle for each that has an ID.
//
//sumtype:decl
type Decision interface {
	fmt.Stringer
	decision()
}

// Admit reserves quota for a stage and admits it. It must be settled.
type Admit struct {
	ID    DecisionID
	Stage StageKey
	// UID of the quota Workload that was decided on; a newer one with the same name must not be written to.
	UID       types.UID
	Admission kueue.Admission
	// JobSet and StageName are set for the stages of JobSets; they are for messages.
	JobSet, StageName string
}

// Refuse says why a stage waits. It is emitted when the reason changes, needs no settling, and only its last value matters.
type Refuse struct {
	Stage   StageKey
	UID     types.UID
	Refusal Refusal
}

func (Admit) decision()  {}
func (Refuse) decision() {}

func (d Admit) String() string { return "admit " + d.Stage.String() }
func (d Refuse) String() string {
	return "refuse " + d.Stage.String() + " " + d.Refusal.String()
}

// A Refusal is one reason why a stage is not admitted.
type Refusal struct {
	// Check is the short CamelCase name of the rule that said no, such as QuotaFits or StageUnsafe. It is ours.
	Check string
	// Reason is the reason of the condition QuotaReserved=False, from Kueue's vocabulary.
	Reason string
	// Message is a sentence for the owner: what is short, by how much, and what to do where that is known.
	Message string
}

func (r Refusal) String() string { return r.Check + ": " + r.Message }
