package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A RealNode is a node on which containers run: a kubelet and containerd, as root on Linux. Its processes and mounts are in namespaces of their own, so that
// nothing of it is left when it ends, however it ends. It shares the network of this machine.
type RealNode struct {
	// Labels are those of the Node besides the ones that a kubelet sets.
	Labels map[string]string
	// Extended are resources that no device plugin offers, such as nvidia.com/gpu: 8.
	Extended corev1.ResourceList
	// Images are all that its containers can run, besides PayloadImage.
	Images []Image
}

// RealNodeName is the name of the real node, by which the API server dials the kubelet.
const RealNodeName = "localhost"

// PayloadImage is the image of test/cluster/payload, which is also what keeps the namespaces of a pod.
const PayloadImage = "example.com/payload:test"

// What a real node needs of this machine. The programs in cniDir are not in PATH.
const (
	debianPackages = "containerd runc containernetworking-plugins"
	cniDir         = "/usr/lib/cni"
)

// A machine is the component that is the real node.
type machine struct {
	*program

	cgroup string // of all its containers
}

func (m *machine) stop() error { return errors.Join(m.program.stop(), removeCgroup(m.cgroup)) }

func (m *machine) kill() error { return errors.Join(m.program.kill(), removeCgroup(m.cgroup)) }

// defineMachine describes the real node, if there is to be one.
func (p *ControlPlane) defineMachine() error {
	if p.config.RealNode == nil {
		return nil
	}
	if err := requireMachine(); err != nil {
		return err
	}
	port, err := FreePort()
	if err != nil {
		return err
	}
	if err := removeStaleCgroups(); err != nil {
		return err
	}
	m := &machine{program: &program{isolated: true, ready: p.registerMachine}, cgroup: cgroupPrefix + strconv.Itoa(port)}
	if err := p.configureMachine(port, m.cgroup); err != nil {
		return err
	}
	m.args = []string{
		"--containerd-config=" + p.path(Machine, "containerd.toml"),
		"--kubelet-config=" + p.path(Machine, "kubelet.json"),
		"--images=" + p.path(Machine, "images"),
		"--node-name=" + RealNodeName,
		"--root-dir=" + p.path(Machine, "kubelet"),
	}
	p.components = append(p.components, m)
	return p.describeProgram(Machine, m.program, "system:node:"+RealNodeName, nodesGroup)
}

// requireMachine checks that a real node can run here.
func requireMachine() error {
	var missing []string
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr", "runc", filepath.Join(cniDir, "ptp"), filepath.Join(cniDir, "host-local")} {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	switch {
	case !canIsolate:
		return errors.New("run a real node: that needs Linux")
	case os.Geteuid() != 0:
		return errors.New("run a real node: containerd and the kubelet must run as root, and so must these tests")
	case len(missing) > 0:
		return fmt.Errorf("run a real node: %s: not found; `make node` installs the Debian packages %s", strings.Join(missing, ", "), debianPackages)
	}
	return nil
}

// Gateway returns the address by which containers on the real node reach what listens on all addresses of this machine.
func (p *ControlPlane) Gateway() string { return p.gateway }

// network returns the addresses of the pods of the node whose kubelet listens on a port, which no other has: 126 of those that are shared by the networks of
// providers (RFC 6598), and of these the first, which is that of the machine.
func network(port int) (pods netip.Prefix, gateway netip.Addr) {
	first := 100<<24 | 64<<16 | uint32(port)<<7 // #nosec G115 -- a port below 1<<15, as FreePort returns them
	address := netip.AddrFrom4([4]byte{byte(first >> 24), byte(first >> 16), byte(first >> 8), byte(first)})
	return netip.PrefixFrom(address, 25), address.Next()
}

// nodesGroup is the group of all kubelets.
const nodesGroup = "system:nodes"

// realNodeObjects returns what gives a kubelet its permissions where RBAC alone decides.
func (p *ControlPlane) realNodeObjects() []client.Object {
	if p.config.RealNode == nil {
		return nil
	}
	binding := bind("system:node", nodesGroup)
	binding.Name, binding.Subjects[0].Kind = "tranche-real-nodes", rbacv1.GroupKind
	return []client.Object{binding}
}

// registerMachine completes the Node that the kubelet has made. Kubernetes documents the patch of its status for resources without a device plugin.
func (p *ControlPlane) registerMachine(ctx context.Context) error {
	admin, err := client.New(p.AdminConfig(), client.Options{})
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	var node corev1.Node
	if err := admin.Get(ctx, client.ObjectKey{Name: RealNodeName}, &node); err != nil {
		return fmt.Errorf("look for the real node: %w", err)
	}
	if !isReady(&node) {
		return fmt.Errorf("node %s is not ready: %v", RealNodeName, node.Status.Conditions)
	}
	before := node.DeepCopy()
	maps.Copy(node.Labels, p.config.RealNode.Labels)
	if err := admin.Patch(ctx, &node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("label the real node: %w", err)
	}
	before = node.DeepCopy()
	for name, amount := range p.config.RealNode.Extended {
		node.Status.Capacity[name], node.Status.Allocatable[name] = amount, amount
	}
	if err := admin.Status().Patch(ctx, &node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("add resources to the real node: %w", err)
	}
	return nil
}
