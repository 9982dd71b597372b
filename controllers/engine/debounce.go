package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// The status of a queue lags behind by this delay. One write covers all changes in that time. If changes do not stop, the delay doubles
// from write to write up to the maximum, which limits the load on the API server.
const (
	statusDelay    = time.Second
	maxStatusDelay = 5 * time.Second
)

// Changes is a source of requests for the one controller that writes the status of a kind: one request for each object whose status may
// differ, a while after the runner has reported it.
func Changes(runner *Runner, kind Kind) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		d := &debouncer{beats: map[types.NamespacedName]*beat{}, do: func(key types.NamespacedName) {
			if ctx.Err() == nil {
				queue.Add(reconcile.Request{NamespacedName: key})
			}
		}}
		runner.onChange(kind, d.report)
		return nil
	})
}

// A debouncer calls do for each key that is reported, less often for keys that are reported repeatedly. It forgets a key once there was no
// report for one delay.
type debouncer struct {
	do func(types.NamespacedName)

	mu    sync.Mutex
	beats map[types.NamespacedName]*beat
}

// A beat is the running delay of a key, and whether there has been a report since it began.
type beat struct {
	delay      time.Duration
	isReported bool
}

func (d *debouncer) report(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b := d.beats[key]; b != nil {
		b.isReported = true
		return
	}
	d.beats[key] = &beat{delay: statusDelay, isReported: true}
	time.AfterFunc(statusDelay, func() { d.end(key) })
}

// end is called at the end of each delay.
func (d *debouncer) end(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.beats[key]
	if !b.isReported {
		delete(d.beats, key)
		return
	}
	b.isReported = false
	b.delay = min(2*b.delay, maxStatusDelay)
	time.AfterFunc(b.delay, func() { d.end(key) })
	d.do(key)
}
