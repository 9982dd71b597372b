package pending

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tranche-dev/tranche/apis"
	"github.com/tranche-dev/tranche/cmd/tranche/expected"
	"github.com/tranche-dev/tranche/cmd/tranche/output"
)

// A List has pending quota Workloads, those of each ClusterQueue in the order of the queue. It is the output in JSON.
type List struct {
	// TakenAt is when the snapshot was taken from which the answer comes, and Until how far the simulation looked. They are missing otherwise.
	TakenAt time.Time `json:"takenAt,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Items   []Row     `json:"items"`
	// WithoutStarts says why there are no expected starts but those that the manager has written. It is empty if there are.
	WithoutStarts string `json:"withoutStarts,omitempty"`
	// WithoutLeader is a sentence with the time since which no manager has led. It is empty if one does, or if that is not known.
	WithoutLeader string `json:"withoutLeader,omitempty"`
}

// A Row is a pending quota Workload.
type Row struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Owner is the kind and name of the controller. JobSet, Stage and Growth say what the quota Workload stands for, if it belongs to a JobSet.
	Owner  string `json:"owner,omitempty"`
	JobSet string `json:"jobSet,omitempty"`
	Stage  string `json:"stage,omitempty"`
	Growth string `json:"growth,omitempty"`
	// ClusterQueue is empty if the user may not read the LocalQueue.
	ClusterQueue string    `json:"clusterQueue,omitempty"`
	LocalQueue   string    `json:"localQueue"`
	Priority     int32     `json:"priority"`
	Created      time.Time `json:"created"`
	// Position is missing if it is not in the queue: it is evicted, suspended, or waits for an earlier stage.
	Position *Position `json:"position,omitempty"`
	// Reason and Message say which check it does not pass.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// ExpectedStart is missing if it is not known.
	ExpectedStart *expected.Start `json:"expectedStart,omitempty"`
}

// A Position counts the quota Workloads before one.
type Position struct {
	InClusterQueue int `json:"inClusterQueue"`
	InLocalQueue   int `json:"inLocalQueue"`
}

// newRow returns the row of a quota Workload. The object has its names, labels and owners.
func newRow(object metav1.Object) Row {
	labels := object.GetLabels()
	r := Row{
		Namespace: object.GetNamespace(), Name: object.GetName(), JobSet: labels[apis.JobSetLabel], Stage: labels[apis.StageLabel], Growth: labels[apis.GrowthLabel],
		Created: object.GetCreationTimestamp().UTC(),
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		r.Owner = owner.Kind + "/" + owner.Name
	}
	return r
}

// sort orders rows by ClusterQueue and position. Those that are in no queue are the last ones, by namespace and name.
func (l *List) sort() {
	place := func(r *Row) int {
		if r.Position == nil {
			return int(^uint(0) >> 1)
		}
		return r.Position.InClusterQueue
	}
	slices.SortStableFunc(l.Items, func(a, b Row) int {
		if isQueued := a.Position != nil; isQueued != (b.Position != nil) {
			if isQueued {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.ClusterQueue, b.ClusterQueue), cmp.Compare(place(&a), place(&b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// write prints a table. Ages are those at some time.
func (l *List) write(out io.Writer, format output.Format, now time.Time) error {
	if l.WithoutLeader != "" {
		if _, err := fmt.Fprintln(out, "This may be out of date: "+l.WithoutLeader); err != nil {
			return err
		}
	}
	if len(l.Items) == 0 {
		_, err := fmt.Fprintln(out, "No pending quota Workloads.")
		return err
	}
	columns := []string{"CLUSTERQUEUE-POSITION", "LOCALQUEUE-POSITION", "NAMESPACE", "NAME", "QUEUE", "PRIORITY", "AGE", "OWNER", "STAGE", "EXPECTED-START"}
	if format == output.Wide {
		columns = append(columns, "CLUSTERQUEUE", "REASON", "MESSAGE")
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(table, strings.Join(columns, "\t"))
	for i := range l.Items {
		_, failure := fmt.Fprintln(table, strings.Join(l.Items[i].cells(now)[:len(columns)], "\t"))
		err = errors.Join(err, failure)
	}
	if err = errors.Join(err, table.Flush()); err == nil && l.WithoutStarts != "" {
		_, err = fmt.Fprintln(out, "Expected starts that the manager has not written are not shown: "+l.WithoutStarts)
	}
	return err
}

// cells returns the text of all columns.
func (r *Row) cells(now time.Time) []string {
	inClusterQueue, inLocalQueue, start := "", "", ""
	if p := r.Position; p != nil {
		inClusterQueue, inLocalQueue = fmt.Sprint(p.InClusterQueue), fmt.Sprint(p.InLocalQueue)
	}
	if r.ExpectedStart != nil {
		start = r.ExpectedStart.Text
	}
	stage := r.Stage
	if r.Growth != "" {
		stage += "+" + r.Growth
	}
	age := duration.HumanDuration(now.Sub(r.Created))
	cells := []string{
		inClusterQueue, inLocalQueue, r.Namespace, r.Name, r.LocalQueue, fmt.Sprint(r.Priority), age, r.Owner, stage, start, r.ClusterQueue, r.Reason, r.Message,
	}
	for i := range cells {
		cells[i] = cmp.Or(cells[i], "-")
	}
	return cells
}
