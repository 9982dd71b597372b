package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	visibility "sigs.k8s.io/kueue/apis/visibility/v1beta2"

	"github.com/tranche-dev/tranche/apis"
	visibilityapi "github.com/tranche-dev/tranche/apis/visibility"
)

func newExplainCommand() *cobra.Command {
	var flags queryFlags
	cmd := &cobra.Command{
		Use:   "explain NAME",
		Short: "Say why a quota Workload, or a JobSet, waits",
		Long: "Say why a quota Workload is not admitted: its positions, the limit that fails and by how much, and who holds what is\n" +
			"missing. NAME may also be that of a JobSet; then each of its quota Workloads is explained. Who may not read\n" +
			"clusterqueues/pendingworkloads is told no names of other namespaces. The manager must serve the visibility API.",
		Example: "  tranche explain -n team-a fine-tune-llm\n  tranche explain -n team-a jobset-fine-tune-llm-train-1a2b3",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := flags.connect()
			if err != nil {
				return err
			}
			return c.explain(cmd.Context(), cmd.OutOrStdout(), args[0])
		},
	}
	flags.add(cmd)
	return cmd
}

// explain prints why a quota Workload waits, or each of those of a JobSet.
func (c *cluster) explain(ctx context.Context, out io.Writer, name string) error {
	key := types.NamespacedName{Namespace: c.namespace, Name: name}
	var list kueue.WorkloadList
	var one kueue.Workload
	switch err := c.Get(ctx, key, &one); {
	case err == nil:
		list.Items = []kueue.Workload{one}
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("read quota Workload %s: %w", key, err)
	default:
		if err := c.List(ctx, &list, client.InNamespace(key.Namespace), client.MatchingLabels{apis.JobSetLabel: name}); err != nil {
			return fmt.Errorf("list the quota Workloads of JobSet %s: %w", key, err)
		}
	}
	if len(list.Items) == 0 {
		return fmt.Errorf("namespace %s has no quota Workload %s, and none of a JobSet %s", key.Namespace, name, name)
	}
	for i := range list.Items {
		if err := c.explainOne(ctx, out, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) explainOne(ctx context.Context, out io.Writer, w *kueue.Workload) error {
	if state := stateOf(w); state != "" {
		return printLines(out, headline(w), "  "+state)
	}
	told, err := c.lookUp(ctx, w)
	if err != nil {
		return err
	}
	if told == nil {
		return printLines(out, headline(w), "  is not in line: "+whyNotInLine(w))
	}
	var x visibilityapi.Explanation
	if text := told.Annotations[apis.ExplanationAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &x); err != nil {
			return fmt.Errorf("read the explanation of quota Workload %s: %w", client.ObjectKeyFromObject(w), err)
		}
	}
	lines := []string{
		headline(w),
		fmt.Sprintf("  position %d in its ClusterQueue, %d in LocalQueue %s (0 is next), priority %d",
			told.PositionInClusterQueue, told.PositionInLocalQueue, told.LocalQueueName, told.Priority),
	}
	return printLines(out, append(lines, explanationLines(&x)...)...)
}

// lookUp asks through the ClusterQueue, which tells more, and through the LocalQueue if that is forbidden. It returns nil for a quota
// Workload that is not in line.
func (c *cluster) lookUp(ctx context.Context, w *kueue.Workload) (*visibility.PendingWorkload, error) {
	local := types.NamespacedName{Namespace: w.Namespace, Name: string(w.Spec.QueueName)}
	q := query{only: client.ObjectKeyFromObject(w)}
	var lq kueue.LocalQueue
	if err := c.Get(ctx, local, &lq); err != nil {
		return nil, fmt.Errorf("read LocalQueue %s: %w", local, err)
	}
	summary, err := c.pending(ctx, types.NamespacedName{Name: string(lq.Spec.ClusterQueue)}, q)
	if isDenied(err) {
		summary, err = c.pending(ctx, local, q)
	}
	if err != nil || len(summary.Items) == 0 {
		return nil, err
	}
	return &summary.Items[0], nil
}

// isDenied tells that the LocalQueue has to be asked: the ClusterQueue may not be read, or does not exist.
func isDenied(err error) bool {
	return err != nil && (apierrors.IsForbidden(err) || apierrors.IsNotFound(err) && !isUnserved(err))
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

// stateOf says how far a quota Workload has come that waits for no quota, or is empty.
func stateOf(w *kueue.Workload) string {
	is := func(conditionType string) bool {
		return apimeta.IsStatusConditionTrue(w.Status.Conditions, conditionType)
	}
	switch {
	case is(kueue.WorkloadFinished):
		return "has finished"
	case is(kueue.WorkloadAdmitted):
		return "is admitted"
	case is(kueue.WorkloadQuotaReserved):
		return "has its quota, and waits for AdmissionChecks"
	}
	return ""
}

// whyNotInLine is what the quota Workload itself says.
func whyNotInLine(w *kueue.Workload) string {
	switch gates := w.Annotations[apis.AdmissionGatedByAnnotation]; {
	case gates == apis.StageGate:
		return "it waits for earlier stages of its JobSet"
	case gates != "":
		return "gated by " + gates
	case w.Spec.Active != nil && !*w.Spec.Active:
		return "spec.active is false"
	}
	if c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadRequeued); c != nil && c.Status == "False" {
		return c.Message
	}
	return "the manager has not seen all of it yet, or waits until status.requeueState.requeueAt"
}

// explanationLines are for people what an explanation is for programs.
func explanationLines(x *visibilityapi.Explanation) []string {
	if x.Check == "" {
		return []string{"  nothing is in its way but the next decision"}
	}
	lines := []string{fmt.Sprintf("  %s: %s", x.Reason, x.Message)}
	if x.Behind != nil {
		lines = append(lines, "  behind Workload "+x.Behind.String())
	}
	for i, a := range x.Alternatives {
		if len(x.Alternatives) > 1 {
			lines = append(lines, fmt.Sprintf("  choice %d of flavors:", i+1))
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
		lines = append(lines, fmt.Sprintf("    and %d more", s.MoreHolders))
	}
	if s.Unreleasable != nil {
		lines = append(lines, fmt.Sprintf("    %s would be missing even then", s.Unreleasable.String()))
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
		text += ", some of it kept for later"
	}
	if h.Leaving {
		text += ", which has been evicted"
	}
	return text
}

func printLines(out io.Writer, lines ...string) error {
	if _, err := io.WriteString(out, strings.Join(lines, "\n")+"\n"); err != nil {
		return errors.Join(errors.New("print the explanation"), err)
	}
	return nil
}
