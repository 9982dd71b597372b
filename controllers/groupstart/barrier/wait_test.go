package barrier_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tranche-dev/tranche/controllers/groupstart/barrier"
)

// mount writes the files that a kubelet creates from the ConfigMap of a group.
func mount(t *testing.T, dir string, notice barrier.Notice) {
	t.Helper()
	for key, value := range notice.Data() {
		if err := os.WriteFile(filepath.Join(dir, key), []byte(value), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaitForTheFile: without a server, the file determines when the pod may start.
func TestWaitForTheFile(t *testing.T) {
	cases := map[string]struct {
		before, after barrier.Notice
		// want is a part of the error, and wantAfter how long the pod waits.
		want      string
		wantAfter time.Duration
	}{
		"released already":    {before: barrier.Notice{Token: "t", Released: []string{"a.1", "b.1"}}, wantAfter: 0},
		"released later":      {before: barrier.Notice{Token: "t"}, after: barrier.Notice{Token: "t", Released: []string{"a.1"}}, wantAfter: 30 * time.Second},
		"filled later":        {after: barrier.Notice{Token: "t", Released: []string{"a.1"}}, wantAfter: 30 * time.Second},
		"others are released": {before: barrier.Notice{Token: "t", Pods: 4, Released: []string{"a.2", "b.1"}}, want: "not all of the 4 pods of the group had started", wantAfter: time.Minute},
		"never filled":        {want: "timed out after 1m0s: not all pods of the group had started; their number is unknown: the ConfigMap of the group is not mounted in", wantAfter: time.Minute},
		"no server for pods":  {before: barrier.Notice{Token: "t"}, want: "groupStart.bindAddress", wantAfter: time.Minute},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir, begin := t.TempDir(), time.Now()
				if c.before.Token != "" {
					mount(t, dir, c.before)
				}
				time.AfterFunc(30*time.Second-time.Millisecond, func() {
					if c.after.Token != "" {
						mount(t, dir, c.after)
					}
				})
				err := (&barrier.Waiter{Dir: dir, Signal: "a.1", Timeout: time.Minute}).Wait(t.Context())
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("err = %v, want %q", err, c.want)
				}
				if _, timedOut := errors.AsType[*barrier.TimeoutError](err); timedOut != (c.want != "") {
					t.Errorf("err = %v", err)
				}
				if waited := time.Since(begin); waited != c.wantAfter {
					t.Errorf("waited %s, want %s", waited, c.wantAfter)
				}
			})
		})
	}
}

// TestWaitIsInterrupted: a deleted pod ends at once.
func TestWaitIsInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begin := time.Now()
		err := (&barrier.Waiter{Dir: t.TempDir(), Signal: "a.1", Timeout: time.Hour}).Wait(ctx)
		if !errors.Is(err, context.Canceled) || time.Since(begin) != time.Second {
			t.Errorf("err = %v after %s", err, time.Since(begin))
		}
	})
}

// TestWaitReportsAnErrorOnce: an error that keeps the pod from asking is reported once, however often the pod tries.
func TestWaitReportsAnErrorOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		waiter := &barrier.Waiter{Dir: t.TempDir(), Signal: "a.1", Timeout: time.Hour, OnError: func(err error) { told = append(told, err.Error()) }}
		if err := waiter.Wait(t.Context()); err == nil {
			t.Error("released, although neither the file nor the manager says so")
		}
		synctest.Wait()
		if len(told) != 1 || !strings.Contains(told[0], "is not mounted in "+waiter.Dir) {
			t.Errorf("told %q", told)
		}
	})
}

func TestWaitNeedsASignal(t *testing.T) {
	for name, waiter := range map[string]*barrier.Waiter{"no signal": {Timeout: 1}, "no timeout": {Signal: "a.1"}} {
		if err := waiter.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "required") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}
