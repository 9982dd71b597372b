// Package soak_test lets tenants run many staged JobSets on a real control plane while processes are killed, objects are deleted
// and quotas change, and then looks for what is wrong, stuck or left over.
//
// SOAK_DURATION says for how long (one minute), SOAK_SEED repeats what was done in an earlier run as far as the timing allows,
// SOAK_DIR keeps the logs, and SOAK_CHAOS names what may happen, separated by commas (everything).
package soak_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tranche-dev/tranche/test/audit"
	"github.com/tranche-dev/tranche/test/controlplane"
	"github.com/tranche-dev/tranche/test/world"
)

const (
	// jobSetsPerMinute makes 300 JobSets in 15 minutes.
	jobSetsPerMinute = 20

	poll = 100 * time.Millisecond
	// stuckAfter is for how long nothing may come to its end when the chaos is over.
	stuckAfter = 3 * time.Minute
	// auditTimeout is how long the auditor may take to catch up.
	auditTimeout = time.Minute
)

// A soak is one run. One goroutine does everything.
type soak struct {
	t       *testing.T
	env     *world.World
	admin   client.Client
	auditor *audit.Auditor
	random  *rand.Rand
	began   time.Time

	manager *world.Manager // nil while it is down
	jobSets []client.ObjectKey
	// doomed are the JobSets that fail in their first attempt.
	doomed map[client.ObjectKey]bool
	// most is how many pods each stage of a JobSet may have.
	most map[client.ObjectKey]int
	// deleted are the JobSets that the chaos has deleted.
	deleted map[client.ObjectKey]bool
	strikes map[string]int
}

func TestSoak(t *testing.T) {
	duration := setting(t, "SOAK_DURATION", time.Minute, time.ParseDuration)
	seed := setting(t, "SOAK_SEED", rand.Uint64(), func(text string) (uint64, error) { return strconv.ParseUint(text, 10, 64) })
	t.Logf("soak for %s with SOAK_SEED=%d", duration, seed)
	s := newSoak(t, seed)
	s.stir(duration, max(int(duration.Minutes()*jobSetsPerMinute), 1))
	s.settle()
	s.expectEnd()
	s.log("all JobSets have completed")
	s.expectFewRestarts()
	s.expectNothingHeld()
	s.expectNothingLeft()
	s.log("nothing is left over")
	s.expectNoViolations()
	t.Logf("%d JobSets in %s, %d deleted by the chaos, strikes: %v", len(s.jobSets), time.Since(s.began).Round(time.Second), len(s.deleted), s.strikes)
}

// setting reads an environment variable.
func setting[T any](t *testing.T, name string, fallback T, parse func(string) (T, error)) T {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return fallback
	}
	value, err := parse(text)
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return value
}

// newSoak brings everything up, with the tenants and their queues.
func newSoak(t *testing.T, seed uint64) *soak {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	t.Cleanup(cancel)
	env, err := world.Start(ctx, controlplane.Config{
		NodePools: nodePools(), WorkDir: os.Getenv("SOAK_DIR"), JobSetFeatureGates: map[string]bool{"ElasticJobSet": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Stop(); err != nil {
			t.Error(err)
		}
	})
	s := &soak{
		t: t, env: env, admin: env.Admin, random: rand.New(rand.NewPCG(seed, seed)), began: time.Now(),
		doomed: map[client.ObjectKey]bool{}, most: map[client.ObjectKey]int{}, deleted: map[client.ObjectKey]bool{}, strikes: map[string]int{},
	}
	s.createTenants(ctx)
	if s.auditor, err = audit.Start(ctx, env.Admin); err != nil {
		t.Fatal(err)
	}
	if s.manager, err = env.StartManager(ctx, world.ManagerOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.manager != nil {
			_ = s.manager.Stop()
		}
	})
	return s
}

// stir submits JobSets during the first half of the time, and strikes all the time.
func (s *soak) stir(duration time.Duration, jobSets int) {
	s.t.Helper()
	end := time.Now().Add(duration)
	pending := s.random.Perm(jobSets)
	kinds := s.kinds()
	for time.Now().Before(end) && !s.t.Failed() {
		due := int(float64(jobSets) * 2 * (1 - float64(time.Until(end))/float64(duration)))
		for len(pending) > 0 && jobSets-len(pending) <= due && s.submit(pending[0]) {
			pending = pending[1:]
		}
		s.strike(kinds[s.random.IntN(len(kinds))])
		s.revive()
		// The chaos keeps time, it waits for nothing.
		<-time.After(time.Duration(100+s.random.IntN(900)) * time.Millisecond)
	}
	for _, i := range pending {
		s.await("submit a JobSet", func(context.Context) error {
			s.revive()
			if !s.submit(i) {
				return errors.New("refused")
			}
			return nil
		})
	}
}

// kinds are the kinds of chaos, each as often as it should happen.
func (s *soak) kinds() []kind {
	s.t.Helper()
	all := map[string]int{
		killManager: 3, killJobSet: 2, killAPIServer: 1, deleteJob: 4, deletePod: 4, cutQuota: 3, restoreQuota: 3,
		suspendJobSet: 4, resumeJobSet: 4, resizeJobSet: 8, deleteJobSet: 1, deleteWorkload: 1,
	}
	wanted := os.Getenv("SOAK_CHAOS")
	var kinds []kind
	for _, k := range []string{
		killManager, killJobSet, killAPIServer, deleteJob, deletePod, cutQuota, restoreQuota, suspendJobSet, resumeJobSet, resizeJobSet, deleteJobSet,
		deleteWorkload,
	} {
		if wanted == "" || strings.Contains(","+wanted+",", ","+k+",") {
			for range all[k] {
				kinds = append(kinds, k)
			}
		}
	}
	if len(kinds) == 0 {
		s.t.Fatalf("SOAK_CHAOS=%q names no kind of chaos", wanted)
	}
	return kinds
}

// await tries until there is no error, and fails the test after a while.
func (s *soak) await(what string, try func(context.Context) error) {
	s.t.Helper()
	deadline := time.Now().Add(stuckAfter)
	for {
		err := try(s.t.Context())
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%s: %v", what, err)
		}
		<-time.After(poll)
	}
}
