package controlplane

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Annotations of a pod, usually from the pod template of a Job, that set its lifecycle on a fake node. Times are Go
// durations ("1m30s") or plain seconds ("90").
const (
	// FakeReadyAfter is the time from being bound to a node to being Ready. Default: none.
	FakeReadyAfter = "tranche.dev/fake-ready-after"

	// FakeRunTime is the time from being Ready to the end of the pod. Default: 1s. Pods that no Job owns run forever.
	FakeRunTime = "tranche.dev/fake-run-time"

	// FakeExit is how the pod ends: FakeExitSucceed (the default), FakeExitFail, FakeExitFailFirst or FakeExitNever.
	FakeExit = "tranche.dev/fake-exit"

	// FakeGangExit, FakeGangRunTime and FakeGangStopAfter are FakeExit, FakeRunTime and FakeStopAfter for pods of gangs, which may not have
	// annotations that begin with tranche.dev/.
	FakeGangExit      = "fake.tranche.dev/exit"
	FakeGangRunTime   = "fake.tranche.dev/run-time"
	FakeGangStopAfter = "fake.tranche.dev/stop-after"

	// FakeInit, with any value, keeps the first init container of the pod running until a test writes into the pod's status that it has
	// ended, and the pod from being Ready by itself.
	FakeInit = "tranche.dev/fake-init"

	// FakeStopAfter is the time that the pod keeps running after its deletion. Default: none.
	FakeStopAfter = "tranche.dev/fake-stop-after"
)

// Values of the annotation FakeExit.
const (
	FakeExitSucceed   = "succeed"    // every container ends with code 0
	FakeExitFail      = "fail"       // every container ends with code 1
	FakeExitFailFirst = "fail-first" // fails in the first attempt of its JobSet, succeeds after a restart
	FakeExitNever     = "never"      // runs until it is deleted
)

// A NodePool is a number of equal fake nodes: NAME-0, NAME-1 and so on.
type NodePool struct {
	Name        string
	Count       int
	Labels      map[string]string
	Taints      []corev1.Taint
	Allocatable corev1.ResourceList // of each node; pods: 110 unless it has another value
}

// What kwok looks for in the annotations of nodes if it does not manage all.
const fakeNodeKey, fakeNodeValue = "kwok.x-k8s.io/node", "fake"

const kwokUser = "system:serviceaccount:kube-system:kwok-controller"

//go:embed stages.yaml
var kwokStages []byte

func (p *ControlPlane) defineKwok() error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.path(Kwok, "stages.yaml"), kwokStages, 0o600); err != nil {
		return fmt.Errorf("write the stages of the fake nodes: %w", err)
	}
	return p.addProgram(Kwok, kwokUser, &program{
		args: []string{
			"--config=" + p.path(Kwok, "stages.yaml"),
			p.managedNodes(),
			"--node-lease-duration-seconds=40",
			"--server-address=" + address(port),
		},
		ready: answers("http://" + address(port) + "/healthz"),
	})
}

// managedNodes returns the flag of kwok for the nodes that it manages: all of them, unless one is real.
func (p *ControlPlane) managedNodes() string {
	if p.config.RealNode == nil {
		return "--manage-all-nodes=true"
	}
	return "--manage-nodes-with-annotation-selector=" + fakeNodeKey + "=" + fakeNodeValue
}

// freeNodes deletes the leases of the fake nodes, so that the next kwok takes all of them at once, as the first one did. If it has to wait
// until the lease of one that was killed expires, it may never look at the pods that the node has already.
func (p *ControlPlane) freeNodes(ctx context.Context) error {
	admin, err := client.New(p.AdminConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := admin.DeleteAllOf(ctx, &coordinationv1.Lease{}, client.InNamespace(corev1.NamespaceNodeLease)); err != nil {
		return fmt.Errorf("delete the leases of the fake nodes: %w", err)
	}
	return nil
}

func (p *ControlPlane) nodes() []client.Object {
	var nodes []client.Object
	for _, pool := range p.config.NodePools {
		for i := range pool.Count {
			nodes = append(nodes, pool.node(i))
		}
	}
	return nodes
}

// node returns a node as a kubelet would register it; kwok does the rest.
func (n NodePool) node(i int) *corev1.Node {
	name := n.Name + "-" + strconv.Itoa(i)
	labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64"}
	maps.Copy(labels, n.Labels)
	allocatable := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	maps.Copy(allocatable, n.Allocatable)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{fakeNodeKey: fakeNodeValue}},
		Spec:       corev1.NodeSpec{Taints: slices.Clone(n.Taints)},
		Status: corev1.NodeStatus{
			Allocatable: allocatable,
			Capacity:    allocatable,
			NodeInfo:    corev1.NodeSystemInfo{OperatingSystem: "linux", Architecture: "amd64", KubeletVersion: "fake"},
		},
	}
}

// awaitNodes waits until pods can be bound to every fake node.
func (p *ControlPlane) awaitNodes(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	admin, err := client.New(p.AdminConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		late, err := p.lateNodes(ctx, admin)
		if err == nil && len(late) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the nodes %v to be ready: %w; the log of kwok ends:\n%s", late, ctx.Err(), tail(p.logPath(Kwok)))
		case <-tick.C:
		}
	}
}

func (p *ControlPlane) lateNodes(ctx context.Context, admin client.Client) ([]string, error) {
	var nodes corev1.NodeList
	if err := admin.List(ctx, &nodes); err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ready := map[types.NamespacedName]struct{}{}
	for i := range nodes.Items {
		if isReady(&nodes.Items[i]) {
			ready[client.ObjectKeyFromObject(&nodes.Items[i])] = struct{}{}
		}
	}
	var late []string
	for _, node := range p.nodes() {
		if _, ok := ready[client.ObjectKeyFromObject(node)]; !ok {
			late = append(late, node.GetName())
		}
	}
	if _, ok := ready[client.ObjectKey{Name: RealNodeName}]; !ok && p.config.RealNode != nil {
		late = append(late, RealNodeName)
	}
	return late, nil
}

func isReady(node *corev1.Node) bool {
	tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return taint.Key == corev1.TaintNodeNotReady
	})
	return !tainted && slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}
