// Package explain is the verb that shows why stages are pending.
package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	jobsetapi "github.com/tranche-dev/tranche/apis/jobset/v1alpha2"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
	"github.com/tranche-dev/tranche/cmd/tranche/query"
	"github.com/tranche-dev/tranche/lifecycle/jobsetstatus"
	"github.com/tranche-dev/tranche/lifecycle/workloadstatus"
)

// A cluster explains with the rights of a user.
type cluster struct{ *query.Cluster }

// NewCommand returns the verb of a program of this version.
func NewCommand(version string) *cobra.Command {
	flags := query.Flags{Version: version}
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Show the stages of a JobSet, and why a stage is pending",
		Long: "Show the state of each stage of a JobSet, or of one quota Workload. For a pending stage, print its queue positions, the limit that\n" +
			"it exceeds and by how much, and the JobSets that hold the missing quota. Objects of other namespaces are named only if you may read\n" +
			"clusterqueues/pendingworkloads. If the visibility API is not served or you may not read it, the conditions of the quota Workloads\n" +
			"are printed instead.",
		Example: "  tranche explain -n team-a fine-tune-llm\n  tranche explain -n team-a jobset-fine-tune-llm-train-1a2b3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.Connect()
			if err != nil {
				return err
			}
			return (&cluster{c}).explain(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	flags.Add(cmd)
	return cmd
}

// explain prints the state of a quota Workload, or of all stages of a JobSet.
func (c *cluster) explain(ctx context.Context, out io.Writer, name string) error {
	key := types.NamespacedName{Namespace: c.Namespace, Name: name}
	var one kueue.Workload
	switch err := c.Get(ctx, key, &one); {
	case apierrors.IsNotFound(err):
		return c.explainJobSet(ctx, out, key)
	case err != nil:
		return fmt.Errorf("read quota Workload %s: %w", key, err)
	}
	limits, err := c.explainOne(ctx, out, &one)
	return errors.Join(err, printLimits(out, limits))
}

// explainJobSet prints all stages of a JobSet with their states, and why pending stages wait. It requires only the permission to read the
// JobSet and its quota Workloads.
func (c *cluster) explainJobSet(ctx context.Context, out io.Writer, key types.NamespacedName) error {
	var js jobsetapi.JobSet
	if err := c.Get(ctx, key, &js); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsForbidden(err) {
		return fmt.Errorf("read JobSet %s: %w", key, err)
	}
	var list kueue.WorkloadList
	if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{apis.JobSetLabel: key.Name}); err != nil {
		return fmt.Errorf("list the quota Workloads of JobSet %s: %w", key, err)
	}
	if js.Name == "" && len(list.Items) == 0 {
		return fmt.Errorf("namespace %q has neither a JobSet nor a quota Workload %q", key.Namespace, key.Name)
	}
	if err := printLines(out, jobSetLines(&js, key, len(list.Items))...); err != nil {
		return err
	}
	slices.SortFunc(list.Items, compareStages)
	var limits error
	for i := range list.Items {
		limit, err := c.explainOne(ctx, out, &list.Items[i])
		if err != nil {
			return err
		}
		limits = cmp.Or(limits, limit)
	}
	return printLimits(out, limits)
}

// jobSetLines returns what the conditions of the JobSet report.
func jobSetLines(js *jobsetapi.JobSet, key types.NamespacedName, workloads int) []string {
	lines := []string{"JobSet " + key.String()}
	if c := apimeta.FindStatusCondition(js.Status.Conditions, jobsetstatus.StageAdmitted); c != nil {
		return append(lines, fmt.Sprintf("  %s: %s", c.Reason, c.Message))
	}
	if workloads == 0 {
		return append(lines, fmt.Sprintf("  has no quota Workload: only a JobSet with the label %s in a managed namespace is queued", apis.QueueLabel))
	}
	return lines
}

// compareStages orders quota Workloads by the plan, and the growths of a stage after the stage.
func compareStages(a, b kueue.Workload) int {
	number := func(w *kueue.Workload, label string) int {
		n, _ := strconv.Atoi(w.Labels[label]) // a missing number sorts first
		return n
	}
	return cmp.Or(
		cmp.Compare(number(&a, apis.StageIndexLabel), number(&b, apis.StageIndexLabel)),
		cmp.Compare(number(&a, apis.GrowthLabel), number(&b, apis.GrowthLabel)), cmp.Compare(a.Name, b.Name),
	)
}

// explainOne prints the state of one quota Workload. limits is the error because of which positions and holders of quota are missing, or nil.
func (c *cluster) explainOne(ctx context.Context, out io.Writer, w *kueue.Workload) (limits, err error) {
	if state := stateOf(w); state != "" {
		return nil, printLines(out, headline(w), "  "+state)
	}
	if why := whyIneligible(w); why != "" {
		return nil, printLines(out, headline(w), "  "+why)
	}
	item, err := c.lookUp(ctx, w)
	switch {
	case query.IsUnserved(err) || apierrors.IsForbidden(err):
		return err, printLines(out, headline(w), "  "+conditionLine(w))
	case err != nil:
		return nil, err
	case item == nil:
		return nil, printLines(out, headline(w), "  "+conditionLine(w), "  is not in the queue yet: the manager has not read all objects of this JobSet")
	}
	var x visibilityapi.Explanation
	if text := item.Annotations[apis.ExplanationAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			return nil, fmt.Errorf("read the explanation of quota Workload %s: %w", client.ObjectKeyFromObject(w), err)
		}
	}
	lines := []string{
		headline(w),
		fmt.Sprintf("  position %d in its ClusterQueue, %d in LocalQueue %s (0 is next), priority %d",
			item.PositionInClusterQueue, item.PositionInLocalQueue, item.LocalQueueName, item.Priority),
	}
	return nil, printLines(out, append(lines, explanationLines(&x)...)...)
}

// conditionLine returns what the status of a pending quota Workload reports.
func conditionLine(w *kueue.Workload) string {
	wait := workloadstatus.WaitOf(w)
	if wait == nil {
		return "waiting for the first scheduling cycle"
	}
	return fmt.Sprintf("%s: %s", wait.Reason, wait.Message)
}

// printLimits prints once why something is missing from an explanation.
func printLimits(out io.Writer, limits error) error {
	if limits == nil {
		return nil
	}
	return printLines(out, "Queue positions and holders of quota are not shown: "+query.WithoutVisibility(limits))
}

// lookUp asks through the ClusterQueue, which returns more, and through the LocalQueue if that is forbidden. It returns nil for a quota
// Workload that is not pending.
func (c *cluster) lookUp(ctx context.Context, w *kueue.Workload) (*visibility.PendingWorkload, error) {
	local := types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
	q := query.Parameters{Only: client.ObjectKeyFromObject(w)}
	var lq kueue.LocalQueue
	err := c.Get(ctx, local, &lq)
	if err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("read LocalQueue %s: %w", local, err)
	}
	var summary *visibility.PendingWorkloadsSummary
	if err == nil {
		summary, err = c.Pending(ctx, types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}, q)
	}
	if isDenied(err) {
		summary, err = c.Pending(ctx, local, q)
	}
	if err != nil || len(summary.Items) == 0 {
		return nil, err
	}
	return &summary.Items[0], nil
}

// isDenied reports whether the LocalQueue has to be asked: the ClusterQueue may not be read, or does not exist.
func isDenied(err error) bool {
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && !query.IsUnserved(err))
}

func headline(w *kueue.Workload) string {
	line := "Workload " + client.ObjectKeyFromObject(w).String()
	if stage := w.Labels[apis.StageLabel]; stage != "" {
		if growth := w.Labels[apis.GrowthLabel]; growth != "" {
			stage += ", growth " + growth
		}
		line += fmt.Sprintf(" (stage %s of JobSet %s)", stage, w.Labels[apis.JobSetLabel])
	}
	return line
}

// stateOf returns the state of a quota Workload that does not wait for quota, or "".
func stateOf(w *kueue.Workload) string {
	is := func(conditionType string) bool {
		return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
	}
	message := func(conditionType string) string {
		return apimeta.FindStatusCondition(w.Status.Conditions, conditionType).Message
	}
	queue := ""
	if w.Status.Admission != nil {
		queue = fmt.Sprintf(" in ClusterQueue %q", w.Status.Admission.ClusterQueue)
	}
	switch {
	case is(kueue.WorkloadFinished):
		finished := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadFinished)
		return fmt.Sprintf("has finished: %s: %s", finished.Reason, finished.Message)
	case is(kueue.WorkloadEvicted) && is(kueue.WorkloadQuotaReserved):
		return "is evicted, and holds its quota" + queue + " until its pods have terminated: " + message(kueue.WorkloadEvicted)
	case is(kueue.WorkloadAdmitted) && is(kueue.WorkloadPodsReady):
		return "is admitted" + queue + ", and all pods are ready or have succeeded"
	case is(kueue.WorkloadAdmitted):
		return "is admitted" + queue + ", but not all pods are ready yet"
	case is(kueue.WorkloadQuotaReserved):
		return "has reserved its quota" + queue + ", and waits for AdmissionChecks"
	}
	return ""
}

// whyIneligible returns why a quota Workload is not in the queue, or "".
func whyIneligible(w *kueue.Workload) string {
	gates := strings.Split(w.Annotations[apis.AdmissionGatedByAnnotation], ",")
	switch {
	case slices.Contains(gates, apis.SuspendedGate):
		return "is not in the queue: the user suspended its JobSet; set spec.suspend of the JobSet to false to requeue"
	case slices.Contains(gates, apis.StageGate):
		return "is not in the queue: waiting for earlier stages of its JobSet"
	case gates[0] != "":
		return "is not in the queue: gated by " + strings.Join(gates, ", ")
	case w.Spec.Active != nil && !*w.Spec.Active:
		return "is not in the queue: spec.active is false; set spec.active to true to requeue"
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadRequeued); c != nil && c.Status == metav1.ConditionFalse {
		why := "is not in the queue: " + c.Message
		if state := w.Status.RequeueState; state != nil && state.RequeueAt != nil {
			why += "; requeues at " + state.RequeueAt.UTC().Format(time.RFC3339)
		}
		return why
	}
	return ""
}

// explanationLines renders an explanation as text.
func explanationLines(x *visibilityapi.Explanation) []string {
	if x.Check == "" {
		return []string{"  all checks pass; waiting for the next scheduling cycle"}
	}
	lines := []string{fmt.Sprintf("  %s: %s", x.Reason, x.Message)}
	if x.Behind != nil {
		lines = append(lines, "  blocked by Workload "+x.Behind.String()+", which is ahead in the queue")
	}
	for i, a := range x.Alternatives {
		if len(x.Alternatives) > 1 {
			lines = append(lines, fmt.Sprintf("  flavor alternative %d:", i+1))
		}
		for k := range a.Shortages {
			lines = append(lines, shortageLines(&a.Shortages[k])...)
		}
	}
	return lines
}

func shortageLines(s *visibilityapi.Shortage) []string {
	c := s.Constraint
	lines := []string{
		fmt.Sprintf("  %s of flavor %s: needs %s, %s free, %s missing", s.Resource, s.Flavor, s.Needed.String(), s.Free.String(), s.Missing.String()),
		fmt.Sprintf("    limit: %s of %s %s is %s", c.Limit, c.Kind, c.Name, c.Amount.String()),
	}
	for _, h := range s.Holders {
		lines = append(lines, "    held by "+holderText(&h))
	}
	if s.MoreHolders > 0 {
		lines = append(lines, fmt.Sprintf("    and by %d more", s.MoreHolders))
	}
	if s.Unreleasable != nil {
		lines = append(lines, fmt.Sprintf("    %s would be missing even if all of them released their quota", s.Unreleasable.String()))
	}
	return lines
}

func holderText(h *visibilityapi.Holder) string {
	name := h.String()
	if name == "" {
		name = "of another namespace"
	}
	text := fmt.Sprintf("%s %s: %s in ClusterQueue %s", h.Kind, name, h.Amount.String(), h.ClusterQueue)
	if h.Kept {
		text += ", partly reserved and not used yet"
	}
	if h.Leaving {
		text += ", evicted, pods terminating"
	}
	return text
}

func printLines(out io.Writer, lines ...string) error {
	if _, err := io.WriteString(out, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("print the explanation: %w", err)
	}
	return nil
}
