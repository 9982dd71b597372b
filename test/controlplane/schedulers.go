package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/tranche-dev/tranche/apis"
)

// defineGangSchedulers describes the schedulers of gangs beside that of Kubernetes, as their projects install them: kube-scheduler with the plugin
// Coscheduling, and Volcano's scheduler with its controllers, which open its queues. They may do everything: their rights are no part of what is tested.
func (p *ControlPlane) defineGangSchedulers() error {
	if !p.config.GangSchedulers {
		return nil
	}
	config := p.path(Coscheduling, "config.yaml")
	if err := p.writeCoschedulingConfig(config); err != nil {
		return err
	}
	volcano := []string{"--leader-elect=false", "--enable-healthz=true", "--kube-api-qps=500", "--kube-api-burst=1000"}
	scheduling := []string{"--scheduler-conf=" + filepath.Join(p.schedulers, "manifests", Volcano, "scheduler.conf"), "--cache-dumper=false", "--schedule-period=200ms"}
	return errors.Join(
		p.addGangScheduler(Coscheduling, func(port int) (ready string, args []string) {
			return "https://" + address(port) + "/readyz", []string{
				"--config=" + config, "--cert-dir=" + p.path(Coscheduling), "--bind-address=" + loopback, fmt.Sprintf("--secure-port=%d", port),
			}
		}),
		p.addGangScheduler(Volcano, func(port int) (ready string, args []string) {
			return "http://" + address(port) + "/healthz", append(scheduling, append(volcano, "--healthz-address="+address(port))...)
		}),
		p.addGangScheduler(VolcanoControllers, func(port int) (ready string, args []string) {
			return "http://" + address(port) + "/healthz", append(volcano, "--healthz-address="+address(port))
		}),
	)
}

// addGangScheduler describes a program by its flags, and by the URL that answers once it is ready.
func (p *ControlPlane) addGangScheduler(name string, of func(port int) (ready string, args []string)) error {
	port, err := FreePort()
	if err != nil {
		return err
	}
	ready, args := of(port)
	c := &program{ready: answers(ready), args: args}
	if err := p.describeProgram(name, c, name, "system:masters"); err != nil {
		return err
	}
	c.path = filepath.Join(p.schedulers, name)
	p.components = append(p.components, c)
	return nil
}

func (p *ControlPlane) writeCoschedulingConfig(path string) error {
	plugin := []any{map[string]any{"name": "Coscheduling"}}
	content, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
		"leaderElection":   map[string]any{"leaderElect": false},
		"clientConnection": map[string]any{"kubeconfig": p.path(Coscheduling, "kubeconfig"), "qps": 500, "burst": 1000},
		"profiles": []any{map[string]any{
			"schedulerName": apis.CoschedulingScheduler,
			"plugins": map[string]any{
				"multiPoint": map[string]any{"enabled": plugin},
				"queueSort":  map[string]any{"enabled": plugin, "disabled": []any{map[string]any{"name": "*"}}},
			},
		}},
	})
	if err != nil {
		return fmt.Errorf("encode the configuration of %s: %w", Coscheduling, err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", Coscheduling, err)
	}
	return nil
}

// volcanoCRDs returns the directory with the CRDs of Volcano, if its scheduler is wanted.
func (p *ControlPlane) volcanoCRDs() []string {
	if !p.config.GangSchedulers {
		return nil
	}
	return []string{filepath.Join(p.schedulers, "manifests", Volcano, "crd")}
}
