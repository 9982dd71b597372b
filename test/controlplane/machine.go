package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// containerdConfig is for a machine on which this process may not lower scores of the killer of processes that are out of memory.
const containerdConfig = `version = 2
root = %q
state = "/run/containerd"
disabled_plugins = [
  "io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = %q
    conf_dir = %q
`

// configureMachine writes the files of the real node, whose kubelet listens on a port.
func (p *ControlPlane) configureMachine(port int, cgroup string) error {
	dirs := map[string]string{}
	for _, name := range []string{"images", "cni", "kubelet", "logs", "manifests", "volume-plugins"} {
		dirs[name] = p.path(Machine, name)
		if err := os.MkdirAll(dirs[name], 0o755); err != nil {
			return fmt.Errorf("make a directory of the real node: %w", err)
		}
	}
	for i, image := range append([]Image{{Name: PayloadImage, Program: filepath.Join(p.binDir, "payload")}}, p.config.RealNode.Images...) {
		if err := image.write(filepath.Join(dirs["images"], strconv.Itoa(i)+".tar")); err != nil {
			return err
		}
	}
	pods, gateway := network(port)
	p.gateway = gateway.String()
	containerd := fmt.Sprintf(containerdConfig, p.path(Machine, "containerd"), PayloadImage, cniDir, dirs["cni"])
	return errors.Join(
		os.WriteFile(p.path(Machine, "containerd.toml"), []byte(containerd), 0o600),
		writeJSON(filepath.Join(dirs["cni"], "pods.conflist"), map[string]any{
			"cniVersion": "0.4.0", "name": "pods",
			"plugins": []any{map[string]any{"type": "ptp", "ipam": map[string]any{
				"type": "host-local", "dataDir": "/run/cni", "ranges": []any{[]any{map[string]any{"subnet": pods.String()}}},
				"routes": []any{map[string]any{"dst": "0.0.0.0/0"}},
			}}},
		}),
		writeJSON(p.path(Machine, "kubelet.json"), p.kubeletConfig(port, cgroup, dirs)),
		p.writeKubeletCertificates(),
	)
}

// kubeletConfig is for a machine that does much else, and may have cgroups of version 1 and swap.
func (p *ControlPlane) kubeletConfig(port int, cgroup string, dirs map[string]string) map[string]any {
	noThreshold := map[string]any{}
	for _, signal := range []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"} {
		noThreshold[signal] = "0%"
	}
	return map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"address": loopback, "port": port, "readOnlyPort": 0, "healthzPort": 0,
		"authentication": map[string]any{
			"x509": map[string]any{"clientCAFile": p.path(Machine, "clients-ca.crt")}, "anonymous": map[string]any{"enabled": false}, "webhook": map[string]any{"enabled": false},
		},
		"authorization":            map[string]any{"mode": "AlwaysAllow"}, // of clients with a certificate
		"containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
		"cgroupDriver":             "cgroupfs", "cgroupRoot": "/" + cgroup, "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "failCgroupV1": false,
		"failSwapOn": false, "evictionHard": noThreshold, "localStorageCapacityIsolation": false, "resolvConf": "",
		"podLogsDir": dirs["logs"], "staticPodPath": "", "volumePluginDir": dirs["volume-plugins"],
		// Volumes with ConfigMaps are updated with each synchronization of a pod.
		"syncFrequency": "3s", "nodeStatusUpdateFrequency": "2s", "configMapAndSecretChangeDetectionStrategy": "Watch",
		"kubeAPIQPS": 100, "kubeAPIBurst": 200, "registryPullQPS": 0,
	}
}

// writeKubeletCertificates writes the certificate of the users that the kubelet serves.
func (p *ControlPlane) writeKubeletCertificates() error {
	pair, err := p.authority.client("kube-apiserver-kubelet-client", nil)
	if err != nil {
		return err
	}
	p.apiserver.Configure().
		Set("kubelet-client-certificate", p.path(Machine, "apiserver.crt")).
		Set("kubelet-client-key", p.path(Machine, "apiserver.key"))
	return errors.Join(
		pair.write(p.path(Machine), "apiserver.crt", "apiserver.key"),
		os.WriteFile(p.path(Machine, "clients-ca.crt"), p.authority.pair.certificate, 0o600),
	)
}

func writeJSON(path string, content any) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, data, 0o600)
}

const (
	cgroupsDir = "/sys/fs/cgroup"
	// cgroupPrefix is followed by the port of the kubelet.
	cgroupPrefix = "tranche-node-"
)

// cgroups returns the directories of a control group, or of those that match a pattern: one, or one for each hierarchy of version 1.
func cgroups(pattern string) []string {
	unified, _ := filepath.Glob(filepath.Join(cgroupsDir, pattern))
	hierarchies, _ := filepath.Glob(filepath.Join(cgroupsDir, "*", pattern))
	return append(unified, hierarchies...)
}

// removeStaleCgroups removes the control groups of real nodes whose processes were killed together with the one that would have removed them.
func removeStaleCgroups() error {
	var problems []error
	for _, dir := range cgroups(cgroupPrefix + "*") {
		name := filepath.Base(dir)
		port, err := strconv.Atoi(strings.TrimPrefix(name, cgroupPrefix))
		// The port of a node that runs cannot be reserved.
		if err == nil && reservePort(port) == nil {
			problems = append(problems, removeCgroup(name))
		}
	}
	return errors.Join(problems...)
}

// removeCgroup removes a control group without processes, with all below it.
func removeCgroup(name string) error {
	deadline := time.Now().Add(patience)
	for {
		err := removeEmptyCgroups(name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(pollInterval) // the kernel may still count a process that has ended
	}
}

func removeEmptyCgroups(name string) error {
	var problems []error
	for _, root := range cgroups(name) {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		problems = append(problems, err)
		for _, dir := range slices.Backward(dirs) {
			if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
				problems = append(problems, fmt.Errorf("remove control group %s: %w", dir, err))
			}
		}
	}
	return errors.Join(problems...)
}
