package node_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/tranche-dev/tranche/lifecycle/ledger"
)

// meterEvery is how often a meter reads.
const meterEvery = 40 * time.Millisecond

// A meter compares, as long as a spec runs, the containers of a team that run with the GPUs that are charged for them: each container occupies one.
type meter struct {
	namespace string
	stopped   chan struct{}

	mu     sync.Mutex
	reads  int
	unpaid []string
	failed error
}

// startMeter reads until the context ends.
func startMeter(ctx context.Context, namespace string) *meter {
	m := &meter{namespace: namespace, stopped: make(chan struct{})}
	go func() {
		defer close(m.stopped)
		tick := time.NewTicker(meterEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			m.read(ctx)
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	return m
}

// read counts the containers that run before and after the charge was read, so that at that moment they all occupied a GPU.
func (m *meter) read(ctx context.Context) {
	running := containersOf(m.namespace)
	charged, err := chargedTo(ctx, m.namespace)
	if err != nil {
		if ctx.Err() == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.failed = err
		}
		return
	}
	running = slices.DeleteFunc(running, func(pid int) bool { return !isContainerOf(pid, m.namespace) })
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads++
	if int64(len(running)) > charged {
		m.unpaid = append(m.unpaid, fmt.Sprintf("%s: %d containers, %d GPUs charged", time.Now().Format(time.TimeOnly), len(running), charged))
	}
}

// expectPaid checks that no container has ever run without a charge.
func (m *meter) expectPaid() {
	GinkgoHelper()
	m.mu.Lock()
	defer m.mu.Unlock()
	Expect(m.failed).NotTo(HaveOccurred())
	Expect(m.reads).NotTo(BeZero())
	Expect(strings.Join(m.unpaid[:min(5, len(m.unpaid))], "\n")).To(BeEmpty(), "%d times more containers of %s ran than were charged", len(m.unpaid), m.namespace)
}

// chargedTo returns the GPUs that the quota Workloads of a namespace hold.
func chargedTo(ctx context.Context, namespace string) (int64, error) {
	var list kueue.WorkloadList
	if err := env.Admin.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return 0, err
	}
	sum := ledger.Sum{}
	for i := range list.Items {
		sum.Add(&list.Items[i])
	}
	gpus := int64(0)
	for fr, amount := range sum {
		if fr.Resource == gpu {
			gpus += amount / 1000
		}
	}
	return gpus, nil
}

// containersOf returns the processes of the containers of a team.
func containersOf(namespace string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && isContainerOf(pid, namespace) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// isContainerOf reports whether a process is that of a container of a team, and has not ended.
func isContainerOf(pid int, namespace string) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && bytes.HasPrefix(line, []byte("/payload\x00-team="+namespace+"\x00"))
}
