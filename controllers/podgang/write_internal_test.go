package podgang

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8sevents "k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/controllers/engine"
	"github.com/tranche-dev/tranche/controllers/internal/apply"
	"github.com/tranche-dev/tranche/controllers/metrics"
	"github.com/tranche-dev/tranche/lifecycle/podgang"
	"github.com/tranche-dev/tranche/lifecycle/podgroup"
	"github.com/tranche-dev/tranche/lifecycle/quotastep"
)

// A refusing client records the requests, and rejects those that name one of its objects.
type refusing struct {
	client.Client
	refuses map[string]error

	mu    sync.Mutex
	asked []string
}

func (c *refusing) ask(verb string, object client.Object) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, verb+" "+object.GetName())
	return c.refuses[verb+" "+object.GetName()]
}

func (c *refusing) Create(_ context.Context, object client.Object, _ ...client.CreateOption) error {
	return c.ask("create", object)
}

func (c *refusing) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return c.ask("patch", object)
}

func (c *refusing) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	return c.ask("delete", object)
}

func (c *refusing) Status() client.SubResourceWriter { return refusingStatus{c} }

type refusingStatus struct {
	*refusing
}

func (c refusingStatus) Create(context.Context, client.Object, client.Object, ...client.SubResourceCreateOption) error {
	return errors.ErrUnsupported
}

func (c refusingStatus) Update(context.Context, client.Object, ...client.SubResourceUpdateOption) error {
	return errors.ErrUnsupported
}

func (c refusingStatus) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	return errors.ErrUnsupported
}

func (c refusingStatus) Patch(_ context.Context, object client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return c.ask("mark", object)
}

// TestRefused: a rejected write does not prevent the release of quota, and a problem of a pod is reported.
func TestRefused(t *testing.T) {
	object := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ml", Name: name, UID: types.UID(name)}
	}
	pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: object(name)} }
	extra, core := &kueue.Workload{ObjectMeta: object("extra")}, &kueue.Workload{ObjectMeta: object("core")}
	changed := core.DeepCopy()
	changed.Spec.Priority = new(int32(1))
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, "annotated", nil)
	takenAway := []string{"delete dropped", "delete evicted", "mark evicted"}
	cases := map[string]struct {
		refuses  map[string]error
		want     []string
		wantTell string
		wantErr  bool
	}{
		"nothing": {want: []string{"create extra", "patch annotated", "patch core", "patch other"}},
		"a pod, as it is": {
			refuses: map[string]error{"patch annotated": invalid}, wantTell: `pod "annotated" is still gated`,
			want: []string{"create extra", "patch annotated", "patch core", "patch other"},
		},
		"a pod, for now":   {refuses: map[string]error{"patch annotated": errors.New("busy")}, wantErr: true, want: []string{"create extra", "patch annotated", "patch core", "patch other"}},
		"a quota Workload": {refuses: map[string]error{"patch core": errors.New("busy")}, wantErr: true, want: []string{"create extra", "patch core"}},
		"a quota Workload, as it should be": {
			refuses: map[string]error{"patch core": invalid}, wantTell: `rejects the change of quota Workload "core"`, want: []string{"create extra", "patch core"},
		},
		"a new one": {
			refuses:  map[string]error{"create extra": apierrors.NewForbidden(schema.GroupResource{Resource: "workloads"}, "extra", errors.New("exceeded quota"))},
			wantTell: "exceeded quota", want: []string{"create extra", "patch annotated", "patch core", "patch other"},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			asked := &refusing{refuses: c.refuses}
			r := &Reconciler{
				client: asked, reports: flowcontrol.NewFakeAlwaysRateLimiter(), gangMemo: map[podgroup.Ref]*gangMemo{},
				config: Config{Recorder: k8sevents.NewFakeRecorder(len(takenAway)), Metrics: metrics.New(metrics.Replica{})},
				writer: apply.Writer{Client: asked, Runner: &engine.Runner{}, Parallel: 1},
			}
			ref := podgroup.Ref{Kind: podgroup.Lightweight, Namespace: "ml", Name: "train"}
			s := &snapshot{Snapshot: podgang.Snapshot{Gang: &podgroup.Gang{Ref: ref}}}
			step := &podgang.Step{
				Ungate: []podgang.Ungate{
					{Workload: core, Before: pod("annotated"), After: pod("annotated")}, {Workload: core, Before: pod("other"), After: pod("other")},
				},
				Delete: []podgang.Delete{{Pod: pod("evicted")}},
			}
			step.Do(quotastep.Create, extra)
			step.Change(core, changed)
			step.Do(quotastep.Delete, &kueue.Workload{ObjectMeta: object("dropped")})
			_, err := r.write(t.Context(), s, step)
			slices.Sort(asked.asked)
			want := slices.Concat(c.want, takenAway)
			slices.Sort(want)
			if diff := cmp.Diff(want, asked.asked); diff != "" {
				t.Errorf("asked for (-want +got):\n%s", diff)
			}
			if (err != nil) != c.wantErr || !strings.Contains(step.Message.Text, c.wantTell) || step.Message.IsWarning != (c.wantTell != "") {
				t.Errorf("error %v, told %+v", err, step.Message)
			}
		})
	}
}
